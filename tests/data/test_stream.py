"""The plan of a stream: which rows come when, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dualmix.data.stream import Plan, Stream, plan
from dualmix.errors import ConfigError

TRAIN = np.repeat(np.arange(6), [5, 9, 4, 7, 6, 8])
TEST = np.repeat(np.arange(6), 2)


def planned(order_seed: int = 0, **settings_: object) -> Plan:
    return plan(TRAIN, TEST, 6, Stream(**{"tasks": 3, "batch": 4, **settings_}), order_seed)


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, Stream, int]:
    classes = draw(st.integers(1, 7))
    counts = draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes))
    train = np.random.default_rng(draw(st.integers(0, 9))).permutation(
        np.repeat(np.arange(classes), counts)
    )
    chosen = Stream(
        tasks=draw(st.integers(1, classes)),
        batch=draw(st.integers(1, 6)),
        epochs=draw(st.integers(1, 3)),
        class_order=draw(st.sampled_from(["shuffled", "fixed"])),
    )
    return train, np.tile(np.arange(classes), 2), classes, chosen, draw(st.integers(0, 2**64))


@given(streams())
@settings(deadline=None)
def test_every_row_comes_once_an_epoch_in_one_task(case: tuple) -> None:
    train, test, classes, chosen, order_seed = case
    made = plan(train, test, classes, chosen, order_seed)
    assert sorted(c for task in made.tasks for c in task.classes) == list(range(classes))
    assert len(made.tasks) == chosen.tasks
    everything: list[int] = []
    for number, task in enumerate(made.tasks):
        rows = np.flatnonzero(np.isin(train, task.classes)).tolist()
        batches = list(made.batches(number))
        assert len(batches) == made.steps(number)
        per_epoch = -(-len(rows) // chosen.batch)
        for epoch in range(chosen.epochs):
            within = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(np.concatenate(within).tolist()) == rows
            assert all(len(batch) == chosen.batch for batch in within[:-1])
            everything += np.concatenate(within).tolist()
        assert task.test.tolist() == np.flatnonzero(np.isin(test, task.classes)).tolist()
    assert sorted(everything) == sorted(list(range(len(train))) * chosen.epochs)


def test_order_seed_decides_the_order_and_only_that() -> None:
    a, b, c = planned(0), planned(0), planned(1)
    assert a.record() == b.record()
    assert a.record()["class_order"] != c.record()["class_order"]
    fixed = [planned(seed, class_order="fixed") for seed in (0, 1)]
    assert (
        [t.classes for t in fixed[0].tasks]
        == [t.classes for t in fixed[1].tasks]
        == [(0, 1), (2, 3), (4, 5)]
    )
    for one, other in zip(fixed[0].tasks, fixed[1].tasks, strict=True):
        assert one.train.tolist() != other.train.tolist()
        assert sorted(one.train[0].tolist()) == sorted(other.train[0].tolist())
        assert one.test.tolist() == other.test.tolist()


def test_epochs_and_tasks_are_shuffled_apart() -> None:
    (task,) = planned(tasks=1, epochs=3).tasks
    orders = [tuple(line) for line in task.train.tolist()]
    assert len(set(orders)) == 3 and all(list(o) != sorted(o) for o in orders)
    again = planned(tasks=1, epochs=1).tasks[0]
    assert again.train[0].tolist() == task.train[0].tolist()


def test_class_order_is_uniform_over_seeds() -> None:
    first = [planned(seed).tasks[0].classes[0] for seed in range(600)]
    counts = np.bincount(first, minlength=6)
    assert ((counts - 100) ** 2 / 100).sum() < 20.5  # chi-square, 5 degrees of freedom, 0.999


@pytest.mark.parametrize(("incomplete", "sizes"), [("keep", [4, 4, 4, 2]), ("drop", [4, 4, 4])])
def test_a_last_batch_is_kept_or_dropped_in_each_epoch(incomplete: str, sizes: list[int]) -> None:
    made = planned(class_order="fixed", incomplete=incomplete, epochs=2)
    assert [len(batch) for batch in made.batches(0)] == sizes * 2
    assert made.steps(0) == 2 * len(sizes)


def test_steps_counts_by_hand() -> None:
    made = planned(class_order="fixed")  # 14, 11 and 14 rows in batches of 4
    assert [made.steps(task) for task in range(3)] == [4, 3, 4]
    assert [made.steps(t) for t in range(3)] == [r["batches"] for r in made.record()["tasks"]]
    dropped = planned(class_order="fixed", incomplete="drop", epochs=3)
    assert [dropped.steps(task) for task in range(3)] == [9, 6, 9]


@pytest.mark.parametrize("start", range(9))
def test_a_stream_goes_on_from_any_batch(start: int) -> None:
    made = planned(epochs=2)
    whole = [batch.tolist() for batch in made.batches(1)]
    assert [batch.tolist() for batch in made.batches(1, start)] == whole[start:]


def test_uneven_tasks_differ_by_one_class() -> None:
    assert [len(task.classes) for task in planned(tasks=4).tasks] == [2, 2, 1, 1]
    assert [len(task.classes) for task in planned(tasks=5).tasks] == [2, 1, 1, 1, 1]


def test_a_list_orders_and_selects_classes() -> None:
    made = planned(class_order=(5, 0, 3, 1), tasks=2)
    assert [task.classes for task in made.tasks] == [(5, 0), (3, 1)]
    assert set(TRAIN[np.concatenate([t.train.ravel() for t in made.tasks])]) == {0, 1, 3, 5}
    assert made.record()["class_order"] == [5, 0, 3, 1]


@pytest.mark.parametrize("order", [(0, 0, 1), (-1, 0), (), "sorted"])
def test_a_bad_class_order_is_refused_when_it_is_given(order: object) -> None:
    with pytest.raises(ValidationError):
        Stream(class_order=order)


def test_a_class_that_the_data_lack_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"names class 6, but the data have classes 0 to 5\."):
        planned(class_order=(0, 6, 1))


@pytest.mark.parametrize("order", ["shuffled", "fixed", (0, 1, 2, 3, 4, 5)])
def test_more_tasks_than_classes_are_refused(order: object) -> None:
    with pytest.raises(
        ConfigError, match=r"tasks is 7.* 6 classes: give stream.tasks 6 or fewer\."
    ):
        planned(tasks=7, class_order=order)
    with pytest.raises(ConfigError, match=r"stream.tasks 2"):
        planned(tasks=3, class_order=(1, 2))


def test_a_task_of_which_nothing_would_be_learned_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Task 2 has 11 training images, fewer than stream.batch 12"
    ):
        planned(class_order="fixed", incomplete="drop", batch=12)
    assert planned(class_order="fixed", incomplete="drop", batch=11).steps(1) == 1


def test_a_task_without_test_images_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Task 2 \(classes \[2, 3\]\) has no test image"):
        plan(TRAIN, TEST[(TEST < 2) | (TEST > 3)], 6, Stream(tasks=3, class_order="fixed"), 0)


def test_the_digest_changes_with_the_order_and_nothing_else() -> None:
    same = [planned(0).record()["sha256"] for _ in range(2)]
    others = [
        planned(1),
        planned(0, epochs=2),
        planned(0, class_order="fixed"),
        planned(0, tasks=2),
    ]
    assert same[0] == same[1]
    assert len({same[0], *(other.record()["sha256"] for other in others)}) == 5


def test_arrays_hold_every_row() -> None:
    made = planned(epochs=2)
    arrays = made.arrays()
    assert sorted(arrays) == ["test_0", "test_1", "test_2", "train_0", "train_1", "train_2"]
    assert arrays["train_1"].tolist() == made.tasks[1].train.tolist()
    assert arrays["test_2"].tolist() == made.tasks[2].test.tolist()


def test_a_cut_stream_is_the_beginning_of_the_whole() -> None:
    whole, cut = planned(3), planned(3, first=2)
    assert len(cut.tasks) == 2
    assert cut.classes == whole.classes == 6
    for left, right in zip(cut.tasks, whole.tasks, strict=False):
        assert left.classes == right.classes
        assert left.train.tolist() == right.train.tolist()
        assert left.test.tolist() == right.test.tolist()


def test_a_stream_cannot_be_cut_after_its_end() -> None:
    with pytest.raises(ConfigError, match="there are 3 tasks"):
        planned(first=4)
