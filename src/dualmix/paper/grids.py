"""The runs behind the paper's tables and figures, as grids for a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dualmix.errors import ConfigError
from dualmix.paper.independent import SOURCES, source_jobs
from dualmix.paper.ladder import SEEDS as LADDER_SEEDS
from dualmix.paper.ladder import ladder_jobs, weighting
from dualmix.paper.numbers import (
    ABLATION_ACCURACY,
    ACCURACY,
    BOUNDS,
    DATA,
    FORGETTING,
    MEMORY,
    SEEDS,
)
from dualmix.registry import nearest
from dualmix.sweeps.sweep import Job, grid

OPERATORS = ("identity", "flip", "crop-0.4", "crop-0.8", "crop-1.3")
"""Figure 2: what er+da's augmentation is, weakest first; the paper names crop-0.8 and crop-1.3 and
shows more.
"""
SCATTER = ("flip", "jitter", "grey", "crop-0.8", "standard")
"""Figure 5: the same for m-bar against accuracy; er+enmix on the standard augmentation is its sixth
point.
"""

ONE_MEAN = "table3-one-mean"
"""Table 3 again, by one rule for all rows."""

OWN = {("aser", "mini_imagenet"): {"method.n_smp_cls": 3}}
"""What a row's host is set to on one data set only, by the reference code."""


def own(preset: str, data: str) -> Mapping[str, Any]:
    """Return the settings that a row of the tables has on a data set beside its preset's."""
    return OWN.get((preset.partition("+")[0], data), {})


def _table1(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """Average accuracy of every method."""
    seeds = list(seeds)
    sets: dict[str, Sequence[Any]] = {"data.name": data}
    return [
        *grid(BOUNDS, seeds, sets, values),
        *grid(ACCURACY, seeds, {**sets, "method.memory": memory}, values),
    ]


def _table2(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """Average forgetting of the methods that rehearse."""
    return grid(FORGETTING, seeds, {"data.name": data, "method.memory": memory}, values)


def _table3(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """ER with each augmentation; Figures 4 and 6 come from the same runs."""
    axes: dict[str, Sequence[Any]] = {"data.name": data, "method.memory": memory}
    return grid(ABLATION_ACCURACY, seeds, axes, values)


def _figure2(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """ER, and ER+DA under augmentations of growing strength."""
    seeds = list(seeds)
    axes: dict[str, Sequence[Any]] = {"data.name": data, "method.memory": memory}
    return [
        *grid(["er"], seeds, axes, values),
        *grid(["er+da"], seeds, {**axes, "method.mix.augment": OPERATORS}, values),
    ]


def _figure5(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """Mean variance of Eq. 6 against accuracy: ER+DA under each augmentation, and ER+EnMix."""
    seeds, values = list(seeds), {"probes.on": True, **values}
    axes: dict[str, Sequence[Any]] = {"data.name": data, "method.memory": memory}
    return [
        *grid(["er+da"], seeds, {**axes, "method.mix.augment": SCATTER}, values),
        *grid(["er+enmix"], seeds, axes, values),
    ]


def _proposition(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """Proposition 1: every augmentation measured on one model of ER's, and what ER becomes with
    each.
    """
    seeds = list(seeds)
    operators = [*dict.fromkeys((*OPERATORS, *SCATTER)), "enmix"]
    axes: dict[str, Sequence[Any]] = {"data.name": data, "method.memory": memory}
    return [
        *grid(["er"], seeds, axes, {"probes.on": True, "probes.operators": operators, **values}),
        *_figure2(data, memory, seeds, values),
        *_figure5(data, memory, seeds, values),
    ]


def _table3_one_mean(
    data: Sequence[str], memory: Sequence[int], seeds: Iterable[int], values: Mapping[str, Any]
) -> list[Job]:
    """Table 3 by one rule for all rows: one mean over all images of a step."""
    return [
        Job(row, {**weighting(row, "one-mean"), **job.values})
        for job in grid(["er"], seeds, {"data.name": data, "method.memory": memory}, values)
        for row in ABLATION_ACCURACY
    ]


GRIDS = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    ONE_MEAN: _table3_one_mean,
    "figure2": _figure2,
    "figure5": _figure5,
    "proposition": _proposition,
}
ONLY_CIFAR = ("table3", ONE_MEAN, "figure2", "figure5", "proposition")
"""Grids that the paper shows for CIFAR-100 alone; the figures for a memory of 1000."""
FIGURES = ("figure2", "figure5", "proposition")


NAMES = (*GRIDS, "ladder", *SOURCES)
"""Every grid by name: the paper's, what its parts do, and tables of other papers."""


def _others(
    name: str,
    data: Sequence[str],
    memory: Sequence[int],
    seeds: Sequence[int] | None,
    rows: Sequence[str],
    values: Mapping[str, Any] | None,
) -> list[Job]:
    """Return the runs of the ladder or of another paper's table, which are for CIFAR-100 alone."""
    if set(data) - {DATA[0]}:
        raise ConfigError(f"{name} is for {DATA[0]} alone: leave --data out.")
    if name in SOURCES:
        return source_jobs(name, memory=memory, seeds=seeds, rows=rows, values=values)
    if memory:
        raise ConfigError("Each rung of the ladder has a memory of its own: leave --memory out.")
    return ladder_jobs(
        seeds=range(LADDER_SEEDS) if seeds is None else seeds, rungs=rows, values=values
    )


def jobs(
    name: str,
    *,
    data: Sequence[str] = (),
    memory: Sequence[int] = (),
    seeds: Iterable[int] | None = None,
    methods: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> list[Job]:
    """Return the runs of one of the paper's tables or figures.

    Parameters
    ----------
    data, memory
        Which columns; empty: all that the paper has.
    seeds
        None: as many as stand behind the numbers, or 3 for the ladder and for tables of others that
        do not say.
    methods
        Which rows; empty: all. The ladder's are rungs.
    values
        Settings for all runs.
    """
    if name.endswith((".yaml", ".yml", ".json")):
        raise ConfigError(f"There is no grid file {name}.")
    if name not in NAMES:
        raise ConfigError(
            f"There is no grid {name!r}{nearest(name, NAMES)} (known: {', '.join(NAMES)})."
        )
    if name not in GRIDS:
        return _others(name, data, memory, None if seeds is None else list(seeds), methods, values)
    seeds = range(SEEDS) if seeds is None else seeds
    sets = data or (DATA[:1] if name in ONLY_CIFAR else DATA)
    sizes = memory or (MEMORY[:1] if name in FIGURES else MEMORY)
    wanted = [
        Job(job.preset, {**own(job.preset, job.values["data.name"]), **job.values})
        for job in GRIDS[name](sets, sizes, seeds, values or {})
    ]
    rows = {job.preset for job in wanted}
    for method in methods:
        if method not in rows:
            known = ", ".join(sorted(rows))
            raise ConfigError(
                f"{name} has no row {method!r}{nearest(method, rows)} (known: {known})."
            )
    return [job for job in wanted if not methods or job.preset in methods]
