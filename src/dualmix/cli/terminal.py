"""The terminal a command talks to: what it prints there, and how it is asked to stop."""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What steers a terminal or cannot be printed: controls, turns of the writing direction, and halves
of characters. Line ends and tabs stay.
"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def printable(text: str) -> str:
    r"""Return text that cannot steer a terminal, whoever wrote it: each unsafe character becomes
    one mark, so that columns stay as wide as they are.

    Examples
    --------
    >>> printable("er\x1b[2J")
    'er�[2J'
    """
    return UNSAFE.sub("\ufffd", text)


def tell(sentence: str) -> None:
    """Say one thing on stderr, if anybody is still there."""
    with suppress(OSError, ValueError):
        print(f"dualmix: {printable(sentence)}", file=sys.stderr)


def prepare_streams() -> None:
    """Print a question mark for what the locale's encoding lacks, rather than to fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that prints text as it is, but for what would steer the terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, *given: Any, **named: Any) -> Iterable[Segment]:
            """Render, with every piece of text made safe; rich's own controls pass."""
            for segment in super().render(*given, **named):
                if segment.control or not UNSAFE.search(segment.text):
                    yield segment
                else:
                    yield Segment(printable(segment.text), segment.style)

    return PlainConsole(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)


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
    """Return a function that tells whether Ctrl-C, a polite kill or the end of the terminal has
    come; the second time ends at once. What the shell ignores (``nohup``) stays ignored.
    """
    asked: list[int] = []

    def ask(caught: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(caught)

    for number in STOP_SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, ask)
    return lambda: bool(asked)


@contextmanager
def _held_back() -> Iterator[None]:
    """Keep signals that Python handles until the end, then deliver them, none lost.

    By a handler rather than a mask: the signal may reach another thread, and Python would still
    interrupt the main one.
    """
    came: list[int] = []
    kept = {}
    for number in STOP_SIGNALS:
        if callable(signal.getsignal(number)):
            kept[number] = signal.signal(number, lambda caught, _: came.append(caught))
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for caught in dict.fromkeys(came):
            signal.raise_signal(caught)


class HoldBackWhileLoading:
    """Finds one module and lets no signal interrupt its loading.

    Torch's C++ part imports Python modules while it loads, and a KeyboardInterrupt there ends the
    process by an abort instead of exit code 130.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's usual spec with a loader that holds signals back."""
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with _held_back():
                    load(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def protect_loading(name: str = "torch") -> None:
    """Let Ctrl-C wait while a module loads, whichever command loads it."""
    known = any(isinstance(f, HoldBackWhileLoading) and f.name == name for f in sys.meta_path)
    if name not in sys.modules and not known:
        sys.meta_path.insert(0, HoldBackWhileLoading(name))
