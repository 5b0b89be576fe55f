"""A pass over the memory, and the review by hand on a line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dualmix.learn.common import MemoryLearner, memory_batches
from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Reservoir
from dualmix.rng import Rng
from tests.kit import SHAPE, filled, network


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 9))
def test_a_pass_has_each_row_once_and_drops_only_what_is_left_over(
    rows: int, size: int, seed: int
) -> None:
    memory = filled(rows)
    for row in range(rows):
        memory.x[row] = row
    parts = list(memory_batches(memory, size, np.random.default_rng(seed)))
    seen = [round(float(value) * 255) for part in parts for value in part.x[:, 0, 0, 0]]
    assert len(seen) == len(set(seen)) == (rows if rows < size else rows - rows % size)
    assert [len(part) for part in parts] == ([rows] if rows < size else [size] * (rows // size))


def test_a_pass_is_in_random_order_and_an_empty_memory_has_none() -> None:
    memory = filled(12)
    passes = [
        torch.cat([part.x for part in memory_batches(memory, 3, np.random.default_rng(seed))])
        for seed in (0, 0, 1)
    ]
    assert torch.equal(passes[0], passes[1]) and not torch.equal(passes[0], passes[2])
    assert list(memory_batches(Memory(5, SHAPE), 3, np.random.default_rng(0))) == []


@pytest.mark.parametrize(("share", "decay"), [(0.1, 0.0), (0.5, 0.2)])
def test_review_by_hand(share: float, decay: float) -> None:
    """One weight w and the loss mean(w x)^2 / 2 over a batch with all pixels x: the gradient is w
    mean(x)^2.
    """
    memory = filled(5)
    memory.x[:] = torch.tensor([10, 60, 110, 160, 210], dtype=torch.uint8).view(5, 1, 1, 1)
    line = nn.Linear(1, 1, bias=False)
    line.weight.data.fill_(2.0)
    order = Rng(3)["review"].permutation(5)
    w = 2.0
    for slots in (order[:2], order[2:4]):
        mean = float(memory.x[slots, 0, 0, 0].float().mean()) / 255
        w -= 0.5 * (share * w * mean**2 + decay * w)
    learner = MemoryLearner(network(), memory, Reservoir(), Rng(3), lr=0.5, weight_decay=decay)
    learner.network = line
    learner.model.eval()
    learner.review(lambda old: line(old.x.mean().view(1, 1)).square().sum() / 2, 2, share)
    assert line.weight.item() == pytest.approx(w, rel=1e-5)
    assert learner.model.training
