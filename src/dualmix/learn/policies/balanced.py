"""Class-balancing reservoir sampling: rare classes keep their rows, frequent ones are a reservoir
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, Placement


@dataclass(frozen=True, slots=True)
class Balanced:
    """CBRS (Chrysakis and Moens, 2020): a full memory gives rare classes the places of the largest
    one.

    A row of a class that was never the largest of a full memory evicts a row of the largest class;
    where several are tied, any of theirs. A row of another class takes the place of one of its own
    with probability m / n, where m is how many rows of its class the memory holds and n how many
    have come."""

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped, and what the rule remembers of the
        classes.
        """
        slots, head = np.full(len(new), -1), len(model.weight)
        if not memory.capacity:
            return Placement(slots)
        met, ever_largest = _widened(memory, "met", head), _widened(memory, "ever_largest", head)
        held = memory.y[: len(memory)].numpy().copy()
        for row, column in enumerate(new.y.cpu().numpy()):
            met[column] += 1
            if len(held) < memory.capacity:
                slots[row], held = len(held), np.append(held, column)
                continue
            counts = np.bincount(held, minlength=head)
            largest = counts == counts.max()
            ever_largest |= largest
            if not ever_largest[column]:
                slots[row] = rng.choice(np.flatnonzero(largest[held]))
            elif rng.random() * met[column] < counts[column]:
                slots[row] = rng.choice(np.flatnonzero(held == column))
            if slots[row] >= 0:
                held[slots[row]] = column
        marks = {"met": torch.from_numpy(met), "ever_largest": torch.from_numpy(ever_largest)}
        return Placement(slots, marks=marks)


def _widened(memory: Memory, name: str, head: int) -> NDArray[np.int64]:
    """Return a copy of a mark of the memory with a number for each head column."""
    found = np.zeros(head, dtype=np.int64)
    if name in memory.marks:
        found[: len(memory.marks[name])] = memory.marks[name].numpy()
    return found
