"""The command line called in this process, and the tiny runs that cases are made of."""

from __future__ import annotations

import contextlib
import io
import json
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np

from dualmix.errors import DualmixError

SETTINGS = {"stream.first": 2, "stream.batch": 50, "model.width": 2, "save_every": 4}
TINY = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
RESULTS = (
    *(
        "learner.safetensors",
        "scores.json",
        "confusion.npz",
        "plan.json",
        "plan.npz",
        "config.json",
    ),
    "probes.json",
)


def call(*words: object) -> tuple[int, str, str]:
    """Return the exit code of a command and what it said."""
    from dualmix.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as left:
            code = left.code
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode(errors="replace"))
    return int(code or 0) if not isinstance(code, str) else 1, said[0], said[1]


def checked(*words: object) -> tuple[str, str]:
    """Return what a command said; a refusal of exit code 2 is raised as the typed error it is."""
    code, out, err = call(*words)
    if "Traceback" in err or "Traceback" in out:
        raise RuntimeError(f"a traceback: {err[-500:]}")
    if code == 2 and err.strip():
        raise DualmixError(err.strip()[:2000])
    if code:
        raise RuntimeError(f"exit code {code}: {err[-500:]}")
    return out, err


def answer(*words: object) -> Any:
    """Return what a command with --json said."""
    return json.loads(checked(*words, "--json")[0])


def tiny_values(method: str) -> dict[str, str]:
    """Return the settings of a tiny run of a method."""
    import dualmix

    fields = type(dualmix.compose(method).config.method).model_fields
    small = {"memory": 30, "memory_batch": 5, "candidates": 10, "epochs": 1}
    own = {f"method.{name}": value for name, value in small.items() if name in fields}
    return {name: str(value) for name, value in {**SETTINGS, **own}.items()}


def run_words(method: str) -> list[str]:
    """Return the command of a tiny run of a method."""
    flags = [word for name, value in tiny_values(method).items() for word in (f"--{name}", value)]
    return ["run", method, *flags, "--store", "store", "--quiet"]


def stop_early(method: str, after: int) -> None:
    """Make a tiny run and stop it after some steps, as a signal would."""
    import dualmix
    from dualmix.runs.run import Stopped, run

    left = iter([False] * after)
    composed = dualmix.compose(method, tiny_values(method))
    with contextlib.suppress(Stopped):
        run(composed, dualmix.open_store("store"), stop=lambda: next(left, True))
        raise RuntimeError("the run did not stop")


def tiny_arrays(path: str) -> None:
    """Write a data set of six classes."""
    x = np.random.default_rng(0).integers(0, 255, (90, 8, 8)).astype(np.uint8)
    np.savez(path, x=x, y=np.repeat(np.arange(6), 15))


class AtOnce:
    """The process of a run of a sweep, as `executors.Process`, but this one: it imports nothing."""

    def __init__(self, job: str) -> None:
        from dualmix.sweeps import child

        self.said = ""
        leash = SimpleNamespace(begun=False, stop=Event())
        try:
            child._run(json.loads(job), leash)  # type: ignore[arg-type]
        except DualmixError as fault:
            self.said = str(fault)

    def ended(self) -> bool:
        """Whether the run has ended."""
        return True

    def last_lines(self) -> str:
        """Return what it said."""
        return self.said or "it ended"
