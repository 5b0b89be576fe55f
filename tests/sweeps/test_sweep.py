"""Sweeps: one process a run; what is done is skipped, what was cut off goes on, what fails is tried
again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dualmix.config.compose import compose
from dualmix.config.plain import as_flag
from dualmix.errors import ConfigError
from dualmix.runs.run import run
from dualmix.runs.status import standing, standings
from dualmix.store.store import Store
from dualmix.sweeps.executors import Local
from dualmix.sweeps.sweep import Entry, Job, entries, estimate, grid, read_grid, sweep

pytestmark = pytest.mark.usefixtures("shallow")

TINY = {"model.width": 4, "method.memory": 20, "stream.first": 2, "save_every": 5}


def test_a_grid_is_every_combination_with_seeds_outermost() -> None:
    made = grid(["a", "b"], [5, 6], {"x": [1, 2]}, {"y": 0})
    assert [(job.preset, job.values["x"], job.values["seed"]) for job in made] == [
        (p, x, s) for s in (5, 6) for x in (1, 2) for p in ("a", "b")
    ]
    assert all(job.values["y"] == 0 for job in made)


def test_a_grid_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(
        "presets: [er]\nseeds: [4]\ngrid: {method.memory: [1, 2]}\nvalues: {stream.first: 1}\n"
    )
    assert [dict(job.values) for job in read_grid(path)] == [
        {"stream.first": 1, "method.memory": m, "seed": 4} for m in (1, 2)
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("presets: []", "needs presets"),
        ("[er]", "needs presets"),
        ("presets: [er]\nsedes: 3", "needs presets"),
        ("presets: [er]\nseeds: many", "seeds is a number or a list"),
        ("presets: [er]\nseeds: 10000000000000000000", "from 1 to 100,000"),
        ("presets: [er]\nseeds: 0", "from 1 to 100,000"),
        ("presets: [er]\nseeds: true", "from 1 to 100,000"),
        ("presets: [er]\ngrid: {method.memory: 3}", "method.memory needs a list"),
        ("presets: [er", "cannot be read"),
    ],
)
def test_a_wrong_grid_file_is_explained(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("order_seed", None),
        ("probes.on", True),
        ("method.memory", 7),
        ("method.mix.alpha", 0.25),
        ("stream.class_order", [3, 1, 2, 0]),
        ("method.mix.augment", "crop-0.8"),
    ],
)
def test_a_value_reaches_the_run_as_it_was_given(path: str, given: Any) -> None:
    direct, typed = (
        compose("er", {path: given}).config,
        compose("er", {path: as_flag(given)}).config,
    )
    assert direct == typed


def test_all_jobs_are_checked_before_anything_runs_and_each_run_comes_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    twice = entries(
        [Job("er", TINY), Job("er", {**TINY, "seed": 0}), Job("er", {**TINY, "seed": 1})], store
    )
    assert [entry.composed.config.seed for entry in twice] == [0, 1]
    with pytest.raises(ConfigError, match="did you mean"):
        entries([Job("er", TINY), Job("er", {"method.memroy": 3})], store)
    assert list(tmp_path.iterdir()) == []


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes()
        for name in ("learner.safetensors", "confusion.npz", "scores.json")
    }


def _kill_one(done: list[int]) -> Any:
    """Return a watcher that kills the first run it sees with a snapshot."""

    def watch(runs: Sequence[Entry]) -> None:
        for entry in runs:
            holder = entry.folder.path / "holder.json"
            if (
                not done
                and entry.state == "running"
                and list(entry.folder.path.glob("snapshot-*"))
                and holder.is_file()
            ):
                try:
                    pid = json.loads(holder.read_text())["pid"]
                    os.kill(pid, signal.SIGKILL)
                except (OSError, ValueError):
                    return
                done.append(pid)

    return watch


@pytest.mark.long
def test_a_killed_run_costs_one_retry_and_a_stopped_sweep_goes_on_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    longer = {**TINY, "stream.epochs": 4, "save_every": 10}
    jobs = grid(["er", "er+dualmix"], range(1), values=longer)
    store, killed = Store(tmp_path / "swept"), []
    watch = _kill_one(killed)
    runs = entries(jobs, store)
    sweep(runs, Local(store, 2), watch=watch, stop=lambda: bool(killed))
    assert killed, "no run was seen alive: the test is void"
    assert {run.state for run in runs} <= {"done", "stopped", "waiting"}
    assert "done" not in {run.state for run in runs if run.tries}

    runs = entries(jobs, store)
    sweep(runs, Local(store, 2))
    assert {run.state for run in runs} == {"done"}
    for entry in runs:
        alone = run(entry.composed, Store(tmp_path / "alone"))
        assert _bytes(entry.folder.path) == _bytes(alone.folder.path)
    started = [(entry.folder.path / "facts.json").read_bytes() for entry in runs]
    again = entries(jobs, store)
    sweep(again, Local(store, 2))
    assert [(entry.folder.path / "facts.json").read_bytes() for entry in again] == started


PLUGIN = """
from dualmix.methods import Finetune
from dualmix.registry import register

@register("{name}")
class Failing(Finetune):
    \"\"\"Fails when it is built.\"\"\"
    def build(self, model, rng):
        raise RuntimeError("no luck today")
"""


@pytest.mark.slow
def test_a_failing_run_is_tried_again_then_listed_while_others_go_on(tmp_path: Path) -> None:
    from dualmix.registry import load_plugin

    plugin = tmp_path / "failing.py"
    plugin.write_text(PLUGIN.format(name="failing-in-sweep"))
    load_plugin(plugin)
    store = Store(tmp_path / "store")
    values = {"model.width": 4, "stream.first": 1}
    runs = entries([Job("failing-in-sweep", values), Job("finetune", values)], store)
    sweep(runs, Local(store, 1, [plugin]), retries=1)
    assert [run.state for run in runs] == ["failed", "done"]
    assert runs[0].tries == 2
    assert "no luck today" in runs[0].fault


@pytest.mark.usefixtures("in_process")
def test_a_run_in_other_hands_is_left_alone_until_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualmix.sweeps.sweep.ELSEWHERE", 0.1)
    store = Store(tmp_path)
    runs = entries([Job("finetune", {"model.width": 4, "stream.first": 1})], store)
    seen: list[str] = []
    began = time.monotonic()
    with runs[0].folder.locked():
        sweep(
            runs,
            Local(store, 1),
            watch=lambda r: seen.append(r[0].state),
            stop=lambda: time.monotonic() > began + 0.5,
        )
        assert set(seen) == {"waiting"}
    sweep(runs, Local(store, 1))
    assert (runs[0].state, runs[0].tries) == ("done", 0)


def test_where_a_run_is_and_how_long_it_needs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    composed = compose("er", TINY)
    done = run(composed, store)
    found = standing(done.folder, now=0.0)
    assert (found.state, found.finished, found.tasks) == ("done", 2, 2)
    assert found.accuracy == done.scores["average_accuracy"]
    for name in ("scores.json", "sums.json"):
        (done.folder.path / name).unlink()
    plan = {"tasks": [{"batches": 100}] * 4}
    (done.folder.path / "plan.json").write_text(json.dumps(plan))
    lines = [
        {"at": "2026-01-01T00:00:00+0000", "event": "begin", "step": 100},
        {
            "at": "2026-01-01T00:01:00+0000",
            "event": "task",
            "task": 3,
            "step": 300,
            "accuracy": 0.5,
        },
    ]
    (done.folder.path / "log.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + "half a li"
    )
    assert standing(done.folder, now=0.0).state == "stopped"
    with done.folder.locked():
        alive = standing(done.folder, now=1767225660.0 + 10)
        assert (alive.state, alive.finished, alive.tasks, alive.accuracy) == ("running", 3, 4, 0.5)
        assert alive.left == pytest.approx(0.3 * 100 - 10)
    done.folder.log(event="failed", error="no luck")
    assert [(s.state, s.fault) for s in standings(store, now=0.0)] == [("failed", "no luck")]


def test_estimates_come_from_runs_like_it_and_scale_with_the_stream(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = run(compose("er", TINY), store)
    (first.folder.path / "sums.json").unlink()
    times = {"train_seconds": 9.0, "evaluate_seconds": 1.0}
    (first.folder.path / "times.json").write_text(
        json.dumps({**times, "images_per_second": 1, "peak_memory_mb": 1})
    )
    batches = sum(
        task["batches"]
        for task in json.loads((first.folder.path / "plan.json").read_text())["tasks"]
    )
    longer = {**TINY, "stream.first": None, "seed": 1}
    runs = entries(
        [Job("er", TINY), Job("er", longer), Job("finetune", longer | {"method.memory": 0})][:2],
        store,
    )
    damaged = tmp_path / "er-damaged"
    shutil.copytree(first.folder.path, damaged)
    (damaged / "times.json").unlink()
    told = estimate([*runs, *entries([Job("finetune", {"stream.first": 1})], store)], store)
    (damaged / "scores.json").write_text("{")
    states = {one.name: (one.state, one.fault) for one in standings(store, now=0.0)}
    assert states[first.folder.path.name] == ("done", "")
    assert states["er-damaged"][0] == "failed"
    assert "er-damaged/scores.json cannot be read" in states["er-damaged"][1]
    assert runs[0].folder.key not in told
    whole = told[runs[1].folder.key]
    assert whole is not None and whole == pytest.approx(10 / batches * 144, rel=0.05)
    assert list(told.values())[1] is None
