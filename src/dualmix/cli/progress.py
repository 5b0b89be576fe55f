"""A run as it goes, for a person: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.status import Status
from rich.text import Text

from dualmix.cli.text import clock
from dualmix.runs.events import Began, Ended, Event, Scored, Stepped

PLAIN_SECONDS = 30.0
LIVE_SECONDS = 0.25


@dataclass(slots=True)
class Display:
    """Shows events on a console; give it to `run` as `watch` and use it as a context."""

    console: Console
    _bar: Progress | None = None
    _line: TaskID | None = None
    _began: Began | None = None
    _start: float = 0.0
    _shown: float = 0.0
    _first: tuple[int, int] = (0, 0)
    _marks: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *fault: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show what happened."""
        match event:
            case Began():
                self._begin(event)
            case Stepped():
                self._step(event)
            case Scored():
                self._score(event)
            case Ended():
                if self._bar is not None:
                    self._bar.stop()

    def _begin(self, event: Began) -> None:
        self._began, self._start, self._shown = event, time.monotonic(), time.monotonic()
        for remark in event.remarks:
            self.console.print(Text.assemble(("warning: ", "yellow"), remark))
        verb = f"goes on at step {event.step} of" if event.step else "starts:"
        self.console.print(Text(f"{event.label} {verb} {event.steps} steps, {event.tasks} tasks"))
        self.console.print(Text(f"  {event.path}", style="dim"), soft_wrap=True)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("task {task.fields[number]}/{task.fields[tasks]}"),
                BarColumn(bar_width=None),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[facts]}"),
                console=self.console,
                transient=True,
                refresh_per_second=4,
                expand=True,
            )
            self._line = self._bar.add_task(
                "", total=event.steps, completed=event.step, number="-", tasks=event.tasks, facts=""
            )
            self._bar.start()

    def _step(self, event: Stepped) -> None:
        if event.task not in self._marks:
            self._marks[event.task] = (event.hits, event.images)
        if self._first == (0, 0):
            self._first = (event.step, event.images)
            return
        now = time.monotonic()
        if now - self._shown < (LIVE_SECONDS if self._bar else PLAIN_SECONDS):
            return
        self._shown = now
        facts = self._facts(event, now)
        assert self._began is not None
        if self._bar is not None and self._line is not None:
            self._bar.update(self._line, completed=event.step, number=event.task + 1, facts=facts)
        else:
            self.console.print(
                f"task {event.task + 1}/{self._began.tasks}  "
                f"step {event.step}/{self._began.steps}  {facts}",
                highlight=False,
            )

    def _facts(self, event: Stepped, now: float) -> str:
        """Loss, running accuracy in this task (before each step), images per second, time left."""
        assert self._began is not None
        hits, images = self._marks[event.task]
        fresh = event.images - images
        accuracy = f"{100 * float(event.hits - hits) / fresh:.0f}%" if fresh else "-"
        pace = (now - self._start) / max(event.step - self._first[0], 1)
        speed = (event.images - self._first[1]) / max(now - self._start, 1e-9)
        left = clock(pace * (self._began.steps - event.step))
        return f"loss {float(event.loss):.2f} acc {accuracy} {speed:.0f} img/s ETA {left}"

    def _score(self, event: Scored) -> None:
        assert self._began is not None
        forgotten = (
            ""
            if event.forgetting != event.forgetting
            else f"  forgetting {100 * event.forgetting:5.1f} %"
        )
        self.console.print(
            f"task {event.task + 1:>2}/{self._began.tasks} done  "
            f"average accuracy {100 * event.accuracy:5.1f} %{forgotten}  "
            f"after {clock(time.monotonic() - self._start)}",
            highlight=False,
        )


@dataclass(slots=True)
class Countdown:
    """How far a long count is and when it will be done; use it as a context and call `show`."""

    console: Console
    total: int
    unit: str
    _bar: Progress | None = None
    _line: TaskID | None = None
    _start: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Countdown:
        if self.console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,}/{task.total:,} {task.fields[facts]}"),
                console=self.console,
                transient=True,
                refresh_per_second=4,
                expand=True,
            )
            self._line = self._bar.add_task("", total=self.total, facts=self.unit)
            self._bar.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, facts: str) -> None:
        """Say that so many are done, a few times a second on a terminal and twice a minute
        elsewhere.
        """
        now = time.monotonic()
        if now - self._shown < (LIVE_SECONDS if self._bar else PLAIN_SECONDS):
            return
        self._shown = now
        left = clock((now - self._start) / done * (self.total - done))
        told = f"{self.unit}  {facts}  ETA {left}"
        if self._bar is not None and self._line is not None:
            self._bar.update(self._line, completed=done, facts=told)
        else:
            self.console.print(f"{done:,}/{self.total:,} {told}", highlight=False)


@dataclass(slots=True)
class Counting:
    """How far a few seconds of work are, told by `progress` arguments: what, how many, of how many.

    A line that is gone in the end on a terminal; nothing elsewhere.
    """

    console: Console
    _status: Status | None = None

    def __enter__(self) -> Counting:
        if self.console.is_terminal and not self.console.quiet:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say that so many are done."""
        if self._status is not None:
            self._status.update(f"{what}: {done} of {total}")
