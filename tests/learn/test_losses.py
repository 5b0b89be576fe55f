"""Cross-entropy over three kinds of softmax, against its definition by hand."""

from __future__ import annotations

import math

import pytest
import torch

from dualmix.learn.losses import cross_entropy


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
