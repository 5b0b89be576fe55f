"""Greedy sampler and dumb learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.methods.common import Descent
from dualmix.registry import register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("gdumb")
class GDumb(Descent):
    """GDumb: a class-balanced memory, and a fresh network trained on it in each pause of the
    stream.
    """

    weight_decay: float = value(1e-4, "L2 penalty on all weights", source="reference", ge=0)
    memory: int = value(1000, "images the memory holds", ge=1)
    epochs: int = value(30, "passes over the memory in a training", source="reference", ge=1)
    batch: int = value(16, "images a step of a training", source="reference", ge=1)
    clip: float = value(
        10.0, "norm to which longer gradients are cut; 0: none are", source="reference", ge=0
    )
    every: int = value(
        1,
        "pauses from one training to the next; as many as there are tasks trains only at the end",
        ge=1,
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Greedy balance, training in pauses."""
        from dualmix.learn.learners.gdumb import GDumb as Loop
        from dualmix.learn.memory import Memory
        from dualmix.learn.policies.greedy import Greedy

        return Loop(
            model,
            Memory(self.memory, model.shape, model.device),
            Greedy(),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            epochs=self.epochs,
            batch=self.batch,
            clip=self.clip,
            every=self.every,
        )
