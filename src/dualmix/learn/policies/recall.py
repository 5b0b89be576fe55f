"""Remembering what the network said: logits are filed beside a row, and held against what it says
of the row later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from dualmix.learn.class_ages import Sightings
from dualmix.learn.losses import deviation
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, Placement, Update


@dataclass(frozen=True, slots=True)
class Told:
    """Let another update choose slots, and file the logits with which each row was learned, and how
    many there were.
    """

    update: Update

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return the other update's placement with two further notes."""
        if new.logits is None:
            raise ValueError("a batch that took no part in the step has no logits to file")
        placed = self.update(memory, new, model, rng)
        known = torch.full((len(new),), new.logits.shape[1], device=new.logits.device)
        return Placement(
            placed.slots, {**placed.notes, "logits": new.logits, "known": known}, placed.marks
        )


@dataclass(frozen=True, slots=True)
class Recall:
    """A further draw from the memory that must get the logits it got when it was new (DER, spec
    4.8).

    Parameters
    ----------
    memory
        Whose rows were placed by `Told`.
    weight
        What the mean squared difference is multiplied by.
    count
        Rows to draw without replacement, or all of them while there are fewer.
    """

    memory: Memory
    weight: float
    count: int

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, seen: Sightings, rng: np.random.Generator
    ) -> Batch | None:
        """Return rows with their earlier logits."""
        slots = rng.choice(len(self.memory), size=min(self.count, len(self.memory)), replace=False)
        index = torch.from_numpy(slots).to(model.device)
        told, known = (self.memory.notes[name][index] for name in ("logits", "known"))
        return Batch(self.memory[slots].x, told, loss=partial(deviation, known=known))
