"""Where a run is, read from its folder alone: done, running, stopped or failed, how far, how long
still.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dualmix.errors import StoreError
from dualmix.store.folder import Folder, Store

State = Literal["waiting", "running", "stopped", "failed", "done"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A run's state, the tasks it has finished, its average accuracy so far and the seconds it
    still needs.

    Attributes
    ----------
    left
        An extrapolation of the pace so far; none before the first task's end.
    fault
        Why it failed, in one sentence.
    """

    name: str
    state: State
    finished: int = 0
    tasks: int = 0
    accuracy: float | None = None
    left: float | None = None
    fault: str = ""


def standing(folder: Folder, *, now: float) -> Standing:
    """Return where a run is; `now` is the time in seconds since the epoch."""
    name = folder.path.name
    if folder.done:
        scores = folder.read_json("scores.json")
        tasks = len(scores["average_accuracy_by_task"])
        return Standing(name, "done", tasks, tasks, scores["average_accuracy"], 0.0)
    if not (folder.path / "plan.json").is_file():
        return Standing(name, "running" if folder.busy else "waiting")
    plan = folder.read_json("plan.json")["tasks"]
    begun, scored, failed = _milestones(folder)
    accuracy, finished = (scored["accuracy"], scored["task"]) if scored else (None, 0)
    if not folder.busy:
        state: State = "failed" if failed else "stopped"
        return Standing(
            name, state, finished, len(plan), accuracy, fault=failed["error"] if failed else ""
        )
    left = None
    if begun and scored and scored["step"] > begun["step"]:
        pace = (_seconds(scored) - _seconds(begun)) / (scored["step"] - begun["step"])
        steps = sum(task["batches"] for task in plan)
        left = max(0.0, pace * (steps - scored["step"]) - (now - _seconds(scored)))
    return Standing(name, "running", finished, len(plan), accuracy, left)


def standings(store: Store, *, now: float) -> list[Standing]:
    """Return where every run of a store is."""
    store.refresh()
    return [_standing(store.at(path), now) for path in store.paths()]


def _standing(folder: Folder, now: float) -> Standing:
    try:
        return standing(folder, now=now)
    except (StoreError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return Standing(
            folder.path.name, "failed", fault="its files are damaged: `dualmix run` it with --fresh"
        )


def _milestones(
    folder: Folder,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """Return the latest beginning, the latest task's end and, if it came last, the failure."""
    begun = scored = failed = None
    path = folder.path / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in deque(lines, maxlen=200):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        match entry.get("event"):
            case "begin":
                begun, failed = entry, None
            case "task":
                scored = entry
            case "failed":
                failed = entry
    return begun, scored, failed


def _seconds(entry: dict[str, Any]) -> float:
    return datetime.strptime(entry["at"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
