"""Experience replay with an asymmetric cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.methods.common import Rehearsal
from dualmix.registry import register

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("er-ace")
class ERACE(Rehearsal):
    """ER-ACE: experience replay in which a new batch competes only among its own classes and those
    never seen.
    """

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Experience replay with a loss of its own for the new batch."""
        from dualmix.learn.losses import among_themselves
        from dualmix.learn.policies.uniform import Uniform

        def loss(logits: Tensor, columns: Tensor) -> Tensor:
            return among_themselves(logits, columns, len(model.labels))

        return self.replay(
            model, rng, self.reservoir_update(), Uniform(self.memory_batch), stream_loss=loss
        )
