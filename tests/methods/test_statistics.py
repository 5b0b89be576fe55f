"""Learners by statistics against the same statistics of all rows at once, in numpy."""

import pickle

import numpy as np
import pytest
import torch

import dualmix
from dualmix import testing
from dualmix.errors import ConfigError, InputError, TrainingError
from dualmix.registry import get_method

KINDS = ("ncm", "slda", "ridge", "fecam", "randumb")
SHORT = {"randumb": {"length": 200}}
"""Fewer random features than by default, whose matrix of a million numbers takes seconds."""
D, K = 6, 4


def rows(count=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, count)
    spread = rng.normal(size=(K, D, D)) * 0.6
    x = 3 * rng.normal(size=(K, D))[y] + np.einsum(
        "nd,nde->ne", rng.normal(size=(count, D)), spread[y]
    )
    return x.astype(np.float32), y


def streamed(name, x, y, *, size=7, **settings):
    """Return a learner that saw the rows class after class in batches, and the columns' classes."""
    learner = dualmix.create(name, shape=(D,), **SHORT.get(name, {}) | settings)
    order = np.argsort(y, kind="stable")
    for start in range(0, len(y), size):
        part = order[start : start + size]
        learner.observe(x[part], y[part])
    return learner


def scored(learner, x):
    """Return scores with columns in the order of the labels."""
    return learner.scores(x)[:, np.argsort(learner.classes_)].astype(np.float64)


def by_class(x, y):
    return [x[y == k].astype(np.float64) for k in range(K)]


def test_ncm_is_the_nearest_mean_of_all_rows():
    x, y = rows()
    asked, _ = rows(50, seed=1)
    means = np.stack([part.mean(0) for part in by_class(x, y)])
    want = -((asked[:, None].astype(np.float64) - means) ** 2).sum(2)
    np.testing.assert_allclose(scored(streamed("ncm", x, y), asked), want, rtol=1e-5, atol=1e-5)


def lda(x, y, asked, shrinkage):
    parts = by_class(x, y)
    means = np.stack([part.mean(0) for part in parts])
    within = sum((part - part.mean(0)).T @ (part - part.mean(0)) for part in parts) / len(y)
    inverse = np.linalg.inv((1 - shrinkage) * within + shrinkage * np.eye(x.shape[1]))
    found = asked @ inverse @ means.T - np.einsum("kd,de,ke->k", means, inverse, means) / 2
    return found - found.mean(1, keepdims=True)


def centred(learner, x):
    """Return scores without what all classes share, which no answer depends on."""
    found = scored(learner, x)
    return found - found.mean(1, keepdims=True)


def test_slda_is_linear_discriminant_analysis_of_all_rows():
    x, y = rows()
    asked, _ = rows(50, seed=1)
    want = lda(x, y, asked.astype(np.float64), 1e-3)
    got = centred(streamed("slda", x, y, shrinkage=1e-3), asked)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("projection", [0, 30])
def test_ridge_is_the_solution_over_all_rows(projection):
    x, y = rows()
    asked, _ = rows(50, seed=1)
    learner = streamed("ridge", x, y, penalty=0.7, projection=projection)

    def mapped(values):
        values = values.astype(np.float64)
        if projection:
            values = np.maximum(values @ learner.projection.numpy(), 0)
        return np.hstack([values, np.ones((len(values), 1))])

    whole = mapped(x)
    gram = whole.T @ whole + 0.7 * np.eye(whole.shape[1])
    weights = np.linalg.solve(gram, whole.T @ np.eye(K)[y])
    np.testing.assert_allclose(scored(learner, asked), mapped(asked) @ weights, atol=1e-5)


def test_fecam_is_the_shrunk_mahalanobis_distance_of_each_class():
    x, y = rows()
    asked, _ = rows(50, seed=1)

    def power(values):
        return np.sign(values) * np.abs(values.astype(np.float64)) ** 0.5

    want = []
    for part in by_class(power(x), y):
        covariance = np.cov(part.T)
        variance = np.diag(covariance).mean()
        off = covariance[~np.eye(D, dtype=bool)].mean()
        shrunk = covariance + variance * np.eye(D) + off * (1 - np.eye(D))
        scale = np.sqrt(np.diag(shrunk))
        inverse = np.linalg.inv(shrunk / np.outer(scale, scale))
        apart = power(asked) - part.mean(0)
        want.append(-np.einsum("nd,de,ne->n", apart, inverse, apart))
    np.testing.assert_allclose(
        scored(streamed("fecam", x, y), asked), np.stack(want, 1), rtol=1e-4, atol=1e-4
    )


def test_randumb_is_discriminant_analysis_of_random_fourier_features():
    x, y = rows()
    asked, _ = rows(50, seed=1)
    learner = streamed("randumb", x, y, length=40, shrinkage=1e-2)
    frequencies, phases = learner.frequencies.numpy(), learner.phases.numpy()

    def mapped(values):
        values = values.astype(np.float64)
        unit = values / np.linalg.norm(values, axis=1, keepdims=True) * np.sqrt(D)
        return np.sqrt(2 / 40) * np.cos(unit @ frequencies + phases)

    want = lda(mapped(x), y, mapped(asked), 1e-2)
    np.testing.assert_allclose(centred(learner, asked), want, rtol=1e-4, atol=1e-3)


def test_random_fourier_features_stand_for_the_kernel():
    learner = dualmix.create("randumb", shape=(D,), length=3_000, bandwidth=2.0)
    x = torch.from_numpy(rows(5)[0]).double()
    features = learner.mapped(x)
    squares = torch.cdist(*[torch.nn.functional.normalize(x, dim=1)] * 2).square()
    off = {
        bandwidth: float((features @ features.T - torch.exp(-bandwidth * squares / 2)).abs().max())
        for bandwidth in (1.0, 2.0, 4.0)
    }
    assert off[2.0] < 0.08 < 0.12 < min(off[1.0], off[4.0])


@pytest.mark.parametrize("name", KINDS)
def test_the_order_of_the_stream_does_not_matter(name):
    x, y = rows(60)
    order = np.random.default_rng(5).permutation(60)
    one, other = streamed(name, x, y), streamed(name, x[order], y[order], size=11)
    np.testing.assert_allclose(scored(one, x), scored(other, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_hits_are_counted_before_the_batch_is_added(name):
    x, y = rows(60)
    learner = dualmix.create(name, shape=(D,))
    for start in range(0, 60, 10):
        now = slice(start, start + 10)
        right = (learner.predict(x[now]) == y[now]).sum() if start else 0
        assert 1 - float(learner.observe(x[now], y[now])) == pytest.approx(right / 10)
        assert int(learner.hits) == right


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("scale", "shift"), [(1e6, -5e6), (-1e6, 0.0), (1e15, 1e15), (1.0, 1e4)])
def test_vectors_of_any_large_range_are_answered(name, scale, shift):
    x, y = rows(400)
    x, y, asked, wanted = x[:300], y[:300], x[300:], y[300:]
    known, wide = streamed(name, x, y), streamed(name, x * scale + shift, y)
    right = (wide.predict(asked * scale + shift) == wanted).mean()
    assert np.isfinite(wide.predict_proba(asked * scale + shift)).all()
    assert right > 0.5 * (known.predict(asked) == wanted).mean()


def test_slda_of_small_numbers_far_from_zero_is_no_worse_than_the_nearest_mean():
    x, y = rows(300)
    x = x * 1e-3 + 3
    near, said = (streamed(name, x, y).predict(x) for name in ("ncm", "slda"))
    assert (said == y).mean() >= (near == y).mean() > 0.6


def test_fecam_factors_only_what_has_changed(monkeypatch):
    x, y = rows()
    learner = streamed("fecam", x, y)
    learner.predict(x)
    asked = []
    measure = learner._measure
    monkeypatch.setattr(learner, "_measure", lambda c: asked.append(1) or measure(c))
    learner.predict(x)
    assert not asked
    learner.observe(x[y == 2][:3], [2, 2, 2])
    changed = learner.scores(x)
    assert len(asked) == 1
    monkeypatch.undo()
    for again in (dualmix.load(dualmix.to_bytes(learner)), pickle.loads(pickle.dumps(learner))):
        assert np.array_equal(again.scores(x), changed)
    again.load_state_dict(streamed("fecam", -x, y).state_dict())
    assert np.array_equal(again.scores(x), streamed("fecam", -x, y).scores(x))


def test_fecam_of_a_covariance_without_an_inverse_takes_the_pseudo_inverse():
    x = np.array([[1, 1, 2, 0, 3, 5], [4, 2, 2, 1, 0, 1], [2, 5, 1, 1, 7, 2]], np.float32)
    learner = dualmix.create("fecam", shape=(D,), tukey=1.0, shrink=(0.1, 1e3))
    learner.observe(x, [0, 0, 0])
    covariance = np.cov(x.astype(np.float64).T)
    off = covariance[~np.eye(D, dtype=bool)].mean()
    shrunk = covariance + 0.1 * np.diag(covariance).mean() * np.eye(D) + 1e3 * off * (1 - np.eye(D))
    scale = np.sqrt(np.diag(shrunk))
    normal = shrunk / np.outer(scale, scale)
    assert np.linalg.eigvalsh(normal)[0] < 0, "it has no Cholesky factor"
    apart = x - x.mean(0)
    want = -np.einsum("nd,de,ne->n", apart, np.linalg.pinv(normal), apart)
    np.testing.assert_allclose(learner.scores(x)[:, 0], want, rtol=1e-4)


def test_ridge_of_rows_far_above_its_penalty_does_not_lose_its_digits():
    x, y = rows(400, seed=3)
    learner = streamed("ridge", x[:300] * np.float32(1e18), y[:300])
    assert (learner.predict(x[300:] * np.float32(1e18)) == y[300:]).mean() > 0.9


@pytest.mark.parametrize("demand", sorted(testing.CHECKS))
@pytest.mark.parametrize("name", KINDS)
def test_contract_on_vectors(name, demand):
    testing.CHECKS[demand](get_method(name)(**({"length": 30} if name == "randumb" else {})), (D,))


def test_they_take_images_through_a_network():
    rng = np.random.default_rng(0)
    learner = dualmix.create("slda", shape=(1, 8, 8), width=2)
    learner.observe(rng.integers(0, 256, (8, 1, 8, 8), np.uint8), np.arange(8) % 2)
    assert learner.embed(np.zeros((3, 1, 8, 8), np.uint8)).shape == (3, learner.model.features)


def test_there_is_nothing_to_set_that_they_do_not_have():
    with pytest.raises(ConfigError, match="'ncm' has no setting memory"):
        dualmix.create("ncm", shape=(D,), memory=5)


def test_sums_that_are_not_finite_are_not_taken():
    learner = dualmix.create("fecam", shape=(D,), tukey=300.0)
    learner.observe(np.full((2, D), 0.5, np.float32), [0, 1])
    before = dualmix.to_bytes(learner)
    with pytest.raises(TrainingError, match="not finite, and the learner is as it was"):
        learner.observe(np.full((2, D), 1e30, np.float32), [1, 2])
    assert dualmix.to_bytes(learner) == before


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_any_size_are_answered_by_numbers_or_a_sentence(name):
    x = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
    for scale in (0, 1e-30, 1e20, 1e38):
        learner = dualmix.create(name, shape=(D,))
        try:
            for _ in range(2):
                learner.observe(x * np.float32(scale), [0, 1, 2, 0, 1, 2])
            said = learner.predict_proba(x * np.float32(scale))
        except (TrainingError, InputError) as fault:
            assert "scale the rows" in str(fault)
        else:
            assert np.isfinite(said).all()


def test_a_covariance_has_no_negative_weights():
    with pytest.raises(ConfigError, match="0 or above"):
        dualmix.create("fecam", shape=(D,), shrink=(-1.0, 0.0))
