"""The record of a benchmark: its rows, and how the page reads it back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dualmix.errors import DualmixError, StoreError
from dualmix.store.files import read_bytes

MAKE = "python -m benchmarks --out FILE"
"""The command that writes a record."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured thing.

    Attributes
    ----------
    median
        Of the CPU time of a call in seconds, or of a process's memory in MB: `unit` says which.
    spread
        Half the distance of the quartiles, as a share of the median.
    ratio, low, high
        Median and quartiles as a multiple of the reference's in the same round; none for the
        reference.
    limit
        What the ratio should be at most, or at least where `atleast`.
    """

    group: str
    name: str
    median: float
    spread: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    atleast: bool = False
    unit: Literal["s", "MB"] = "s"

    @property
    def verdict(self) -> str:
        """Whether the limit is kept: nothing where there is none, and "unclear" where the quartiles
        straddle it.
        """
        if self.limit is None or self.low is None or self.high is None:
            return ""
        if self.low <= self.limit <= self.high and self.low < self.high:
            return "unclear"
        return (
            "met"
            if (self.low >= self.limit if self.atleast else self.high <= self.limit)
            else "missed"
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the scale run: images seen, classes known, seconds per step and the
    process's memory.
    """

    images: int
    classes: int
    step_seconds: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Speed:
    """A benchmark's rows, the stages of its scale run, and in a sentence what they were measured
    on.
    """

    rows: tuple[Row, ...]
    stages: tuple[Stage, ...]
    where: str


def read_speed(path: Path) -> Speed:
    """Read a benchmark's record.

    Raises
    ------
    DualmixError
        There is no such file, or it is not such a record.
    """
    try:
        record = json.loads(read_bytes(path))
        speed = Speed(
            tuple(
                Row(**{name: value for name, value in row.items() if name != "verdict"})
                for row in record["rows"]
            ),
            tuple(Stage(**stage) for stage in record["scale"]),
            f"{record['host']['processor']}, torch {record['versions']['torch']}, one thread",
        )
    except StoreError as fault:
        raise DualmixError(f"{fault} `{MAKE}` makes a record of speed.") from fault
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise DualmixError(
            f"{path} is no record of `{MAKE}` ({type(fault).__name__}: {fault})."
        ) from fault
    if not speed.rows and not speed.stages:
        raise DualmixError(f"{path} holds no measurement: `{MAKE}` makes them.")
    return speed
