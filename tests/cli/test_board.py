"""What a sweep tells, line by line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dualmix.cli.board import Board, planned
from dualmix.store.store import Store
from dualmix.sweeps.executors import Local
from dualmix.sweeps.sweep import Entry, Job, entries


def test_a_failure_is_told_even_if_the_run_starts_again_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (run,) = entries([Job("finetune", {"model.width": 4})], store)
    out = io.StringIO()
    name = f"finetune seed 0  {run.folder.key[:6]}"

    def told(entry: Entry) -> str:
        out.truncate(0)
        out.seek(0)
        board([entry])
        return out.getvalue().strip()

    with Board(Console(file=out, width=200), {}, Local(store, 1)) as board:
        assert told(run) == ""
        run.state = "running"
        assert told(run) == f"starts   {name}"
        run.tries, run.fault = 1, "some lines\nkilled by signal 9"
        assert told(run) == f"again    {name}: killed by signal 9"
        assert told(run) == ""
        run.state, run.tries = "waiting", 2
        assert told(run) == f"again    {name}: killed by signal 9"
        run.state = "running"
        assert told(run) == f"starts   {name}"
        run.state, run.tries = "failed", 3
        assert told(run) == f"failed   {name} (tried 3 times): killed by signal 9"


@pytest.mark.slow
def test_status_of_finished_runs_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    folder = tmp_path / "er-digits-s0-0123456789ab"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    scores = {"average_accuracy": 0.5, "average_accuracy_by_task": [1.0, 0.5]}
    (folder / "scores.json").write_text(json.dumps(scores))
    script = (
        "import sys; from dualmix.cli import main\n"
        "try: main(['status', '--store', sys.argv[1]])\n"
        "finally: print(sorted({'numpy', 'pydantic', 'torch'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == "1 runs: 1 done\n[]\n"


@pytest.mark.parametrize(
    ("seconds", "workers", "says"),
    [
        ([600.0], 2, "1 run, 0 done, 1 to do: about 10:00 with 1 run at a time."),
        ([600.0, 60.0, 60.0], 2, "3 to do: about 10:00 with 2 runs at a time."),
        ([60.0] * 5, 2, "5 to do: about 2:30 with 2 runs at a time."),
        ([60.0, None], 8, "about 1:00 with 2 runs at a time, without 1 run of which nothing like"),
    ],
)
def test_an_estimate_knows_that_a_run_is_not_split(
    tmp_path: Path, seconds: list[float | None], workers: int, says: str
) -> None:
    store = Store(tmp_path)
    jobs = [Job("er", {"data.name": "digits", "seed": seed}) for seed in range(len(seconds))]
    runs = entries(jobs, store)
    known = {run.folder.key: one for run, one in zip(runs, seconds, strict=True)}
    out = io.StringIO()
    Console(width=200, file=out).print(planned(runs, known, workers))
    assert says in out.getvalue()
