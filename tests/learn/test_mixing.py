"""Ratios, partners, blends and norms: by hand, and as distributions."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dualmix.learn.arithmetic import TORCH
from dualmix.learn.mixing import beta, blend, derangement, head_norms, one_hot


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def head(*norms: float, bias: float = 0.0) -> Any:
    """A head whose rows have exactly the given norms, none of them along an axis."""
    weight = torch.tensor(norms)[:, None] * torch.tensor([[0.5, -0.5, 0.5, 0.5]])
    bias_ = torch.full((len(norms),), bias)
    return SimpleNamespace(weight=weight.requires_grad_(), bias=bias_, arithmetic=TORCH)


def test_blend_by_hand() -> None:
    a, b = torch.tensor([[1.0, 0.0], [0.2, 0.4]]), torch.tensor([[0.0, 1.0], [1.0, 0.8]])
    torch.testing.assert_close(
        blend(a, b, torch.tensor([0.25, 0.5])), torch.tensor([[0.25, 0.75], [0.6, 0.6]])
    )
    images = blend(a.view(2, 1, 1, 2), b.view(2, 1, 1, 2), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(images, torch.tensor([[1.0, 0.0], [1.0, 0.8]]).view(2, 1, 1, 2))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_ratios_follow_the_beta_law(alpha: float) -> None:
    drawn = beta(alpha, 2000, rng(), "pair")
    assert drawn.dtype == torch.float32
    assert stats.kstest(drawn.double().numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01


def test_one_ratio_per_batch_follows_the_beta_law_too() -> None:
    chance = rng(1)
    drawn = [beta(0.2, 3, chance, "batch") for _ in range(1000)]
    assert all(mu.shape == (3,) and mu.unique().numel() == 1 for mu in drawn)
    assert stats.kstest([float(mu[0]) for mu in drawn], stats.beta(0.2, 0.2).cdf).pvalue > 0.01


@pytest.mark.parametrize("count", [3, 4])
def test_derangements_are_uniform(count: int) -> None:
    allowed = [p for p in permutations(range(count)) if all(a != i for i, a in enumerate(p))]
    chance = rng(11)
    found = Counter(tuple(derangement(count, chance).tolist()) for _ in range(1800))
    assert set(found) == set(allowed)
    assert stats.chisquare([found[p] for p in allowed]).pvalue > 0.01


def test_one_row_is_its_own_partner() -> None:
    assert derangement(1, rng()).tolist() == [0]


def test_two_rows_are_each_others_partners() -> None:
    chance = rng()
    for _ in range(5):
        assert derangement(2, chance).tolist() == [1, 0]


def test_head_norms_leave_the_bias_out() -> None:
    model = head(2.0, 0.5, bias=1.5)
    torch.testing.assert_close(head_norms(model), torch.tensor([2.0, 0.5]))
    assert not head_norms(model).requires_grad


def test_one_hot_spans_the_whole_head() -> None:
    found = one_hot(torch.tensor([1, 0]), head(1.0, 1.0, 1.0))
    assert found.dtype == torch.float32
    assert found.tolist() == [[0, 1, 0], [1, 0, 0]]
