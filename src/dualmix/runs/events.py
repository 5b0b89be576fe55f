"""What a run tells those who watch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Began:
    """A run starts, or goes on from `step`; `remarks` name damaged snapshots that were skipped."""

    path: Path
    label: str
    tasks: int
    steps: int
    step: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stepped:
    """A batch was learned. `loss` and `hits` are tensors of one number: read them only when they
    are shown.
    """

    task: int
    step: int
    loss: Tensor
    hits: Tensor
    images: int


@dataclass(frozen=True, slots=True)
class Scored:
    """A task ended and all tasks so far were tested."""

    task: int
    step: int
    accuracy: float
    forgetting: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is done and filed."""

    path: Path
    scores: dict[str, Any]
    times: dict[str, Any]


Event = Began | Stepped | Scored | Ended
