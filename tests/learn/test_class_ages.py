"""When classes were first seen, how often, and what counts as young or current."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.learn.class_ages import Sightings


def after(*batches: list[int], pause_before: int | None = None) -> Sightings:
    sightings = Sightings()
    for step, columns in enumerate(batches):
        if step == pause_before:
            sightings.pause()
        sightings.note(np.array(columns))
    return sightings


def test_nothing_is_known_at_first() -> None:
    sightings = Sightings()
    assert (sightings.steps, sightings.border, len(sightings.first), len(sightings.counts)) == (
        0,
        0,
        0,
        0,
    )
    assert sightings.young(5).tolist() == []
    assert sightings.current().tolist() == []


def test_first_sightings_and_counts() -> None:
    sightings = after([0, 1, 0], [1], [2, 0, 3, 2])
    assert sightings.steps == 3
    assert sightings.first.tolist() == [0, 0, 2, 2]
    assert sightings.counts.tolist() == [3, 2, 2, 1]
    assert sightings.first.dtype == sightings.counts.dtype == np.int64


def test_a_batch_of_known_classes_copies_nothing() -> None:
    sightings = after([0, 1, 2])
    first, counts = sightings.first, sightings.counts
    sightings.note(np.array([2, 0]))
    assert sightings.first is first and sightings.counts is counts
    assert counts.tolist() == [2, 1, 2]


def test_a_class_is_young_within_the_window() -> None:
    """In the step that follows three: classes 0, 1 and 2 were first seen three, two and one steps
    ago.
    """
    sightings = after([0], [1], [2])
    assert sightings.young(1).tolist() == [False, False, True]
    assert sightings.young(2).tolist() == [False, True, True]
    assert sightings.young(3).tolist() == [True, True, True]


def test_a_class_is_current_until_the_next_pause() -> None:
    sightings = after([0, 1], [2], [0, 3], pause_before=2)
    assert sightings.current().tolist() == [False, False, False, True]
    assert sightings.border == 3
    sightings.pause()
    assert sightings.current().tolist() == [False] * 4
    sightings.note(np.array([0]))
    assert sightings.border == 4
    assert after([0, 1]).current().tolist() == [True, True]


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=8))
def test_what_is_noted_is_what_came(raw: list[list[int]]) -> None:
    columns: dict[int, int] = {}
    batches = [[columns.setdefault(label, len(columns)) for label in batch] for batch in raw]
    sightings = after(*batches)
    flat = [column for batch in batches for column in batch]
    assert sightings.counts.tolist() == [flat.count(column) for column in range(len(columns))]
    first = [
        next(step for step, batch in enumerate(batches) if c in batch) for c in range(len(columns))
    ]
    assert sightings.first.tolist() == first
    assert sightings.young(len(batches)).all()


def test_state_goes_through_plain_text_and_on() -> None:
    whole = after([0, 1], [2, 2], [3], pause_before=1)
    part = Sightings()
    part.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for sightings in (whole, part):
        sightings.note(np.array([4, 0]))
        sightings.pause()
    assert part.state_dict() == whole.state_dict()
    assert part.state_dict() == {
        "steps": 4,
        "border": 5,
        "first": [0, 0, 1, 2, 3],
        "counts": [2, 1, 2, 1, 1],
    }


def test_an_earlier_state_can_be_taken_up_again() -> None:
    sightings = after([0])
    kept = sightings.state_dict()
    sightings.note(np.array([1, 2]))
    sightings.pause()
    sightings.load_state_dict(kept)
    assert sightings.state_dict() == {"steps": 1, "border": 0, "first": [0], "counts": [1]}
