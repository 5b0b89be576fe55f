"""Which way runs err: er(o,n) and er(n,o) of Fan et al. 2023 (arXiv:2303.07864, Figures 4 and 6).

The paper credits AdpMix with closing the gap between the two. So the gap is asked of every rung of
the ladder, also of those without AdpMix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualmix.runs import metrics
from dualmix.runs.records import Group

BOTH = ("er_old_new", "er_new_old")


@dataclass(frozen=True, slots=True)
class Erring:
    """Shares of errors in per cent, each run's mean over its tasks but the first.

    Attributes
    ----------
    old_for_new, new_for_old
        er(o,n): of the errors on old classes, those taken for a new class; er(n,o) the other way.
    gap
        er(o,n) - er(n,o) in points: above 0 the errors lean to the new classes.
    """

    old_for_new: metrics.Interval
    new_for_old: metrics.Interval
    gap: metrics.Interval


def erring(group: Group) -> Erring | None:
    """Return which way the runs of a configuration err, if they have more than one task."""
    by_seed = _by_seed(group)
    if not by_seed:
        return None
    old, new = zip(*by_seed.values(), strict=True)
    gaps = [a - b for a, b in by_seed.values()]
    return Erring(metrics.interval(old), metrics.interval(new), metrics.interval(gaps))


def gap_difference(group: Group, base: Group) -> metrics.Interval | None:
    """Return how far the gap of a configuration is above another's, in points, paired by seed."""
    ours, theirs = _by_seed(group), _by_seed(base)
    both = [
        (ours[seed][0] - ours[seed][1]) - (theirs[seed][0] - theirs[seed][1])
        for seed in sorted(ours.keys() & theirs.keys())
    ]
    return metrics.interval(both) if both else None


def _by_seed(group: Group) -> dict[int, tuple[float, float]]:
    found = {}
    for run in group.runs:
        curves = np.array([(run.scores.get(score) or [])[1:] for score in BOTH], dtype=float)
        if np.isfinite(curves).any(axis=1).all():
            old, new = 100 * np.nanmean(curves, axis=1)
            found[run.seed] = (float(old), float(new))
    return found
