"""The demonstration trains every row over seeds and tables them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dualmix.cli import demo, main
from dualmix.store.store import Store

pytestmark = pytest.mark.slow

FAST = {"model.width": 4, "stream.batch": 60}


def test_table_over_seeds_and_nothing_trained_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROWS", {"finetune": FAST, "er": {**FAST, "method.memory": 30}})
    words = ["demo", "--seeds", "2", "--store", str(tmp_path)]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    text = capsys.readouterr().out
    runs = [Store(tmp_path).find(path.name) for path in Store(tmp_path).paths()]
    assert len(runs) == 4
    for name in ("finetune", "er"):
        row = next(line for line in text.splitlines() if line.split()[:1] == [name])
        mean = (
            sum(
                r.read_json("scores.json")["average_accuracy"]
                for r in runs
                if r.path.name.startswith(f"{name}-")
            )
            / 2
        )
        assert re.search(rf" {100 * mean:.1f} ± ", row)
        assert row.split()[-1] == "2"
    stamps = [(run.path / "scores.json").stat().st_mtime_ns for run in runs]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    assert capsys.readouterr().out == text
    assert stamps == [(run.path / "scores.json").stat().st_mtime_ns for run in runs]


def test_a_fault_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROWS", {"er": {"method.memroy": 3}})
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--seeds", "1", "--store", str(tmp_path)])
    assert "method.memory" in capsys.readouterr().err


def test_the_rows_can_be_composed() -> None:
    from dualmix.sweeps.sweep import entries

    runs = entries(demo.jobs(2, {"model.width": 4}), Store("nowhere"))
    assert [run.composed.label for run in runs] == [*demo.ROWS] * 2
    assert {run.composed.config.model.width for run in runs} == {4}
    assert [run.composed.config.seed for run in runs] == [0, 0, 0, 1, 1, 1]
