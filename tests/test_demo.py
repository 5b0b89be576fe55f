"""The demonstration trains every row over seeds and tables them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from dualmix import demo
from dualmix.errors import DualmixError
from dualmix.store import Store

FAST = ("--model.width", "4", "--stream.batch", "60")


def test_table_over_seeds_and_nothing_trained_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROWS", {"finetune": FAST, "er": (*FAST, "--method.memory", "30")})
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(demo.demo(tmp_path, 2, console))
    text = out.getvalue()
    for name in ("finetune", "er"):
        row = next(line for line in text.splitlines() if line.split()[:1] == [name])
        assert "±" in row
        assert row.split()[-1] == "2"
    runs = [Store(tmp_path).find(path.name) for path in Store(tmp_path).paths()]
    assert len(runs) == 4
    stamps = [(run.path / "scores.json").stat().st_mtime_ns for run in runs]
    demo.demo(tmp_path, 2, Console(file=io.StringIO()))
    assert stamps == [(run.path / "scores.json").stat().st_mtime_ns for run in runs]


def test_a_fault_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROWS", {"er": ("--method.memroy", "3")})
    with pytest.raises(DualmixError, match=r"method\.memory"):
        demo.demo(tmp_path, 1, Console(file=io.StringIO()))
