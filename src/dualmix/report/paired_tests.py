"""A method with DualMix against the same without, seed by seed: paired t tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualmix.report import commands
from dualmix.report.words import STREAM, Score
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A method with DualMix against the same without, on the seeds that both have.

    Attributes
    ----------
    changed
        Settings in which both differ from their presets.
    difference
        With minus without, in points.
    p
        Of the paired t test, two-sided; none for fewer than two seeds or where all differences are
        equal.
    holm
        The same after Holm's correction for all paired_tests of the same score.
    """

    base: str
    label: str
    content: Content
    memory: int | None
    changed: tuple[tuple[str, Any], ...]
    score: Score
    difference: metrics.Interval
    seeds: tuple[int, ...]
    p: float | None
    holm: float | None = None
    command: str = ""


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of Student's paired t test.

    Examples
    --------
    >>> f"{paired_p([1.0, 2.0, 3.0]):.4f}"
    '0.0742'
    """
    from scipy.special import stdtr

    mean = metrics.interval(differences)
    if mean.n < 2 or mean.std == 0:
        return None
    t = mean.mean / (mean.std / math.sqrt(mean.n))
    return float(2 * stdtr(mean.n - 1, -abs(t)))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p values after Holm's (1979) step-down correction for their number.

    Examples
    --------
    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    result: list[float | None] = [None] * len(values)
    worst = 0.0
    for place, (p, i) in enumerate(known):
        worst = max(worst, min(1.0, (len(known) - place) * p))
        result[i] = worst
    return result


def paired_tests(collection: Collection) -> list[PairedTest]:
    """Return every "A+DualMix against A" that the store has paired seeds for, all other settings
    equal; whole streams as their presets say come first.
    """
    places = {
        (g.label, g.content, g.memory, repr(g.changed)): g
        for g in sorted(
            collection.groups, key=lambda g: (STREAM in dict(g.changed), bool(g.changed))
        )
    }
    scores: tuple[Score, ...] = ("average_accuracy", "forgetting")
    result: list[PairedTest] = []
    for score in scores:
        some = []
        for (label, content, memory, changed), group in places.items():
            base, plus, addition = label.rpartition("+")
            other = places.get((base, content, memory, changed))
            if not plus or addition != "dualmix" or other is None:
                continue
            a, b = group.values(score), other.values(score)
            seeds = tuple(sorted(a.keys() & b.keys()))
            if not seeds:
                continue
            differences = [a[seed] - b[seed] for seed in seeds]
            command = " && ".join(map(commands.rerun_command, (other, group)))
            some.append(
                PairedTest(
                    base,
                    label,
                    content,
                    memory,
                    group.changed,
                    score,
                    metrics.interval(differences),
                    seeds,
                    paired_p(differences),
                    command=command,
                )
            )
        corrected = holm([one.p for one in some])
        result += [replace(one, holm=p) for one, p in zip(some, corrected, strict=True)]
    return result
