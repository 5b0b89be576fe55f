"""Every fault a user can cause, as one family: each message is a sentence that says what to do.

Messages name settings as the command line does (``--model.width``). In Python the same sentence
names them as its arguments do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_FLAG = re.compile(r"(`[^`]*`)|(?<![^\s(])--((?:model|method)\.)?(?=[a-z])")
"""A command in backticks, which stays, or the beginning of a flag with its group."""
_terminals: list[None] = []
"""One for each `naming_flags` that is open."""
_flat: ContextVar[bool] = ContextVar("flat", default=False)


@contextmanager
def naming_flags() -> Iterator[None]:
    """Let messages of this process name settings as flags: ``--model.width``."""
    _terminals.append(None)
    try:
        yield
    finally:
        _terminals.pop()


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Let messages of this thread name settings of network and method without their group, as
    arguments of `create` have them: ``width``.
    """
    token = _flat.set(True)
    try:
        yield
    finally:
        _flat.reset(token)


def worded(text: str) -> str:
    """Return a message with the names of settings that its reader uses.

    Examples
    --------
    >>> worded("give --model.width 8, as `dualmix run er --model.width 8` does")
    'give model.width 8, as `dualmix run er --model.width 8` does'
    """
    if _terminals:
        return text
    if _flat.get():
        text = re.sub(r"--model\.name\b", "--model", text)
    return _FLAG.sub(lambda m: m[1] or ("" if _flat.get() else m[2] or ""), text)


def quoted(fault: BaseException) -> str:
    """Return what a fault of other code says, in one line.

    Examples
    --------
    >>> quoted(ValueError("no number\\nin row 3"))
    'ValueError: no number'
    """
    said = str(fault).strip().partition("\n")[0][:300]
    return f"{type(fault).__name__}: {said}" if said else type(fault).__name__


class DualmixError(Exception):
    """Base of all faults that are not bugs; the command line prints it and exits with 2.

    A message may quote names and libraries: what a terminal would obey is shown as an escape."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*(worded(part) if isinstance(part, str) else part for part in told))

    def __str__(self) -> str:
        return "".join(
            letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
            for letter in super().__str__()
        )


class ConfigError(DualmixError):
    """A setting is unknown, missing or out of range."""


class DataError(DualmixError):
    """Images or labels on disk are missing, broken, unsafe or of the wrong kind."""


class InputError(DualmixError, ValueError):
    """A batch handed to a learner cannot be used; the learner is unchanged."""


class TrainingError(DualmixError):
    """Training has diverged; the learner is as it was before the batch."""


class StoreError(DualmixError):
    """A results folder cannot be read or written, or holds something it should not."""


class BusyError(StoreError):
    """Another process is working on the same run."""
