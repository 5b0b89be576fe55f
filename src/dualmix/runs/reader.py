"""One finished run read from its files, each of which is checked against the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dualmix.config.compose import flatten
from dualmix.config.fields import RESULTS_VERSION, Config
from dualmix.config.migrate import migrate, migrate_label
from dualmix.errors import StoreError
from dualmix.registry import get_method
from dualmix.runs import metrics
from dualmix.runs.apart import Own, Usual
from dualmix.runs.records import Content, Run
from dualmix.store.folder import Folder
from dualmix.store.log import STEP

CHECKED = ("average_accuracy", "forgetting")
MEASURES, GAPS = (
    {"mean_variance", "sample_spread", "covariance"},
    {"gap", "gap_variance", "gap_bias"},
)
TOLERANCE = 1e-9
LARGEST = 1e30
"""No measurement is larger than this; it also keeps squares finite."""


class Reader:
    """Reads finished runs; what presets say is worked out once for all of them.

    Parameters
    ----------
    own
        As `collect` takes it.
    """

    def __init__(self, own: Own = lambda preset, data: {}) -> None:
        self.usual = Usual(own)
        self.schemas: dict[str, Any] = {}

    def read(self, folder: Folder) -> tuple[Run, list[str]]:
        """Return a run, and a sentence for each file of it that is not shown.

        Raises
        ------
        StoreError, ConfigError
            Its files are damaged, were changed, do not fit each other, or are of a method or a
            setting that is not known.
        """
        facts = _mapping(folder.read_json("facts.json"), "facts.json")
        version = facts.get("results_version")
        if version != RESULTS_VERSION:
            raise StoreError(
                f"it has results version {version}, but this is {RESULTS_VERSION}: run it again"
            )
        try:
            data = facts["data"]
            content = Content(
                str(data["name"]),
                str(data["fingerprint"]),
                tuple(str(note) for note in data["notes"]),
            )
        except (KeyError, TypeError) as fault:
            raise StoreError("its facts.json does not say which images it saw") from fault
        saved = folder.read_json("config.json")
        if not isinstance(saved["label"], str):
            raise StoreError("its config.json does not hold a configuration")
        label = migrate_label(saved["label"])
        code = str(_dict(facts.get("plugin")).get("sha256") or "")
        settings = self._settings(saved, content, folder.key, code)
        if settings["data.path"]:
            content = replace(content, file=Path(settings["data.path"]).name)
        preset = self.usual.preset(label, str(settings["method.kind"]))
        plan, scores, confusion = results(folder)
        lacking: list[str] = []
        times = _optional(folder, "times.json", dict, lacking)
        probes = _optional(folder, "probes.json", list, lacking)
        if not all(map(_sound, probes)):
            lacking.append(
                "Its probes.json is not what probes write: its scores count, its probes are not "
                "shown."
            )
            probes = []
        run = Run(
            folder.path.name,
            folder.key,
            label,
            content,
            settings,
            preset,
            self.usual.changed(preset, settings),
            scores,
            confusion,
            {name: float(v) for name, v in times.items() if _number(v)},
            probes,
            {**facts, **{name: _dict(facts.get(name)) for name in ("host", "versions")}},
            plan,
            _log(folder, lacking),
            self.usual.odd(preset, settings),
        )
        return run, lacking

    def _settings(
        self, saved: Mapping[str, Any], content: Content, key: str, code: str
    ) -> dict[str, Any]:
        """Return all settings by path, after a check that they give the run's key."""
        try:
            plain = migrate(saved["config"])
            kind = str(plain["method"].pop("kind"))
            if kind not in self.schemas:
                self.schemas[kind] = cast(Any, Config)[get_method(kind, saved.get("plugin"))]
            config = self.schemas[kind].model_validate(plain)
        except ValidationError as fault:
            first = fault.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise StoreError(
                f"its configuration is none of this version ({where}: {first['msg']})"
            ) from fault
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise StoreError("its config.json does not hold a configuration") from fault
        if config.key(content.fingerprint, code) != key:
            raise StoreError(
                "its configuration does not give its key: config.json or facts.json was changed"
            )
        return dict(flatten(config.record()))


def results(folder: Folder) -> tuple[dict[str, Any], dict[str, Any], NDArray[np.int64]]:
    """Return plan, scores computed from the confusion counts, and confusion by task.

    Raises
    ------
    StoreError
        A file is damaged or was changed, or the filed scores are not those of the counts.
    """
    plan = _mapping(folder.read_json("plan.json"), "plan.json")
    filed = _mapping(folder.read_json("scores.json"), "scores.json")
    counts = folder.counts()
    try:
        tasks = [[int(c) for c in task["classes"]] for task in plan["tasks"]]
        if len(counts) != len(tasks):
            raise StoreError(f"it was tested after {len(counts)} of {len(tasks)} tasks")
        scores = metrics.summary(counts, tasks)
    except (LookupError, TypeError, ValueError, OverflowError) as fault:
        raise StoreError(f"its plan and its confusion counts do not fit ({fault})") from fault
    for name in CHECKED:
        if name not in filed:
            raise StoreError(f"its scores.json lacks {name}")
        given, value = filed[name], scores[name]
        same = (
            abs(given - value) < TOLERANCE if _number(given) and _number(value) else given == value
        )
        if not same:
            raise StoreError(
                f"its scores.json says {name} {given}, but its confusion counts give {value}"
            )
    if _number(filed.get("online_accuracy")):
        scores["online_accuracy"] = filed["online_accuracy"]
    task_of = np.full(counts.shape[1], -1)
    for number, members in enumerate(tasks):
        task_of[members] = number
    seen = np.flatnonzero(task_of >= 0)
    by_task = np.zeros((len(tasks), len(tasks)), dtype=np.int64)
    np.add.at(
        by_task, (task_of[seen][:, None], task_of[seen][None, :]), counts[-1][np.ix_(seen, seen)]
    )
    return plan, scores, by_task


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
    measures = [
        value
        for one in operators.values()
        for name, value in _dict(one).items()
        if "interval" not in name
    ]
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
    if not folder.has(name) and name not in (folder.sums() or {"files": {}})["files"]:
        return kind()
    try:
        plain = folder.read_json(name)
        if isinstance(plain, kind):
            return plain
    except StoreError:
        pass
    lacking.append(
        f"Its {name} cannot be read: its scores count, what that file holds is not shown."
    )
    return kind()


def _log(folder: Folder, lacking: list[str]) -> list[str]:
    if not folder.has("log.jsonl"):
        return []
    try:
        lines = folder.read("log.jsonl").decode("utf-8").splitlines()
        return [line for line in lines if f'"event": "{STEP}"' not in line][-200:]
    except (StoreError, UnicodeDecodeError):
        lacking.append("Its log.jsonl cannot be read: its scores count, its log is not shown.")
        return []
