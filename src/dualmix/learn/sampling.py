"""Sampling that any method may use: reservoirs decide what the memory keeps, a uniform draw what
is rehearsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.types import Batch, Placement, Slots

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier


@dataclass(frozen=True, slots=True)
class Uniform:
    """Draw `count` slots without replacement, or all of them while there are fewer."""

    count: int
    blind: ClassVar[bool] = True

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return distinct filled slots."""
        return rng.choice(len(memory), size=min(self.count, len(memory)), replace=False)


@dataclass(frozen=True, slots=True)
class Reservoir:
    """Reservoir sampling (Vitter, 1985, "Random Sampling with a Reservoir"): every row of the
    stream is equally likely to be in the memory.

    Fill the memory, then let the n-th row take the slot drawn from [0, n) if there is such a slot.

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


@dataclass(frozen=True, slots=True)
class Balanced:
    """Class-balancing reservoir sampling (CBRS: Chrysakis and Moens, 2020, "Online Continual
    Learning from Imbalanced Data", ICML): a full memory gives rare classes the places of the
    largest one.

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
    mark = np.zeros(head, dtype=np.int64)
    if name in memory.marks:
        mark[: len(memory.marks[name])] = memory.marks[name].numpy()
    return mark
