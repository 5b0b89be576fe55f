"""The commands that make a result again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from dualmix.config.plain import as_flag
from dualmix.paper.grids import own
from dualmix.paper.numbers import SEEDS
from dualmix.runs.records import Group


def flag(value: Any) -> str:
    """Return a setting's value as the command line reads it."""
    return shlex.quote(as_flag(value))


def sweep_command(
    grid: str, methods: Sequence[str], data: str = "", memory: int | None = None, seeds: int = SEEDS
) -> str:
    """Return the sweep that trains some rows of one of the paper's grids."""
    words = ["dualmix sweep", grid, *(f"--methods {method}" for method in methods)]
    words += [f"--data {data}"] if data else []
    words += [] if memory is None else [f"--memory {memory}"]
    return " ".join([*words, f"--seeds {seeds}"])


def rerun_command(group: Group) -> str:
    """Return the command that trains the runs of a group."""
    words = [f"dualmix run {shlex.quote(group.runs[0].preset)} --data.name {group.content.name}"]
    plugin = group.runs[0].plugin.get("file")
    words += [f"--plugin {shlex.quote(str(plugin))}"] if plugin else []
    path = group.runs[0].settings["data.path"]
    words += [f"--data.path {flag(path)}"] if path else []
    words += [] if group.memory is None else [f"--method.memory {group.memory}"]
    changed = {**own(group.runs[0].preset, group.content.name), **dict(group.changed)}
    words += [f"--{name} {flag(value)}" for name, value in changed.items()]
    if len(group.seeds) == 1:
        return " ".join([*words, f"--seed {group.seeds[0]}"])
    listed = " ".join(str(seed) for seed in sorted(group.seeds))
    return f"for seed in {listed}; do {' '.join(words)} --seed $seed; done"


def cell_command(grid: str, label: str, data: str, memory: int | None, group: Group | None) -> str:
    """Return the command for a cell: what trained it, or for a missing one what would."""
    if group is None:
        return sweep_command(grid, [label], data, memory)
    if sorted(group.seeds) == list(range(len(group.seeds))):
        return sweep_command(grid, [label], data, memory, len(group.seeds))
    return rerun_command(group)
