"""The classifier keeps river's own promises and works in its evaluation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

river = pytest.importorskip(
    "river", reason="river is not installed, so dualmix.river is NOT tested: pip install river"
)
from river import checks, datasets, evaluate, metrics, preprocessing  # noqa: E402

from dualmix import create  # noqa: E402
from dualmix.errors import ConfigError, InputError  # noqa: E402
from dualmix.river import StreamClassifier  # noqa: E402

CHECKS = list(checks.yield_checks(StreamClassifier()))
LONG = {"check_bounded_memory_growth"}
NAMES = [check.__name__ for check in CHECKS]


def marks(place: int) -> tuple[pytest.MarkDecorator, ...]:
    """River puts most checks to three streams: `make quick` to the first."""
    again = NAMES[place] in NAMES[:place]
    return (*[pytest.mark.slow] * again, *[pytest.mark.long] * (NAMES[place] in LONG))


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            check,
            id=f"{check.__name__}-{place}",
            marks=marks(place),
        )
        for place, check in enumerate(CHECKS)
    ],
)
def test_rivers_checks(check):
    check(StreamClassifier().clone())


def test_progressive_val_score_on_a_real_stream():
    model = preprocessing.StandardScaler() | StreamClassifier("slda")
    stream = datasets.ImageSegments().take(300)
    found = evaluate.progressive_val_score(stream, model, metrics.Accuracy())
    assert found.get() > 0.6


def test_a_row_is_a_vector_by_the_names_of_its_features():
    model, plain = StreamClassifier("ncm"), create("ncm", shape=(2,))
    rows = [({"b": 1.0, "a": 2.0}, True), ({"a": 0.0, "b": 3.0}, False), ({"b": 1.0}, True)]
    for x, y in rows:
        model.learn_one(x, y)
    plain.observe(np.array([[2.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), [0, 1, 0])
    said = model.predict_proba_one({"a": 1.0, "b": 1.0, "new": 9.0})
    wanted = plain.predict_proba(np.array([[1.0, 1.0]]))[0]
    assert list(said) == [True, False] and sum(said.values()) == pytest.approx(1)
    assert list(said.values()) == pytest.approx(wanted.tolist(), rel=1e-5)
    assert model.predict_one({"a": 2.0}) is True


class Frame(list):
    """As much of a data frame as `learn_many` needs."""

    def to_dicts(self):
        return list(self)


def test_many_rows_are_one_batch():
    rows = [{"a": float(i % 3), "b": float(i)} for i in range(9)]
    many, plain = (
        StreamClassifier("er", {"memory": 5, "hidden": 4}),
        create("er", shape=(2,), memory=5, hidden=4),
    )
    many.learn_many(Frame(rows), [i % 3 for i in range(9)])
    plain.observe(np.array([[r["a"], r["b"]] for r in rows]), [i % 3 for i in range(9)])
    listed = many.clone()
    listed.learn_many(rows, [i % 3 for i in range(9)])
    said = many.predict_proba_one(rows[0])
    assert listed.predict_proba_one(rows[0]) == said
    assert listed.predict_proba_many(rows[:1]) == [said]
    assert StreamClassifier().predict_proba_many(rows[:2]) == [{}, {}]
    wanted = plain.predict_proba(np.array([[0.0, 0.0]]))[0]
    assert list(said.values()) == pytest.approx(wanted.tolist(), rel=1e-5)


def test_before_the_first_row_there_is_no_answer():
    assert StreamClassifier().predict_one({"a": 1.0}) is None


def test_a_pickle_goes_on_alike():
    model = StreamClassifier("er", {"memory": 5, "hidden": 4})
    model.learn_one({"a": 1.0}, "x")
    twin = pickle.loads(pickle.dumps(model))
    for one in (model, twin):
        one.learn_one({"a": 0.0}, "y")
    assert twin.predict_proba_one({"a": 0.4}) == model.predict_proba_one({"a": 0.4})


def test_a_network_of_ones_own_belongs_to_each_clone_and_is_pickled():
    net = torch.nn.Linear(1, 3)
    before = net.weight.detach().clone()
    model = StreamClassifier("er", {"memory": 5, "backbone": net})
    for one in (model, model.clone()):
        one.learn_one({"a": 1.0}, "x")
        one.learn_one({"a": 0.0}, "y")
        twin = pickle.loads(pickle.dumps(one))
        assert twin.predict_proba_one({"a": 0.4}) == model.predict_proba_one({"a": 0.4})
    assert torch.equal(net.weight, before)


def test_what_is_wrong_is_said():
    with pytest.raises(ConfigError, match="seed is no setting"):
        StreamClassifier(settings={"seed": 1}).learn_one({"a": 1.0}, 0)
    with pytest.raises(InputError, match="no number"):
        StreamClassifier().learn_one({"a": "red"}, 0)
    with pytest.raises(InputError, match="no features"):
        StreamClassifier().learn_one({}, 0)
    with pytest.raises(InputError, match="data frame"):
        StreamClassifier().learn_many([[1.0]], [0])
