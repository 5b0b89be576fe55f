"""The demonstration trains every row over seeds and tables them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dualmix.cli import demo, main
from dualmix.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shallow")]

FAST = {"model.width": 4, "stream.batch": 60}


@pytest.mark.usefixtures("in_process")
def test_table_over_seeds_and_nothing_trained_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (("finetune", FAST), ("er", {**FAST, "method.memory": 30}))
    monkeypatch.setattr(demo, "ROWS", rows)
    words = ["demo", "--seeds", "3", "--store", str(tmp_path)]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    text = capsys.readouterr().out
    runs = [Store(tmp_path).find(path.name) for path in Store(tmp_path).paths()]
    assert len(runs) == 6
    for name in ("finetune", "er"):
        row = next(line for line in text.splitlines() if line.split()[:1] == [name])
        shares = [
            r.read_json("scores.json")["average_accuracy"]
            for r in runs
            if r.path.name.startswith(f"{name}-")
        ]
        assert re.search(rf" {100 * sum(shares) / 3:.1f} ± ", row)
        assert row.split()[-2] == "3"
    assert "└" in text
    assert text.rstrip().endswith(demo.NEXT.splitlines()[-1])
    stamps = [(run.path / "scores.json").stat().st_mtime_ns for run in runs]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    assert capsys.readouterr().out == text
    assert stamps == [(run.path / "scores.json").stat().st_mtime_ns for run in runs]


def test_a_fault_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROWS", (("er", {"method.memroy": 3}),))
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--seeds", "1", "--store", str(tmp_path)])
    assert "method.memory" in capsys.readouterr().err


def test_all_lines_fit_80_columns() -> None:
    assert all(len(line) < 80 for text in (demo.TITLE, demo.NEXT) for line in text.splitlines())


def test_the_rows_can_be_composed() -> None:
    from dualmix.sweeps.sweep import entries

    runs = entries(demo.jobs(2, {"model.width": 4}), Store("nowhere"))
    assert [run.composed.label for run in runs] == [label for label, _ in demo.ROWS] * 2
    assert {run.composed.config.model.width for run in runs} == {4}
    assert [run.composed.config.seed for run in runs] == [0] * len(demo.ROWS) + [1] * len(demo.ROWS)
