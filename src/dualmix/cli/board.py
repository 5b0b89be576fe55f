"""A sweep as it goes, for a person: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dualmix.cli.text import clock, percent

if TYPE_CHECKING:
    from dualmix.runs.status import Standing
    from dualmix.sweeps.sweep import Entry, Executor

LIVE_SECONDS = 1.0
KEY = 6
"""Letters of a run's key that are shown; `dualmix show` finds it by them."""
STATES = ("done", "running", "waiting", "stopped", "failed")


@dataclass(slots=True)
class Board:
    """Shows a sweep's entries on a console; give it to `sweep` as `watch` and use it as a context.

    Parameters
    ----------
    seconds
        What each run is expected to take, by key.
    executor
        Tells how many runs go on at once.
    """

    console: Console
    seconds: Mapping[str, float | None]
    executor: Executor
    _live: Live | None = None
    _shown: float = 0.0
    _states: dict[str, tuple[str, int]] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, runs: Sequence[Entry]) -> None:
        """Show where the sweep is."""
        self._names = self._names or entry_names(runs)
        for run in runs:
            known, state = self._states.get(run.folder.key), (run.state, run.tries)
            if known != state:
                self._states[run.folder.key] = state
                if known is not None or run.state == "running":
                    self._tell(run, failed=known is not None and known[1] < run.tries)
        now = time.monotonic()
        if self._live is not None and now - self._shown >= LIVE_SECONDS:
            self._shown = now
            self._live.update(self.table(runs), refresh=True)

    def _tell(self, run: Entry, *, failed: bool) -> None:
        """Print a line about a run whose state has changed, maybe because it failed once more."""
        name = f"{self._names[run.folder.key]}  {run.folder.key[:KEY]}"
        if run.state == "done":
            scores = run.folder.read_json("scores.json")
            line = f"done     {name}  {percent(scores['average_accuracy'])}"
        elif run.state == "failed":
            line = f"failed   {name} (tried {run.tries} times): {run.fault.splitlines()[-1]}"
        elif failed:
            line = f"again    {name}: {run.fault.splitlines()[-1]}"
        elif run.state == "running" and self._live is None:
            line = f"starts   {name}"
        else:
            return
        self.console.print(Text(line), soft_wrap=True)

    def table(self, runs: Sequence[Entry]) -> RenderableType:
        """Return the live table: how many of each state, and the running ones."""
        standings = {run.folder.key: run.standing() for run in runs if run.state == "running"}
        counts = Counter[str](
            standings[run.folder.key].state if run.state == "running" else run.state for run in runs
        )
        head = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
        left = self._left(runs, standings)
        return Group(
            Text(f"{len(runs)} runs: {head}{left}", style="bold"),
            standing_table(
                list(standings.values()),
                {one.name: self._names[key] for key, one in standings.items()},
            ),
        )

    def _left(self, runs: Sequence[Entry], standings: Mapping[str, Standing]) -> str:
        waiting = [self.seconds.get(run.folder.key) for run in runs if run.state == "waiting"]
        running = [
            self.seconds.get(key) if one.left is None else one.left
            for key, one in standings.items()
        ]
        known = [seconds for seconds in (*waiting, *running) if seconds is not None]
        if len(known) < len(waiting) + len(running):
            return ""
        return f"; about {clock(sum(known) / max(self.executor.room(), 1))} left"


def entry_names(runs: Sequence[Entry]) -> dict[str, str]:
    """Return by key what each run of a sweep is called: method, settings that differ, seed."""
    from dualmix.runs.apart import Usual, name_runs, of_composed

    usual = Usual()
    told = [of_composed(run.composed, usual) for run in runs]
    return dict(zip((run.folder.key for run in runs), name_runs(told), strict=True))


def standing_table(
    standings: Sequence[Standing], names: Mapping[str, str] | None = None
) -> RenderableType:
    """Return a table of runs: how far, how good, how long still.

    Parameters
    ----------
    names
        What runs are called, by the names of their folders; those left out go by these.
    """
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("run", overflow="fold", max_width=44)
    table.add_column("key", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("task", justify="right", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    for one in standings:
        table.add_row(
            (names or {}).get(one.name, one.name),
            one.name.rpartition("-")[2][:KEY],
            one.state,
            f"{one.finished}/{one.tasks}" if one.tasks else "-",
            percent(one.accuracy),
            "-" if one.left is None else clock(one.left),
        )
    return table


def failures(runs: Sequence[Entry]) -> RenderableType | None:
    """Return the runs that were given up, with their last lines."""
    failed = [run for run in runs if run.state == "failed"]
    if not failed:
        return None
    lines = [
        f"{run.folder.path.name}, tried {run.tries} times:\n  " + run.fault.replace("\n", "\n  ")
        for run in failed
    ]
    return Text("\n".join(lines))


def planned(
    runs: Sequence[Entry], seconds: Mapping[str, float | None], workers: int
) -> RenderableType:
    """Return what a sweep would do, and how long it would take."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("run", overflow="fold")
    table.add_column("key", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    names = entry_names(runs)
    for run in runs:
        known = seconds.get(run.folder.key)
        table.add_row(
            names[run.folder.key],
            run.folder.key[:KEY],
            run.state,
            "-" if run.state == "done" or known is None else clock(known),
        )
    left = [seconds.get(run.folder.key) for run in runs if run.state != "done"]
    known_ones = [one for one in left if one is not None]
    together = max(1, min(workers, len(left)))
    wall = max([sum(known_ones) / together, *known_ones], default=0.0)
    about = f"about {clock(wall)} with {_runs(together)} at a time" if known_ones else "no estimate"
    missing = len(left) - len(known_ones)
    but = (
        f", without {_runs(missing)} of which nothing like it is in the store"
        if missing and known_ones
        else ""
    )
    done = len(runs) - len(left)
    return Group(
        table,
        Text(
            f"{_runs(len(runs))}, {done} done, {len(left)} to do: "
            f"{about if left else 'nothing'}{but}."
        ),
    )


def _runs(number: int) -> str:
    return f"{number:,} run{'s' * (number != 1)}"


def status_table(
    standings: Sequence[Standing],
    *,
    everything: bool,
    names: Callable[[Sequence[str]], Mapping[str, str]] = lambda folders: {},
) -> RenderableType:
    """Return where the runs of a store are: the counts, and those that are not done.

    Parameters
    ----------
    names
        Says what runs are called, by the names of their folders.
    """
    counts = Counter[str](one.state for one in standings)
    head = (
        ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "nothing yet"
    )
    shown = [one for one in standings if everything or one.state != "done"]
    parts: list[RenderableType] = [Text(f"{len(standings)} runs: {head}", style="bold")]
    if shown:
        parts.append(standing_table(shown, names([one.name for one in shown])))
    parts += [Text(f"{one.name}: {one.fault}") for one in shown if one.fault]
    return Group(*parts)
