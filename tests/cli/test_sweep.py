"""The commands for many runs: sweep, status, proposition."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kit import alive, heeded, wait_until

pytestmark = pytest.mark.slow

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a grid file of 3 runs of 20 steps on noise."""
    folder = tmp_path_factory.mktemp("grid")
    x = np.random.default_rng(1).integers(0, 256, (80, 4, 4)).astype(np.uint8)
    np.savez(folder / "tiny.npz", x=x, y=np.repeat(np.arange(4), 20))
    values = {
        "data.name": "arrays",
        "data.path": str(folder / "tiny.npz"),
        "stream.tasks": 2,
        "stream.batch": 3,
    }
    plain = {
        "presets": ["er"],
        "seeds": 3,
        "values": {**values, "model.width": 1, "method.memory": 5},
    }
    (folder / "grid.yaml").write_text(json.dumps(plain))
    return folder / "grid.yaml"


@pytest.fixture
def swept(dualmix_: Command, grid: Path, in_process: None) -> Path:
    """Return the store of a finished sweep."""
    store = grid.parent / "store"
    if not store.exists():
        code, _, err = dualmix_("sweep", grid, "--store", store, "--workers", "2")
        assert code == 0 and "3 of 3 runs are done." in err
        assert err.count("done     er seed ") == 3
    return store


def narrow(text: str) -> bool:
    return all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    dualmix_: Command, grid: Path, tmp_path: Path
) -> None:
    code, out, _ = dualmix_("sweep", grid, "--dry-run", "--store", tmp_path / "none")
    assert code == 0 and "3 runs, 0 done, 3 to do: no estimate." in out and narrow(out)
    assert not (tmp_path / "none").exists()


def test_finished_runs_tell_how_long_others_take(
    dualmix_: Command, grid: Path, swept: Path
) -> None:
    code, out, _ = dualmix_(
        "sweep", grid, "--dry-run", "--store", swept, "--method.memory", "6", "--json"
    )
    rows = json.loads(out)
    assert code == 0 and len(rows) == 3
    assert all(row["state"] == "waiting" and row["seconds"] > 0 for row in rows)


def test_only_what_is_missing_is_trained(
    dualmix_: Command, grid: Path, swept: Path, tmp_path: Path
) -> None:
    """Two threads are another key and no other result; another memory is another result."""
    dry = ["sweep", grid, "--store", swept, "--missing", "--dry-run"]
    code, out, err = dualmix_(*dry, "--threads", "2")
    assert code == 0 and "the store has the results of 3 of 3 runs." in err
    assert "0 runs, 0 done, 0 to do: nothing." in out
    _, out, err = dualmix_(*dry, "--method.memory", "6")
    assert "has the results of 0 of 3" in err and "3 runs, 0 done, 3 to do" in out
    dry[3] = tmp_path / "none"
    _, out, err = dualmix_(*dry)
    assert "3 runs, 0 done, 3 to do" in out and not err
    moved = tmp_path / "other.npz"
    x = np.random.default_rng(2).integers(0, 256, (80, 4, 4)).astype(np.uint8)
    np.savez(moved, x=x, y=np.repeat(np.arange(4), 20))
    dry[3] = swept
    _, _, err = dualmix_(*dry, "--data.path", moved)
    assert "has the results of 0 of 3" in err, "other images, other results"


def test_status_counts_and_lists(dualmix_: Command, swept: Path) -> None:
    code, out, _ = dualmix_("status", "--store", swept)
    assert (code, out.strip()) == (0, "3 runs: 3 done")
    _, everything, _ = dualmix_("status", "--store", swept, "--all")
    assert everything.count("er seed ") == 3 and narrow(everything)
    _, out, _ = dualmix_("status", "--store", swept, "--json")
    assert [row["state"] for row in json.loads(out)] == ["done"] * 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "tabel1"], "did you mean table1"),
        (["sweep", "table1", "--seeds", "0"], "--seeds must be 1 or more"),
        (["sweep", "table1", "--workers", "0"], "--workers must be 1 or more"),
        (["sweep", "table1", "--seed", "3"], "a sweep has --seeds"),
        (["sweep", "table3", "--methods", "gss"], "table3 has no row 'gss'"),
        (["proposition"], "give the folder of runs with --store"),
    ],
)
def test_mistakes_are_explained(
    dualmix_: Command, tmp_path: Path, words: list[str], says: str
) -> None:
    code, _, err = dualmix_(*words, "--store", tmp_path / "none")
    assert code == 2 and says in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_sweep_that_is_stopped_or_killed_takes_its_runs_along(
    tmp_path: Path, number: int
) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "presets: [er]\nseeds: 1\n"
        "values: {model.width: 8, method.memory: 50, stream.epochs: 1000}\n"
    )
    words = [
        sys.executable,
        "-m",
        "dualmix",
        "sweep",
        str(grid),
        "--store",
        str(tmp_path / "store"),
    ]
    with heeded(signal.SIGINT, signal.SIGHUP):
        sweep = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def begun() -> list[Path]:
        return [log for log in (tmp_path / "store").glob("*/log.jsonl") if log.stat().st_size]

    wait_until(lambda: bool(begun()), "the run did not begin")
    log = begun()
    pid = json.loads((log[0].parent / "holder.json").read_text())["pid"]
    sweep.send_signal(number)
    _, said = sweep.communicate(timeout=900)
    assert sweep.returncode == (-9 if number == signal.SIGKILL else 130)
    wait_until(lambda: not alive(pid), "the run outlived its sweep")
    assert list(log[0].parent.glob("snapshot-*"))
    if number != signal.SIGKILL:
        assert "the same command goes on" in said
