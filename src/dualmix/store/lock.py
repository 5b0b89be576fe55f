"""The lock of a run's folder: the right to work on it, between processes of this machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dualmix.errors import BusyError, StoreError
from dualmix.store.files import json_bytes, make_folder, read_json, typed, write_bytes

LOCK, HOLDER = "lock", "holder.json"
PATIENCE = 0.5
"""Seconds to wait for a lock: whoever only looks whether a run is busy holds it for a moment."""


class Lock:
    """A file that one process at a time has locked; a killed process lets go of it by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def taken(self) -> bool:
        """Whether a process holds it."""
        if not (self.folder / LOCK).is_file():
            return False
        lock = FileLock(self.folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:
            return (self.folder / HOLDER).is_file()
        lock.release()
        return False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold it meanwhile, and say so in ``holder.json``.

        Raises
        ------
        BusyError
            Another process holds it.
        """
        make_folder(self.folder)
        lock = FileLock(self.folder / LOCK)
        with typed(self.folder):
            try:
                lock.acquire(timeout=PATIENCE, poll_interval=0.01)
            except Timeout:
                raise busy(self._holder(), self.folder) from None
        try:
            with suppress(StoreError):  # a full disk has no room for a note, but the lock holds
                write_bytes(self.folder / HOLDER, json_bytes(note()), follow=False)
            yield
        finally:
            with suppress(OSError):
                (self.folder / HOLDER).unlink(missing_ok=True)
            lock.release()

    def _holder(self) -> Any:
        try:
            return read_json(self.folder / HOLDER)
        except StoreError:
            return {}


def note() -> dict[str, Any]:
    """Return who this process is and since when it works."""
    return {"pid": os.getpid(), "host": platform.node(), "since": now()}


def busy(note: Any, where: Path | str, more: str = "") -> BusyError:
    """Return the error for a run that another process works on, in words that a terminal may show.

    Parameters
    ----------
    note
        What the other process left, be it what it may.
    more
        A further clause on how the run gets free.
    """
    told = note if isinstance(note, dict) else {}
    pid, host, since = (
        "".join(c if c.isprintable() else "?" for c in str(told.get(name, "?"))[:80])
        for name in ("pid", "host", "since")
    )
    return BusyError(
        f"Process {pid} on {host} is working on {where} (since {since}): it was left alone; wait "
        f"for it or stop it{more}."
    )


def now() -> str:
    """Return the time as records hold it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
