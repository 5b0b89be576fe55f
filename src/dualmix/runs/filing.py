"""How a configuration is filed: its folder, what is recorded of it, and what a run serves for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dualmix.config.compose import Composed
from dualmix.config.fields import Probes
from dualmix.errors import StoreError
from dualmix.store.folder import Folder
from dualmix.store.store import Store

SMALL = ("config.json", "plan.json", "facts.json", "confusion.npz", "times.json")
"""Files of a finished run that are checked wherever it is used; the network is checked when it is
loaded.
"""
TIMES = ("train_seconds", "evaluate_seconds", "images_per_second", "peak_memory_mb")


def place(store: Store, composed: Composed, fingerprint: str) -> Folder:
    """Return the folder of a configuration on given data, whether or not it exists yet."""
    config = composed.config
    name = f"{composed.label}-{config.data.name}-s{config.seed}"
    return store.folder(name, config.key(fingerprint))


def record(composed: Composed, key: str) -> dict[str, Any]:
    """Return what ``config.json`` holds."""
    where = composed.config.code().where()
    return {
        "key": key,
        "label": composed.label,
        "config": composed.config.record(),
        "origins": dict(composed.origins),
        **({"plugin": where} if where else {}),
    }


def serves(folder: Folder, composed: Composed) -> bool:
    """Whether a run is done and sound, with all probes that are asked for: they cannot be made up
    for later.
    """
    if not folder.done:
        return False
    try:
        more = [name for name in ("plan.npz", "probes.json") if folder.has(name)]
        folder.check(*SMALL, *more)
        results(folder)
        return probed(folder, composed)
    except StoreError:
        return False


def probed(folder: Folder, composed: Composed) -> bool:
    """Whether a finished run has all probes that are asked for."""
    asked = composed.config.probes
    return not asked.on or (folder.has("probes.json") and covers(_probes(folder), asked))


def covers(made: Mapping[str, Any], asked: Probes) -> bool:
    """Whether probes with some settings measured all that is asked for."""
    same = all(made.get(name) == getattr(asked, name) for name in ("draws", "rows", "past"))
    if any(getattr(asked, name) and not made.get(name) for name in ("linear", "answers")):
        return False
    operators = made.get("operators")
    return same and isinstance(operators, list) and set(asked.operators) <= set(map(str, operators))


def continues(folder: Folder, composed: Composed) -> bool:
    """Whether an unfinished run can go on: not if probes are asked for that were not made."""
    asked = composed.config.probes
    if not asked.on or not folder.has("config.json"):
        return True
    try:
        return {"linear": False, "answers": False, **_probes(folder)} == asked.model_dump(
            mode="json"
        )
    except StoreError:
        return True  # what was asked for is damaged, and will be mended


def results(folder: Folder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return scores and times of a finished run.

    Raises
    ------
    StoreError
        A file is not as the run wrote it, or does not hold what it should.
    """
    scores, times = folder.read_json("scores.json"), folder.read_json("times.json")
    by_task = scores.get("average_accuracy_by_task") if isinstance(scores, dict) else None
    if not isinstance(by_task, list) or not by_task or not all(map(_share, by_task)):
        raise StoreError(f"{folder.path / 'scores.json'} holds no scores: run again with --fresh.")
    if scores.get("average_accuracy") != by_task[-1]:
        raise StoreError(
            f"{folder.path / 'scores.json'} contradicts itself: run again with --fresh."
        )
    if not isinstance(times, dict) or not all(_amount(times.get(name)) for name in TIMES):
        raise StoreError(f"{folder.path / 'times.json'} holds no times: run again with --fresh.")
    return scores, times


def _probes(folder: Folder) -> dict[str, Any]:
    made = folder.config()["config"].get("probes")
    return made if isinstance(made, dict) else {}


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf
