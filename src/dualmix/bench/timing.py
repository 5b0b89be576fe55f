"""Measured things: calls timed side by side, ratios to a reference round by round, and verdicts
that can be trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Call = Callable[[], object]


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
    """A stretch of the scale run: images seen, classes known, seconds a step and the process's
    memory.
    """

    images: int
    classes: int
    step_seconds: float
    memory_mb: float


def interleaved(
    calls: Mapping[str, Call], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Return the seconds of every call in every round; each round makes all calls, in an order that
    rotates.

    What disturbs the machine for a while disturbs all of them alike.
    """
    names = list(calls)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for call in calls.values():
        call()
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            began = clock()
            calls[name]()
            taken[name].append(clock() - began)
    return taken


def rows(
    group: str,
    taken: Mapping[str, Sequence[float]],
    reference: str,
    limits: Mapping[str, float] | None = None,
    *,
    inverse: bool = False,
    atleast: bool = False,
) -> list[Row]:
    """Return medians, spreads and ratios to the reference, which comes first.

    Parameters
    ----------
    inverse
        Ratios say how many times faster than the reference.
    atleast
        Limits are the least that ratios should be, not the most.
    """
    found = []
    for name in sorted(taken, key=lambda name: name != reference):
        low, middle, high = np.quantile(taken[name], [0.25, 0.5, 0.75])
        spread = float((high - low) / 2 / middle)
        if name == reference:
            found.append(Row(group, name, float(middle), spread))
            continue
        pairs = zip(taken[name], taken[reference], strict=True)
        ratios = [b / a if inverse else a / b for a, b in pairs]
        quartiles = [float(q) for q in np.quantile(ratios, [0.25, 0.5, 0.75])]
        limit = (limits or {}).get(name)
        found.append(
            Row(
                group,
                name,
                float(middle),
                spread,
                quartiles[1],
                quartiles[0],
                quartiles[2],
                limit,
                atleast,
            )
        )
    return found
