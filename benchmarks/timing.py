"""Calls timed side by side, and their ratios to a reference, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dualmix.report.speed import Row

Call = Callable[[], object]


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


def ratio_rows(
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
    measured = []
    for name in sorted(taken, key=lambda name: name != reference):
        low, middle, high = np.quantile(taken[name], [0.25, 0.5, 0.75])
        spread = float((high - low) / 2 / middle)
        if name == reference:
            measured.append(Row(group, name, float(middle), spread))
            continue
        pairs = zip(taken[name], taken[reference], strict=True)
        ratios = [b / a if inverse else a / b for a, b in pairs]
        quartiles = [float(q) for q in np.quantile(ratios, [0.25, 0.5, 0.75])]
        limit = (limits or {}).get(name)
        measured.append(
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
    return measured
