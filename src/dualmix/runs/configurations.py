"""What was run, by configuration: runs that differ in their seed only make one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dualmix.runs import metrics
from dualmix.runs.apart import Told, shared, tell_apart
from dualmix.runs.records import Group, Run

SCORES = ("average_accuracy", "forgetting")
SECONDS = ("train_seconds", "evaluate_seconds", "probe_seconds")


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and spread of a score over runs, in per cent.

    Attributes
    ----------
    std
        Standard deviation with n - 1 below; none for one run.
    half
        Half of the 95 % interval (Student t); none for fewer than `metrics.FEWEST` runs.
    """

    mean: float
    std: float | None
    half: float | None
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration: its method, the settings that tell it apart, and what came out.

    Attributes
    ----------
    settings
        Values as they are typed, by short names.
    spreads
        By the name of the score; none where no run defines it.
    against
        The difference of the average accuracy to that of a reference, in points, over the seeds for
        which both saw the same stream; none without a reference.
    seconds
        Mean time of a run: training, tests and probes.
    curve
        Mean average accuracy after each task, in per cent.
    values
        Average accuracy in per cent by seed.
    """

    label: str
    settings: dict[str, str]
    spreads: dict[str, Spread | None]
    against: Spread | None
    seconds: float | None
    curve: tuple[float, ...]
    values: dict[int, float]
    runs: tuple[str, ...]


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean and spread of numbers, or nothing of none.

    Examples
    --------
    >>> two = spread([7.0, 26.0])
    >>> two.mean, two.half, two.low, two.high, f"{two.std:.1f}"
    (16.5, None, 7.0, 26.0, '13.4')
    """
    if not values:
        return None
    over = metrics.interval(values)
    return Spread(
        over.mean,
        over.std if over.n > 1 else None,
        over.shown,
        min(values),
        max(values),
        over.n,
    )


def configurations(
    groups: Sequence[Group], reference: str | None = None
) -> tuple[list[Row], dict[str, str]]:
    """Return a row per configuration, and the changed settings that all of them share.

    Parameters
    ----------
    reference
        The method that others are compared with: to a row belongs the row of this method with the
        same data and settings.
    """
    told = [_told(group) for group in groups]
    apart = tell_apart(told)
    rows = []
    for group, settings in zip(groups, apart, strict=True):
        against = None
        if reference is not None and group.label != reference:
            like = _reference(group, reference, groups)
            against = spread(_differences(group, like)) if like is not None else None
        rows.append(
            Row(
                group.label,
                settings,
                {name: spread(list(group.values(name).values())) for name in SCORES},
                against,
                _seconds(group.runs),
                _curve(group.runs),
                group.values(SCORES[0]),
                tuple(run.name for run in group.runs),
            )
        )
    return rows, shared(told)


def _told(group: Group) -> Told:
    run = group.runs[0]
    return Told(group.label, run.settings, group.changed, group.content.fingerprint, run.odd)


def _reference(group: Group, reference: str, groups: Sequence[Group]) -> Group | None:
    """Return the group of the reference on the same data, memory, stream and network; of several
    the one that shares most of the method's changed settings and has no others, and of these the
    one on the same engine. Of several memories none is the reference of a method without one.
    """
    mine = dict(group.changed)
    around = {path: value for path, value in mine.items() if not path.startswith("method.")}
    fits = [
        other
        for other in groups
        if other.label == reference
        and other.content == group.content
        and (other.memory == group.memory or None in (other.memory, group.memory))
        and dict(other.changed).items() <= mine.items()
        and around.items() <= dict(other.changed).items()
    ]
    if len({other.memory for other in fits}) > 1:
        return None
    odd = group.runs[0].odd
    return max(fits, key=lambda other: (len(other.changed), other.runs[0].odd == odd), default=None)


def _differences(group: Group, other: Group) -> list[float]:
    """Return what average accuracy gains over another group's, by seeds with the same stream."""
    theirs = {(run.seed, run.plan.get("sha256")): run for run in other.runs}
    pairs = [
        (run, theirs[run.seed, run.plan.get("sha256")])
        for run in group.runs
        if (run.seed, run.plan.get("sha256")) in theirs
    ]
    return [100 * (one.scores[SCORES[0]] - two.scores[SCORES[0]]) for one, two in pairs]


def _seconds(runs: Iterable[Run]) -> float | None:
    times = [sum(run.times.get(name, 0.0) for name in SECONDS) for run in runs if run.times]
    return sum(times) / len(times) if times else None


def _curve(runs: Sequence[Run]) -> tuple[float, ...]:
    curves = [run.scores["average_accuracy_by_task"] for run in runs]
    tasks = min(len(curve) for curve in curves)
    return tuple(100 * sum(curve[task] for curve in curves) / len(curves) for task in range(tasks))


def plain(row: Row) -> dict[str, Any]:
    """Return a row for other programs: flat, one number per name."""
    record: dict[str, Any] = {"method": row.label, **row.settings}
    for name, over in (*row.spreads.items(), ("difference", row.against)):
        if over is not None:
            parts = {"": over.mean, "_sd": over.std, "_ci95": over.half}
            record |= {f"{name}{part}": value for part, value in parts.items()}
            record |= {f"{name}_min": over.low, f"{name}_max": over.high}
    return {**record, "n": len(row.runs), "seconds": row.seconds}
