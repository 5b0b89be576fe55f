"""Finished runs as records: what a run was told, what came out, and how runs go together.

`dualmix.runs.collect` reads them from a store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data.catalog import DATASETS
from dualmix.runs import metrics

MACHINERY = ("device", "threads", "model.engine")
"""Settings that change how numbers are rounded and nothing else: a run that differs from another
one in these alone is not a second sample.
"""


@dataclass(frozen=True, slots=True)
class Content:
    """The images that a run saw.

    Attributes
    ----------
    notes
        Remarks that belong to every figure computed from them, such as "subset: ...".
    file
        The name of the user's own file or folder that they came from.
    """

    name: str
    fingerprint: str
    notes: tuple[str, ...] = field(compare=False)
    file: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """The name in sentences; that of the file where the images are the user's own."""
        if self.file:
            return self.file
        return DATASETS[self.name].title if self.name in DATASETS else self.name

    @property
    def subset(self) -> bool:
        """Whether these are not all images of the published set."""
        return any(note.startswith(("subset", "not the standard set")) for note in self.notes)


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes
    ----------
    settings
        Every setting by dotted path, also those that came later than the run, with their defaults.
    preset
        What it is compared with: the preset of its name, or for a name of one's own that of its
        method.
    changed
        Settings in which it differs from its preset, but for `FREE` and the probes.
    confusion
        Test images of each task (row) that were taken for a class of each task (column), after the
        last task.
    odd
        Settings of `MACHINERY` in which it differs from its preset.
    """

    name: str
    key: str
    label: str
    content: Content
    settings: Mapping[str, Any]
    preset: str
    changed: tuple[tuple[str, Any], ...]
    scores: Mapping[str, Any]
    confusion: NDArray[np.int64]
    times: Mapping[str, float]
    probes: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]
    plan: Mapping[str, Any]
    log: Sequence[str]
    odd: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The seed from which all its chance came."""
        return int(self.settings["seed"])

    @property
    def memory(self) -> int | None:
        """Images the memory holds; none for a method without one."""
        return self.settings.get("method.memory")

    @property
    def engine(self) -> str:
        """What computed its network."""
        return str(self.settings.get("model.engine", "torch"))

    @property
    def plugin(self) -> Mapping[str, Any]:
        """The file and the sha256 of the code of a method that is not the package's own."""
        given = self.facts.get("plugin")
        return given if isinstance(given, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Remark:
    """Something wrong with a run, in words."""

    run: str
    text: str


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only: what a cell of a table averages."""

    label: str
    content: Content
    memory: int | None
    changed: tuple[tuple[str, Any], ...]
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, in their order."""
        return tuple(run.seed for run in self.runs)

    @cached_property
    def tasks(self) -> int:
        """Tasks of the stream."""
        return len(self.runs[0].plan["tasks"])

    @property
    def first(self) -> int | None:
        """Tasks at which a shortened stream was cut off."""
        return dict(self.changed).get("stream.first")

    def values(self, score: str) -> dict[int, float]:
        """Return a score in per cent by seed, without the runs for which it is not defined."""
        shares = {run.seed: run.scores.get(score) for run in self.runs}
        return {seed: 100 * float(share) for seed, share in shares.items() if share is not None}

    def interval(self, score: str) -> metrics.Interval | None:
        """Return mean and 95 % interval of a score in per cent."""
        values = list(self.values(score).values())
        return metrics.interval(values) if values else None


@dataclass(frozen=True)
class Collection:
    """What a store holds: the runs that count, grouped, and what was left out or missing in a run
    that counts.

    Attributes
    ----------
    place
        The store as it is shown; `root` is where its files were read.
    rank
        A label's place in tables; equal ones go by name.
    twins
        Runs with the configuration and seed of one that counts, but for `MACHINERY`.
    """

    root: Path
    place: str
    runs: tuple[Run, ...]
    left_out: tuple[Remark, ...]
    unfinished: tuple[Remark, ...]
    remarks: tuple[Remark, ...]
    rank: Callable[[str], int] = field(default=lambda label: 0, compare=False)
    twins: tuple[Run, ...] = ()

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All groups, in the order of tables."""
        return self._grouped(self.runs)

    @cached_property
    def configurations(self) -> tuple[Group, ...]:
        """All groups of all runs; another device, number of threads or engine is another group."""
        return self._grouped((*self.runs, *self.twins), MACHINERY)

    def _grouped(self, runs: Iterable[Run], also: Sequence[str] = ()) -> tuple[Group, ...]:
        """Return runs that are alike, also in these settings."""
        alike: dict[tuple[Any, ...], list[Run]] = {}
        for run in runs:
            key = (
                run.label,
                run.content.name,
                run.content.fingerprint,
                run.memory,
                repr(run.changed),
                run.plugin.get("sha256"),
                *(run.settings.get(path) for path in also),
            )
            alike.setdefault(key, []).append(run)
        groups = [
            Group(some[0].label, some[0].content, some[0].memory, some[0].changed, tuple(some))
            for some in alike.values()
        ]
        return tuple(
            sorted(
                groups,
                key=lambda g: (
                    self.rank(g.label),
                    g.label,
                    g.content.name,
                    g.memory or 0,
                    len(g.changed),
                ),
            )
        )

    @cached_property
    def plain(self) -> tuple[Group, ...]:
        """Groups whose method, network and stream are their preset's."""
        return tuple(group for group in self.groups if not group.changed)

    def contents(self, groups: Iterable[Group]) -> list[Content]:
        """Return the distinct images that groups saw, in the catalogue's order, with all that was
        noted about them.
        """
        order = list(DATASETS)
        notes: dict[Content, dict[str, None]] = {}
        for group in groups:
            notes.setdefault(group.content, {}).update(dict.fromkeys(group.content.notes))
        return sorted(
            (replace(content, notes=tuple(all_)) for content, all_ in notes.items()),
            key=lambda c: (order.index(c.name) if c.name in order else len(order), c.fingerprint),
        )


def account(run: Run) -> dict[str, Any]:
    """Return all that is known about a run as plain JSON, for a page that shows it on demand."""
    return {
        "name": run.name,
        "key": run.key,
        "label": run.label,
        "seed": run.seed,
        "settings": {
            path: json.loads(json.dumps(value, default=str)) for path, value in run.settings.items()
        },
        "changed": [path for path, _ in run.changed],
        "scores": {name: run.scores.get(name) for name in single_numbers(run.scores)},
        "times": dict(run.times),
        "plan": {
            "sha256": run.plan.get("sha256"),
            "tasks": len(run.plan["tasks"]),
            "batch": run.plan.get("batch"),
        },
        "facts": {name: value for name, value in run.facts.items() if name != "data"},
        "content": [run.content.name, run.content.fingerprint, list(run.content.notes)],
        "log": list(run.log),
    }


def single_numbers(scores: Mapping[str, Any]) -> list[str]:
    """Return the names of the scores that are one number each."""
    return [name for name, value in scores.items() if isinstance(value, int | float)]
