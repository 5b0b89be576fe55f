"""The memory: a table of uint8 images, head columns and notes. It moves rows; policies decide
which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.errors import ConfigError
from dualmix.learn.types import Batch, Placement, Slots


class Memory:
    """At most `capacity` rows; the first `len(memory)` slots are filled.

    Attributes
    ----------
    x
        (capacity, H, W, C) uint8 images, exactly as they came.
    y
        (capacity,) head columns.
    notes
        Further columns that an update policy files beside a row; one that gets wider is padded with
        zeros.
    marks
        What an update policy remembers about the stream as a whole.
    seen
        How many rows have been offered so far.
    """

    def __init__(
        self, capacity: int, shape: tuple[int, int, int], device: torch.device | str = "cpu"
    ) -> None:
        if capacity < 0:
            raise ConfigError(f"memory is {capacity}, but must be 0 or more images.")
        channels, height, width = shape
        try:
            self.x = torch.zeros(
                (capacity, height, width, channels), dtype=torch.uint8, device=device
            )
        except (RuntimeError, TypeError) as fault:
            raise ConfigError(
                f"A memory of {capacity:,} images of {height}x{width}x{channels} bytes does not fit: make it smaller."
            ) from fault
        self.y = torch.zeros(capacity, dtype=torch.int64)
        self.notes: dict[str, Tensor] = {}
        self.marks: dict[str, Tensor] = {}
        self.seen = 0
        self._filled = 0

    @property
    def capacity(self) -> int:
        """The greatest number of rows."""
        return len(self.x)

    def __len__(self) -> int:
        return self._filled

    def __getitem__(self, slots: Slots) -> Batch:
        """Return images in [0, 1] (channels first, laid out channels last) and columns of the given
        slots.
        """
        index = torch.from_numpy(slots)
        rows = self.x.index_select(0, index.to(self.x.device))
        return Batch(rows.permute(0, 3, 1, 2).float().div_(255), self.y[index].to(self.x.device))

    def write(self, placement: Placement, raw: Tensor, columns: Tensor) -> None:
        """File rows as a policy decided; where two rows share a slot the later one stays.

        Parameters
        ----------
        placement
            A slot for each row, -1 to drop it. Empty slots must be filled without a gap.
        raw, columns
            uint8 images (n, H, W, C) and their head columns.
        """
        self.seen += len(raw)
        self.marks.update(placement.marks)
        last = {int(slot): row for row, slot in enumerate(placement.slots) if slot >= 0}
        if not last:
            return
        filled = max(self._filled, max(last) + 1)
        if filled > self.capacity or any(slot not in last for slot in range(self._filled, filled)):
            raise IndexError(
                f"slots {sorted(last)} leave a gap or exceed the capacity {self.capacity}"
            )
        slots, rows = torch.tensor(list(last)), torch.tensor(list(last.values()))
        self.x[slots.to(self.x.device)] = raw[rows].to(self.x.device)
        self.y[slots] = columns[rows]
        for name, note in placement.notes.items():
            shape = (self.capacity, *note.shape[1:])
            if name not in self.notes:
                self.notes[name] = torch.zeros(shape, dtype=note.dtype, device=note.device)
            elif self.notes[name].shape != shape:
                self.notes[name] = F.pad(
                    self.notes[name], (0, shape[-1] - self.notes[name].shape[-1])
                )
            self.notes[name][slots.to(note.device)] = note[rows.to(note.device)]
        self._filled = filled

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part of every column."""
        return {
            "seen": self.seen,
            "x": self.x[: self._filled],
            "y": self.y[: self._filled],
            "notes": {name: note[: self._filled] for name, note in self.notes.items()},
            "marks": dict(self.marks),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the rows of `state_dict`."""
        self.marks = dict(state.get("marks", {}))
        self.seen, self._filled = int(state["seen"]), len(state["y"])
        self.x[: self._filled] = state["x"].to(self.x.device)
        self.y[: self._filled] = state["y"]
        self.notes = {}
        for name, note in state.get("notes", {}).items():
            self.notes[name] = torch.zeros(
                (self.capacity, *note.shape[1:]), dtype=note.dtype, device=self.x.device
            )
            self.notes[name][: self._filled] = note

    def counts(self, classes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return how many rows each head column has."""
        return np.bincount(self.y[: self._filled].numpy(), minlength=classes)
