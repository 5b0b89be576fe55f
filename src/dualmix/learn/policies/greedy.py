"""Greedy balance: every class may have its share of the memory, and the largest class makes room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, Placement


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep a row while its class has fewer than capacity // classes seen; when full, a row of the
    largest class goes.

    A class with no row at all is always let in, also where there are more classes than slots. Of
    several largest classes the one seen first makes room, with any of its rows. While there is a
    slot for each class none falls below its share by making room: it has as many rows as were
    offered, or its share, whichever is less."""

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped."""
        slots = np.full(len(new), -1)
        if not memory.capacity:
            return Placement(slots)
        share = max(memory.capacity // len(model.labels), 1)
        owners = memory.y[: len(memory)].tolist()
        counts = memory.counts(len(model.labels))
        for row, column in enumerate(new.y.tolist()):
            if counts[column] >= share:
                continue
            slot = len(owners)
            if slot < memory.capacity:
                owners.append(column)
            else:
                largest = int(counts.argmax())
                slot = int(rng.choice(np.flatnonzero(np.array(owners) == largest)))
                counts[largest] -= 1
                owners[slot] = column
            slots[row] = slot
            counts[column] += 1
        return Placement(slots)
