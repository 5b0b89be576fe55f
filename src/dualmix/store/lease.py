"""A lease: the note at a remote store that says who works on a run, and that is void once it is not
renewed.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from dualmix.errors import StoreError
from dualmix.store.files import parse_json
from dualmix.store.location import Location
from dualmix.store.lock import busy, note

VALID = 120.0
"""Seconds after which a note that was not renewed counts for nothing."""
RENEWAL = 20.0
SKEW = 20.0
"""Seconds by which clocks of machines may differ: a note from further in the future is none."""


class Lease:
    """The right to work on one run, between machines.

    It keeps two machines from doing the same work, most of the time. It is no lock: two that ask in
    the same moment may both get it, until the first renewal. As both come to the same bytes, that
    costs time and nothing else.

    Parameters
    ----------
    name
        The file of the note.
    """

    def __init__(self, location: Location, name: str) -> None:
        self.location, self.name = location, name
        self.note = note()

    def hold(self) -> None:
        """Take or renew the lease.

        Raises
        ------
        BusyError
            Another process has it.
        """
        other = self._read()
        if alive(other) and not self._mine(other):
            raise busy(
                other,
                f"{self.location}/{self.name.rpartition('/')[0]}",
                f"; if its machine was lost, it is free {VALID:.0f} seconds after that",
            )
        self.location.write(self.name, json.dumps({**self.note, "at": time.time()}).encode())

    def release(self) -> None:
        """Give the lease back, unless another process has it by now."""
        if self._mine(self._read()):
            self.location.remove(self.name)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease again and again meanwhile; if that fails, the next `hold` tells."""
        over = Event()

        def renew() -> None:
            while not over.wait(RENEWAL):
                with suppress(StoreError):
                    self.hold()

        thread = Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _read(self) -> dict[str, Any]:
        content = self.location.read([self.name]).get(self.name, b"")
        try:
            other = parse_json(content, self.name)
        except StoreError:
            return {}
        return other if isinstance(other, dict) else {}

    def _mine(self, note: dict[str, Any]) -> bool:
        return (note.get("host"), note.get("pid")) == (self.note["host"], self.note["pid"])


def alive(note: Any) -> bool:
    """Whether who left a note still works: it was renewed lately, and is no process of this machine
    that has ended.

    A note holds a run for at most `VALID` seconds from now, whatever time is written in it.
    """
    at = note.get("at") if isinstance(note, dict) else None
    if (
        not isinstance(at, int | float)
        or not -SKEW <= time.time() - min(max(at, 0), 1e12) <= VALID - SKEW
    ):
        return False
    pid = note.get("pid")
    if note.get("host") == platform.node() and isinstance(pid, int) and pid > 0:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
    return True
