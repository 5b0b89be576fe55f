"""What a learner can be asked: labels, scores, probabilities, the best few, features."""

import io

import numpy as np
import pytest
import torch

import dualmix
from dualmix.errors import InputError, StoreError


@pytest.fixture(scope="module")
def learner():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    made = dualmix.create("er", shape=(4,), memory=20, hidden=8)
    made.observe(3 * np.eye(3, 4)[y] + rng.normal(size=(60, 4)) * 0.1, np.array(["a", "b", "c"])[y])
    return made


X = np.eye(3, 4) * 3


def test_probabilities_are_the_softmax_of_the_scores(learner):
    scores = learner.scores(X).astype(np.float64)
    want = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(learner.predict_proba(X), want, rtol=1e-5)
    assert learner.classes_.tolist() == ["a", "b", "c"]
    assert learner.predict(X).tolist() == learner.classes_[scores.argmax(1)].tolist()


def test_the_best_few_come_in_order(learner):
    labels, chances = learner.top_k(X, 2)
    whole = learner.predict_proba(X)
    assert (np.diff(chances, axis=1) <= 0).all()
    np.testing.assert_allclose(chances, np.sort(whole, 1)[:, ::-1][:, :2], rtol=1e-6)
    assert labels[:, 0].tolist() == learner.predict(X).tolist()
    assert learner.top_k(X, 99)[0].shape == (3, 3)
    for k in (0, 1.5, True):
        with pytest.raises(InputError, match="k must be a whole number"):
            learner.top_k(X, k)


def test_what_is_not_likely_enough_is_unknown(learner):
    sure = learner.predict_proba(X).max(1)
    bound = float(np.sort(sure)[1])
    said = learner.predict(X, at_least=bound)
    assert [label == "unknown" for label in said] == (sure < bound).tolist()
    assert learner.predict(X, at_least=1.0, unknown="nobody knows").tolist() == ["nobody knows"] * 3
    for given, sentence in (
        ({"unknown": -1}, "labels are text"),
        ({"unknown": "b"}, "a class too"),
    ):
        with pytest.raises(InputError, match=sentence):
            learner.predict(X, at_least=0.5, **given)
    with pytest.raises(InputError, match="probability from 0 to 1"):
        learner.predict(X, at_least=1.5)


def test_asking_changes_nothing(learner):
    before = dualmix.to_bytes(learner)
    learner.scores(X), learner.predict_proba(X), learner.top_k(X), learner.embed(X), repr(learner)
    assert dualmix.to_bytes(learner) == before


def test_a_learner_goes_through_bytes_and_open_files(learner):
    content = dualmix.to_bytes(learner)
    file = io.BytesIO()
    dualmix.save(learner, file)
    assert file.getvalue() == content
    for source in (content, io.BytesIO(content)):
        np.testing.assert_array_equal(dualmix.load(source).scores(X), learner.scores(X))


def test_a_learner_shows_what_it_is(learner):
    assert repr(learner) == "<er for 4: 3 classes after 1 batches, memory 20 of 20>"


@pytest.mark.slow
def test_running_statistics_without_their_start_answer_after_a_few_batches():
    """Batch-norm's statistics begin at 0 and 1: answers of the reference's kind are at chance."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    two = digits.target < 2
    x, y = (digits.images[two] / 16).astype(np.float32)[:, None], digits.target[two]
    right = {}
    for statistics in ("ref", "unbiased"):
        made = dualmix.create("er", shape=(1, 8, 8), memory=50, lr=0.03, statistics=statistics)
        for start in range(0, 80, 10):
            made.observe(x[start : start + 10], y[start : start + 10])
        right[statistics] = (made.predict(x[80:]) == y[80:]).mean()
    assert right["unbiased"] > 0.85 > right["ref"]


def test_a_threshold_is_a_number(learner):
    for odd in ("a", None, [0.5], float("nan"), 2):
        with pytest.raises(InputError, match="at_least is a probability from 0 to 1"):
            learner.predict(X, at_least=odd)


def test_what_is_no_file_for_a_learner_is_said(learner):
    content = dualmix.to_bytes(learner)
    for same in (bytearray(content), memoryview(content)):
        assert dualmix.to_bytes(dualmix.load(same)) == content
    for odd in (None, io.StringIO(), io.BufferedReader(io.BytesIO()), 3):
        with pytest.raises(StoreError, match="cannot be written to"):
            dualmix.save(learner, odd)
    for odd in (None, io.StringIO("x"), 3):
        with pytest.raises(StoreError, match="cannot be read from"):
            dualmix.load(odd)
    with pytest.raises(StoreError, match=r"Only a learner .* not 3"):
        dualmix.to_bytes(3)


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "embed"])
def test_weights_that_grew_beyond_float32_are_named_as_a_cause(ask):
    learner = dualmix.create("er", shape=(3, 8, 8), memory=8)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    learner.observe(x, [0, 1])
    with torch.no_grad():
        for weights in learner.network.parameters():
            weights.mul_(1e30)
    with pytest.raises(InputError, match=r"not finite.*smaller learning rate"):
        getattr(learner, ask)(x)
