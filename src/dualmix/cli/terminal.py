"""The terminal a command talks to: where it prints, and whether it was asked to stop."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that prints text as it is."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)


def plain_warnings() -> None:
    """Print our own warnings as notes, without the line of code that they come from."""
    warnings.formatwarning = _note


_usual = warnings.formatwarning


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    if category.__module__.startswith("dualmix."):
        return f"note: {message}\n"
    return _usual(message, category, filename, lineno, line)


def asked_to_stop() -> Callable[[], bool]:
    """Return a function that tells whether Ctrl-C or a polite kill has come; the second time ends
    at once.
    """
    asked: list[int] = []

    def ask(caught: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(caught)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return lambda: bool(asked)
