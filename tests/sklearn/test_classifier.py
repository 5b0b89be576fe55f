"""The classifier keeps scikit-learn's own promises and learns classes that were not announced."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualmix.errors import ConfigError, InputError
from dualmix.sklearn import StreamClassifier


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([StreamClassifier()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def cannot_pass(estimator):
    """Return the checks that an estimator may fail, with the reason."""
    if estimator.method != "er":
        return {}
    return {
        "check_methods_subset_invariance": "float32: on some CPUs a row alone is rounded otherwise "
        "than among others, by more than the check's 1e-7"
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [StreamClassifier("ridge"), StreamClassifier("er", epochs=10, settings={"lr": 0.05})],
    expected_failed_checks=cannot_pass,
)
def test_scikit_learns_checks_of_other_methods(estimator, check):
    check(estimator)


X, y = load_digits(return_X_y=True)


def test_a_pipeline_scores_and_clones():
    model = make_pipeline(StandardScaler(), StreamClassifier("ridge", batch_size=100))
    assert clone(model).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.85


def test_classes_grow_and_columns_follow():
    model = StreamClassifier("ncm")
    names = np.array(["zero", "one", "two"])
    for digit in (2, 0):
        model.partial_fit(X[y == digit], names[[digit] * int((y == digit).sum())])
    assert model.classes_.tolist() == ["two", "zero"] and model.n_features_in_ == 64
    said = model.predict_proba(X[:20])
    assert said.shape == (20, 2)
    assert (model.classes_[said.argmax(1)] == model.predict(X[:20])).all()
    model.partial_fit(X[y == 1], ["one"] * int((y == 1).sum()))
    assert model.classes_.tolist() == ["one", "two", "zero"]
    assert (model.classes_[model.predict_proba(X).argmax(1)] == model.predict(X)).all()


def test_named_classes_keep_their_columns_and_have_no_chance_before_they_come():
    model = StreamClassifier("ncm").partial_fit(X[y < 2], y[y < 2], classes=range(10))
    said = model.predict_proba(X[:5])
    assert said.shape == (5, 10) and not said[:, 2:].any()
    np.testing.assert_allclose(said.sum(1), 1)


def test_fit_forgets_and_partial_fit_goes_on():
    both = StreamClassifier().partial_fit(X[:500], y[:500]).partial_fit(X[500:900], y[500:900])
    whole = StreamClassifier().partial_fit(X[:900], y[:900])
    assert (both.predict(X[900:]) == whole.predict(X[900:])).all()
    again = both.fit(X[:100], y[:100])
    fresh = StreamClassifier().fit(X[:100], y[:100])
    assert (again.predict_proba(X[:50]) == fresh.predict_proba(X[:50])).all()


def test_images_of_a_shape_flat_or_not():
    rows = X.reshape(-1, 1, 8, 8) / 16
    flat = StreamClassifier("er+dualmix", shape=(1, 8, 8), settings={"memory": 20, "width": 2})
    flat.partial_fit(rows[:20].reshape(20, -1), y[:20])
    whole = clone(flat).partial_fit(rows[:20], y[:20])
    assert (flat.predict_proba(rows[:9]) == whole.predict_proba(rows[:9])).all()
    with pytest.raises(InputError, match="are no images"):
        clone(flat).fit(X[:9, :60], y[:9])


def test_a_network_of_ones_own_is_pickled_with_its_learner():
    net = torch.nn.Sequential(torch.nn.Linear(64, 5), torch.nn.ReLU())
    model = StreamClassifier("er", model=net, settings={"memory": 20}).fit(X[:60], y[:60])
    twin = pickle.loads(pickle.dumps(model))
    assert (twin.predict_proba(X[:40]) == model.predict_proba(X[:40])).all()
    twin.partial_fit(X[60:80], y[60:80])
    model.partial_fit(X[60:80], y[60:80])
    assert (twin.predict_proba(X[:40]) == model.predict_proba(X[:40])).all()


def test_fit_leaves_a_network_of_ones_own_as_it_was_given():
    net = torch.nn.Sequential(torch.nn.Linear(64, 5), torch.nn.ReLU())
    before = net[0].weight.detach().clone()
    model = StreamClassifier("er", model=net, settings={"memory": 20})
    first = model.fit(X[:60], y[:60]).predict_proba(X[:40])
    assert torch.equal(net[0].weight, before)
    assert (model.fit(X[:60], y[:60]).predict_proba(X[:40]) == first).all()
    assert (clone(model).fit(X[:60], y[:60]).predict_proba(X[:40]) == first).all()


def test_what_is_wrong_is_said():
    with pytest.raises(ConfigError, match="seed is no setting: give random_state"):
        StreamClassifier(settings={"seed": 3}).fit(X, y)
    with pytest.raises(NotFittedError):
        StreamClassifier().predict(X)
    with pytest.raises(ConfigError, match="batch_size"):
        StreamClassifier(batch_size=0).fit(X, y)
    with pytest.raises(ConfigError, match="no method 'eer'"):
        StreamClassifier("eer").fit(X, y)
