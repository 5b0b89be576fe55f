"""A network after a virtual step comes back as it was."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from dualmix.learn.common import gradient_of
from dualmix.learn.modes import virtual_step
from tests.kit import batch, floats, network

LR = 0.5


def test_a_virtual_step_is_the_real_one_and_comes_back_also_after_a_fault() -> None:
    model = network().train()
    x, y = batch(6, 1)
    F.cross_entropy(model(floats(x)), torch.from_numpy(y)).backward()
    before, want = copy.deepcopy(model.state_dict()), copy.deepcopy(model)
    for real, own in zip(want.parameters(), model.parameters(), strict=True):
        real.grad = own.grad.clone()
    torch.optim.SGD(want.parameters(), lr=LR).step()
    with pytest.raises(ZeroDivisionError), virtual_step(model, LR, gradient_of(model)):
        for p, q in zip(model.parameters(), want.parameters(), strict=True):
            torch.testing.assert_close(p, q)
        model(floats(batch(3, 0)[0]))
        _ = 1 / 0
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
