"""Dark experience replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import model_validator

from dualmix.methods.common import Rehearsal
from dualmix.registry import register
from dualmix.settings import Range, value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("der++")
class DERpp(Rehearsal):
    """DER++: experience replay, and a second draw that must get the logits it got when it was new."""

    alpha: float = value(
        0.3,
        "weight of the squared difference to earlier logits, times mix.replay (0.3: mammoth's, CIFAR-100)",
        ge=0,
        tune=Range(0.05, 1.0, log=True),
    )
    beta: float = value(
        0.5,
        "weight of the rehearsed batch, times mix.replay (0.5: mammoth's, CIFAR-100)",
        ge=0,
        tune=Range(0.1, 2.0, log=True),
    )

    @model_validator(mode="after")
    def _logits_to_file(self) -> DERpp:
        if not self.mix.stream:
            raise ValueError(
                "mix.stream is 0, but der++ files the logits with which the new batch is learned"
            )
        return self

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update that files logits, uniform retrieval, a further draw for the logits."""
        from dualmix.learn.memory import Memory
        from dualmix.learn.policies.recall import Recall, Told
        from dualmix.learn.policies.uniform import Uniform

        memory = Memory(self.memory, model.shape, model.device)
        return self.replay(
            model,
            rng,
            Told(self.reservoir_update()),
            Uniform(self.memory_batch),
            memory=memory,
            replay=self.beta * self.mix.replay,
            mixes={
                "recall": Recall(memory, self.alpha * self.mix.replay, self.memory_batch),
                **self.mix.build(),
            },
        )
