"""Where a run is, read from its folder alone: done, running, stopped or failed, how far, how long
still.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dualmix.errors import StoreError
from dualmix.store.folder import Folder
from dualmix.store.store import Store

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
    """Return where a run is; `now` is the time in seconds since the epoch. A run whose files are
    damaged has failed.
    """
    try:
        return _standing(folder, now)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        fault = f"{folder.path}: its files do not hold what they should: run again with --fresh."
    except StoreError as refused:
        fault = str(refused)
    return Standing(folder.path.name, "failed", fault=fault)


def _standing(folder: Folder, now: float) -> Standing:
    name = folder.path.name
    if folder.done:
        scores = folder.read_json("scores.json")
        tasks = len(scores["average_accuracy_by_task"])
        return Standing(name, "done", tasks, tasks, _share(scores["average_accuracy"]), 0.0)
    told = (folder.sums() or {}).get("files", {})
    if not folder.has("plan.json") and "plan.json" not in told:
        return Standing(name, "running" if folder.busy else "waiting")
    plan = folder.read_json("plan.json")["tasks"]
    begun, scored, failed = _milestones(folder)
    accuracy, finished = (_share(scored["accuracy"]), int(scored["task"])) if scored else (None, 0)
    if not folder.busy:
        state: State = "failed" if failed else "stopped"
        fault = str(failed["error"]) if failed else ""
        return Standing(name, state, finished, len(plan), accuracy, fault=fault)
    left = None
    if begun and scored and scored["step"] > begun["step"]:
        pace = (_seconds(scored) - _seconds(begun)) / (scored["step"] - begun["step"])
        steps = sum(task["batches"] for task in plan)
        left = max(0.0, pace * (steps - scored["step"]) - (now - _seconds(scored)))
    return Standing(name, "running", finished, len(plan), accuracy, left)


def standings(store: Store, *, now: float) -> list[Standing]:
    """Return where every run of a store is."""
    store.refresh()
    return [standing(store.at(path), now=now) for path in store.paths()]


def _share(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is no share")
    return float(value)


def _milestones(
    folder: Folder,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """Return the latest beginning, the latest task's end and, if it came last, the failure."""
    begun = scored = failed = None
    for entry in folder.entries():
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
