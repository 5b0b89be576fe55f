"""The commands that make a result again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from dualmix.config.plain import as_flag
from dualmix.paper.grids import own
from dualmix.paper.numbers import SEEDS
from dualmix.runs.records import Group, Run


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
    """Return the command that trains the runs of a group; one after the other where they are of
    several engines.
    """
    seeds: dict[str, list[int]] = {}
    for run in group.runs:
        seeds.setdefault(machinery([run]), []).append(run.seed)
    words = [f"dualmix run {shlex.quote(group.runs[0].preset)} --data.name {group.content.name}"]
    plugin = group.runs[0].plugin.get("file")
    words += [f"--plugin {shlex.quote(str(plugin))}"] if plugin else []
    path = group.runs[0].settings["data.path"]
    words += [f"--data.path {flag(path)}"] if path else []
    words += [] if group.memory is None else [f"--method.memory {group.memory}"]
    changed = {**own(group.runs[0].preset, group.content.name), **dict(group.changed)}
    words += [f"--{name} {flag(value)}" for name, value in changed.items()]
    return "; ".join(_for_seeds(" ".join(words) + flags, some) for flags, some in seeds.items())


def _for_seeds(command: str, seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"{command} --seed {seeds[0]}"
    listed = " ".join(str(seed) for seed in sorted(seeds))
    return f"for seed in {listed}; do {command} --seed $seed; done"


def machinery(runs: Iterable[Run]) -> str:
    """Return the flags, each behind a space, of the engine, device and threads that all of some
    runs have and their preset has not; they are part of a run's key.
    """
    flags = {"".join(f" --{path} {flag(run.settings[path])}" for path in run.odd) for run in runs}
    return flags.pop() if len(flags) == 1 else ""


def cell_command(grid: str, label: str, data: str, memory: int | None, group: Group | None) -> str:
    """Return the command for a cell: what trained it, or for a missing one what would."""
    if group is None:
        return sweep_command(grid, [label], data, memory)
    seeds, engines = len(group.seeds), {machinery([run]) for run in group.runs}
    if sorted(group.seeds) == list(range(seeds)) and len(engines) == 1:
        return sweep_command(grid, [label], data, memory, seeds) + engines.pop()
    return rerun_command(group)
