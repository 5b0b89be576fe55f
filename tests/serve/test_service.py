"""The service: what is acknowledged is learned once, in order, and again after any end."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualmix
from dualmix.errors import ConfigError, DualmixError, InputError, StoreError
from dualmix.serve.accuracy import POINTS, Accuracy
from dualmix.serve.faults import RefusalError
from dualmix.serve.gathering import Gathering
from dualmix.serve.ids import Ids
from dualmix.serve.record import Record, as_record, parse
from dualmix.serve.service import Service
from tests.kit import wait_until

from .asking import SHAPE, batch, learner, service


def record(seed: int, name: str = "", **more: Any) -> Record:
    return as_record(SHAPE, *batch(seed, **more), name, now=1000.0 + seed)


def send(served: Service, *records: Record) -> None:
    for one in records:
        served.observe(one).done.result(60)


def sequential(*records: Record, start: Any = learner) -> Any:
    made = start()
    for one in records:
        made.observe(one.x, list(one.y))
    return made


def test_records_survive_their_bytes() -> None:
    vectors = as_record((3,), np.array([[1, 2.5, -3e30]]), ["ä"], "name", 5.0)
    for one in (record(1, "a"), vectors, Record("pause", "", 7.0)):
        back = parse(one.to_bytes())
        assert (back.kind, back.name, back.time, back.y) == (one.kind, one.name, one.time, one.y)
        assert back.x.dtype == one.x.dtype and (back.x == one.x).all()
        assert back.digest == one.digest
    with pytest.raises(StoreError, match="cannot read"):
        parse(b"\x02\x00\x00\x00{}")


def test_the_service_learns_what_a_plain_loop_learns(tmp_path: Path) -> None:
    served = service(tmp_path)
    records = [record(seed) for seed in range(6)]
    send(served, *records)
    want = sequential(*records)
    assert served.learner_bytes() == dualmix.to_bytes(want)
    x, _ = batch(99)
    found = served.scores(x)
    assert found.steps == 6 and found.labels == want.model.labels
    np.testing.assert_array_equal(found.scores, want.scores(x))
    served.close()
    assert dualmix.to_bytes(dualmix.load(tmp_path / "snapshot.safetensors")) == dualmix.to_bytes(
        want
    )


def test_a_copy_of_the_folder_at_any_moment_is_a_whole_service(tmp_path: Path) -> None:
    served = service(tmp_path / "a", snapshot_every=2)
    records = [record(seed, name=f"n{seed}") for seed in range(7)]
    for count, one in enumerate(records, 1):
        send(served, one)
        shutil.copytree(tmp_path / "a", tmp_path / f"b{count}")
    served.close()
    for count in (1, 2, 4, 7):
        again = service(tmp_path / f"b{count}")
        assert again.learner_bytes() == dualmix.to_bytes(sequential(*records[:count]))
        assert again.accuracy.images == 4 * count and len(again.ids) == count
        assert again.observe(records[0]).repeated and again.journal.next == count
        again.close()


def test_an_id_counts_once_and_stands_for_one_batch(tmp_path: Path) -> None:
    served = service(tmp_path)
    first = served.observe(record(0, "same"))
    assert not first.repeated
    again = served.observe(record(0, "same"))
    assert again.repeated and again.number == first.number
    with pytest.raises(RefusalError, match="another batch") as fault:
        served.observe(record(1, "same"))
    assert fault.value.status == 409
    served.close()
    assert served.learned == 1
    later = service(tmp_path)
    assert later.observe(record(0, "same")).repeated, "the snapshot remembers ids"
    later.close()


def test_ids_are_bounded_by_the_latest() -> None:
    ids = Ids(most=3)
    for number in range(5):
        ids.add(f"id {number}", bytes(16), number)
    ids.add("", bytes(16), 9)
    assert [ids.get(f"id {number}") is not None for number in range(5)] == [False] * 2 + [True] * 3
    twin = Ids(most=3)
    twin.load_state_dict(ids.state_dict(before=4))
    assert twin.get("id 3") == ids.get("id 3") and twin.get("id 4") is None


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((2, 1, 7, 8), np.uint8), [0, 1], "resize"),
        (np.full((1, 1, 8, 8), np.nan), [0], "NaN"),
        (np.full((1, 1, 8, 8), 2.0), [0], "must lie in"),
        (np.zeros((0, 1, 8, 8), np.uint8), [], "empty"),
        (np.zeros((2, 1, 8, 8), np.uint8), [0], "one for each"),
        (np.zeros((2, 1, 8, 8), np.uint8), [0, "a"], "one kind"),
        (np.zeros((2, 1, 8, 8), np.uint8), [0.5, 1], "fractions"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["a\n"], "printable"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["\ud800"], "printable"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["a" * 300], "printable"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["\u202eabc"], "printable"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["a\u2028b"], "printable"),
        (np.zeros((1, 1, 8, 8), np.uint8), ["  "], "printable"),
    ],
)
def test_a_bad_batch_never_reaches_the_journal(x: Any, y: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_record(SHAPE, x, y)


@pytest.mark.parametrize(
    "label", ["\u0645\u06cc\u200c\u062e", "\U0001f468\u200d\U0001f469", "a\u00a0b", "e\u0301"]
)
def test_text_of_any_language_is_a_label(label: str) -> None:
    assert as_record(SHAPE, batch(0)[0][:1], [label]).y == (label,)


def test_a_batch_of_too_many_rows_is_refused_before_the_journal(tmp_path: Path) -> None:
    served = service(tmp_path, rows=4)
    with pytest.raises(InputError, match=r"5 rows.* learns 4 at once"):
        served.observe(record(0, rows=5))
    send(served, record(0, rows=4))
    served.close()
    assert served.learned == 1


def test_labels_that_do_not_fit_are_refused_before_the_journal(tmp_path: Path) -> None:
    served = service(tmp_path / "a", start=lambda: learner(classes=2))
    send(served, as_record(SHAPE, batch(0)[0], [0, 1, 0, 1]))
    with pytest.raises(InputError, match="takes 2 classes"):
        served.observe(as_record(SHAPE, batch(0)[0], [0, 1, 2, 1]))
    with pytest.raises(InputError, match="whole numbers"):
        served.observe(as_record(SHAPE, batch(0)[0], ["a", "a", "a", "a"]))
    assert served.journal.next == 1
    served.close()
    growing = service(tmp_path / "b", classes=3)
    with pytest.raises(InputError, match="takes 3 classes"):
        growing.observe(as_record(SHAPE, batch(0)[0], [0, 1, 2, 3]))
    growing.close()


def blocked(served: Service) -> threading.Event:
    """Let the writer wait before it learns."""
    go, plain = threading.Event(), served._step
    served._step = lambda one: (go.wait(60), plain(one))[1]  # type: ignore[method-assign]
    return go


def test_a_full_queue_refuses_and_says_when_to_come_again(tmp_path: Path) -> None:
    served = service(tmp_path, queue=2)
    go = blocked(served)
    receipts = [served.observe(record(seed)) for seed in range(2)]
    with pytest.raises(RefusalError, match="2 batches are waiting") as fault:
        served.observe(record(2, "late"))
    assert fault.value.status == 429 and fault.value.retry == 1.0
    served._pace = 40.0
    with pytest.raises(RefusalError) as fault:
        served.observe(record(2, "late"))
    assert fault.value.retry == 10.0, "the time of an eighth of the queue: of 2 batches"
    with pytest.raises(InputError, match="use one kind"):
        served.observe(as_record(SHAPE, batch(0)[0], ["a"] * 4))
    go.set()
    for receipt in receipts:
        receipt.done.result(60)
    send(served, record(2, "late"))
    served.close()
    assert served.learned == 3


def test_answers_come_from_the_last_complete_batch_while_one_is_learned(tmp_path: Path) -> None:
    served = service(tmp_path)
    send(served, record(0))
    before = served.scores(batch(9)[0])
    inside, go = threading.Event(), threading.Event()
    update = served.learner.update

    def slow(*given: Any) -> Any:
        inside.set()
        go.wait(60)
        return update(*given)

    served.learner.update = slow  # type: ignore[assignment]
    receipt = served.observe(record(1))
    assert inside.wait(60)
    meanwhile = served.scores(batch(9)[0])
    assert meanwhile.steps == 1 and (meanwhile.scores == before.scores).all()
    go.set()
    receipt.done.result(60)
    assert served.scores(batch(9)[0]).steps == 2
    served.close()


def vectors(scale: float, seed: int, name: str = "") -> Record:
    rng = np.random.default_rng(seed)
    return as_record((4,), rng.normal(size=(6, 4)) * scale, rng.integers(0, 3, 6), name, 1.0)


def linear() -> Any:
    return dualmix.create("er", (4,), memory=12, model="linear", lr=0.1)


def test_a_batch_that_diverges_is_left_out_now_and_in_a_replay(tmp_path: Path) -> None:
    served = service(tmp_path / "a", start=linear)
    good, bad = vectors(1, 0), vectors(1e38, 1, "bad")
    send(served, good)
    outcome = served.observe(bad).done.result(60)
    assert outcome.refused is not None and "diverged" in outcome.refused
    send(served, vectors(1, 2))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    want = dualmix.to_bytes(sequential(good, vectors(1, 2), start=linear))
    assert served.learner_bytes() == want
    again = service(tmp_path / "b", start=linear)
    assert again.learner_bytes() == want
    assert (again.refusals, again.learned, again.accuracy.images) == (1, 3, 12)
    told = again.observe(bad)
    assert told.repeated and "diverged" in str(told.done.result().refused)
    for one in (served, again):
        one.close()


def test_accuracy_is_that_of_predictions_before_each_batch(tmp_path: Path) -> None:
    served, twin = service(tmp_path), learner()
    right = np.zeros(3, int)
    for seed in range(8):
        x, y = batch(seed)
        if seed:
            hits = twin.predict(x) == y
            right += np.bincount(y[hits], minlength=3)
        twin.observe(x, y)
        send(served, record(seed))
    counted = {label: one.correct for label, one in served.accuracy.classes.items()}
    assert counted == dict(enumerate(right)) and right.sum() > 0
    assert served.accuracy.correct == right.sum() and served.accuracy.images == 32
    assert {one.first_batch for one in served.accuracy.classes.values()} <= {0, 1, 2}
    served.close()


def test_the_course_stays_short_and_loses_no_image() -> None:
    accuracy = Accuracy()
    for step in range(3 * POINTS + 5):
        accuracy.note([0, 1], [0, None], step, float(step))
    assert len(accuracy.course) <= POINTS
    assert sum(point[2] for point in accuracy.course) == 2 * (3 * POINTS + 5)
    assert sum(point[3] for point in accuracy.course) == 3 * POINTS + 5
    times = [point[0] for point in accuracy.course]
    assert times == sorted(times) and times[-1] == 3 * POINTS + 4
    twin = Accuracy()
    twin.load_state_dict(accuracy.state_dict())
    assert twin.state_dict() == accuracy.state_dict() and twin.late == 0.5


def test_classes_from_before_the_service_have_no_time(tmp_path: Path) -> None:
    served = service(tmp_path, start=lambda: sequential(record(0), record(1)))
    assert all(one.first_seen is None for one in served.accuracy.classes.values())
    assert list(served.accuracy.classes) == served.learner.model.labels
    served.close()


def test_a_pause_is_journalled_and_replayed(tmp_path: Path) -> None:
    served = service(tmp_path / "a")
    send(served, record(0), Record("pause", "p", 1.0), record(1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = service(tmp_path / "b")
    assert again.learner.ages.known_before_task == len(set(record(0).y))
    assert again.learner_bytes() == served.learner_bytes()
    for one in (served, again):
        one.close()


def test_a_full_disk_refuses_batches_and_goes_on_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = service(tmp_path)
    send(served, record(0))
    with monkeypatch.context() as inner:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inner.setattr(os, "write", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(RefusalError, match="free some space") as fault:
            served.observe(record(1, "again"))
        assert fault.value.status == 507
        inner.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(StoreError, match="full"):
            served.snapshot()
        assert served.scores(batch(5)[0]).steps == 1
    send(served, record(1, "again"))
    served.snapshot()
    assert served.snapshot_fault is None and served.learned == 2
    served.close()


def test_a_snapshot_that_ends_the_writer_is_told_to_whoever_asked_for_it(tmp_path: Path) -> None:
    served = service(tmp_path)
    served._write_snapshot = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    asked = threading.Thread(target=lambda: _fault_of(served.snapshot, ZeroDivisionError))
    asked.start()
    asked.join(60)
    assert not asked.is_alive(), "it would wait for ever"
    served.close()


def _fault_of(call: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        call()


def test_another_learners_folder_is_refused(tmp_path: Path) -> None:
    service(tmp_path).close()
    with pytest.raises(StoreError, match="another learner"):
        Service(learner, tmp_path, "other")
    (tmp_path / "snapshot.safetensors").unlink()
    dualmix.save(learner(), tmp_path / "snapshot.safetensors")
    with pytest.raises(StoreError, match="no snapshot of a service"):
        Service(learner, tmp_path, "origin")


def test_a_learner_that_answers_in_its_own_way_is_refused(tmp_path: Path) -> None:
    made = learner()

    class Own(type(made)):  # type: ignore[misc]
        def predict(self, x: Any) -> Any:
            return x

    made.__class__ = Own
    with pytest.raises(ConfigError, match="scorer"):
        Service(lambda: made, tmp_path, "origin")


def test_a_writer_that_dies_is_told_to_everybody(tmp_path: Path) -> None:
    served = service(tmp_path)
    served._step = lambda one: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    receipt = served.observe(record(0))
    with pytest.raises(RefusalError):
        receipt.done.result(60)
    wait_until(lambda: served.fault is not None, "the fault was not kept")
    assert isinstance(served.fault, DualmixError) and "Record 0 of" in str(served.fault)
    assert "ZeroDivisionError" in str(served.fault)
    with pytest.raises(RefusalError, match="started again"):
        served.scores(batch(0)[0])
    served.close()
    later = service(tmp_path)
    assert later.learned == 1, "what was acknowledged is learned after a new start"
    later.close()


def test_single_rows_are_gathered_and_answered_as_alone(tmp_path: Path) -> None:
    served = service(tmp_path)
    send(served, record(0), record(1))
    gathering = Gathering(served.scores, patience=0.2)
    x, _ = batch(5, rows=6)
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: gathering(x[i : i + 1])}))
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = np.concatenate([served.scores(x[i : i + 1]).scores for i in range(6)])
    np.testing.assert_allclose(
        np.concatenate([found[i].scores for i in range(6)]), alone, atol=1e-5
    )
    assert gathering.rows == 6 and gathering.batches < 6
    gathering.close()
    served.close()
