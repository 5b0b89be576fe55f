"""Gradient increase against real steps of a copied network and real gradients of one row at a time."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dualmix.learn.network import Classifier, ahead
from dualmix.learn.policies.mgi import GradientIncrease, gradient_sizes
from dualmix.learn.types import Batch
from tests.kit import batch, filled, floats, network, stored

LR = 0.5


def taught(seed: int = 1) -> Classifier:
    """Return a network in training mode with the gradient of a batch in place."""
    model = network(seed=seed).train()
    x, y = batch(6, seed)
    F.cross_entropy(model(floats(x)), torch.from_numpy(y)).backward()
    return model


def stepped(model: Classifier) -> Classifier:
    real = copy.deepcopy(model)
    with torch.no_grad():
        for own, p in zip(model.parameters(), real.parameters(), strict=True):
            p.copy_(own - LR * own.grad)
    return real


def sizes_by_rows(model: Classifier, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """The sum of absolute gradients of the head's weights, one row at a time by autograd
    (evaluation mode).
    """
    model = copy.deepcopy(model).eval()
    found = []
    for image, column in zip(x, y, strict=True):
        (slope,) = torch.autograd.grad(
            F.cross_entropy(model(image[None]), column[None]), [model.weight]
        )
        found.append(float(slope.abs().sum()))
    return found


def test_sizes_are_those_of_real_gradients() -> None:
    model = taught().eval()
    x, y = stored(filled(8), range(8))
    got = gradient_sizes(model, x, y)
    assert got.tolist() == pytest.approx(sizes_by_rows(model, x, y), rel=1e-4)
    assert torch.equal(gradient_sizes(model, torch.cat([x, x + 1]), y), got) or torch.allclose(
        gradient_sizes(model, torch.cat([x, x + 1]), y), got, rtol=1e-4
    )


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_whose_gradient_grows_most_in_a_real_step(seed: int) -> None:
    model, memory = taught(seed), filled(20, seed=60 + seed)
    x, y = stored(memory, range(20))
    growth = np.array(sizes_by_rows(stepped(model), x, y)) - np.array(sizes_by_rows(model, x, y))
    candidates = np.random.default_rng(seed).choice(20, size=12, replace=False)
    want = sorted(candidates, key=lambda slot: -growth[slot])[:4]
    before = copy.deepcopy(model.state_dict())
    slopes = [p.grad.clone() for p in model.parameters()]
    new = Batch(*stored(memory, [0]))
    got = GradientIncrease(4, 12, LR)(memory, new, model, np.random.default_rng(seed))
    assert got.tolist() == want
    assert model.training
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
    assert all(torch.equal(a, p.grad) for a, p in zip(slopes, model.parameters(), strict=True))


def test_as_the_reference_statistics_take_candidates_in_once() -> None:
    """Both looks are in training mode over two views; only the look before the step is kept by
    batch-norm.
    """
    model, memory = taught(), filled(20)
    rng = np.random.default_rng(3)
    slots = rng.choice(20, size=12, replace=False)
    factor = rng.random()
    x, y = stored(memory, slots)
    both = torch.cat([x, x * factor])
    now, later = copy.deepcopy(model), stepped(model)

    def sizes(net: Classifier) -> torch.Tensor:
        with torch.no_grad():
            features = net.embed(both)[:12]
            p = F.linear(features, net.weight, net.bias).softmax(1)
        return (p - F.one_hot(y, 4)).abs().sum(1) * features.abs().sum(1)

    want = slots[(sizes(later) - sizes(now)).argsort(descending=True)[:4].numpy()]
    policy = GradientIncrease(4, 12, LR, lambda x, rng: x * rng.random())
    got = policy(memory, Batch(*stored(memory, [0])), model, np.random.default_rng(3))
    assert got.tolist() == want.tolist()
    for (name, a), b in zip(model.state_dict().items(), now.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7, msg=name)


def test_fewer_rows_than_asked_for_are_all_returned() -> None:
    model, memory = taught(), filled(3)
    got = GradientIncrease(10, 50, LR)(
        memory, Batch(*stored(memory, [0])), model, np.random.default_rng(0)
    )
    assert sorted(got.tolist()) == [0, 1, 2]


def test_a_look_ahead_comes_back_also_after_a_fault() -> None:
    model = taught()
    before = copy.deepcopy(model.state_dict())
    want = stepped(model)
    with pytest.raises(ZeroDivisionError), ahead(model, LR):
        for p, q in zip(model.parameters(), want.parameters(), strict=True):
            torch.testing.assert_close(p, q)
        model(floats(batch(3, 0)[0]))
        _ = 1 / 0
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
