"""Finished runs read from a store: each one checked, and what cannot be used listed with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dualmix import metrics
from dualmix.config import RESULTS_VERSION, Config, compose, flatten
from dualmix.data.catalog import DATASETS
from dualmix.errors import ConfigError, StoreError
from dualmix.paper import ABLATION_ACCURACY, ACCURACY, BOUNDS
from dualmix.registry import get_method, presets
from dualmix.store import Folder, Store

ROWS = (
    *BOUNDS,
    "iid-online",
    *dict.fromkeys(row for name in ACCURACY for row in (ABLATION_ACCURACY if name == "er" else (name,))),
)
"""Methods in the order of the paper's tables."""
FREE = ("data.name", "data.root", "data.path", "method.memory", "seed", "save_every", "device", "graphs", "threads")
"""Settings in which a run may differ from its preset and still stand for it; data and memory are its column."""
CHECKED = ("average_accuracy", "forgetting")
MEASURES, GAPS = {"mean_variance", "sample_spread", "covariance"}, {"gap", "gap_variance", "gap_bias"}
TOLERANCE = 1e-9
LARGEST = 1e30
"""No measurement is larger than this; it also keeps squares finite."""


@dataclass(frozen=True, slots=True)
class Content:
    """The images that a run saw.

    Attributes
    ----------
    notes
        Remarks that belong to every figure computed from them, such as "subset: ...".
    """

    name: str
    fingerprint: str
    notes: tuple[str, ...] = field(compare=False)

    @property
    def title(self) -> str:
        """The name in sentences."""
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
        What it is compared with: the preset of its name, or for a name of one's own that of its method.
    changed
        Settings in which it differs from its preset, but for `FREE` and the probes.
    confusion
        Test images of each task (row) that were taken for a class of each task (column), after the last task.
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

    @property
    def seed(self) -> int:
        """The seed from which all its chance came."""
        return int(self.settings["seed"])

    @property
    def memory(self) -> int | None:
        """Images the memory holds; none for a method without one."""
        return self.settings.get("method.memory")


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
        found = {run.seed: run.scores.get(score) for run in self.runs}
        return {seed: 100 * float(value) for seed, value in found.items() if value is not None}

    def interval(self, score: str) -> metrics.Interval | None:
        """Return mean and 95 % interval of a score in per cent."""
        found = list(self.values(score).values())
        return metrics.interval(found) if found else None


@dataclass(frozen=True)
class Collection:
    """What a store holds: the runs that count, grouped, and what was left out or missing in a run that counts.

    Attributes
    ----------
    place
        The store as it is shown; `root` is where its files were read.
    """

    root: Path
    place: str
    runs: tuple[Run, ...]
    left_out: tuple[Remark, ...]
    unfinished: tuple[Remark, ...]
    remarks: tuple[Remark, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All groups, in the order of the paper's tables."""
        found: dict[tuple[Any, ...], list[Run]] = {}
        for run in self.runs:
            key = (run.label, run.content.name, run.content.fingerprint, run.memory, repr(run.changed))
            found.setdefault(key, []).append(run)
        groups = [
            Group(some[0].label, some[0].content, some[0].memory, some[0].changed, tuple(some))
            for some in found.values()
        ]
        return tuple(
            sorted(groups, key=lambda g: (rank(g.label), g.label, g.content.name, g.memory or 0, len(g.changed)))
        )

    @cached_property
    def plain(self) -> tuple[Group, ...]:
        """Groups whose method, network and stream are their preset's."""
        return tuple(group for group in self.groups if not group.changed)

    def contents(self, groups: Iterable[Group]) -> list[Content]:
        """Return the distinct images that groups saw, in the catalogue's order, with all that was noted about them."""
        order = list(DATASETS)
        notes: dict[Content, dict[str, None]] = {}
        for group in groups:
            notes.setdefault(group.content, {}).update(dict.fromkeys(group.content.notes))
        found = [replace(content, notes=tuple(all_)) for content, all_ in notes.items()]
        return sorted(found, key=lambda c: (order.index(c.name) if c.name in order else len(order), c.fingerprint))


def rank(label: str) -> int:
    """Return a method's place in the paper's tables."""
    return ROWS.index(label) if label in ROWS else len(ROWS)


def collect(store: Store) -> Collection:
    """Read every run of a store; a run that cannot be trusted is left out and named, and never stops the others."""
    store.refresh()
    if not store.root.is_dir():
        raise StoreError(f"There is no store {store}: give the folder of runs with --store.")
    runs: dict[str, Run] = {}
    left_out, unfinished, remarks = [], [], []
    reader = _Reader()
    for path in sorted(p for p in store.root.iterdir() if p.is_dir() and not p.name.startswith(".")):
        try:
            if not (path / "config.json").is_file():
                raise StoreError("it has no config.json, so that nothing is known about it")
            folder = store.open(path)
            if not folder.done:
                unfinished.append(Remark(path.name, _progress(folder)))
                continue
            run, lacking = reader.read(folder)
            if run.key in runs:
                twin = runs[run.key]
                same = "equal scores" if twin.scores == run.scores else "other scores"
                raise StoreError(f"it has the key of {twin.name}, with {same}; only that one counts")
        except (StoreError, ConfigError) as fault:
            left_out.append(Remark(path.name, _sentence(str(fault), path)))
        else:
            runs[run.key] = run
            remarks += [Remark(path.name, text) for text in lacking]
    kept, doubled = _one_a_seed(runs.values())
    return Collection(store.root, str(store), kept, (*left_out, *doubled), tuple(unfinished), tuple(remarks))


class _Reader:
    """Reads runs; what presets say is worked out once for all of them."""

    def __init__(self) -> None:
        self.presets: dict[tuple[str, str, Any], dict[str, Any]] = {}
        self.schemas: dict[str, Any] = {}
        self.known = presets()

    def read(self, folder: Folder) -> tuple[Run, list[str]]:
        facts = _mapping(folder.read_json("facts.json"), "facts.json")
        version = facts.get("results_version")
        if version != RESULTS_VERSION:
            raise StoreError(f"it has results version {version}, but this is {RESULTS_VERSION}: run it again")
        try:
            data = facts["data"]
            content = Content(str(data["name"]), str(data["fingerprint"]), tuple(str(note) for note in data["notes"]))
        except (KeyError, TypeError) as fault:
            raise StoreError("its facts.json does not say which images it saw") from fault
        saved = folder.read_json("config.json")
        label = str(saved["label"])
        settings = self._settings(saved, content, folder.key)
        preset = label if label in self.known else str(settings["method.kind"])
        plan, scores, confusion = _results(folder)
        lacking: list[str] = []
        times = _optional(folder, "times.json", dict, lacking)
        probes = _optional(folder, "probes.json", list, lacking)
        if not all(map(_sound, probes)):
            lacking.append("Its probes.json is not what probes write: its scores count, its probes are not shown.")
            probes = []
        run = Run(
            folder.path.name,
            folder.key,
            label,
            content,
            settings,
            preset,
            self._changed(preset, settings),
            scores,
            confusion,
            {name: float(v) for name, v in times.items() if _number(v)},
            probes,
            {**facts, **{name: _dict(facts.get(name)) for name in ("host", "versions")}},
            plan,
            _log(folder.path / "log.jsonl", lacking),
        )
        return run, lacking

    def _settings(self, saved: Mapping[str, Any], content: Content, key: str) -> dict[str, Any]:
        """Return all settings by path, after a check that they give the run's key."""
        try:
            plain = dict(saved["config"])
            method = dict(plain["method"])
            kind = str(method.pop("kind"))
            if kind not in self.schemas:
                self.schemas[kind] = cast(Any, Config)[get_method(kind)]
            config = self.schemas[kind].model_validate({**plain, "method": method})
        except ValidationError as fault:
            first = fault.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise StoreError(f"its configuration is none of this version ({where}: {first['msg']})") from fault
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise StoreError("its config.json does not hold a configuration") from fault
        if config.key(content.fingerprint) != key:
            raise StoreError("its configuration does not give its key: config.json or facts.json was changed")
        return dict(flatten(config.record()))

    def _changed(self, preset: str, settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        at = (preset, str(settings["data.name"]), settings["data.path"])
        if at not in self.presets:
            own = {"data.path": at[2] or "."} if DATASETS[at[1]].own else {}
            self.presets[at] = dict(flatten(compose(preset, {"data.name": at[1], **own}).config.record()))
        usual = self.presets[at]
        return tuple(
            (path, value)
            for path, value in sorted(settings.items())
            if path not in FREE and not path.startswith("probes.") and value != usual.get(path)
        )


def _results(folder: Folder) -> tuple[dict[str, Any], dict[str, Any], NDArray[np.int64]]:
    """Return plan, scores computed from the confusion counts, and confusion by task; filed scores must be the same."""
    plan = _mapping(folder.read_json("plan.json"), "plan.json")
    filed = _mapping(folder.read_json("scores.json"), "scores.json")
    counts = folder.counts()
    try:
        tasks = [[int(c) for c in task["classes"]] for task in plan["tasks"]]
        if len(counts) != len(tasks):
            raise StoreError(f"it was tested after {len(counts)} of {len(tasks)} tasks")
        scores = metrics.summary(counts, tasks)
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"its plan and its confusion counts do not fit ({fault})") from fault
    for name in CHECKED:
        if name not in filed:
            raise StoreError(f"its scores.json lacks {name}")
        given, value = filed[name], scores[name]
        same = abs(given - value) < TOLERANCE if _number(given) and _number(value) else given == value
        if not same:
            raise StoreError(f"its scores.json says {name} {given}, but its confusion counts give {value}")
    if _number(filed.get("online_accuracy")):
        scores["online_accuracy"] = filed["online_accuracy"]
    task_of = np.full(counts.shape[1], -1)
    for number, members in enumerate(tasks):
        task_of[members] = number
    seen = np.flatnonzero(task_of >= 0)
    by_task = np.zeros((len(tasks), len(tasks)), dtype=np.int64)
    np.add.at(by_task, (task_of[seen][:, None], task_of[seen][None, :]), counts[-1][np.ix_(seen, seen)])
    return plan, scores, by_task


def _one_a_seed(runs: Iterable[Run]) -> tuple[tuple[Run, ...], list[Remark]]:
    """Keep one run a seed of each configuration: runs that differ in device or threads alone are not independent."""
    kept: dict[tuple[Any, ...], Run] = {}
    left_out = []
    for run in runs:
        place = (run.label, run.content.fingerprint, run.memory, repr(run.changed), run.seed)
        if place in kept:
            left_out.append(
                Remark(run.name, f"It has the configuration and seed of {kept[place].name} but for device or threads.")
            )
        else:
            kept[place] = run
    return tuple(kept.values()), left_out


def _progress(folder: Folder) -> str:
    try:
        finished = sum('"event": "task"' in line for line in _log(folder.path / "log.jsonl", []))
        planned = len(folder.read_json("plan.json")["tasks"])
    except (StoreError, KeyError, TypeError):
        return "Not finished: its plan cannot be read."
    return f"Not finished: {finished} of {planned} tasks are done."


def _mapping(plain: Any, name: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise StoreError(f"its {name} does not hold a record")
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError as fault:
        raise StoreError(f"its {name} holds NaN or infinity") from fault
    return plain


def _dict(plain: Any) -> dict[str, Any]:
    return plain if isinstance(plain, dict) else {}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _sound(record: Any) -> bool:
    """Return whether a probe's record has what is drawn from it, in the right shape."""
    if not isinstance(record, dict) or not isinstance(record.get("task"), int):
        return False
    tally, operators = record.get("tally", {}), record.get("operators", {})
    labels, counts = record.get("labels", []), record.get("memory_counts", [])
    if not (isinstance(tally, dict) and isinstance(operators, dict) and isinstance(labels, list)):
        return False
    measures = [value for one in operators.values() for name, value in _dict(one).items() if "interval" not in name]
    return (
        isinstance(counts, list)
        and (record.get("norm_ratio") is None or _number(record["norm_ratio"]))
        and all(isinstance(one, dict) and one.keys() >= MEASURES for one in operators.values())
        and all(one.keys() >= GAPS for one in operators.values() if "gap" in one)
        and all(_number(value) for value in (*tally.values(), *counts, *measures))
        and all(isinstance(label, int) for label in labels)
    )


def _optional(folder: Folder, name: str, kind: type, lacking: list[str]) -> Any:
    """Return a file that a run can do without, or nothing and a remark where it is damaged."""
    if not (folder.path / name).is_file():
        return kind()
    try:
        plain = folder.read_json(name)
        if isinstance(plain, kind):
            return plain
    except StoreError:
        pass
    lacking.append(f"Its {name} cannot be read: its scores count, what that file holds is not shown.")
    return kind()


def _log(path: Path, lacking: list[str]) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()[-200:] if path.is_file() else []
    except (OSError, UnicodeDecodeError):
        lacking.append("Its log.jsonl cannot be read: its scores count, its log is not shown.")
        return []


def _sentence(text: str, path: Path) -> str:
    text = text.replace(f"{path}/", "its ").removesuffix(": run again with --fresh.")
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def account(run: Run) -> dict[str, Any]:
    """Return all that is known about a run as plain JSON: what the page shows when it is asked for."""
    return {
        "name": run.name,
        "key": run.key,
        "label": run.label,
        "seed": run.seed,
        "settings": {path: json.loads(json.dumps(value, default=str)) for path, value in run.settings.items()},
        "changed": [path for path, _ in run.changed],
        "scores": {name: run.scores.get(name) for name in single_numbers(run.scores)},
        "times": dict(run.times),
        "plan": {"sha256": run.plan.get("sha256"), "tasks": len(run.plan["tasks"]), "batch": run.plan.get("batch")},
        "facts": {name: value for name, value in run.facts.items() if name != "data"},
        "content": [run.content.name, run.content.fingerprint, list(run.content.notes)],
        "log": list(run.log),
    }


def single_numbers(scores: Mapping[str, Any]) -> list[str]:
    """Return the names of the scores that are one number each."""
    return [name for name, value in scores.items() if isinstance(value, int | float)]
