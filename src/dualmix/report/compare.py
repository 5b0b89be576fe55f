"""Two runs side by side: what differs in how they were made, and in what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dualmix.config.compose import flatten
from dualmix.config.migrate import migrate
from dualmix.errors import StoreError
from dualmix.runs.reader import results
from dualmix.store.folder import Folder

COMPARED = (
    "average_accuracy",
    "forgetting",
    "anytime_accuracy",
    "learning_accuracy",
    "backward_transfer",
    "last_task_accuracy",
    "online_accuracy",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that two runs do not share; none stands for "not there"."""

    name: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs' names, what differs in settings and circumstances, their scores, and accuracy after
    each task.

    Attributes
    ----------
    paired
        Whether both saw the same rows in the same order.
    """

    names: tuple[str, str]
    settings: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]
    paired: bool
    scores: tuple[Difference, ...]
    by_task: tuple[tuple[int, float | None, float | None], ...]


def compare(a: Folder, b: Folder) -> Comparison:
    """Compare two finished runs."""
    for folder in (a, b):
        if not folder.done:
            raise StoreError(f"{folder.path.name} is not finished: there is no result to compare.")
    configs, facts, plans = (
        [_record(folder, f"{name}.json") for folder in (a, b)]
        for name in ("config", "facts", "plan")
    )
    scores = [_scores(folder) for folder in (a, b)]
    made = [
        _settings(folder, config["config"]) for folder, config in zip((a, b), configs, strict=True)
    ]
    around = [
        _circumstances(config, fact, plan)
        for config, fact, plan in zip(configs, facts, plans, strict=True)
    ]
    curves = [score.get("average_accuracy_by_task") or [] for score in scores]
    return Comparison(
        (a.path.name, b.path.name),
        tuple(differences(*made)),
        tuple(differences(*around)),
        plans[0].get("sha256") == plans[1].get("sha256"),
        tuple(Difference(name, scores[0].get(name), scores[1].get(name)) for name in COMPARED),
        tuple(
            (task, one, other) for task, (one, other) in enumerate(zip_longest(*curves), start=1)
        ),
    )


def _settings(folder: Folder, config: Any) -> dict[str, Any]:
    try:
        return dict(flatten(migrate(config, keep_dropped=True)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as fault:
        raise StoreError(
            f"{folder.path.name} cannot be compared: its config.json does not hold a configuration."
        ) from fault


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return every name whose values differ, or that only one side has.

    Examples
    --------
    >>> differences({"x": 1, "y": 2}, {"x": 1, "y": 3, "z": 4})
    [Difference(name='y', a=2, b=3), Difference(name='z', a=None, b=4)]
    """
    return [
        Difference(n, a.get(n), b.get(n))
        for n in sorted(a.keys() | b.keys())
        if a.get(n) != b.get(n)
    ]


def _record(folder: Folder, name: str) -> dict[str, Any]:
    plain = folder.read_json(name)
    if not isinstance(plain, dict):
        raise StoreError(f"{folder.path / name} does not hold a record: run again with --fresh.")
    return plain


def _scores(folder: Folder) -> dict[str, Any]:
    try:
        return results(folder)[1]
    except StoreError as fault:
        raise StoreError(f"{folder.path.name} cannot be compared: {fault}.") from fault


def _circumstances(
    config: Mapping[str, Any], facts: Mapping[str, Any], plan: Mapping[str, Any]
) -> dict[str, Any]:
    data = facts.get("data") or {}
    return {
        "preset": config.get("label"),
        "commit": facts.get("commit"),
        "results version": facts.get("results_version"),
        "python": facts.get("python"),
        **{
            f"version of {name}": version for name, version in (facts.get("versions") or {}).items()
        },
        **{f"host: {name}": value for name, value in (facts.get("host") or {}).items()},
        "data": data.get("fingerprint"),
        "notes on the data": "; ".join(data.get("notes") or ()),
        "plan": plan.get("sha256"),
    }
