"""Views of vectors: how far they are from the rows, by numbers found in another way."""

import copy

import numpy as np
import pytest
import torch

import dualmix
from dualmix.learn.vector_augment import Dropout, Noise, vector_transform

D = 4
SCALE, SHIFT = np.array([1.0, 10.0, 0.1, 3.0]), np.array([0.0, 50.0, -2.0, 7.0])


def rows(count, seed=0):
    drawn = np.random.default_rng(seed).normal(size=(count, D))
    return (drawn * SCALE + SHIFT).astype(np.float32)


def test_noise_has_a_share_of_each_numbers_deviation():
    x = torch.from_numpy(rows(20_000))
    apart = Noise(0.2)(x, np.random.default_rng(1)) - x
    np.testing.assert_allclose(apart.std(0), 0.2 * SCALE, rtol=0.05)
    np.testing.assert_allclose(apart.mean(0) / torch.from_numpy(SCALE), np.zeros(D), atol=0.01)


def test_dropout_sets_a_share_of_the_numbers_to_their_means():
    x = torch.from_numpy(rows(5000))
    view = Dropout(0.3)(x, np.random.default_rng(1))
    gone = view != x
    assert 0.28 < gone.float().mean() < 0.32
    np.testing.assert_allclose(view[gone], x.mean(0).expand_as(x)[gone])


def learner(**more):
    made = dualmix.create("er+dualmix", shape=(D,), memory=20, hidden=4, lr=0.01, **more)
    made.observe(rows(500), np.arange(500) % 2)
    return made


@pytest.mark.parametrize(
    "own", [{}, {"mean": (1.0, 2.0, 3.0, 4.0), "std": (2.0, 3.0, 4.0, 5.0)}], ids=["raw", "scaled"]
)
def test_a_batch_of_one_row_has_views_by_all_rows_learned(own):
    made = learner(**own)
    known = rows(500)
    row = torch.from_numpy(rows(1, seed=9))
    noise = vector_transform("noise-0.5", made.model.spread)
    drawn = np.random.default_rng(1)
    apart = torch.cat([noise(row, drawn) - row for _ in range(4000)])
    np.testing.assert_allclose(apart.std(0), 0.5 * known.std(0), rtol=0.05)
    dropout = vector_transform("dropout-0.9", made.model.spread)
    view = dropout(row, np.random.default_rng(2))
    gone = (view != row)[0]
    assert gone.any()
    np.testing.assert_allclose(view[0][gone], known.mean(0)[gone], rtol=1e-4)


def test_a_mix_takes_them_from_its_own_learner():
    made = learner()
    row = torch.from_numpy(rows(1, seed=9))
    for one in (made, copy.deepcopy(made), dualmix.load(dualmix.to_bytes(made))):
        view = one.mixes["view"].g
        want = made.mixes["view"].g(row, np.random.default_rng(3))
        assert torch.equal(view(row, np.random.default_rng(3)), want) and not torch.equal(want, row)
    twin = copy.deepcopy(made)
    twin.observe(rows(500) * 100, np.arange(500) % 2)
    assert twin.mixes["view"].g.spread(row)[1][1] > 2 * made.mixes["view"].g.spread(row)[1][1]


def test_before_the_first_row_and_in_networks_that_do_not_count_it_is_the_batch():
    x = torch.from_numpy(rows(50))
    fresh = dualmix.create("er+dualmix", shape=(D,), memory=20, hidden=4)
    bare = dualmix.create("er+dualmix", shape=(D,), memory=20, model="linear")
    bare.observe(rows(30, seed=5) + 100, np.arange(30) % 2)
    for made in (fresh, bare):
        mean, deviation = made.model.spread(x)
        np.testing.assert_allclose(mean, x.mean(0))
        np.testing.assert_allclose(deviation, x.std(0, correction=0))
