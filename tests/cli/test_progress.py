"""What a person sees while a run goes on: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dualmix.cli import progress
from dualmix.cli.progress import Countdown, Display
from dualmix.cli.text import clock
from dualmix.runs.events import Began, Ended, Event, Scored, Stepped

PATH = Path("runs/er-digits-s0-0123456789ab")
SCREEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Clock:
    """A clock that the test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def began(step: int = 0, remarks: tuple[str, ...] = ()) -> Began:
    return Began(PATH, "er", 5, 100, step, remarks)


def stepped(task: int, step: int, hits: int, images: int, loss: float = 1.234) -> Stepped:
    return Stepped(task, step, torch.tensor(loss), torch.tensor(hits), images)


def shown(events: list[tuple[float, Event]], time: Clock, *, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(
        file=screen,
        force_terminal=terminal,
        width=80,
        legacy_windows=False,
        force_interactive=terminal,
    )
    with Display(console) as display:
        for after, event in events:
            time.now += after
            display(event)
            if display._bar is not None:
                display._bar.refresh()
    return screen.getvalue()


STORY: list[tuple[float, Event]] = [
    (0, began()),
    (0, stepped(0, 1, 2, 10)),
    (40, stepped(0, 21, 52, 210)),
    (1, Scored(0, 25, 0.875, math.nan)),
    (0, stepped(1, 26, 60, 260)),
    (40, stepped(1, 46, 210, 460)),
    (0, Scored(1, 50, 0.75, 0.125)),
    (0, Ended(PATH, {}, {})),
]


def test_a_terminal_shows_task_step_loss_accuracy_speed_and_time_left(time: Clock) -> None:
    lines = [
        SCREEN.sub("", line) for line in re.split(r"[\r\n]", shown(STORY, time, terminal=True))
    ]
    live = [line for line in lines if "img/s" in line]
    first = next(line for line in live if "21/100" in line)
    for fact in ("1/5", "1.23", "25%", "5 img/s"):
        assert fact in first, f"{fact!r} is not in {first!r}"
    assert "ETA 2:38" in first
    second = next(line for line in live if "46/100" in line)
    assert "2/5" in second
    assert "75%" in second, "the accuracy of a task starts anew with it"
    assert all(len(line.rstrip()) <= 80 for line in lines)


def test_the_live_line_is_wiped_in_the_end_and_scores_stay(time: Clock) -> None:
    screen = shown(STORY, time, terminal=True)
    assert screen.rstrip().endswith(("\x1b[2K", "\x1b[?25h"))
    plain = SCREEN.sub("", screen)
    assert "87.5 %" in plain
    assert "75.0 %" in plain
    assert "12.5 %" in plain


def test_plain_lines_elsewhere(time: Clock) -> None:
    said = shown(STORY, time, terminal=False)
    assert "\x1b" not in said
    assert "\r" not in said
    lines = said.splitlines()
    assert "er" in lines[0]
    assert "100 steps" in lines[0]
    assert str(PATH) in lines[1]
    moving = [line for line in lines if "img/s" in line]
    assert [re.findall(r"step (\d+)/100", line) for line in moving] == [["21"], ["46"]]
    assert "loss 1.23" in moving[0]
    done = [line for line in lines if "done" in line]
    assert ["87.5" in done[0], "forgetting" in done[0]] == [True, False]
    assert ["75.0" in done[1], "12.5" in done[1]] == [True, True]
    assert all(len(line) <= 80 for line in lines)


def test_plain_lines_are_few(time: Clock) -> None:
    events: list[tuple[float, Event]] = [(0, began())]
    events += [(1, stepped(0, step, step, 10 * step)) for step in range(1, 101)]
    said = [line for line in shown(events, time, terminal=False).splitlines() if "img/s" in line]
    assert len(said) == 3


def test_numbers_are_not_read_unless_they_are_shown(time: Clock) -> None:
    class Costly(torch.Tensor):
        def __float__(self) -> float:
            raise AssertionError("a loss was read that nobody sees")

    loss = torch.tensor(1.0).as_subclass(Costly)
    events: list[tuple[float, Event]] = [(0, began())]
    events += [(0.001, Stepped(0, step, loss, torch.tensor(1), 10 * step)) for step in range(1, 50)]
    shown(events, time, terminal=False)
    shown(events, time, terminal=True)


def test_resumed_and_damaged(time: Clock) -> None:
    events: list[tuple[float, Event]] = [
        (0, began(40, ("snapshot-7 is damaged [/x]: passed over.",)))
    ]
    events += [(0, stepped(2, 41, 30, 410)), (40, stepped(2, 61, 130, 610))]

    said = shown(events, time, terminal=False)
    assert "step 40 of 100" in said
    assert "snapshot-7 is damaged [/x]: passed over." in said
    assert " 5 img/s" in said, "what an earlier session did is not its speed"
    assert "acc 50%" in said
    assert "ETA 1:18" in said


@pytest.mark.parametrize("name", ["a[b]c", "[/x]", "[bold]y[/bold]", ":smile:", "[red", "\\["])
@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_shown_as_they_are(time: Clock, name: str, terminal: bool) -> None:
    said = shown([(0, Began(Path("runs") / name, name, 5, 100, 0, ()))], time, terminal=terminal)
    assert SCREEN.sub("", said).count(name) == 2


def test_an_error_takes_the_live_line_away(time: Clock) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, legacy_windows=False)
    display = Display(console)
    with pytest.raises(ZeroDivisionError), display:
        display(began())
        raise ZeroDivisionError
    assert screen.getvalue().rstrip().endswith(("\x1b[2K", "\x1b[?25h"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (0.4, "0:00"),
        (59.6, "1:00"),
        (61, "1:01"),
        (3599.7, "1:00:00"),
        (86399, "23:59:59"),
    ],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_countdown_says_how_far_it_is_and_how_long_it_will_take(
    time: Clock, terminal: bool
) -> None:
    screen = io.StringIO()
    console = Console(
        file=screen,
        force_terminal=terminal,
        width=80,
        legacy_windows=False,
        force_interactive=terminal,
    )
    start = time.monotonic()
    with Countdown(console, 4000, "images", _start=start, _shown=start) as countdown:
        for done in (10, 1000, 1001):
            time.now += {10: 0.1, 1000: 59.9, 1001: 0.1}[done]
            countdown.show(done, f"{done} classes")
        if countdown._bar is not None:
            countdown._bar.refresh()
    said = SCREEN.sub("", screen.getvalue())
    assert "1,000/4,000 images  1000 classes  ETA 3:00" in said
    assert "10 classes" not in said.replace("1000 classes", "") and "1001 classes" not in said
