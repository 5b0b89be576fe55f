"""Averaged gradient episodic memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.methods.common import Sampling
from dualmix.registry import register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("agem", paper="Table 1, A-GEM", values={"method.reservoir": "ref"}, source="reference")
class AGEM(Sampling):
    """A-GEM: the new batch's gradient, projected where it would raise the loss on a batch from the
    memory.
    """

    acts: Literal["after-pause", "always"] = value(
        "after-pause",
        "the projection acts after the first pause of the stream (from the second task on), or always",
        source="reference",
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        from dualmix.learn.learners.agem import AGEM as Loop  # noqa: N811
        from dualmix.learn.memory import Memory
        from dualmix.learn.policies.uniform import Uniform

        return Loop(
            model,
            Memory(self.memory, model.shape, model.device),
            self.reservoir_update(),
            Uniform(self.memory_batch),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            acts=self.acts,
            iterations=self.iterations,
        )
