"""Calibration: shared rows, runs read from the store, and the command."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from dualmix.errors import ConfigError
from dualmix.paper.readings import TERMS, deviation
from dualmix.runs.run import run
from dualmix.store.store import Store
from studies.calibrate import (
    SHORT_STREAM,
    deviation_table,
    find_readings,
    main,
    measured,
    ranked,
    reading_rows,
)
from tests.cli.test_sweep import narrow
from tests.paper.test_readings import exactly

pytestmark = pytest.mark.usefixtures("shallow")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calibrate(dualmix_: Command, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process, in an empty folder and 80 columns."""

    def command(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return command


def test_rows_that_a_reading_leaves_alone_are_run_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    found = reading_rows(
        find_readings(["raw", "no-view"]), store, seeds=[0, 1], values=SHORT_STREAM
    )
    assert [cell.reading for cell in found] == ["base"] * 5 + ["no-view"] * 5 + ["raw"] * 5
    runs = {run.folder.key for cell in found for run in cell.runs}
    assert len(runs) == 2 * (5 + 4 + 2), "er is shared by all, and what neither changes by both"
    with pytest.raises(ConfigError, match="did you mean raw"):
        find_readings(["rav"])
    with pytest.raises(ConfigError, match="did you mean er\\+da"):
        reading_rows(find_readings([]), store, seeds=[0], rows=["er+ad"], values={})


def test_cells_are_read_from_the_store_and_the_nearest_reading_comes_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    values = {"model.width": 4, "method.memory": 20, "stream.first": 2, "stream.batch": 20}
    found = reading_rows(
        find_readings(["replaced"]), store, seeds=[0], rows=["er+da"], values=values
    )
    for cell in found:
        for entry in cell.runs:
            run(entry.composed, store)
    scores = found[1].runs[0].folder.read_json("scores.json")
    assert measured(found[1]).accuracy == {0: 100 * scores["average_accuracy"]}
    assert measured(found[1]).forgetting == {0: 100 * scores["forgetting"]}
    assert measured(found[1]).anytime == {0: 100 * scores["anytime_accuracy"]}
    rows = ranked(found)
    assert {row.reading for row in rows} == {"base", "replaced"}
    assert rows[0].gains <= rows[1].gains or math.isnan(rows[1].gains)


@pytest.mark.parametrize("full", [False, True])
def test_the_table_has_every_number_whole_in_80_columns(full: bool) -> None:
    screen = io.StringIO()
    found = deviation(
        "memory-mean", {row: exactly(row, 1.0 if row == "er" else 2.0) for row in TERMS}
    )
    Console(file=screen, width=80).print(deviation_table([found], full=full))
    (row,) = [line.split() for line in screen.getvalue().splitlines() if "memory-mean" in line]
    assert row[1:3] == ["10.2" if full else "63%", "0%"], (
        "points: 14.6, 15.7, 16.6, 17.5 in 10; e^(ln 2 / sqrt 2) - 1"
    )
    assert row[3:] == ["8.4/52.1", "29.2/48.0", "31.4/42.7", "33.2/38.7", "35.0/36.7", "1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--readings", "rav"], "did you mean raw"),
        (["--rows", "er+dax"], "did you mean er+da"),
        (["--data.nmae", "digits"], "did you mean --data.name"),
    ],
)
def test_mistakes_are_explained(
    calibrate: Command, tmp_path: Path, words: list[str], says: str
) -> None:
    code, _, err = calibrate(*words, "--store", tmp_path / "none")
    assert code == 2 and says in err
    assert not (tmp_path / "none").exists()


def test_readings_are_listed(calibrate: Command) -> None:
    code, out, _ = calibrate("--readings", "help")
    assert code == 0 and narrow(out)
    for name in ("base", "one-mean", "replaced", "old-task", "joint"):
        assert name in out


@pytest.mark.long
def test_a_calibration_on_the_embedded_digits(calibrate: Command, tmp_path: Path) -> None:
    flags = (
        "--data.name",
        "digits",
        "--stream.tasks",
        "5",
        "--stream.first",
        "2",
        "--model.width",
        "4",
    )
    words = (
        "--readings",
        "replaced",
        "--rows",
        "er+da",
        "--seeds",
        "1",
        *flags,
        "--store",
        tmp_path,
    )
    code, out, err = calibrate(*words)
    assert code == 0 and narrow(out), out
    assert "3 of 3 runs are done." in err
    for word in ("the paper", "14.6/48.0", "base", "replaced", "shortened"):
        assert word in out
    code, out, _ = calibrate(*words, "--json")
    told = json.loads(out)
    assert {row["reading"] for row in told["readings"]} == {"base", "replaced"}
    assert {row["state"] for row in told["runs"]} == {"done"}


@pytest.mark.slow
def test_the_command_runs_as_it_is_documented() -> None:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "studies.calibrate", "--help"]
    help_ = subprocess.run(words, capture_output=True, text=True, cwd=root, check=False)
    assert help_.returncode == 0 and "usage: python -m studies.calibrate" in help_.stdout
