"""Uniform retrieval: distinct filled slots, each as likely as any other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, Slots


@dataclass(frozen=True, slots=True)
class Uniform:
    """Draw `count` slots without replacement, or all of them while there are fewer."""

    count: int

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return distinct filled slots."""
        return rng.choice(len(memory), size=min(self.count, len(memory)), replace=False)
