"""Losses against their definitions, written out as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.learn.losses import LEAST, concentration, contrast, cross_entropy, disagreement


def contrast_by_loops(views: np.ndarray, y: list[int], t: float) -> float:
    """Eq. 2 of supervised contrastive learning: a mean over anchors of a mean over their positives."""
    flat = [(views[i, v], y[i], (i, v)) for i in range(len(views)) for v in range(views.shape[1])]
    total = 0.0
    for z, label, at in flat:
        others = [(o, lab) for o, lab, place in flat if place != at]
        below = sum(math.exp(float(z @ o) / t) for o, _ in others)
        parts = [math.log(math.exp(float(z @ o) / t) / below) for o, lab in others if lab == label]
        total -= sum(parts) / len(parts)
    return total / len(flat)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from([0.1, 0.5, 2.0]),
)
def test_contrast_is_its_definition(y: list[int], seed: int, temperature: float) -> None:
    views = np.random.default_rng(seed).normal(size=(len(y), 2, 4))
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    got = contrast(torch.from_numpy(views), torch.tensor(y), temperature)
    assert float(got) == pytest.approx(contrast_by_loops(views, y, temperature), rel=1e-6, abs=1e-9)


def test_contrast_by_hand() -> None:
    """Two images of two classes, both views of each the same and at right angles to the other's:
    e/(e + 2).
    """
    views = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    assert float(contrast(views, torch.tensor([0, 1]), 1.0)) == pytest.approx(
        -math.log(math.e / (math.e + 2))
    )


def test_contrast_has_a_finite_gradient_also_where_all_is_alike() -> None:
    views = torch.ones(3, 2, 4, requires_grad=True)
    contrast(views / 2, torch.tensor([0, 1, 0]), 0.01).backward()
    assert torch.isfinite(views.grad).all()


def test_concentration_by_hand() -> None:
    """Batch means (3/4, 1/4), (1/2, 1/2) and (1, 0): a mean of three sums of p log p."""
    tables = [[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
    want = (
        0.75 * math.log(0.75) + 0.25 * math.log(0.25) + math.log(0.5) + LEAST * math.log(LEAST)
    ) / 3
    assert float(concentration(*map(torch.tensor, tables))) == pytest.approx(want)
    assert float(concentration(torch.full((2, 4), 0.25))) == pytest.approx(-math.log(4))


def test_concentration_of_a_certain_batch_has_a_finite_gradient() -> None:
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    concentration(p).backward()
    assert torch.isfinite(p.grad).all()


def test_disagreement_by_hand() -> None:
    joint, one, two = (
        torch.tensor([[0.5, 0.5], [1.0, 0.0]]),
        torch.tensor([[0.25, 0.75], [1.0, 0.0]]),
        torch.ones(2, 2) / 2,
    )
    # first view: (1/4 + 1/4 + 0 + 0) / 4, second: (0 + 0 + 1/2 + 1/2) / 4
    assert float(disagreement(joint, one, two)) == pytest.approx((0.125 + 0.25) / 2)


def loss_by_hand(z: list[float], shares: dict[int, float], groups: list[list[int]]) -> float:
    """The cross-entropy of one row in which each label counts in the softmax over its own group of
    columns.
    """
    total = 0.0
    for label, share in shares.items():
        (group,) = [g for g in groups if label in g]
        total -= share * math.log(math.exp(z[label]) / sum(math.exp(z[c]) for c in group))
    return total


LOGITS = [[0.3, -1.0, 2.0, 0.5, 4.0], [1.0, 0.2, -0.4, 0.0, 3.0], [-0.5, 0.7, 1.1, -2.0, 5.0]]


@pytest.mark.parametrize(
    ("softmax", "y", "groups"),
    [
        ("all", [2, 0, 2], [[0, 1, 2, 3, 4]]),
        ("labels", [2, 0, 2], [[0, 2]]),
        ("labels", [3, 3, 3], [[3]]),
        ("separated", [2, 0, 3], [[0, 1], [2, 3]]),
    ],
)
def test_kinds_of_softmax_by_hand(softmax: str, y: list[int], groups: list[list[int]]) -> None:
    want = (
        sum(loss_by_hand(z, {label: 1.0}, groups) for z, label in zip(LOGITS, y, strict=True)) / 3
    )
    z = torch.tensor(LOGITS, requires_grad=True)
    loss = cross_entropy(z, torch.tensor(y), softmax, old=2, known=4)
    assert loss.item() == pytest.approx(want, rel=1e-5, abs=1e-6)
    loss.backward()
    outside = [c for c in range(5) if not any(c in group for group in groups)]
    assert not z.grad[:, outside].any()
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize(
    ("softmax", "groups"),
    [("all", [[0, 1, 2, 3, 4]]), ("labels", [[0, 1, 3]]), ("separated", [[0, 1], [2, 3]])],
)
def test_mixed_labels_are_mixtures_of_losses(softmax: str, groups: list[list[int]]) -> None:
    shares = [{0: 0.25, 3: 0.75}, {1: 1.0}, {3: 0.5, 1: 0.5}]
    rows = torch.zeros(3, 5)
    for row, parts in zip(rows, shares, strict=True):
        for label, share in parts.items():
            row[label] = share
    want = sum(loss_by_hand(z, parts, groups) for z, parts in zip(LOGITS, shares, strict=True)) / 3
    z = torch.tensor(LOGITS, requires_grad=True)
    loss = cross_entropy(z, rows, softmax, old=2, known=4)
    assert loss.item() == pytest.approx(want, rel=1e-5)
    loss.backward()
    assert torch.isfinite(z.grad).all()


def test_before_the_first_pause_separated_is_one_softmax_over_the_known() -> None:
    z, y = torch.tensor(LOGITS), torch.tensor([2, 0, 3])
    for old in (0, 4):
        want = (
            sum(
                loss_by_hand(row, {int(label): 1.0}, [[0, 1, 2, 3]])
                for row, label in zip(LOGITS, y, strict=True)
            )
            / 3
        )
        assert cross_entropy(z, y, "separated", old=old, known=4).item() == pytest.approx(
            want, rel=1e-5
        )
