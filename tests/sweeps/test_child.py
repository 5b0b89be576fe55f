"""The process of a run: told by JSON what to train, and gone when its sweep is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dualmix.store.store import Store
from dualmix.sweeps.executors import describe
from dualmix.sweeps.sweep import Job, entries
from tests.kit import PATIENCE, alive, heeded, wait_until

pytestmark = pytest.mark.slow

ENDLESS = {"model.width": 4, "method.memory": 20, "stream.epochs": 10_000}
PARENT = """
import sys, time
from dualmix.sweeps.executors import Process
process = Process(sys.stdin.readline().strip())
print(process.popen.pid, flush=True)
time.sleep(3600)
"""
CHILD = [sys.executable, "-m", "dualmix.sweeps.child"]


def job(store: Path) -> str:
    (entry,) = entries([Job("er", ENDLESS)], Store(store))
    return describe(entry, Store(store), [])


def has_loaded_torch(pid: int) -> bool:
    maps = Path(f"/proc/{pid}/maps")
    return not maps.exists() or "libtorch" in maps.read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["at once", "while torch loads"])
def test_a_run_that_has_not_begun_ends_with_its_sweep(
    tmp_path: Path, number: int, moment: str
) -> None:
    words = [sys.executable, "-c", PARENT]
    with heeded(signal.SIGHUP):
        parent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write(job(tmp_path) + "\n")
        parent.stdin.flush()
        pid = int(parent.stdout.readline())
        if moment == "while torch loads":
            wait_until(lambda: has_loaded_torch(pid), "torch was never loaded")
        parent.send_signal(number)
        parent.wait(timeout=PATIENCE)
    wait_until(lambda: not alive(pid), "the run outlived its sweep")
    assert not list(tmp_path.glob("*/scores.json"))


def test_half_a_job_is_no_job(tmp_path: Path) -> None:
    ended = subprocess.run(
        CHILD, input=job(tmp_path)[:-10], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_with_a_job_is_one_sentence(tmp_path: Path) -> None:
    """Stdin stays open: the child must not take its own failure for the end of the sweep."""
    told = json.loads(job(tmp_path))
    told["config"]["method"]["memroy"] = 3
    read, write = os.pipe()
    os.write(write, f"{json.dumps(told)}\n".encode())
    ended = subprocess.run(CHILD, stdin=read, capture_output=True, text=True, check=False)
    os.close(read)
    os.close(write)
    assert ended.returncode == 2
    assert "is dualmix the same version everywhere?" in ended.stderr and "memroy" in ended.stderr
    assert "Traceback" not in ended.stderr
