"""Trackers: what was written is read back, and none of them can stop a run."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dualmix.config.compose import compose
from dualmix.errors import DualmixError
from dualmix.runs.events import Stepped
from dualmix.runs.run import Stopped, run
from dualmix.runs.trackers import EVERY, Tracking, all_of, trackers
from dualmix.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shallow")]

VALUES = {"model.width": 4, "method.memory": 20, "stream.first": 2}
RESULTS = ("learner.safetensors", "confusion.npz", "scores.json")


class Book:
    """A tracker that keeps what it is told."""

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at, self.told = fails_at, []

    def begin(self, path: Path, label: str, step: int, settings: Mapping[str, Any]) -> None:
        self._note("begin", (path, label, step, settings))

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._note("add", (step, dict(numbers)))

    def close(self, done: bool) -> None:
        self._note("close", done)

    def _note(self, kind: str, what: Any) -> None:
        self.told.append((kind, what))
        if kind == self.fails_at:
            raise OSError("no route to the tracker")


def steps(told: list[Any]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for kind, what in told:
        if kind == "add":
            found.setdefault(what[0], {}).update(what[1])
    return found


def test_what_a_run_tells_becomes_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualmix.runs.trackers.EVERY", 10)
    composed, book, seen = compose("er", VALUES), Book(), []
    with Tracking({"book": book}, composed) as tracking:
        result = run(composed, Store(tmp_path), watch=all_of(seen.append, tracking))
    kind, (path, label, step, settings) = book.told[0]
    assert (kind, path, label, step) == ("begin", result.folder.path, "er", 0)
    assert settings["method.memory"] == 20 and settings["method.mix.alpha"] == 0.2
    assert book.told[-1] == ("close", True)
    found = steps(book.told)
    stepped = {event.step: event for event in seen if type(event).__name__ == "Stepped"}
    scored = [event for event in seen if type(event).__name__ == "Scored"]
    marks = [number for number in stepped if number % 10 == 0]
    assert len(marks) > 2 and set(found) == {*marks, *(event.step for event in scored)}
    hits = images = 0
    for number in marks:
        event = stepped[number]
        assert found[number]["loss"] == float(event.loss)
        assert found[number]["online_accuracy"] == (int(event.hits) - hits) / (
            event.images - images
        )
        hits, images = int(event.hits), event.images
    assert [found[event.step]["accuracy"] for event in scored] == [
        event.accuracy for event in scored
    ]
    assert "forgetting" not in found[scored[0].step], "a number that is not defined is not sent"
    last = found[scored[-1].step]
    assert last["forgetting"] == scored[-1].forgetting
    assert last["final/average_accuracy"] == result.scores["average_accuracy"]
    assert last["final/train_seconds"] == result.times["train_seconds"]


def test_a_cut_off_run_is_closed_as_such_and_goes_on_with_its_step(tmp_path: Path) -> None:
    composed, book = compose("er", VALUES), Book()
    calls = iter(range(1000))
    with pytest.raises(Stopped), Tracking({"book": book}, composed) as tracking:
        run(composed, Store(tmp_path), watch=tracking, stop=lambda: next(calls) == 9)
    assert book.told[-1] == ("close", False)
    again = Book()
    with Tracking({"book": again}, composed) as tracking:
        run(composed, Store(tmp_path), watch=tracking)
    assert again.told[0][1][2] == 10 and again.told[-1] == ("close", True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, shallow: None) -> Path:
    """Return the folder of a run that nobody tracked."""
    return run(compose("er", VALUES), Store(tmp_path_factory.mktemp("alone"))).folder.path


@pytest.mark.parametrize("moment", ["begin", "add", "close"])
def test_a_tracker_that_fails_is_given_up_with_one_warning(
    tmp_path: Path, alone: Path, moment: str
) -> None:
    composed, bad, good, said = compose("er", VALUES), Book(moment), Book(), []
    with Tracking({"bad": bad, "good": good}, composed, said.append) as tracking:
        result = run(composed, Store(tmp_path / "tracked"), watch=tracking)
    assert said == ["bad stopped tracking, the run goes on: OSError: no route to the tracker"]
    assert [kind for kind, _ in bad.told].count(moment) == 1 and bad.told[-1][0] == moment
    assert good.told[-1] == ("close", True)
    for name in RESULTS:
        assert (result.folder.path / name).read_bytes() == (alone / name).read_bytes()


def test_the_device_is_not_stopped_when_nobody_tracks() -> None:
    class Far:
        def __float__(self) -> float:
            raise AssertionError("a number was read")

        def __sub__(self, other: object) -> Any:
            return self

    step: Any = Stepped(0, EVERY, Far(), Far(), 10)  # type: ignore[arg-type]
    Tracking({}, compose("er"))(step)
    said: list[str] = []
    with (
        pytest.raises(AssertionError),
        Tracking({"book": Book()}, compose("er"), said.append) as tracking,
    ):
        tracking(step)


def test_a_missing_extra_is_one_sentence(
    dualmix_: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    code, _, err = dualmix_(
        "run", "er", "--track", "wandb", "--quiet", "--store", tmp_path / "none"
    )
    assert (
        code == 2 and "--track wandb needs the package wandb: pip install 'dualmix[wandb]'" in err
    )
    assert err.count("\n") == 1 and not (tmp_path / "none").exists()
    with pytest.raises(DualmixError):
        trackers(["wandb"])
    code, _, err = dualmix_("run", "er", "--track", "wandbb", "--store", tmp_path / "none")
    assert code == 2 and "did you mean wandb?" in err


def missing(module: str) -> None:
    pytest.importorskip(
        module,
        reason=f"{module.upper()} MISSING: pip install 'dualmix[{module}]' to test its tracker",
    )


def tracked(name: str, store: Path) -> Any:
    """Train in two sessions, the first of them stopped, and return the result."""
    composed = compose("er", VALUES)
    calls = iter(range(1000))
    said: list[str] = []
    with pytest.raises(Stopped), Tracking(trackers([name]), composed, said.append) as tracking:
        run(composed, Store(store), watch=tracking, stop=lambda: next(calls) == EVERY - 1)
    with Tracking(trackers([name, name]), composed, said.append) as tracking:
        result = run(composed, Store(store), watch=tracking)
    assert said == []
    return result


def curve(result: Any) -> list[tuple[int, float]]:
    log = [json.loads(line) for line in (result.folder.path / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["accuracy"]) for line in log if line["event"] == "task"]


@pytest.mark.filterwarnings("default")
def test_tensorboard_for_real(tmp_path: Path) -> None:
    missing("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = tracked("tensorboard", tmp_path)
    events = EventAccumulator(str(result.folder.path / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == [EVERY]
    found = [(e.step, e.value) for e in events.Scalars("accuracy")]
    assert found == [(step, pytest.approx(value)) for step, value in curve(result)]
    final = events.Scalars("final/average_accuracy")
    assert [e.value for e in final] == pytest.approx([result.scores["average_accuracy"]])
    assert "settings/text_summary" in events.Tags()["tensors"]


@pytest.mark.filterwarnings("default")
def test_mlflow_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = tracked("mlflow", tmp_path)
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("dualmix").experiment_id])
    assert found.info.run_name == result.folder.path.name and found.info.status == "FINISHED"
    assert found.data.params["method.memory"] == "20" and found.data.params["label"] == "er"
    history = [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "accuracy")]
    assert history == curve(result)
    assert [m.step for m in client.get_metric_history(found.info.run_id, "loss")] == [EVERY]
    assert found.data.metrics["final/average_accuracy"] == result.scores["average_accuracy"]


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a W&B file: LevelDB's log format behind a header of 7 bytes."""
    content, at, parts = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""


@pytest.mark.filterwarnings("default")
@pytest.mark.long
def test_wandb_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.delenv("WANDB_MODE", raising=False)
    result = tracked("wandb", tmp_path)
    files = sorted(result.folder.path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    rows: dict[int, dict[str, float]] = {}
    settings: dict[str, Any] = {}
    for path in files:
        deadline = time.monotonic() + 600
        while (
            found := [Record.FromString(content) for content in records(path)]
        ) == [] or not found[-1].HasField("exit"):
            assert time.monotonic() < deadline, "W&B's own process did not write the end of the run"
            time.sleep(0.1)
        for record in found:
            if record.WhichOneof("record_type") == "run":
                assert record.run.display_name == result.folder.path.name
                settings |= {
                    item.key: json.loads(item.value_json) for item in record.run.config.update
                }
            if record.WhichOneof("record_type") == "history":
                row = {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in record.history.item
                }
                rows.setdefault(row["_step"], {}).update(row)
    assert settings["method.memory"] == 20 and settings["label"] == "er"
    assert [
        (step, row["accuracy"]) for step, row in sorted(rows.items()) if "accuracy" in row
    ] == curve(result)
    assert [step for step, row in rows.items() if "loss" in row] == [EVERY]
    assert max(rows.items())[1]["final/average_accuracy"] == result.scores["average_accuracy"]


def test_the_command_line_tracks(
    dualmix_: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    missing("tensorboard")
    flags = [word for path, at in VALUES.items() for word in (f"--{path}", at)]
    code, _, err = dualmix_(
        "run", "er", *flags, "--track", "tensorboard", "--store", tmp_path, "--quiet"
    )
    assert code == 0 and not err
    (run,) = tmp_path.glob("er-*")
    assert list(run.glob("tensorboard/events.*"))
