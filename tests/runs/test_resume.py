"""Real processes killed at any moment: the finished run equals, byte for byte, one that was never
disturbed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dualmix.store import snapshot
from tests.kit import RESULTS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

SETTINGS = {
    "method.memory": 100,
    "save_every": 7,
    "stream.tasks": 5,
    "stream.batch": 5,
    "model.width": 4,
}
ARGUMENTS = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
STEPS = 290
MOMENTS = ["start-up"] * 6 + ["writing"] * 5 + ["task end"] * 2 + ["between"] * 7


def start(store: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "dualmix", "run", "er", *ARGUMENTS, "--store", str(store)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(store: Path) -> dict[str, bytes]:
    process = start(store)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    (folder,) = store.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names == {*RESULTS, "facts.json", "times.json", "log.jsonl", "sums.json", "lock"}
    return {name: (folder / name).read_bytes() for name in RESULTS}


def snapshots(store: Path) -> set[str]:
    return {path.name for path in store.glob("*/snapshot-*")}


def events(store: Path, kind: str) -> list[int]:
    entries = [
        json.loads(line)
        for log in store.glob("*/log.jsonl")
        for line in log.read_text().splitlines()
    ]
    return [entry["step"] for entry in entries if entry["event"] == kind]


def wait_until(process: subprocess.Popen[str], happened: object, patience: float = 600) -> None:
    end = time.monotonic() + patience
    while not happened():  # type: ignore[operator]
        assert process.poll() is None, (
            f"ended too soon ({process.returncode}): {process.stderr.read()}"
        )  # type: ignore[union-attr]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)


def wait_for(
    process: subprocess.Popen[str], store: Path, moment: str, chance: random.Random
) -> None:
    """Return at a moment of the given kind in the life of a run."""
    if moment == "start-up":
        time.sleep(chance.uniform(0.05, 2.5))
    elif moment == "writing":
        known = set(store.glob("*/.snapshot-*.part"))
        wait_until(process, lambda: set(store.glob("*/.snapshot-*.part")) - known)
    elif moment == "task end":
        known_ends = len(events(store, "task"))
        wait_until(process, lambda: len(events(store, "task")) > known_ends)
    else:
        for _ in range(chance.randint(1, 2)):
            before = snapshots(store)
            wait_until(process, lambda before=before: snapshots(store) - before)
        time.sleep(chance.uniform(0, 0.05))


def interrupted(store: Path, number: signal.Signals) -> None:
    process = start(store)
    before = snapshots(store)
    wait_until(process, lambda: snapshots(store) - before)
    process.send_signal(number)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 130, said
    assert "same command" in said
    assert "Traceback" not in said
    assert max(snapshots(store)) > max(before)
    assert not list(store.glob("*/holder.json"))


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_killed_20_times_moved_and_interrupted(tmp_path: Path) -> None:
    chance = random.Random(20)
    whole = finish(tmp_path / "undisturbed")
    store, moved = tmp_path / "killed", tmp_path / "another place" / "moved"
    moments = list(MOMENTS)
    chance.shuffle(moments)
    reached = []
    for number, moment in enumerate(moments):
        process = start(store)
        wait_for(process, store, moment, chance)
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL
        process.stderr.close()  # type: ignore[union-attr]
        for path in store.glob("*/snapshot-*"):
            snapshot.read(path)
        reached.append(max(snapshots(store), default=""))
        if number == len(moments) // 2:
            moved.parent.mkdir()
            shutil.copytree(store, moved)

    assert len(reached) >= 20
    assert len(set(reached)) >= 10
    assert reached == sorted(reached)
    assert finish(store) == whole
    begun = events(store, "begin")
    assert len(begun) >= 15
    assert begun == sorted(begun)
    assert events(store, "end") == [STEPS]

    interrupted(moved, signal.SIGINT)
    interrupted(moved, signal.SIGTERM)
    shutil.move(moved, tmp_path / "moved again")
    assert finish(tmp_path / "moved again") == whole

    assert json.loads(whole["scores.json"])["average_accuracy"] > 0.3


AXE = """
import os, signal, sys, json
from pathlib import Path
import torch._dynamo
import dualmix.runs.run, dualmix.cli.progress, dualmix.cli.scores
from dualmix import cli
from tests.torture.shallow import shallow

whole, killed = map(json.loads, sys.argv[1:3])
store, most = sys.argv[3], int(sys.argv[4])
real_sync = os.fsync

def life(fatal, arguments):
    done = 0
    def operation(cut=None):
        nonlocal done
        done += 1
        if done == fatal:
            if cut is not None:
                os.ftruncate(cut, os.fstat(cut).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
    def audit(event, details):
        writes = event == "open" and (details[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        changes = writes or event in ("os.rename", "os.remove", "os.mkdir")
        if changes and str(details[0]).startswith(store):
            operation()
    def sync(number):
        is_file = os.fstat(number).st_size and not os.path.isdir(f"/proc/self/fd/{number}")
        operation(number if is_file else None)
        real_sync(number)
    sys.addaudithook(audit)
    os.fsync = sync
    with shallow():
        cli.main(arguments)

for fatal in range(most + 1):
    child = os.fork()
    if not child:
        life(fatal, killed if fatal else whole)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    if fatal and status == 0:
        break
"""


def test_killed_before_each_file_operation(tmp_path: Path) -> None:
    """The n-th life dies before its n-th operation on files, with what was being written cut in
    half.
    """
    chance = np.random.default_rng(0)
    x, y = chance.integers(0, 255, (90, 4, 4)).astype(np.uint8), np.repeat(np.arange(6), 15)
    np.savez(tmp_path / "tiny.npz", x=x, y=y)

    def words(store: Path) -> list[str]:
        data = [
            "--data.name",
            "arrays",
            "--data.path",
            str(tmp_path / "tiny.npz"),
            "--model.width",
            "1",
        ]
        more = [
            "--stream.tasks",
            "3",
            "--stream.batch",
            "12",
            "--save_every",
            "1",
            "--quiet",
            "--store",
            str(store),
        ]
        return ["run", "er", "--method.memory", "8", *data, *more]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-c", AXE, *(json.dumps(words(s)) for s in (whole, killed))]
    command += [str(killed), "90"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Traceback" not in ended.stderr
    codes = [int(line) for line in ended.stdout.splitlines() if line.lstrip("-").isdigit()]
    assert codes[0] == codes[-1] == 0
    assert set(codes[1:-1]) == {-signal.SIGKILL}
    assert len(codes) > 20
    (one,), (other,) = whole.iterdir(), killed.iterdir()
    assert {p.name for p in other.iterdir()} - {p.name for p in one.iterdir()} <= {
        *snapshots(killed),
        "holder.json",
    }
    for name in RESULTS:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_two_processes_on_one_run(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_until(first, lambda: snapshots(tmp_path))
    os.kill(first.pid, signal.SIGSTOP)
    (folder,) = tmp_path.iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    try:
        second = start(tmp_path)
        _, said = second.communicate(timeout=900)
        assert second.returncode == 2
        assert str(first.pid) in said
        assert "left alone" in said
        assert "Traceback" not in said
        assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    finally:
        first.kill()
        first.communicate()
