"""Experience replay.

A. Chaudhry et al., 2019, "On Tiny Episodic Memories in Continual Learning", arXiv:1902.10486.

The loss of a step is CE(new batch) + CE(rehearsed batch), each a mean cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Learner
from dualmix.methods.rehearsal import Rehearsal
from dualmix.registry import register

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@register(
    "er",
    paper="Tables 1-3, ER",
    cite="Chaudhry et al., 2019, arXiv:1902.10486",
    values={"method.reservoir": "ref"},
    source="reference",
)
class ER(Rehearsal):
    """Experience replay: each new batch beside a uniform draw from a reservoir."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        return self.replay(model, rng, self.reservoir_update(), Uniform(self.memory_batch))
