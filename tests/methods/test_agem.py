"""A-GEM: the projection against its definition as a quadratic programme, the loop against plain
torch by hand.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.methods import AGEM as Settings
from dualmix.methods.agem import AGEMLearner, project
from dualmix.rng import Rng
from tests.kit import SHAPE, Chosen, assert_same, batch, filled, floats, network, stored

LR, DECAY = 0.3, 0.05
vectors = st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4)


def joined(pieces: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([piece.reshape(-1) for piece in pieces]).numpy()


def test_projection_by_hand() -> None:
    gradient, reference = (
        [torch.tensor([1.0, -2.0]), torch.tensor([[0.5]])],
        [torch.tensor([0.0, 2.0]), torch.ones(1, 1)],
    )
    # <g, r> = -4 + 0.5 = -3.5, <r, r> = 5: g + 0.7 r
    assert joined(project(gradient, reference)).tolist() == pytest.approx([1.0, -0.6, 1.2])
    assert joined(project([-g for g in gradient], reference)).tolist() == [-1.0, 2.0, -0.5]


def test_a_reference_of_nothing_changes_nothing() -> None:
    assert project([torch.tensor([1.0, -1.0])], [torch.zeros(2)])[0].tolist() == [1.0, -1.0]


@settings(deadline=None)
@given(vectors, vectors)
def test_projection_is_the_nearest_vector_that_does_not_hurt(
    g: list[float], r: list[float]
) -> None:
    """The Karush-Kuhn-Tucker conditions of min |v - g|^2 subject to <v, r> >= 0."""
    gradient, reference = torch.tensor(g), torch.tensor(r)
    v = project([gradient[:1], gradient[1:]], [reference[:1], reference[1:]])
    v = torch.cat(v).double()
    gradient, reference = gradient.double(), reference.double()
    scale = max(float(gradient.norm() * reference.norm()), 1e-3)
    slack = float(v @ reference)
    assert slack >= -1e-5 * scale
    if float(reference @ reference) > 1e-6:
        multiplier = float((v - gradient) @ reference / (reference @ reference))
        assert multiplier >= -1e-5
        torch.testing.assert_close(v, gradient + multiplier * reference, rtol=1e-4, atol=1e-4)
        assert abs(multiplier * slack) <= 1e-4 * scale


@pytest.mark.parametrize("seed", range(4))
def test_projection_solves_the_quadratic_programme(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, r = rng.normal(size=5), rng.normal(size=5)
    g -= r * (g @ r + (1 if seed % 2 else -1)) / (r @ r)
    bound = {"type": "ineq", "fun": lambda v: v @ r, "jac": lambda v: r}
    want = minimize(
        lambda v: ((v - g) ** 2).sum(), g, jac=lambda v: 2 * (v - g), constraints=[bound], tol=1e-12
    ).x
    got = project([torch.from_numpy(g)], [torch.from_numpy(r)])[0].numpy()
    np.testing.assert_allclose(got, want, atol=1e-6)


def learner(retrieve: Any, **more: Any) -> AGEMLearner:
    return AGEMLearner(
        network(), filled(12), Reservoir(), retrieve, Rng(0), **{"lr": LR, "acts": "always", **more}
    )


def slopes(model: Classifier, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = F.nll_loss(torch.log_softmax(model(x), 1), y)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


def step_by_hand(
    model: Classifier, new: tuple[Any, Any], old: tuple[Any, Any] | None, decay: float
) -> float:
    """Take one step on a copy; return <g, g_ref>."""
    g = slopes(model, *new)
    along = 0.0
    if old is not None:
        r = slopes(model, *old)
        along = float(g @ r)
        if along < 0:
            g = g - along / float(r @ r) * r
    with torch.no_grad():
        for p, part in zip(
            model.parameters(), g.split([p.numel() for p in model.parameters()]), strict=True
        ):
            p.copy_(p - LR * (part.view(p.shape) + decay * p))
    return along


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize(("label", "sign"), [(0, 1), (3, -1)])
def test_one_step_by_hand(label: int, sign: int, decay: float) -> None:
    """New images that are the rehearsed ones agree with the memory under its own labels, and not
    under others.
    """
    slots = [7, 2, 5]
    got = learner(Chosen(slots), weight_decay=decay)
    got.memory.y[slots] = 0
    old = stored(got.memory, slots)
    x = got.memory.x[slots].permute(0, 3, 1, 2).contiguous().numpy()
    y = torch.full((3,), label)
    want = copy.deepcopy(got.model).train()
    with torch.no_grad():
        loss = F.cross_entropy(copy.deepcopy(want)(floats(x)), y)
    along = step_by_hand(want, (floats(x), y), old, decay)
    assert along * sign > 0
    assert got.observe(x, y.numpy()).item() == pytest.approx(loss.item(), rel=1e-5)
    assert_same(got.model, want)


def test_iterations_each_retrieve_anew() -> None:
    first, second = [1, 2, 3], [9, 4]
    retrieve = Chosen(first, second)
    got = learner(retrieve, iterations=2)
    x, y = batch(5, 1)
    want = copy.deepcopy(got.model).train()
    with torch.no_grad():
        hits = int((copy.deepcopy(want)(floats(x)).argmax(1).numpy() == y).sum())
    for slots in (first, second):
        step_by_hand(want, (floats(x), torch.from_numpy(y)), stored(got.memory, slots), 0.0)
    got.observe(x, y)
    assert retrieve.calls == 2
    assert int(got.hits) == hits
    assert_same(got.model, want, atol=1e-5)


def test_the_memory_is_heard_after_the_first_pause() -> None:
    retrieve = Chosen([1, 2])
    got = learner(retrieve, acts="after-pause")
    got.observe(*batch(5, 1))
    assert retrieve.calls == 0
    got.consolidate()
    got.observe(*batch(5, 2))
    assert retrieve.calls == 1


def test_an_empty_memory_is_finetuning() -> None:
    for capacity in (0, 12):
        got = learner(Uniform(3))
        got.memory = Memory(capacity, SHAPE)
        x, y = batch(5, 1)
        want = copy.deepcopy(got.model).train()
        step_by_hand(want, (floats(x), torch.from_numpy(y)), None, 0.0)
        got.observe(x, y)
        assert_same(got.model, want)
        assert len(got.memory) == min(capacity, 5)


def test_settings_reach_the_loop() -> None:
    method = Settings(
        memory=7,
        memory_batch=3,
        reservoir="ref",
        iterations=2,
        lr=0.2,
        weight_decay=0.1,
        acts="always",
    )
    got = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert isinstance(got, AGEMLearner)
    assert (got.memory.capacity, got.retrieve, got.update) == (7, Uniform(3), Reservoir("ref"))
    assert (got.iterations, got.acts, got.lr, got.weight_decay) == (2, "always", 0.2, 0.1)
