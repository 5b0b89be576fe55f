"""Supervised contrastive replay, one step at a time, against plain torch written out by hand."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.errors import ConfigError
from dualmix.learn.augment import Crop
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.methods import SCR as Settings
from dualmix.methods.scr import Projector, SCRLearner, supcon
from dualmix.rng import Rng
from dualmix.runs.build import create
from tests.kit import (
    SHAPE,
    Chosen,
    assert_nearest,
    assert_same,
    batch,
    filled,
    floats,
    images,
    network,
    stored,
)

LR, DECAY, T = 0.3, 0.05, 0.5


def darker(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """An augmentation of which the test knows the outcome; it draws once a call."""
    return x * (0.25 + 0.5 * rng.random())


def learner(retrieve: Any, capacity: int = 12, **more: Any) -> SCRLearner:
    model = network()
    projector = Projector(model.backbone.features, 6, seed=2)
    settings = {"lr": LR, "temperature": T, "memory_batch": 5, **more}
    return SCRLearner(
        model, filled(capacity), Reservoir(), retrieve, darker, projector, Rng(0), **settings
    )


def loss_by_hand(got: SCRLearner, x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    """Supervised contrast with one sum at a time."""
    p = dict(got.projector.weights.named_parameters())

    def embed(images: torch.Tensor) -> torch.Tensor:
        z = (
            torch.relu(got.model.embed(images) @ p["inner"].T + p["inner_bias"]) @ p["outer"].T
            + p["outer_bias"]
        )
        return z / z.norm(dim=1, keepdim=True)

    z = torch.cat([embed(x), embed(x * factor)])
    labels = [*y.tolist(), *y.tolist()]
    total = torch.zeros(())
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        below = torch.log(sum(torch.exp(z[i] @ z[a] / T) for a in others))
        mine = [a for a in others if labels[a] == labels[i]]
        total = total - sum(z[i] @ z[a] / T - below for a in mine) / len(mine)
    return total / len(z)


def step_by_hand(
    got: SCRLearner, x: torch.Tensor, y: torch.Tensor, factor: float, share: float = 1.0
) -> float:
    loss = loss_by_hand(got, x, y, factor)
    parameters = [*got.model.backbone.parameters(), *got.projector.weights.parameters()]
    slopes = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for p, g in zip(parameters, slopes, strict=True):
            p.copy_(p - LR * (share * g + got.weight_decay * p))
    return loss.item()


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_one_step_by_hand(decay: float) -> None:
    slots = [7, 2, 5]
    got = learner(Chosen(slots), weight_decay=decay)
    old_x, old_y = stored(got.memory, slots)
    x, y = batch(5, 1)
    want = copy.deepcopy(got)
    want.network.train()
    factor = 0.25 + 0.5 * Rng(0)["augment"].random()
    loss = step_by_hand(
        want, torch.cat([old_x, floats(x)]), torch.cat([old_y, torch.from_numpy(y)]), factor
    )
    said = got.observe(x, y)
    assert said.item() == pytest.approx(loss, rel=1e-5) and not said.requires_grad
    assert_same(got.network, want.network)
    assert torch.equal(got.model.weight, want.model.weight)
    assert got.memory.seen == 17


def test_iterations_each_retrieve_anew() -> None:
    groups = [[1, 2, 3], [9, 4]]
    got = learner(Chosen(*groups), iterations=2)
    x, y = batch(5, 1)
    want = copy.deepcopy(got)
    want.network.train()
    rng = Rng(0)["augment"]
    for slots in groups:
        old_x, old_y = stored(got.memory, slots)
        both = torch.cat([old_x, floats(x)]), torch.cat([old_y, torch.from_numpy(y)])
        loss = step_by_hand(want, *both, 0.25 + 0.5 * rng.random())
    assert got.observe(x, y).item() == pytest.approx(loss, rel=1e-4)
    assert_same(got.network, want.network, atol=1e-5)


def test_the_first_batch_is_only_kept() -> None:
    got = learner(Uniform(3))
    got.memory = Memory(12, SHAPE)
    before = copy.deepcopy(got.network)
    assert got.observe(*batch(5, 1)).item() == 0
    assert int(got.hits) == 0 and len(got.memory) == 5
    assert_same(got.network, before)


def test_hits_are_counted_with_the_means_of_the_rehearsed_rows() -> None:
    slots = [0, 1, 2, 3, 4]
    got = learner(Chosen(slots))
    got.memory.y[slots] = torch.tensor([0, 0, 1, 1, 3])
    x, _ = batch(8, 1)
    old_x, old_y = stored(got.memory, slots)
    with torch.no_grad():
        f = copy.deepcopy(got.model).train().embed(torch.cat([old_x, floats(x)])).double().numpy()
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    means = {c: f[:5][old_y.numpy() == c].mean(0) for c in (0, 1, 3)}
    said = [
        min(means, key=lambda c: ((row - means[c] / np.linalg.norm(means[c])) ** 2).sum())
        for row in f[5:]
    ]
    right = np.where(np.arange(8) < 3, said, 2)
    got.observe(x, right)
    assert int(got.hits) == 3


def test_answers_are_nearest_means_and_follow_every_step() -> None:
    got = learner(Uniform(5), lr=0.01)
    patterns = images(4, 8) // 128 * 200
    x = patterns[np.arange(30) % 4] + images(30, 9) // 5
    got.memory.y[:] = torch.arange(12) % 4
    got.memory.x[:] = torch.from_numpy(patterns).permute(0, 2, 3, 1)[got.memory.y]
    for _ in range(3):
        got.observe(patterns[[0, 1, 2, 3]], [0, 1, 2, 3])
        assert_nearest(got, x)


def test_review_goes_once_over_the_memory_in_a_pause() -> None:
    got = learner(Uniform(5), review=0.1)
    got.predict(images(2, 0))
    want = copy.deepcopy(got)
    want.network.train()
    order, rng = Rng(0)["review"].permutation(12), Rng(0)["augment"]
    for slots in (order[:5], order[5:10]):
        step_by_hand(want, *stored(want.memory, slots), 0.25 + 0.5 * rng.random(), share=0.1)
    got.consolidate()
    assert_same(got.network, want.network)
    assert got.ages.known_before_task == len(got.ages.first) and got.means is None
    still = learner(Uniform(5))
    before = copy.deepcopy(still.network)
    still.consolidate()
    assert_same(still.network, before)


def test_the_projector_starts_as_torch_would_and_is_decided_by_the_seed() -> None:
    made = [Projector(40, 6, seed=seed) for seed in (2, 2, 3)]
    assert_same(made[0].weights, made[1].weights)
    assert not torch.allclose(made[0].weights["inner"], made[2].weights["inner"])
    for parameter in made[0].weights.parameters():
        assert 0.5 / math.sqrt(40) < parameter.abs().max() <= 1 / math.sqrt(40)
    assert {name: tuple(p.shape) for name, p in made[0].weights.named_parameters()} == {
        "inner": (40, 40),
        "inner_bias": (40,),
        "outer": (6, 40),
        "outer_bias": (6,),
    }


def test_settings_reach_the_loop() -> None:
    method = Settings(
        memory=7, memory_batch=3, reservoir="ref", iterations=2, lr=0.2, weight_decay=0.1,
        temperature=0.3, projection=9, review=0.2, augment="crop",
    )  # fmt: skip
    got = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert isinstance(got, SCRLearner)
    assert (got.memory.capacity, got.retrieve, got.update) == (7, Uniform(3), Reservoir("ref"))
    assert (got.iterations, got.lr, got.weight_decay, got.temperature) == (2, 0.2, 0.1, 0.3)
    assert (got.review_share, got.review_batch, got.augment) == (0.2, 3, Crop())
    assert got.projector.weights["outer"].shape == (9, 32)


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory"):
        create("scr", SHAPE, memory=0)


def supcon_by_loops(views: np.ndarray, y: list[int], t: float) -> float:
    """Eq. 2 of Khosla et al. (2020): a mean over anchors of a mean over their positives."""
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
def test_supcon_is_its_definition(y: list[int], seed: int, temperature: float) -> None:
    views = np.random.default_rng(seed).normal(size=(len(y), 2, 4))
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    got = supcon(torch.from_numpy(views), torch.tensor(y), temperature)
    assert float(got) == pytest.approx(supcon_by_loops(views, y, temperature), rel=1e-6, abs=1e-9)


def test_supcon_by_hand() -> None:
    """Two images of two classes, both views of each the same and at right angles to the other's:
    e/(e + 2).
    """
    views = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    assert float(supcon(views, torch.tensor([0, 1]), 1.0)) == pytest.approx(
        -math.log(math.e / (math.e + 2))
    )


def test_supcon_has_a_finite_gradient_also_where_all_is_alike() -> None:
    views = torch.ones(3, 2, 4, requires_grad=True)
    supcon(views / 2, torch.tensor([0, 1, 0]), 0.01).backward()
    assert torch.isfinite(views.grad).all()
