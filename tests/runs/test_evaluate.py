"""`evaluate` counts what a learner of known answers gets right."""

from __future__ import annotations

import numpy as np
import pytest

import dualmix
from dualmix.errors import InputError


class Last:
    """Answers the last label that it has learned."""

    def __init__(self) -> None:
        self.label = None
        self.predicted = 0

    def observe(self, x, y):
        self.label = y[-1]

    def predict(self, x):
        self.predicted += 1
        return np.asarray([self.label] * len(x))


X = np.zeros((2, 3))
STREAM = [(X, ["a", "a"]), (X, ["a", "b"]), (X, ["b", "b"]), (X, ["a", "b"])]


def test_accuracies_are_those_counted_by_hand():
    found = dualmix.evaluate(Last(), STREAM, every=2)
    # first batch: nothing is known; then a is said (1 of 2), b (2 of 2), b (1 of 2)
    assert found.rows == 8 and found.accuracy == 4 / 8
    assert found.per_class == {"a": 1 / 4, "b": 3 / 4}
    assert [(p.rows, p.classes, p.online, p.holdout) for p in found.curve] == [
        (4, 2, 1 / 4, None),
        (8, 2, 3 / 4, None),
    ]
    assert str(found) == "50.0% of 8 rows recognised before they were learned"


def test_the_hold_out_is_asked_at_each_point_for_classes_that_came():
    held = (np.zeros((4, 3)), ["a", "b", "b", "c"])
    found = dualmix.evaluate(Last(), STREAM[:3], holdout=held, every=1)
    assert [p.holdout for p in found.curve] == [1.0, 2 / 3, 2 / 3]
    assert found.holdout == 2 / 4
    assert found.holdout_per_class == {"a": 0.0, "b": 1.0, "c": 0.0}


def test_a_generator_is_read_once_and_the_rest_makes_the_last_point():
    found = dualmix.evaluate(Last(), (batch for batch in STREAM[:3]), every=2)
    assert [p.rows for p in found.curve] == [4, 6]


@pytest.mark.parametrize(
    ("stream", "options", "said"),
    [
        ([], {}, "no batch"),
        (STREAM, {"every": 0}, "every must be"),
        (STREAM, {"holdout": (X, ["a"])}, "one for each of 2"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(stream, options, said):
    with pytest.raises(InputError, match=said):
        dualmix.evaluate(Last(), stream, **options)


def test_two_lines_do_on_real_digits():
    digits = dualmix.load_data("digits")
    x, y = digits.train_x.transpose(0, 3, 1, 2), digits.train_y
    stream = [(x[i : i + 50], y[i : i + 50]) for i in range(0, len(x), 50)]
    learner = dualmix.create("slda", shape=digits.shape, model="linear")
    holdout = digits.test_x.transpose(0, 3, 1, 2), digits.test_y
    found = dualmix.evaluate(learner, stream, holdout=holdout)
    assert found.accuracy > 0.75 and found.holdout > 0.85
    assert sorted(found.per_class) == list(range(10))


def test_a_learner_that_knows_classes_is_asked_from_the_first_batch_on():
    x, y = np.eye(4, 3) * 5, np.arange(4)
    learner = dualmix.create("ncm", shape=(3,))
    learner.observe(x, y)
    assert dualmix.evaluate(learner, [(x, y)]).accuracy == 1
    with pytest.raises(InputError, match="a pair of rows and labels"):
        dualmix.evaluate(learner, [x])
