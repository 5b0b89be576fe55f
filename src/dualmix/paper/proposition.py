"""Proposition 1 put to the test: does less covariance mean a smaller forgetting gap?

The covariance CO is Eq. 5 and the forgetting gap FG Eq. 4 of Fan et al. 2023, arXiv:2303.07864.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def average_ranks(values: Floats) -> Floats:
    """Return ranks from 1 along the last axis; equal values share the mean of their ranks.

    Examples
    --------
    >>> average_ranks(np.array([0.3, 0.1, 0.3, 0.2]))
    array([3.5, 1. , 3.5, 2. ])
    """
    mine, others = values[..., :, None], values[..., None, :]
    ranks: Floats = (mine > others).sum(-1) + ((mine == others).sum(-1) + 1) / 2
    return ranks


def spearman(a: Floats, b: Floats) -> Floats:
    """Return Spearman's rank correlation along the last axis: Pearson's of the average ranks.

    NaN stands where one side does not vary or is not known, and for fewer than `FEWEST` values.
    """
    n = a.shape[-1]
    if n < FEWEST:
        return np.full(a.shape[:-1], np.nan)
    x, y = (average_ranks(side) - (n + 1) / 2 for side in (a, b))
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    known = (scale > 0) & np.isfinite(a).all(-1) & np.isfinite(b).all(-1)
    rho: Floats = np.divide((x * y).sum(-1), scale, out=np.full(scale.shape, np.nan), where=known)
    return rho


def bootstrap(statistic: Callable[[NDArray[np.int64]], Floats], n: int) -> Correlation:
    """Return a statistic over all `n` items, and its spread over resamples of them.

    Parameters
    ----------
    statistic
        From the items' numbers along the last axis to one value each; NaN where there is none.
    """
    if not n:
        return Correlation(None, None, None, 0)
    resamples = generator(0, "bootstrap", n).integers(0, n, (RESAMPLES, n))
    drawn = statistic(resamples)
    known = drawn[np.isfinite(drawn)]
    low, high = np.quantile(known, [0.025, 0.975]).tolist() if len(known) else (None, None)
    return Correlation(_known(statistic(np.arange(n))), low, high, n)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> Correlation:
    """Return the rank correlation of two lists, with its spread over resamples of their pairs."""
    x, y = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)
    return bootstrap(lambda rows: spearman(x[rows], y[rows]), len(x))


def border(run: str, record: Mapping[str, Any]) -> Border:
    """Rank the augmentations that were measured on one model."""
    measured = [one for one in record["operators"].values() if "gap" in one]
    covariance, gap, variance = (
        np.array([one[field] for one in measured], dtype=np.float64)
        for field in ("covariance", "gap", "gap_variance")
    )
    first, second = np.triu_indices(len(measured), 1)
    lower, lower_gap, lower_variance = (
        np.sign(side[first] - side[second]) for side in (covariance, gap, variance)
    )
    agree = lower == lower_gap
    overruled = ~agree & (lower == lower_variance)
    rho = _known(spearman(covariance, gap))
    return Border(run, record["task"], rho, int(agree.sum()), len(first), int(overruled.sum()))


def verdicts(runs: Iterable[Run]) -> list[Verdict]:
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
        verdict(stream, probed, trained.get(stream, {}))
        for stream, probed in sorted(models.items())
    ]


def verdict(
    stream: str,
    models: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
    trained: Mapping[str, Sequence[tuple[float, float]]],
) -> Verdict:
    """Rank augmentations on each model, and their averages against what training with each gave."""
    records = [(run, record) for run, probed in models for record in probed]
    borders = [b for b in (border(run, record) for run, record in records) if b.pairs]
    names = list(dict.fromkeys(name for _, record in records for name in record["operators"]))
    operators = [
        _average(name, [record["operators"].get(name) for _, record in records], trained)
        for name in names
    ]
    known = [one for one in operators if one.accuracy is not None]

    rhos = np.array([math.nan if b.rho is None else b.rho for b in borders])

    def against(a: str, b: str) -> Correlation:
        return rank_correlation(*([getattr(one, field) for one in known] for field in (a, b)))

    def mean_rho(rows: NDArray[np.int64]) -> Floats:
        drawn = np.ma.masked_invalid(rhos[rows])
        return np.ma.filled(drawn.mean(-1), np.nan)

    return Verdict(
        stream,
        tuple(borders),
        tuple(sorted(operators, key=lambda one: one.covariance)),
        gap=bootstrap(mean_rho, len(borders)),
        accuracy=against("covariance", "accuracy"),
        forgetting=against("covariance", "forgetting"),
        mean_variance=against("mean_variance", "accuracy"),
        sample_spread=against("sample_spread", "accuracy"),
    )


def _known(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def _average(
    name: str,
    measured: Sequence[Mapping[str, float] | None],
    trained: Mapping[str, Sequence[tuple[float, float]]],
) -> Operator:
    def mean(field: str) -> float:
        values = [one[field] for one in measured if one is not None and field in one]
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
        f"first {at['stream.first']} of {at['stream.tasks']}"
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
    name = f"{run.content.title}{subset}, {tasks} tasks, {at['method.kind']}"
    return f"{name}, memory {run.memory or 0:,}{''.join(other)}"
