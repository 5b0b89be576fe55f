"""Experience replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.methods.common import Rehearsal
from dualmix.registry import register

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("er", paper="Tables 1-3, ER", values={"method.reservoir": "ref"}, source="reference")
class ER(Rehearsal):
    """Experience replay: each new batch beside a uniform draw from a reservoir."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        from dualmix.learn.policies.uniform import Uniform

        return self.replay(model, rng, self.reservoir_update(), Uniform(self.memory_batch))
