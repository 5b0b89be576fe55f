"""Proposition 1 put to the test: does less covariance (Eq. 5) mean a smaller forgetting gap (Eq.
4)?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.rng import generator

if TYPE_CHECKING:
    from dualmix.runs.records import Run

FEWEST = 3
"""Augmentations that a ranking needs."""
VARIED = {"method.mix.augment"}
"""Settings of a method, beside its memory, in which runs that are compared may differ from their
preset.
"""
RESAMPLES = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A rank correlation with the middle 95 % of it over resamples; none where nothing varies."""

    rho: float | None
    low: float | None
    high: float | None
    n: int

    def words(self, of: str) -> str:
        """Return the correlation over things of that name in words."""
        if self.rho is None or self.low is None or self.high is None:
            return f"no ranking from {self.n} {of}"
        return (
            f"Spearman's rho {self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}] over {self.n} {of}"
        )


@dataclass(frozen=True, slots=True)
class Border:
    """All augmentations measured on one model, at the end of one task of one run.

    Attributes
    ----------
    rho
        Spearman's correlation of CO and FG over the augmentations.
    agree, pairs
        Pairs of augmentations for which the proposition holds: the one of lower CO has the lower
        FG; and all pairs.
    overruled
        Pairs for which it fails although the variance part of FG is ordered as CO is: the bias part
        decides.
    """

    run: str
    task: int
    rho: float | None
    agree: int
    pairs: int
    overruled: int


@dataclass(frozen=True, slots=True)
class Operator:
    """An augmentation: its measures averaged over models, and what training with it gave, averaged
    over seeds.
    """

    name: str
    covariance: float
    gap: float
    gap_bias: float
    mean_variance: float
    sample_spread: float
    accuracy: float | None
    forgetting: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found on one stream."""

    stream: str
    borders: tuple[Border, ...]
    operators: tuple[Operator, ...]
    gap: Correlation
    accuracy: Correlation
    forgetting: Correlation
    mean_variance: Correlation
    sample_spread: Correlation

    @property
    def holds(self) -> float:
        """Share of the pairs for which the proposition holds."""
        return sum(border.agree for border in self.borders) / max(
            sum(border.pairs for border in self.borders), 1
        )


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the rank correlation, or none where one side does not vary or is not known."""
    from scipy.stats import spearmanr

    if len(a) < FEWEST or len(set(a)) < 2 or len(set(b)) < 2 or not np.isfinite([a, b]).all():
        return None
    return float(spearmanr(a, b).statistic)


def correlation(draw: Callable[[NDArray[np.int64]], float | None], n: int) -> Correlation:
    """Return a statistic over all `n` items, and its spread over resamples of them.

    Parameters
    ----------
    draw
        The statistic over given items.
    """
    rng = generator(0, "bootstrap", n)
    drawn = [draw(rng.integers(0, n, n)) for _ in range(RESAMPLES)] if n else []
    known = [rho for rho in drawn if rho is not None and math.isfinite(rho)]
    low, high = np.quantile(known, [0.025, 0.975]) if known else (None, None)
    return Correlation(
        draw(np.arange(n)),
        None if low is None else float(low),
        None if high is None else float(high),
        n,
    )


def border(run: str, record: Mapping[str, Any]) -> Border:
    """Rank the augmentations that were measured on one model."""
    found = [one for one in record["operators"].values() if "gap" in one]
    agree = overruled = 0
    pairs = list(combinations(found, 2))
    for a, b in pairs:
        lower = np.sign(a["covariance"] - b["covariance"])
        if lower == np.sign(a["gap"] - b["gap"]):
            agree += 1
        elif lower == np.sign(a["gap_variance"] - b["gap_variance"]):
            overruled += 1
    rho = spearman([one["covariance"] for one in found], [one["gap"] for one in found])
    return Border(run, record["task"], rho, agree, len(pairs), overruled)


def check(runs: Iterable[Run]) -> list[Verdict]:
    """Put the proposition to the test on every stream that has the runs for it."""
    models: dict[str, list[tuple[str, list[Mapping[str, Any]]]]] = {}
    trained: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run in runs:
        if {path for path, _ in run.changed if path.startswith("method.")} - VARIED:
            continue
        stream = _stream(run)
        records = [record for record in run.probes if len(record.get("operators", ())) >= FEWEST]
        if records:
            models.setdefault(stream, []).append((run.name, records))
        if operator := _operator(run.settings):
            scores = (run.scores["average_accuracy"], run.scores["forgetting"])
            trained.setdefault(stream, {}).setdefault(operator, []).append(scores)
    return [
        verdict(stream, found, trained.get(stream, {})) for stream, found in sorted(models.items())
    ]


def verdict(
    stream: str,
    models: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
    trained: Mapping[str, Sequence[tuple[float, float]]],
) -> Verdict:
    """Rank augmentations on each model, and their averages against what training with each gave."""
    records = [(run, record) for run, found in models for record in found]
    borders = [b for b in (border(run, record) for run, record in records) if b.pairs]
    names = list(dict.fromkeys(name for _, record in records for name in record["operators"]))
    operators = [
        _average(name, [record["operators"].get(name) for _, record in records], trained)
        for name in names
    ]
    known = [one for one in operators if one.accuracy is not None]

    def against(a: str, b: str) -> Correlation:
        x, y = ([float(getattr(one, field)) for one in known] for field in (a, b))
        return correlation(
            lambda rows: spearman([x[i] for i in rows], [y[i] for i in rows]), len(known)
        )

    def mean_rho(rows: NDArray[np.int64]) -> float | None:
        rhos = [rho for i in rows if (rho := borders[i].rho) is not None]
        return float(np.mean(rhos)) if rhos else None

    return Verdict(
        stream,
        tuple(borders),
        tuple(sorted(operators, key=lambda one: one.covariance)),
        gap=correlation(mean_rho, len(borders)),
        accuracy=against("covariance", "accuracy"),
        forgetting=against("covariance", "forgetting"),
        mean_variance=against("mean_variance", "accuracy"),
        sample_spread=against("sample_spread", "accuracy"),
    )


def _average(
    name: str,
    found: Sequence[Mapping[str, float] | None],
    trained: Mapping[str, Sequence[tuple[float, float]]],
) -> Operator:
    def mean(field: str) -> float:
        values = [one[field] for one in found if one is not None and field in one]
        return float(np.mean(values)) if values else math.nan

    runs = trained.get(name, ())
    return Operator(
        name,
        mean("covariance"),
        mean("gap"),
        mean("gap_bias"),
        mean("mean_variance"),
        mean("sample_spread"),
        float(np.mean([accuracy for accuracy, _ in runs])) if runs else None,
        float(np.mean([forgetting for _, forgetting in runs])) if runs else None,
        len(runs),
    )


def _operator(settings: Mapping[str, Any]) -> str | None:
    """Return which augmentation alone a run was trained with, if it was one."""
    on = {name for name in ("view", "enmix", "adpmix") if settings.get(f"method.mix.{name}")}
    augment = settings.get("method.mix.augment")
    if on == {"view"}:
        return str(augment)
    return "enmix" if on == {"enmix"} and augment == "standard" else None


def _stream(run: Run) -> str:
    """Return what runs must share to be compared."""
    at = run.settings
    tasks = (
        f"{at['stream.first']} of {at['stream.tasks']}"
        if at["stream.first"]
        else at["stream.tasks"]
    )
    subset = " (subset)" if run.content.subset else ""
    other = [
        f", {path} {value}"
        for path, value in run.changed
        if path.startswith(("data.", "stream.", "model."))
        and path not in ("stream.first", "stream.tasks")
    ]
    return f"{run.content.name}{subset}, {tasks} tasks, {at['method.kind']}, memory {run.memory or 0}{''.join(other)}"
