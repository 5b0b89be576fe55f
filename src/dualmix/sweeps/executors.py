"""The executor for one machine, a process for each run; and the command that any executor starts a
run by.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dualmix.registry import presets
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
        return Process(command(entry, self.store, self.plugins))

    def close(self) -> None:
        """Do nothing: every process has ended with its run."""


class Process:
    """One run in a process of its own, which also stops when this one dies."""

    def __init__(self, words: Sequence[str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.popen = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "dualmix", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
        )

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
        self.errors.close()

    def last_lines(self) -> str:
        """Return the end of what it said, or how it ended; to be asked once, when it has."""
        with self.errors:
            self.errors.seek(0)
            lines = self.errors.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        code = self.popen.returncode
        return "\n".join(lines).removeprefix("dualmix: ") or (
            f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        )


def command(entry: Entry, store: Store, plugins: Sequence[Path]) -> list[str]:
    """Return the words behind `dualmix` that start a run in whatever folder: all paths in them are
    absolute.
    """
    preset = entry.job.preset
    if preset not in presets() and Path(preset).exists():
        preset = str(Path(preset).absolute())
    data = entry.composed.config.data
    paths = {
        f"data.{name}": place.absolute()
        for name in ("root", "path")
        if (place := getattr(data, name))
    }
    values = {
        **entry.job.values,
        **{path: str(paths[path]) for path in paths.keys() & entry.job.values.keys()},
    }
    return [
        *("run", preset, "--store", store.address),
        *(word for plugin in plugins for word in ("--plugin", str(plugin.absolute()))),
        *(word for path, given in values.items() for word in (f"--{path}", as_flag(given))),
        *("--quiet", "--json", "--leash"),
    ]


def as_flag(given: Any) -> str:
    """Return a value as `compose` reads it from the command line."""
    if given is None:
        return "none"
    return given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))
