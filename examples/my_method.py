"""A method of one's own in one file: copy it, rename it, change it.

    dualmix run my-method --plugin examples/my_method.py
    dualmix run my-method --plugin examples/my_method.py --method.memory 100 --method.bonus 5

It has the shape of every file in `dualmix/methods`: the paper (here: none), the method's own rule,
its settings and how it is built. Hold yours against the contract of all methods with
`dualmix.testing.check(MyMethod())`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualmix import Batch, Classifier, Learner, Memory, Rng, register, setting
from dualmix.methods import Rehearsal


@dataclass(frozen=True)
class AbsentRetrieve:
    """Rehearse only classes that the new batch lacks: those it has are being learned anyway."""

    count: int

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> np.ndarray:
        """Return distinct slots of the memory, or none if all that it holds is in the batch."""
        absent = np.flatnonzero(~np.isin(memory.y[: len(memory)].numpy(), new.y.cpu().numpy()))
        return rng.choice(absent, size=min(self.count, len(absent)), replace=False)


@register("my-method")
class MyMethod(Rehearsal):
    """Experience replay that rehearses only the classes that are absent from the new batch."""

    bonus: int = setting(0, "images rehearsed beyond memory_batch", ge=0)

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Put the parts together: reservoir update, our own retrieval."""
        retrieve = AbsentRetrieve(self.memory_batch + self.bonus)
        return self.replay(model, rng, self.reservoir_update(), retrieve)
