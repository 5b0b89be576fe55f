"""The training loop on a tiny stream: what it files, that it repeats, and that stopping anywhere
changes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dualmix
from dualmix.config.compose import Composed, compose
from dualmix.data import load
from dualmix.data.stream import plan
from dualmix.errors import BusyError, ConfigError, StoreError, TrainingError
from dualmix.runs.events import Began, Ended, Scored, Stepped
from dualmix.runs.filing import serves
from dualmix.runs.run import Stopped, confusion, run
from dualmix.store import snapshot
from dualmix.store.folder import Folder
from dualmix.store.store import Store
from tests.kit import RESULTS

pytestmark = pytest.mark.usefixtures("shallow")

TASKS, STEPS = 3, 3 * 4
FLAGS = {
    "data.name": "arrays",
    "stream.tasks": TASKS,
    "stream.batch": 6,
    "method.memory": 8,
    "method.memory_batch": 4,
    "model.width": 1,
    "save_every": 3,
}


@pytest.fixture(scope="module")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of noisy 4 x 4 patterns, ten training and five test images each."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    chance = np.random.default_rng(5)
    patterns = chance.integers(0, 200, (6, 4, 4))
    parts: dict[str, Any] = {}
    for name, count in (("train", 10), ("test", 5)):
        y = np.repeat(np.arange(6), count)
        parts[f"x_{name}"] = (patterns[y] + chance.integers(0, 55, (len(y), 4, 4))).astype(np.uint8)
        parts[f"y_{name}"] = y
    np.savez(path, **parts)
    return path


@pytest.fixture(scope="module")
def tiny(npz: Path) -> Callable[..., Composed]:
    def make(base: str = "er", **more: Any) -> Composed:
        flags = {
            **FLAGS,
            "data.path": str(npz),
            **{name.replace("__", "."): v for name, v in more.items()},
        }
        if base != "er":
            flags = {name: v for name, v in flags.items() if not name.startswith("method.")}
        return compose(base, flags)

    return make


@pytest.fixture(scope="module")
def whole(
    tiny: Callable[..., Composed], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """Return what the default tiny run files when nothing disturbs it."""
    return files(run(tiny(), Store(tmp_path_factory.mktemp("whole"))).folder)


def files(folder: Folder) -> dict[str, bytes]:
    return {name: (folder.path / name).read_bytes() for name in RESULTS}


def stop_after(step: int) -> Callable[[], bool]:
    calls = iter(range(1, 10**6))
    return lambda: next(calls) >= step


def test_it_files_all_that_is_needed_to_get_the_result_again(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    composed = tiny(seed=3)
    result = run(composed, Store(tmp_path))
    folder = result.folder
    assert {p.name for p in folder.path.iterdir()} == {
        *RESULTS,
        "facts.json",
        "times.json",
        "log.jsonl",
        "sums.json",
        "lock",
    }

    config = folder.read_json("config.json")
    assert (
        config["key"] == folder.key == composed.config.key(load(composed.config.data).fingerprint)
    )
    assert folder.path.name.endswith(folder.key[:12])
    assert config["config"]["method"]["kind"] == "er"
    assert config["config"]["seed"] == 3
    assert config["origins"]["method.memory"] == "flag"
    assert compose(str(folder.path)).config == composed.config

    planned = folder.read_json("plan.json")
    assert [task["batches"] for task in planned["tasks"]] == [4, 4, 4]
    with np.load(folder.path / "plan.npz") as rows:
        trained = np.concatenate([rows[f"train_{t}"].ravel() for t in range(TASKS)])
        assert sorted(trained.tolist()) == list(range(60))

    facts = folder.read_json("facts.json")
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["commit"] is None or len(facts["commit"]) == 40
    assert facts["host"]["cores"] >= 1
    assert facts["host"]["name"]
    assert facts["host"]["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert facts["data"]["fingerprint"] == load(composed.config.data).fingerprint
    assert len(facts["sessions"]) == 1

    log = [json.loads(line) for line in (folder.path / "log.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in log] == ["begin", "task", "task", "task", "end"]
    assert [entry["step"] for entry in log] == [0, 4, 8, 12, 12]
    assert all(math.isfinite(entry["loss"]) for entry in log if entry["event"] == "task")

    times = result.times
    assert times["images_per_second"] == pytest.approx(60 / times["train_seconds"])
    assert times["peak_memory_mb"] > 10


def test_scores_are_those_of_the_saved_learner(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    composed = tiny()
    result = run(composed, Store(tmp_path))
    images = load(composed.config.data)
    learner = dualmix.load(result.folder.path / "learner.safetensors")
    hits = learner.predict(images.test_x.transpose(0, 3, 1, 2)) == images.test_y
    tasks = [task["classes"] for task in result.folder.read_json("plan.json")["tasks"]]
    by_task = [hits[np.isin(images.test_y, classes)].mean() for classes in tasks]
    assert result.scores["average_accuracy"] == pytest.approx(np.mean(by_task))
    assert result.scores["accuracy_matrix"][-1] == pytest.approx(by_task)
    counts = result.folder.counts()
    assert counts.shape == (TASKS, 6, 6)
    assert counts.sum((1, 2)).tolist() == [10, 20, 30]
    assert np.trace(counts[-1]) == hits.sum()


def test_the_loop_is_observe_each_planned_batch_once(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    composed = tiny()
    config = composed.config
    result = run(composed, Store(tmp_path))
    images = load(config.data)
    order = plan(images.train_y, images.test_y, 6, config.stream, 0)
    learner = dualmix.build(config.method, images.shape, classes=6, seed=0, model=config.model)
    hits = 0
    for task in range(TASKS):
        for rows in order.batches(task):
            learner.observe(images.train_x[rows].transpose(0, 3, 1, 2), images.train_y[rows])
            hits += int(learner.hits)
        learner.consolidate()
        stage = confusion(learner, images, order, task)
        assert (stage == result.folder.counts()[task]).all()
    learner.recipe["names"] = list(images.classes)
    dualmix.save(learner, tmp_path / "by-hand")
    assert (tmp_path / "by-hand").read_bytes() == (
        result.folder.path / "learner.safetensors"
    ).read_bytes()
    assert result.scores["online_accuracy"] == hits / 60


def test_a_seed_repeats_and_another_differs(tiny: Callable[..., Composed], tmp_path: Path) -> None:
    first = run(tiny(seed=1), Store(tmp_path / "a"))
    again = run(tiny(seed=1), Store(tmp_path / "b"))
    spelled = run(tiny(order_seed=1, run_seed=1, seed=9), Store(tmp_path / "c"))
    other = run(tiny(seed=2), Store(tmp_path / "d"))
    assert files(first.folder) == files(again.folder)
    learned = [
        (r.folder.path / "learner.safetensors").read_bytes() for r in (first, spelled, other)
    ]
    assert learned[0] == learned[1]
    assert learned[0] != learned[2]


def test_how_often_it_saves_changes_nothing(tiny: Callable[..., Composed], tmp_path: Path) -> None:
    folders = [run(tiny(save_every=n), Store(tmp_path / str(n))).folder for n in (1, 1000)]
    assert len({(f.path / "learner.safetensors").read_bytes() for f in folders}) == 1
    assert len({f.key for f in folders}) == 1


def test_snapshots_come_every_n_steps_and_at_each_task_end(
    tiny: Callable[..., Composed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    kept: list[int] = []
    real = Folder.save

    def save(self: Folder, step: int, state: Any) -> None:
        real(self, step, state)
        saved.append(step)
        kept.append(len(list(self.path.glob("snapshot-*"))))

    monkeypatch.setattr(Folder, "save", save)
    run(tiny(), Store(tmp_path))
    assert saved == [3, 4, 6, 8, 9, 12]
    assert max(kept) == 2


def test_done_at_once(tiny: Callable[..., Composed], tmp_path: Path) -> None:
    first = run(tiny(), Store(tmp_path))
    before = {p: p.stat().st_mtime_ns for p in first.folder.path.iterdir()}

    def no_event(event: object) -> None:
        raise AssertionError(event)

    again = run(tiny(), Store(tmp_path), watch=no_event)
    assert again.scores == first.scores
    assert again.times == first.times
    assert before == {p: p.stat().st_mtime_ns for p in first.folder.path.iterdir()}


def test_fresh_starts_over(tiny: Callable[..., Composed], tmp_path: Path) -> None:
    first = run(tiny(), Store(tmp_path))
    results = files(first.folder)
    (first.folder.path / "snapshot-000000099.safetensors").write_bytes(b"junk")
    (first.folder.path / "tensorboard").mkdir()
    (first.folder.path / "notes.txt").write_text("my own")
    began: list[Began] = []
    run(
        tiny(),
        Store(tmp_path),
        fresh=True,
        watch=lambda e: began.append(e) if isinstance(e, Began) else None,
    )
    assert began[0].step == 0
    assert files(first.folder) == results
    assert len(first.folder.read_json("facts.json")["sessions"]) == 1
    assert not (first.folder.path / "tensorboard").exists()
    assert (first.folder.path / "notes.txt").read_text() == "my own"


def test_events_tell_the_whole_story(tiny: Callable[..., Composed], tmp_path: Path) -> None:
    events: list[Any] = []
    result = run(tiny(), Store(tmp_path), watch=events.append)
    assert isinstance(events[0], Began)
    assert (events[0].tasks, events[0].steps, events[0].step) == (TASKS, STEPS, 0)
    assert isinstance(events[-1], Ended)
    assert events[-1].scores == result.scores
    steps = [e for e in events if isinstance(e, Stepped)]
    assert [e.step for e in steps] == list(range(1, STEPS + 1))
    assert [e.images for e in steps][-1] == 60
    scored = [e for e in events if isinstance(e, Scored)]
    assert [e.accuracy for e in scored] == result.scores["average_accuracy_by_task"]
    assert math.isnan(scored[0].forgetting)
    assert scored[-1].forgetting == result.scores["forgetting"]


def test_stopped_after_any_step_and_resumed(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes]
) -> None:
    composed = tiny()
    for step in (1, 3, 4, 10, STEPS):
        store = Store(tmp_path / str(step))
        with pytest.raises(Stopped, match=f"step {step} of {STEPS}"):
            run(composed, store, stop=stop_after(step))
        assert files(run(composed, store).folder) == whole


@pytest.mark.parametrize(
    ("base", "head"), [("er", "fixed"), ("er", "growing"), ("finetune", "growing")]
)
def test_stopped_after_every_single_step(
    tiny: Callable[..., Composed], tmp_path: Path, base: str, head: str
) -> None:
    composed, store = tiny(base, model__head=head), Store(tmp_path / "often")
    whole = files(run(composed, Store(tmp_path / "whole")).folder)
    for step in range(1, STEPS + 1):
        began: list[int] = []
        with pytest.raises(Stopped, match=f"step {step} of"):
            run(
                composed,
                store,
                stop=lambda: True,
                watch=lambda e, b=began: b.append(getattr(e, "step", 0)),
            )
        assert began[0] == step - 1
    result = run(composed, store)
    assert files(result.folder) == whole
    assert len(result.folder.read_json("facts.json")["sessions"]) == STEPS + 1
    assert not list(result.folder.path.glob("snapshot-*"))


def test_died_while_filing_the_results(
    tiny: Callable[..., Composed],
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    composed = tiny()
    real = Folder._write

    for name in ("learner.safetensors", "times.json", "sums.json", "scores.json"):

        def write(self: Folder, target: str, content: bytes, *, fatal: str = name) -> None:
            if target == fatal and (target != "sums.json" or (self.path / "times.json").exists()):
                raise KeyboardInterrupt
            real(self, target, content)

        store = Store(tmp_path / name)
        monkeypatch.setattr(Folder, "_write", write)
        with pytest.raises(KeyboardInterrupt):
            run(composed, store)
        monkeypatch.undo()
        assert not store.find("er").done
        assert files(run(composed, store).folder) == whole


def _unfinished(composed: Composed, store: Store, step: int = 5) -> Folder:
    with pytest.raises(Stopped):
        run(composed, store, stop=stop_after(step))
    return store.find(composed.label)


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other run", "gone"])
def test_a_corrupt_snapshot_is_passed_over(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes], damage: str
) -> None:
    composed, store = tiny(), Store(tmp_path / "s")
    folder = _unfinished(composed, store)
    older, newest = sorted(folder.path.glob("snapshot-*"))
    assert (older.stem, newest.stem) == ("snapshot-000000004", "snapshot-000000005")
    content = bytearray(newest.read_bytes())
    if damage == "bit":
        content[-5] ^= 4
    elif damage == "other run":
        snapshot.write(newest, {**snapshot.read(newest), "key": "0" * 64})
        content = bytearray(newest.read_bytes())
    newest.write_bytes(
        {"cut": content[: len(content) // 2], "empty": b""}.get(damage, bytes(content))
    )
    if damage == "gone":
        newest.unlink()
    events: list[Any] = []
    result = run(composed, store, watch=events.append)
    assert events[0].step == 4
    assert len(events[0].remarks) == (damage != "gone")
    assert all(str(newest) in remark for remark in events[0].remarks)
    assert ("damaged snapshot" in (folder.path / "log.jsonl").read_text()) == (damage != "gone")
    assert files(result.folder) == whole


def test_without_a_good_snapshot_nothing_is_guessed(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes]
) -> None:
    composed, store = tiny(), Store(tmp_path)
    folder = _unfinished(composed, store)
    for path in folder.path.glob("snapshot-*"):
        path.write_bytes(path.read_bytes()[:-1])
    before = {p.name: p.read_bytes() for p in folder.path.iterdir()}
    with pytest.raises(StoreError, match="with fresh"):
        run(composed, store)
    assert before == {p.name: p.read_bytes() for p in folder.path.iterdir()}
    assert not folder.done
    assert files(run(composed, store, fresh=True).folder) == whole


@pytest.mark.slow
def test_the_second_process_leaves_the_first_alone(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    composed, store = tiny(), Store(tmp_path)
    folder = _unfinished(composed, store)
    before = {p.name: p.read_bytes() for p in folder.path.iterdir()}
    with folder.locked():
        for fresh in (False, True):
            with pytest.raises(BusyError, match="left alone"):
                run(composed, store, fresh=fresh)
    assert before == {p.name: p.read_bytes() for p in folder.path.iterdir()}
    run(composed, store)
    assert folder.done


def test_a_run_that_another_process_has_just_finished_is_not_repeated(
    tiny: Callable[..., Composed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process ends between our look for scores and our taking of the lock."""
    composed, store = tiny(), Store(tmp_path)
    real = Folder.locked

    def late(self: Folder) -> Any:
        monkeypatch.undo()
        run(composed, store)
        return real(self)

    monkeypatch.setattr(Folder, "locked", late)
    events: list[Any] = []
    result = run(composed, store, watch=events.append)
    assert not events
    assert result.scores["average_accuracy"] >= 0
    assert len(result.folder.read_json("facts.json")["sessions"]) == 1


@pytest.mark.parametrize(("setting", "given"), [("device", "cuda"), ("stream__tasks", 50)])
def test_what_cannot_run_leaves_no_folder(
    tiny: Callable[..., Composed], tmp_path: Path, setting: str, given: Any
) -> None:
    if given == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ConfigError):
        run(tiny(**{setting: given}), Store(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_watcher_that_fails_stops_the_run_but_not_the_resume(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes]
) -> None:
    composed = tiny()
    seen: list[Any] = []

    def watch(event: object) -> None:
        seen.append(event)
        if len(seen) == 9:
            raise ZeroDivisionError

    store = Store(tmp_path / "s")
    with pytest.raises(ZeroDivisionError):
        run(composed, store, watch=watch)
    assert files(run(composed, store).folder) == whole


def test_a_training_that_diverges_is_told_not_scored(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    """At its step, not at the task's end; the last snapshot is of a sound step and stays good."""
    steps: list[Any] = []
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"diverged at step \d+ "):
            run(tiny(method__lr=1e30, save_every=1), Store(tmp_path), watch=steps.append)
        (folder,) = tmp_path.iterdir()
        assert not (folder / "scores.json").exists()
        kept = snapshot.read(max(folder.glob("snapshot-*")))
        weights = kept["learner"]["model"].values()
        assert all(bool(torch.isfinite(weight).all()) for weight in weights)
    last = max(event.step for event in steps if isinstance(event, Stepped))
    assert kept["step"] == last < 4


@pytest.mark.slow
def test_a_cut_stream_scores_as_the_whole_did_that_far(tmp_path) -> None:
    short = {"method.memory": 20, "model.width": 4}
    whole = run(compose("er", short), Store(tmp_path / "whole"))
    cut = run(compose("er", {**short, "stream.first": 2}), Store(tmp_path / "cut"))
    assert cut.folder.counts().tolist() == whole.folder.counts()[:2].tolist()


@pytest.mark.parametrize("name", ["config.json", "plan.npz", "times.json", "scores.json"])
@pytest.mark.slow
def test_a_damaged_result_is_refused_by_name(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes], name: str
) -> None:
    folder = run(tiny(), Store(tmp_path)).folder
    content = (folder.path / name).read_bytes()
    (folder.path / name).write_bytes(content.replace(content[-20:], b"1" * 20))
    with pytest.raises(StoreError, match=f"{name} is not as the run wrote it.*fresh"):
        run(tiny(), Store(tmp_path))
    assert not serves(folder, tiny())
    assert files(run(tiny(), Store(tmp_path), fresh=True).folder) == whole


@pytest.mark.slow
def test_a_run_goes_on_over_damaged_files_to_the_same_bytes(
    tiny: Callable[..., Composed], tmp_path: Path, whole: dict[str, bytes]
) -> None:
    folder = _unfinished(tiny(), Store(tmp_path))
    for name in ("config.json", "plan.json", "plan.npz"):
        (folder.path / name).write_bytes((folder.path / name).read_bytes()[:-30] + b"x")
    began: list[Any] = []
    result = run(tiny(), Store(tmp_path), watch=began.append)
    assert files(result.folder) == whole and began[0].step == 5
    assert len(began[0].remarks) == 3 and result.folder.check()


@pytest.mark.slow
def test_probes_that_come_late_start_the_run_anew(
    tiny: Callable[..., Composed], tmp_path: Path
) -> None:
    _unfinished(tiny(), Store(tmp_path))
    asked = tiny(probes__on=True, probes__draws=2, probes__rows=4, probes__past=9)
    began: list[Any] = []
    result = run(asked, Store(tmp_path), watch=began.append)
    assert began[0].step == 0
    assert len(result.folder.read_json("probes.json")) == TASKS
