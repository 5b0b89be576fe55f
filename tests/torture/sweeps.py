"""Sweeps killed with -9, parent, child or both: no orphan stays, and the same results come."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.torture.jail import Kind, Outcome, WrongError, cpu_seconds, judged
from tests.torture.kills import filed

PATIENCE = 5.0
"""CPU seconds that a run may need to notice that its sweep is gone."""
MARK = "TORTURED_STORE"
"""A variable of the environment that tells the processes of a sweep, which hand it down."""
GRID = """\
presets: [er, finetune]
seeds: 1
values: {stream.first: 2, stream.batch: 20, model.width: 2, save_every: 4}
"""


def start(store: Path, workers: int = 2) -> subprocess.Popen[bytes]:
    """Start a sweep of two tiny runs."""
    words = ["sweep", "grid.yaml", "--workers", str(workers), "--store", str(store)]
    return subprocess.Popen(
        [sys.executable, "-m", "dualmix", *words],
        stdout=-3,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, MARK: str(store)},
    )


def living(store: Path) -> list[int]:
    """Return the processes of sweeps of a store, and of their runs."""
    found, mark = [], os.fsencode(f"{MARK}={store}")
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def prepare(shared: Path) -> None:
    """Sweep once undisturbed."""
    os.chdir(shared)
    Path("grid.yaml").write_text(GRID)
    _done(start(shared / "store"))


def _done(sweep: subprocess.Popen[bytes]) -> None:
    _, err = sweep.communicate(timeout=600)
    if sweep.returncode:
        raise WrongError(f"a sweep ended with {sweep.returncode}: {err[-200:]!r}")


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Kill one sweep once or twice and let it end."""
    shutil.copy(shared / "grid.yaml", "grid.yaml")
    store = Path("store").absolute()
    whom = chance.choice(("parent", "parent", "child", "both", "hangup"))
    moments = [round(chance.uniform(0.5, 12), 1) for _ in range(chance.choice((1, 2)))]
    workers = chance.choice((1, 2, 2))
    story = f"sweep grid.yaml --workers {workers}, {whom} killed after {moments} s"
    yield judged(story, lambda: _through(shared, store, workers, whom, moments))


def _through(shared: Path, store: Path, workers: int, whom: str, moments: list[float]) -> None:
    for moment in moments:
        sweep = start(store, workers)
        time.sleep(moment)
        _kill(sweep, store, whom)
        if whom == "child":
            _done(sweep)
            continue
        sweep.communicate(timeout=300)
        end = time.monotonic() + 12 * PATIENCE
        used = {pid: cpu_seconds(pid) for pid in living(store)}
        while left := living(store):
            more = max(cpu_seconds(pid) - used.get(pid, 0.0) for pid in left)
            if more > PATIENCE or time.monotonic() > end:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise WrongError(f"a run was still alive {more:.0f} CPU s after its sweep")
            time.sleep(0.1)
    _done(start(store))
    if filed(store) != filed(shared / "store"):
        raise WrongError("other results after a sweep was killed")


def _kill(sweep: subprocess.Popen[bytes], store: Path, whom: str) -> None:
    children = [pid for pid in living(store) if pid != sweep.pid]
    if whom in ("child", "both") and children:
        os.kill(children[0], signal.SIGKILL)
    if whom in ("parent", "both"):
        sweep.kill()
    if whom == "hangup":
        sweep.send_signal(signal.SIGHUP)


KIND = Kind("sweeps", "sweeps killed: parent, child or both", 50, 1, 400, attempt, prepare)
