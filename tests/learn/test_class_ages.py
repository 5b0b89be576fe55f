"""When classes were first seen, and which were known before the current task."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.learn.class_ages import ClassAges


def after(*batches: list[int], pause_before: int | None = None) -> ClassAges:
    ages = ClassAges()
    for step, columns in enumerate(batches):
        if step == pause_before:
            ages.pause()
        ages.note(np.array(columns))
    return ages


def test_nothing_is_known_at_first() -> None:
    ages = ClassAges()
    assert (ages.steps, ages.known_before_task, len(ages.first)) == (0, 0, 0)


def test_first_steps() -> None:
    ages = after([0, 1, 0], [1], [2, 0, 3, 2])
    assert ages.steps == 3
    assert ages.first.tolist() == [0, 0, 2, 2]
    assert ages.first.dtype == np.int64


def test_a_batch_of_known_classes_copies_nothing() -> None:
    ages = after([0, 1, 2])
    first = ages.first
    ages.note(np.array([2, 0]))
    assert ages.first is first


def test_a_class_is_known_before_the_task_from_the_next_pause_on() -> None:
    ages = after([0, 1], [2], [0, 3], pause_before=2)
    assert ages.known_before_task == 3
    ages.pause()
    assert ages.known_before_task == 4
    ages.note(np.array([0]))
    assert ages.known_before_task == 4
    assert after([0, 1]).known_before_task == 0


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=8))
def test_what_is_noted_is_what_came(raw: list[list[int]]) -> None:
    columns: dict[int, int] = {}
    batches = [[columns.setdefault(label, len(columns)) for label in batch] for batch in raw]
    ages = after(*batches)
    first = [
        next(step for step, batch in enumerate(batches) if c in batch) for c in range(len(columns))
    ]
    assert ages.first.tolist() == first


def test_state_goes_through_plain_text_and_on() -> None:
    whole = after([0, 1], [2, 2], [3], pause_before=1)
    part = ClassAges()
    part.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for ages in (whole, part):
        ages.note(np.array([4, 0]))
        ages.pause()
    assert part.state_dict() == whole.state_dict()
    assert part.state_dict() == {"steps": 4, "border": 5, "first": [0, 0, 1, 2, 3]}


def test_an_earlier_state_can_be_taken_up_again() -> None:
    ages = after([0])
    kept = ages.state_dict()
    ages.note(np.array([1, 2]))
    ages.pause()
    ages.load_state_dict(kept)
    assert ages.state_dict() == {"steps": 1, "border": 0, "first": [0]}


def test_a_state_of_the_first_version_is_taken_up() -> None:
    """It also counted how often each class was seen."""
    ages = ClassAges()
    ages.load_state_dict({"steps": 3, "border": 1, "first": [0, 2], "counts": [4, 1]})
    assert (ages.steps, ages.known_before_task, ages.first.tolist()) == (3, 1, [0, 2])
