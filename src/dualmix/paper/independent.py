"""Tables of other papers on the same network and data: to stand on more than one paper's numbers.

Each is a grid (`dualmix sweep survey`) whose rows are settings of ours, with what the source
prints. A disagreement is a finding, not a fault: protocols differ in what papers leave unsaid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dualmix.errors import ConfigError
from dualmix.paper.numbers import DATA
from dualmix.registry import nearest
from dualmix.sweeps.sweep import Job

Score = Literal["average_accuracy", "linear"]
NCM = {"method.readout": "ncm"}
LAST_ONLY = {"method.every": 20}
"""GDumb starts anew in each training: for the accuracy after the last of 20 tasks one is enough."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source.

    Attributes
    ----------
    preset, values
        What we run for it, beside the values that all rows of the source share.
    published
        What the source prints, in per cent, in the order of its memories.
    spread
        What stands behind its plus-minus sign; 0: it prints none here.
    score
        What is compared: the accuracy after the last task, or that of a linear probe.
    way
        The way to answer of `probes.answers` that is this row: a run of the source's shared values
        that was asked for it stands in, because it trains alike to the byte. Empty: none.
    """

    name: str
    doc: str
    preset: str
    published: Sequence[float]
    values: Mapping[str, Any] = field(default_factory=dict)
    spread: Sequence[float] = ()
    score: Score = "average_accuracy"
    way: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A table of another paper, on CIFAR-100.

    Attributes
    ----------
    values
        What all rows share beside their presets.
    seeds
        Runs behind each of its numbers, which a sweep makes unless told otherwise.
    """

    name: str
    title: str
    cite: str
    doc: str
    memory: Sequence[int]
    rows: Sequence[Row]
    values: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3

    def settings(self, row: Row, memory: int) -> dict[str, Any]:
        """Return what a cell is run with, by dotted path."""
        return {
            "data.name": DATA[0],
            "method.memory": memory,
            **self.values,
            **row.values,
        }


SURVEY = Source(
    "survey",
    "The survey of Mai et al.",
    "Mai et al., 2022, Neurocomputing, arXiv:2101.10423",
    "CIFAR-100 in 20 tasks, batches of 10 and 10, one pass; tricks on top of ER.",
    (1000, 5000),
    (
        Row("er", "experience replay", "er", (7.6, 17.0)),
        Row("er-labels", "labels trick", "er", (14.0, 19.0), {"method.softmax": "labels"}),
        Row(
            "er-separated", "separated softmax", "er", (12.3, 20.9), {"method.softmax": "separated"}
        ),
        Row("er-ncm", "nearest class mean", "er", (14.6, 27.6), NCM, way="weights, ncm"),
        Row("er-review", "review trick", "er", (12.0, 26.9), {"method.review": 0.1}),
        Row("mir", "maximally interfered retrieval", "mir", (7.6, 18.2)),
        Row("gdumb", "greedy sampler, dumb learner", "gdumb", (10.4, 22.1), LAST_ONLY),
    ),
)
SCR_PAPER = Source(
    "scr-paper",
    "The paper of SCR",
    "Mai et al., 2021, arXiv:2103.13885",
    "CIFAR-100 in 10 tasks, batches of 10 and 10 (SCR: 10 and 100), one pass.",
    (1000, 2000, 5000),
    (
        Row("er", "experience replay", "er", (11.2, 14.6, 21.0)),
        Row("er-ncm", "ER, nearest class mean", "er", (16.8, 20.9, 28.3), NCM, way="weights, ncm"),
        Row("mir", "maximally interfered retrieval", "mir", (11.7, 14.9, 21.6)),
        Row(
            "aser", "ASER with mean values", "aser", (14.4, 17.5, 21.7), {"method.variant": "asvm"}
        ),
        Row("scr-100", "SCR with a memory batch of 100", "scr-100", (26.6, 32.8, 37.8)),
    ),
    {"stream.tasks": 10},
)
_OCL = {
    "method.lr": 0.0599,
    "method.forward": "pooled",
    "model.head": "growing",
    "method.iterations": 3,
    "method.train_augment": "shift-flip",
    "method.reservoir": "balanced",
    "model.mean": [0.5071, 0.4865, 0.4409],
    "model.std": [0.2673, 0.2564, 0.2762],
    "stream.held_out": 0.05,
    "probes.on": True,
    "probes.linear": True,
}
OCL_SURVEY = Source(
    "ocl-survey",
    "Public logs of ocl_survey",
    "Soutif-Cormerais et al., 2023, arXiv:2308.10328",
    "CIFAR-100 in 20 tasks, batches of 10 and 10 in one pass with one mean, three steps per batch "
    "at a learning rate of 0.0599, a head that grows, shifted and flipped images, normalised, "
    "class-balanced memory, 5 % of the training images held out. All of it is in its public "
    "configuration and code.",
    (2000,),
    (
        Row("er", "experience replay", "er", (28.15,), spread=(1.22,)),
        Row("er-linear", "a linear probe on its features", "er", (44.9,), {}, (0.9,), "linear"),
    ),
    _OCL,
    5,
)
SOURCES = {source.name: source for source in (SURVEY, SCR_PAPER, OCL_SURVEY)}


def source_jobs(
    name: str,
    *,
    memory: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    rows: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> list[Job]:
    """Return the runs of a source, seeds slowest; rows that differ in the score alone share them.

    Parameters
    ----------
    memory, rows
        Only these; empty: all that the source has.
    values
        Settings for all runs, which go first.
    """
    source = SOURCES[name]
    known = {row.name: row for row in source.rows}
    check_rows(name, rows, known)
    jobs = [
        Job(row.preset, {**source.settings(row, size), **(values or {}), "seed": seed})
        for seed in (range(source.seeds) if seeds is None else seeds)
        for size in memory or source.memory
        for row in known.values()
        if not rows or row.name in rows
    ]
    return [job for place, job in enumerate(jobs) if job not in jobs[:place]]


def check_rows(grid: str, given: Sequence[str], known: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a row that a grid does not have."""
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{grid} has no row {name!r}{nearest(name, known)} (known: {'; '.join(known)})."
            )
