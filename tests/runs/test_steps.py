"""Lines of single steps in the log: right numbers, no trace in the results, exact after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualmix.config.compose import compose
from dualmix.runs.events import Event, Stepped
from dualmix.runs.run import Stopped, run
from dualmix.runs.status import standing
from dualmix.runs.steps import steps
from dualmix.store.store import Store

pytestmark = pytest.mark.usefixtures("shallow")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    x = np.random.default_rng(1).integers(0, 256, (40, 4, 4)).astype(np.uint8)
    np.savez(path, x=x, y=np.repeat(np.arange(4), 10))
    return {
        "data.name": "arrays",
        "data.path": str(path),
        "stream.tasks": 2,
        "stream.batch": 3,
        "model.width": 1,
        "method.memory": 5,
    }


def test_steps_are_logged_and_nothing_else_changes(values: dict[str, Any], tmp_path: Path) -> None:
    seen: list[Stepped] = []

    def watch(event: Event) -> None:
        if isinstance(event, Stepped):
            seen.append(event)

    quiet = run(compose("er", values), Store(tmp_path / "quiet"), watch=watch)
    logged = run(compose("er", {**values, "log_every": 2}), Store(tmp_path / "logged"))
    assert quiet.folder.path.name == logged.folder.path.name
    assert quiet.scores == logged.scores
    for name in ("learner.safetensors", "confusion.npz", "plan.json"):
        assert quiet.folder.read(name) == logged.folder.read(name)
    assert steps(quiet.folder) == []
    stages = steps(logged.folder)
    assert [stage.step for stage in stages] == list(range(2, len(seen) + 1, 2))
    for stage in stages:
        event = seen[stage.step - 1]
        before = seen[stage.step - 3] if stage.step > 2 else None
        hits = int(event.hits) - (int(before.hits) if before else 0)
        images = event.images - (before.images if before else 0)
        assert stage.loss == float(event.loss)
        assert stage.online_accuracy == hits / images
    assert max(stage.task for stage in stages) == 1


def test_a_run_that_was_cut_off_logs_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    composed = compose("er", {**values, "log_every": 1, "save_every": 4})
    whole = run(composed, Store(tmp_path / "whole"))
    calls = iter(range(1, 100))

    def stop() -> bool:
        if next(calls) == 7:
            raise KeyboardInterrupt  # dies without a snapshot: steps 5 to 7 are logged again
        return False

    with pytest.raises(KeyboardInterrupt):
        run(composed, Store(tmp_path / "parts"), stop=stop)
    again = iter(range(1, 100))
    with pytest.raises(Stopped):
        run(composed, Store(tmp_path / "parts"), stop=lambda: next(again) == 2)
    parts = run(composed, Store(tmp_path / "parts"))
    assert parts.folder.read("learner.safetensors") == whole.folder.read("learner.safetensors")
    text = (parts.folder.path / "log.jsonl").read_text()
    numbers = [json.loads(line)["step"] for line in text.splitlines() if '"event": "step"' in line]
    assert len(numbers) > len(set(numbers))
    assert steps(parts.folder) == steps(whole.folder)


def test_many_lines_do_not_hide_how_far_a_run_is(values: dict[str, Any], tmp_path: Path) -> None:
    done = run(compose("er", {**values, "log_every": 1}), Store(tmp_path))
    folder = done.folder
    for step in range(300):
        folder.log(event="step", task=1, step=step, loss=1.0, hits=0, images=step)
    (folder.path / "scores.json").unlink()
    found = standing(Store(tmp_path).at(folder.path), now=0)
    assert (found.state, found.finished) == ("stopped", 2)
