"""The process of one run of a sweep: its configuration comes as JSON on stdin, and it ends when
stdin does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.errors import ConfigError, DualmixError, naming_flags

if TYPE_CHECKING:
    from dualmix.config.compose import Composed

GRACE = 20.0
"""Seconds a run has to save itself when its sweep is gone: the rest of a step, or of a test."""
FAILED, STOPPED = 2, 130


class Leash:
    """Whether the run must stop: it was asked to, or its sweep is gone.

    The sweep holds the other end of stdin and never closes it, so that its end is the sweep's,
    however it died and on every system. A run that has not begun has nothing to save and ends at
    once, even while torch is loading.
    """

    def __init__(self, stdin: int) -> None:
        self.stdin, self.begun = stdin, False
        self.stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: self.stop.set())
        threading.Thread(target=self._watch, name="leash", daemon=True).start()

    def _watch(self) -> None:
        while os.read(self.stdin, 4096):
            pass
        self.stop.set()
        if self.begun:
            threading.Event().wait(GRACE)
        os._exit(STOPPED)


def main() -> int:
    """Train the run that stdin describes, and return the exit code."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return STOPPED  # the sweep died before it had said what to do
    leash = Leash(sys.stdin.fileno())
    job = json.loads(line)
    try:
        with naming_flags():
            return _run(job, leash)
    except DualmixError as fault:
        sys.stderr.write(f"{fault}\n")
        return FAILED


def _run(job: Mapping[str, Any], leash: Leash) -> int:
    from dualmix.registry import load_plugin

    for plugin in job["plugins"]:
        load_plugin(Path(plugin))
    composed = recompose(job)
    from dualmix.runs.run import Stopped, run
    from dualmix.store.opening import open_store

    def watch(event: object) -> None:
        leash.begun = True

    try:
        result = run(composed, open_store(job["store"]), watch=watch, stop=leash.stop.is_set)
    except Stopped as stopped:
        sys.stderr.write(f"{stopped}\n")
        return STOPPED
    result.folder.publish()
    return 0


def recompose(job: Mapping[str, Any]) -> Composed:
    """Return the configuration that a sweep composed; its values are checked, not chosen, again."""
    from pydantic import ValidationError

    from dualmix.config.compose import Composed
    from dualmix.config.fields import Config
    from dualmix.registry import get_method

    settings = {**job["config"], "method": dict(job["config"]["method"])}
    method: Any = get_method(settings["method"].pop("kind"))
    try:
        config = Config[method].model_validate(settings)
    except ValidationError as fault:
        raise ConfigError(
            f"This node reads the sweep's configuration otherwise: is dualmix the same version "
            f"everywhere? {fault}"
        ) from fault
    return Composed(job["label"], config, job["origins"])


if __name__ == "__main__":
    sys.exit(main())
