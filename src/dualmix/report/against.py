"""Where a number of ours lies by a published one."""

from __future__ import annotations

from typing import Literal

from dualmix.paper.numbers import Published
from dualmix.runs import metrics

Mark = Literal["", "above", "below"]


def mark(ours: metrics.Interval | None, theirs: Published | None) -> Mark:
    """Return where our interval lies if it does not meet theirs; one or two runs have none and no
    mark.
    """
    if ours is None or theirs is None or ours.shown is None:
        return ""
    mean, spread = theirs
    if ours.mean - ours.half > mean + spread:
        return "above"
    return "below" if ours.mean + ours.half < mean - spread else ""


def distance_text(ours: metrics.Interval | None, theirs: Published | None) -> str:
    """Return where our mean lies by their interval, in points, from the digits that are shown.

    Examples
    --------
    >>> distance_text(metrics.interval([9.1]), (8.4, 0.5))
    '0.2 above'
    >>> distance_text(metrics.interval([8.94]), (8.4, 0.5))
    'inside'
    >>> distance_text(metrics.interval([7.0]), (7.6, 0.0))
    '0.6 below'
    """
    if ours is None or theirs is None:
        return ""
    mean, spread = theirs
    over = round(abs(round(ours.mean, 1) - mean) - spread, 1)
    if over <= 0:
        return "inside" if spread else "equal"
    return f"{over:.1f} {'above' if ours.mean > mean else 'below'}"
