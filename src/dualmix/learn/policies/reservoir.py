"""Reservoir sampling: every row of the stream is equally likely to be in the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, Placement


@dataclass(frozen=True, slots=True)
class Reservoir:
    """Fill the memory, then let the n-th row take the slot drawn from [0, n) if there is such a
    slot.

    Parameters
    ----------
    rule
        ``exact``: the textbook rule. ``ref``: the reference code's, which draws for a whole batch
        from the number of rows seen before it, and so replaces slightly too eagerly: the first
        batch after filling is always kept in full.
    """

    rule: Literal["exact", "ref"] = "exact"

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped."""
        rows = len(new)
        fill = min(rows, memory.capacity - len(memory))
        slots = np.arange(len(memory), len(memory) + rows)
        bounds = memory.seen + (
            np.arange(fill, rows) + 1 if self.rule == "exact" else np.full(rows - fill, fill)
        )
        if memory.capacity:
            drawn = rng.integers(0, bounds)
            slots[fill:] = np.where(drawn < memory.capacity, drawn, -1)
        else:
            slots[:] = -1
        return Placement(slots)
