"""Many runs, wherever they are executed: done ones are skipped, cut-off ones go on, a lost one
costs one retry.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dualmix.config.compose import Composed, compose
from dualmix.config.plain import read_plain
from dualmix.data import load
from dualmix.errors import ConfigError, StoreError
from dualmix.runs.filing import place, serves
from dualmix.runs.status import Standing, State, standing
from dualmix.store.folder import Folder
from dualmix.store.store import RECENT, Store

POLL = 0.1
MOST_RUNS = 100_000
"""Runs of a grid; more than that are a slip of the pen."""
ELSEWHERE = 2.0
"""Seconds until a run that another process works on is looked at again."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a sweep: a preset or saved configuration, and the settings it is run with by
    dotted path.
    """

    preset: str
    values: Mapping[str, Any] = field(default_factory=dict)


def grid(
    presets: Iterable[str],
    seeds: Iterable[int],
    axes: Mapping[str, Sequence[Any]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> list[Job]:
    """Return every combination of presets, axes and seeds; seeds vary slowest, so that all rows
    fill up together.

    Examples
    --------
    >>> [job.values for job in grid(["er"], range(2), {"method.memory": [10]})]
    [{'method.memory': 10, 'seed': 0}, {'method.memory': 10, 'seed': 1}]
    """
    axes = axes or {}
    presets = list(presets)
    seeds = seeds if isinstance(seeds, Sequence) else list(seeds)
    runs = math.prod((len(presets), len(seeds), *(len(choices) for choices in axes.values())))
    if runs > MOST_RUNS:
        raise ConfigError(f"That is a grid of {runs:,} runs: the most is {MOST_RUNS:,}.")
    return [
        Job(preset, {**(values or {}), **dict(zip(axes, point, strict=True)), "seed": seed})
        for seed in seeds
        for point in itertools.product(*axes.values())
        for preset in presets
    ]


def read_grid(path: Path) -> list[Job]:
    """Return the runs of a grid file: YAML or JSON with ``presets``, ``seeds``, and maybe ``grid``
    and ``values``.
    """
    try:
        plain = read_plain(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ConfigError) as fault:
        raise ConfigError(f"The grid file {path} cannot be read: {fault}.") from fault
    known = {"presets", "seeds", "grid", "values"}
    if not isinstance(plain, dict) or not plain.keys() <= known or not plain.get("presets"):
        raise ConfigError(
            f"The grid file {path} needs presets (a list), and may have seeds (a number or list), "
            "grid (settings with lists of values) and values (settings for all runs)."
        )
    presets, seeds = plain["presets"], plain.get("seeds", 1)
    axes, values = plain.get("grid") or {}, plain.get("values") or {}
    if not isinstance(presets, list) or not all(isinstance(name, str) for name in presets):
        raise ConfigError(f"In the grid file {path}, presets is a list of names.")
    if (
        not isinstance(seeds, int | list)
        or not isinstance(axes, dict)
        or not isinstance(values, dict)
    ):
        raise ConfigError(
            f"In the grid file {path}, seeds is a number or a list, grid and values are settings."
        )
    if isinstance(seeds, int) and (isinstance(seeds, bool) or not 1 <= seeds <= MOST_RUNS):
        raise ConfigError(
            f"In the grid file {path}, seeds is {seeds}: say how many, from 1 to {MOST_RUNS:,}, or "
            "list them."
        )
    for name, choices in axes.items():
        if not isinstance(choices, list):
            raise ConfigError(f"In the grid file {path}, {name} needs a list of values.")
    return grid(presets, range(seeds) if isinstance(seeds, int) else seeds, axes, values)


@dataclass(slots=True, eq=False)
class Entry:
    """A run of a sweep and what has become of it."""

    job: Job
    composed: Composed
    folder: Folder
    state: State = "waiting"
    tries: int = 0
    fault: str = ""
    not_before: float = 0.0

    def standing(self) -> Standing:
        """Return where the run is, by what the sweep knows and by its folder while it runs."""
        if self.state == "running":
            with suppress(StoreError):
                self.folder.refresh(after=RECENT)
            here = standing(self.folder, now=time.time())
            return (
                replace(here, state="waiting", fault="")
                if here.state in ("stopped", "failed")
                else here
            )
        return Standing(self.folder.path.name, self.state, fault=self.fault)


def entries(jobs: Iterable[Job], store: Store) -> list[Entry]:
    """Compose all jobs before anything runs, each configuration once; those done already are
    marked.

    Raises
    ------
    ConfigError
        Some job cannot be run as it is.
    """
    store.refresh(after=RECENT)
    by_key: dict[str, Entry] = {}
    fingerprints: dict[str, str] = {}
    for job in jobs:
        composed = compose(job.preset, job.values)
        data = composed.config.data.model_dump_json()
        if data not in fingerprints:
            fingerprints[data] = load(composed.config.data).fingerprint
        folder = place(store, composed, fingerprints[data])
        state: State = "done" if serves(folder, composed) else "waiting"
        by_key.setdefault(folder.key, Entry(job, composed, folder, state))
    return list(by_key.values())


class Running(Protocol):
    """A run that an executor has in hand."""

    def ended(self) -> bool:
        """Whether nothing more will come of it."""

    def ask(self) -> None:
        """Ask it to save itself and end."""

    def kill(self) -> None:
        """End it at once."""

    def last_lines(self) -> str:
        """Return the end of what it said, or how it ended; to be asked once, when it has."""


class Executor(Protocol):
    """Where runs are executed: processes of this machine, or tasks of a cluster."""

    def room(self) -> int:
        """Return how many runs may be under way at once; it may change."""

    def start(self, entry: Entry) -> Running:
        """Begin a run, or let it go on from its last snapshot."""

    def close(self) -> None:
        """Let go of the machines."""


def sweep(
    runs: Sequence[Entry],
    executor: Executor,
    *,
    retries: int = 2,
    watch: Callable[[Sequence[Entry]], None] = lambda runs: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run what is not done, as many at a time as the executor has room for; each entry tells what
    became of it.

    Parameters
    ----------
    retries
        How often a run that fails or is lost is started again, from its last snapshot, before it is
        given up.
    watch
        Is shown the entries again and again; it cannot change them.
    stop
        Asked again and again; on True every run is told to save itself and the sweep returns when
        all have.
    """
    running: dict[Entry, Running] = {}
    stopping = False
    try:
        while True:
            if stop() and not stopping:
                stopping = True
                for one in running.values():
                    one.ask()
            for entry, one in list(running.items()):
                if one.ended():
                    del running[entry]
                    _settle(entry, one.last_lines(), retries, stopping)
            waiting = [entry for entry in runs if entry.state == "waiting"]
            if not running and (stopping or not waiting):
                watch(runs)
                return
            now, room = time.monotonic(), executor.room()
            for entry in waiting[: 0 if stopping else None]:
                if len(running) < room and entry.not_before <= now:
                    with suppress(StoreError):
                        entry.folder.refresh(after=ELSEWHERE)
                    if entry.folder.busy:
                        entry.not_before = now + ELSEWHERE
                    else:
                        entry.state = "running"
                        running[entry] = executor.start(entry)
            watch(runs)
            time.sleep(POLL)
    finally:
        for one in running.values():
            one.kill()


def _settle(entry: Entry, last_lines: str, retries: int, stopping: bool) -> None:
    """Decide what becomes of a run that has ended; where the store cannot be asked, that is one
    failure of it.
    """
    try:
        entry.folder.refresh()
    except StoreError as fault:
        last_lines = f"{last_lines}\n{fault}".strip()
    if serves(entry.folder, entry.composed):
        entry.state = "done"
    elif stopping:
        entry.state = "stopped"
    elif entry.folder.busy:
        entry.state, entry.not_before = "waiting", time.monotonic() + ELSEWHERE
    else:
        entry.tries += 1
        entry.fault = last_lines
        entry.state = "waiting" if entry.tries <= retries else "failed"
        if entry.folder.path.is_dir():
            with suppress(StoreError):
                entry.folder.log(event="failed", error=entry.fault)


def estimate(runs: Sequence[Entry], store: Store) -> dict[str, float | None]:
    """Return the seconds each run that is not done would take, by key, from finished runs of the
    same method and data.

    A run of another length is scaled by its steps; none where no finished run tells.
    """
    paces: dict[tuple[str, str], list[float]] = {}
    for path in store.paths():
        with suppress(
            StoreError, KeyError, TypeError, AttributeError
        ):  # a damaged run tells nothing
            folder = store.open(path)
            if folder.done:
                saved, times = folder.read_json("config.json"), folder.read_json("times.json")
                seconds = sum(
                    times.get(name, 0.0)
                    for name in ("train_seconds", "evaluate_seconds", "probe_seconds")
                )
                batches = sum(task["batches"] for task in folder.read_json("plan.json")["tasks"])
                at = (saved["label"], saved["config"]["data"]["name"])
                paces.setdefault(at, []).append(seconds / max(batches, 1))
    left: dict[str, float | None] = {}
    for entry in runs:
        if entry.state != "done":
            known = paces.get((entry.composed.label, entry.composed.config.data.name))
            left[entry.folder.key] = sum(known) / len(known) * _steps(entry) if known else None
    return left


def _steps(entry: Entry) -> int:
    """Return about how many steps a run has: exact where tasks are of one size."""
    config = entry.composed.config
    images = len(load(config.data).train_y) * (1 - config.stream.validation) * config.stream.epochs
    tasks = config.stream.tasks or 1
    return round(images / config.stream.batch * (config.stream.first or tasks) / tasks)
