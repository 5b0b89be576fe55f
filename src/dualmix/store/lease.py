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

from dualmix.errors import BusyError, StoreError
from dualmix.store.location import Location

VALID = 120.0
"""Seconds after which a note that was not renewed counts for nothing."""
RENEWAL = 20.0


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
        self.note = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }

    def hold(self) -> None:
        """Take or renew the lease.

        Raises
        ------
        BusyError
            Another process has it.
        """
        other = self._read()
        if alive(other) and not self._mine(other):
            raise BusyError(
                f"Process {other.get('pid')} on {other.get('host')} is working on "
                f"{self.location}/{self.name.rpartition('/')[0]} (since {other.get('since', '?')}): it was left alone; "
                f"wait for it or stop it; if its machine was lost, it is free {VALID:.0f} seconds after that."
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
        try:
            note = json.loads(self.location.read([self.name])[self.name])
        except (KeyError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def _mine(self, note: dict[str, Any]) -> bool:
        return (note.get("host"), note.get("pid")) == (self.note["host"], self.note["pid"])


def alive(note: Any) -> bool:
    """Whether who left a note still works: it was renewed lately, and is no process of this machine
    that has ended.
    """
    if not isinstance(note, dict) or not isinstance(at := note.get("at"), int | float):
        return False
    if time.time() - at > VALID:
        return False
    pid = note.get("pid")
    if note.get("host") == platform.node() and isinstance(pid, int) and pid > 0:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return True
