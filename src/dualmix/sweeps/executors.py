"""The executor for one machine, one process per run; and the process that any executor starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dualmix.data.source import expanded
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Entry

LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Local:
    """At most `workers` processes of this machine."""

    store: Store
    workers: int
    plugins: Sequence[Path] = ()

    def room(self) -> int:
        """Return the number of workers."""
        return self.workers

    def start(self, entry: Entry) -> Process:
        """Start a process for a run."""
        return Process(describe(entry, self.store, self.plugins))

    def close(self) -> None:
        """Do nothing: every process has ended with its run."""


class Process:
    """One run in a process of its own, which also ends when this one dies.

    Parameters
    ----------
    job
        What `describe` returns.
    """

    def __init__(self, job: str) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "dualmix.sweeps.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
        )
        assert self.popen.stdin is not None
        with suppress(BrokenPipeError):  # it died at once: `ended` and `last_lines` tell
            self.popen.stdin.write(f"{job}\n".encode())
            self.popen.stdin.flush()

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.popen.poll() is not None

    def ask(self) -> None:
        """Ask it to save itself and end; not by SIGINT, which Ray's processes block and hand down
        as blocked.
        """
        if not self.ended():
            os.kill(self.popen.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.popen.kill()
        self.popen.wait()
        self._close()

    def last_lines(self) -> str:
        """Return the end of what it said, or how it ended; to be asked once, when it has."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        self._close()
        code = self.popen.returncode
        return "\n".join(lines) or (
            f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        )

    def _close(self) -> None:
        self.errors.close()
        with suppress(BrokenPipeError):
            if self.popen.stdin is not None:
                self.popen.stdin.close()


def describe(entry: Entry, store: Store, plugins: Sequence[Path]) -> str:
    """Return a run as one line of JSON, which its process reads in whatever folder: all paths in it
    are absolute.
    """
    config = entry.composed.config.record()
    for name in ("root", "path"):
        if place := config["data"].get(name):
            config["data"][name] = str(expanded(Path(place)).absolute())
    return json.dumps(
        {
            "label": entry.composed.label,
            "config": config,
            "origins": dict(entry.composed.origins),
            "store": store.address,
            "plugins": [str(plugin.absolute()) for plugin in plugins],
        }
    )
