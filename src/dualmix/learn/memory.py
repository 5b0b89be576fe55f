"""The memory: a table of uint8 images, head columns and further columns. It moves rows; update
and retrieval decide which.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dualmix.errors import ConfigError, InputError
from dualmix.learn.lazy import F, torch
from dualmix.learn.types import Batch, Placement, Shape, Slots

if TYPE_CHECKING:
    from torch import Tensor


def floats(raw: Tensor) -> Tensor:
    """Turn stored rows into what a network takes: uint8 (n, H, W, C) into images (n, C, H, W) in
    [0, 1] without moving a byte of the layout, vectors into float32.
    """
    return raw.permute(0, 3, 1, 2).float().div_(255) if raw.ndim == 4 else raw.float()


def _kept(rows: Tensor, table: Tensor) -> Tensor:
    """Return rows as a table keeps them."""
    return rows.to(table)


class Overwritten(NamedTuple):
    """What one write changed: plain values, and rows with their further columns."""

    values: dict[str, Any]
    slots: Tensor
    x: Tensor
    y: Tensor
    columns: dict[str, Tensor]


class Memory:
    """At most `capacity` rows; the first `len(memory)` slots are filled.

    Attributes
    ----------
    x
        (capacity, H, W, C) uint8 images, exactly as they came; or (capacity, d) vectors.
    y
        (capacity,) head columns.
    columns
        Further columns that an update fills for each row; one that gets wider is padded with zeros.
    marks
        What an update remembers about the whole stream.
    seen
        How many rows have been offered so far.
    journal
        Where `write` files what it overwrites, for `put_back`; none: nowhere.
    """

    def __init__(
        self,
        capacity: int,
        shape: Shape,
        device: torch.device | str = "cpu",
        vectors: Literal["float32", "float16"] = "float32",
    ) -> None:
        if capacity < 0:
            raise ConfigError(f"memory is {capacity}, but must be 0 or more rows.")
        row = shape if len(shape) == 1 else (*shape[1:], shape[0])
        kind = torch.uint8 if len(shape) > 1 else getattr(torch, vectors)
        try:
            self.x = _zeros((capacity, *row), kind, device)
            self.y = _zeros((capacity,), torch.int64)
        except (RuntimeError, MemoryError, ValueError) as fault:
            raise ConfigError(
                f"A memory of {capacity:,} rows of {'x'.join(map(str, row))} numbers does not "
                "fit: make it smaller."
            ) from fault
        self.columns: dict[str, Tensor] = {}
        self.marks: dict[str, Tensor] = {}
        self.seen = 0
        self._filled = 0
        self.journal: list[Overwritten] | None = None

    @property
    def capacity(self) -> int:
        """The greatest number of rows."""
        return len(self.x)

    def __len__(self) -> int:
        return self._filled

    def __getitem__(self, slots: Slots) -> Batch:
        """Return images in [0, 1] (channels first, laid out channels last), or vectors, and head
        columns of the given slots.
        """
        index = torch.from_numpy(slots)
        rows = self.x.index_select(0, index.to(self.x.device))
        return Batch(floats(rows), self.y[index].to(self.x.device))

    def check(self, raw: Tensor) -> None:
        """Raise `InputError` for rows with numbers that the table cannot hold."""
        if self.x.dtype == torch.float16:
            most = torch.finfo(torch.float16).max
            if bool((raw.abs() > most).any()):
                raise InputError(
                    f"The vectors hold numbers above {most:g}, where float16 ends: make the "
                    "learner with stored float32, or scale them."
                )

    def write(self, placement: Placement, raw: Tensor, y: Tensor) -> None:
        """File rows as an update decided; where two rows share a slot the later one stays.

        Parameters
        ----------
        placement
            A slot for each row, -1 to drop it. Empty slots must be filled without a gap.
        raw, y
            Rows as `inputs.as_rows` returns them, and their head columns.
        """
        last = {int(slot): row for row, slot in enumerate(placement.slots) if slot >= 0}
        slots, rows = torch.tensor([*last], dtype=torch.int64), torch.tensor([*last.values()])
        if self.journal is not None:
            self.journal.append(self._overwritten(slots))
        self.seen += len(raw)
        self.marks = {**self.marks, **placement.marks}
        if not last:
            return
        filled = max(self._filled, max(last) + 1)
        if filled > self.capacity or any(slot not in last for slot in range(self._filled, filled)):
            raise IndexError(
                f"slots {sorted(last)} leave a gap or exceed the capacity {self.capacity}"
            )
        self.x[slots.to(self.x.device)] = _kept(raw[rows], self.x)
        self.y[slots] = y[rows]
        for name, column in placement.columns.items():
            shape = (self.capacity, *column.shape[1:])
            if name not in self.columns:
                self.columns[name] = _zeros(shape, column.dtype, column.device)
            elif self.columns[name].shape != shape:
                wider = shape[-1] - self.columns[name].shape[-1]
                self.columns[name] = F.pad(self.columns[name], (0, wider))
            self.columns[name][slots.to(column.device)] = column[rows.to(column.device)]
        self._filled = filled

    def _overwritten(self, slots: Tensor) -> Overwritten:
        there, columns = slots.to(self.x.device), dict(self.columns)
        return Overwritten(
            {"seen": self.seen, "marks": self.marks, "columns": columns, "_filled": self._filled},
            slots,
            self.x[there],
            self.y[slots],
            {name: column[slots.to(column.device)] for name, column in columns.items()},
        )

    def put_back(self, journal: list[Overwritten]) -> None:
        """Take back writes, the latest first."""
        for before in reversed(journal):
            vars(self).update(before.values)
            self.x[before.slots.to(self.x.device)] = before.x
            self.y[before.slots] = before.y
            for name, column in before.columns.items():
                self.columns[name][before.slots.to(column.device)] = column

    def copy(self) -> Memory:
        """Return the filled rows and their labels as a memory of its own."""
        twin = copy.copy(self)
        twin.x, twin.y = self.x[: self._filled].clone(), self.y[: self._filled].clone()
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part of every column; "notes" is the older name of `columns`."""
        return {
            "seen": self.seen,
            "x": self.x[: self._filled],
            "y": self.y[: self._filled],
            "notes": {name: column[: self._filled] for name, column in self.columns.items()},
            "marks": dict(self.marks),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the rows of `state_dict`."""
        self.marks = dict(state.get("marks", {}))
        self.seen, self._filled = int(state["seen"]), len(state["y"])
        self.x[: self._filled] = state["x"].to(self.x.device)
        self.y[: self._filled] = state["y"]
        self.columns = {}
        for name, column in state.get("notes", {}).items():
            shape = (self.capacity, *column.shape[1:])
            self.columns[name] = _zeros(shape, column.dtype, self.x.device)
            self.columns[name][: self._filled] = column

    def counts(self, classes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return how many rows each head column has."""
        return np.bincount(self.y[: self._filled].numpy(), minlength=classes)


def _zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Tensor:
    """Return zeros that take room only once they are written, unlike those of `torch.zeros`: a
    memory may be far larger than what it holds.
    """
    raw = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    if not raw.size:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(raw).view(dtype).view(shape).to(device)
