"""Maximally interfered retrieval, against a copy of the network that takes the real step."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dualmix
from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.learn.common import gradient_of
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Reservoir
from dualmix.learn.types import Batch, Placement
from dualmix.methods import MIR
from dualmix.methods.mir import MIRRetrieve, fresh_gradient
from dualmix.rng import Rng
from tests.kit import raw_rows, warm_network

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE, LR = (1, 8, 8), 0.3


def filled(count: int, capacity: int = 30) -> Memory:
    memory = Memory(capacity, SHAPE)
    memory.write(Placement(np.arange(count)), *raw_rows(count, 50))
    return memory


def new_batch(model: Classifier) -> Batch:
    raw, y = raw_rows(5, 2)
    return Batch(model.pixels(raw), y)


def stepped(model: Classifier, new: Batch) -> Classifier:
    """Return a copy that took the real SGD step on the new batch alone."""
    ahead = copy.deepcopy(model).train()
    optimiser = torch.optim.SGD(ahead.parameters(), lr=LR)
    optimiser.zero_grad()
    F.cross_entropy(ahead(new.x), new.y).backward()
    optimiser.step()
    return ahead


def take_statistics(model: Classifier, other: Classifier) -> None:
    for mine, theirs in zip(model.buffers(), other.buffers(), strict=True):
        mine.copy_(theirs)


def losses(model: Classifier, batch: Batch, *, training: bool) -> torch.Tensor:
    model = copy.deepcopy(model).train(training)
    with torch.no_grad():
        z = model(batch.x)
    return torch.logsumexp(z, 1) - z[torch.arange(len(batch)), batch.y]


@pytest.mark.parametrize("weight", [1.0, 0.2, 0.0], ids=["gradient", "a fifth of it", "none yet"])
@pytest.mark.parametrize("bn", ["ref", "eval"])
def test_scores_are_the_growth_of_the_loss_by_the_real_step(bn: Any, weight: float) -> None:
    model, memory = warm_network(), filled(30)
    new, old = new_batch(model), memory[np.arange(20)]
    if weight:
        (weight * F.cross_entropy(model(new.x), new.y)).backward()
        new = replace(new, gradient=gradient_of(model), weight=weight)
    held = [None if weight.grad is None else weight.grad.clone() for weight in model.parameters()]
    kept = copy.deepcopy(model)
    ahead = stepped(kept, new)
    take_statistics(ahead, kept)
    training = bn == "ref"
    want = losses(ahead, old, training=training) - losses(kept, old, training=training)
    got = MIRRetrieve(10, 20, LR, bn).interference(old, new, model)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)
    assert want.abs().max() > 0.05 and not got.requires_grad
    assert model.training
    for p, same, slope_then in zip(model.parameters(), kept.parameters(), held, strict=True):
        assert torch.equal(p, same)
        assert p.grad is None if slope_then is None else torch.equal(p.grad, slope_then)


@pytest.mark.parametrize("bn", ["ref", "eval"])
def test_only_ref_keeps_the_statistics_of_the_candidates(bn: Any) -> None:
    model, memory = warm_network(), filled(30)
    new = new_batch(model)
    want = copy.deepcopy(model)
    MIRRetrieve(10, 30, LR, bn)(memory, new, model, np.random.default_rng(0))
    if bn == "ref":
        drawn = np.random.default_rng(0).choice(30, size=30, replace=False)
        with torch.no_grad():
            want.train()(memory[drawn].x)
    for (name, got), there in zip(model.named_buffers(), want.buffers(), strict=True):
        assert torch.equal(got, there), name


def test_the_worst_come_first_and_are_distinct() -> None:
    model, memory = warm_network(), filled(30)
    new = new_batch(model)
    slots = MIRRetrieve(6, 20, LR, "eval")(memory, new, model, np.random.default_rng(3))
    drawn = np.random.default_rng(3).choice(30, size=20, replace=False)
    ahead = stepped(model, new)
    take_statistics(ahead, model)
    growth = losses(ahead, memory[drawn], training=False) - losses(
        model, memory[drawn], training=False
    )
    want = sorted(range(20), key=lambda row: -float(growth[row]))[:6]
    assert slots.tolist() == drawn[want].tolist() and slots.dtype == np.int64


@pytest.mark.parametrize("count", [1, 4])
def test_a_small_memory_is_returned_whole(count: int) -> None:
    model = warm_network()
    slots = MIRRetrieve(10, 50, LR)(
        filled(count), new_batch(model), model, np.random.default_rng(0)
    )
    assert sorted(slots.tolist()) == list(range(count))


class Spy:
    """Retrieval that writes down the gradient it finds or makes."""

    def __init__(self) -> None:
        self.slopes: list[torch.Tensor] = []

    def __call__(self, memory: Any, new: Any, model: Any, rng: Any) -> np.ndarray:
        gradient = fresh_gradient(new, model) if new.gradient is None else new.gradient
        self.slopes.append(torch.cat([g.flatten() for g in gradient]).clone())
        return np.arange(3)


@pytest.mark.parametrize(
    "more", [{}, {"forward": "joint"}, {"forward": "still"}, {"stream": 0.0}, {"iterations": 2}]
)
def test_retrieval_meets_the_gradient_of_the_stream_alone(more: dict[str, Any]) -> None:
    """Whatever the passes, and in every iteration, it is the gradient of the weights as they are
    then.
    """
    spy = Spy()
    learner = Replay(warm_network(), filled(30), Reservoir(), spy, Rng(0), lr=LR, **more)
    start = copy.deepcopy(learner.model)
    raw, y = raw_rows(5, 2)
    learner.observe(raw.permute(0, 3, 1, 2), y)
    F.cross_entropy(start.train()(start.pixels(raw)), y).backward()
    want = torch.cat([p.grad.flatten() for p in start.parameters()])
    torch.testing.assert_close(spy.slopes[0], want, rtol=1e-4, atol=1e-6)
    assert len(spy.slopes) == more.get("iterations", 1)
    if len(spy.slopes) == 2:
        assert not torch.allclose(spy.slopes[1], want, atol=1e-3)


def test_a_fresh_gradient_leaves_no_trace() -> None:
    model = warm_network()
    before = copy.deepcopy(model.state_dict())
    fresh_gradient(new_batch(model), model)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_settings_reach_the_policy() -> None:
    learner = MIR(memory=7, memory_batch=3, subsample=6, bn="eval", lr=0.2, reservoir="ref").build(
        warm_network(), Rng(0)
    )
    assert isinstance(learner, Replay)
    assert (learner.retrieve, learner.update) == (MIRRetrieve(3, 6, 0.2, "eval"), Reservoir("ref"))
    preset = compose("mir").config.method
    assert (
        isinstance(preset, MIR)
        and preset.reservoir == "ref"
        and (preset.subsample, preset.bn) == (50, "ref")
    )
    with pytest.raises(
        ConfigError, match=r"subsample is 5, fewer than the 10 images of memory_batch"
    ):
        compose("mir", {"method.subsample": 5})


def test_additions_follow_from_the_parts() -> None:
    assert compose("mir+dualmix").config.method.mix == compose("er+dualmix").config.method.mix
    learner = dualmix.create("mir+dualmix", SHAPE, memory=5)
    assert set(learner.mixes) == {"view", "enmix", "adpmix"}


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_the_virtual_step_does_not_shrink_with_the_weight_of_the_new_batch(forward: str) -> None:
    """With five terms in one mean the new batch weighs a fifth; what it interferes with stays the
    same.
    """
    rng = np.random.default_rng(0)
    batches = [
        (rng.integers(0, 256, (10, *SHAPE), dtype=np.uint8), rng.integers(0, 4, 10))
        for _ in range(4)
    ]
    made = {
        weight: dualmix.create(
            "mir",
            SHAPE,
            classes=4,
            memory=30,
            memory_batch=5,
            lr=0.5,
            bn="eval",
            forward=forward,
            mix={"stream": weight},
        )
        for weight in (1.0, 0.2)
    }
    for x, y in batches[:3]:
        made[1.0].observe(x, y)
    made[0.2].load_state_dict(copy.deepcopy(made[1.0].state_dict()))
    drawn = {}
    for weight, learner in made.items():
        chosen = learner.retrieve

        def spy(*given, weight=weight, chosen=chosen):
            drawn[weight] = chosen(*given)
            return drawn[weight]

        learner.retrieve = spy
        learner.observe(*batches[3])
    assert drawn[1.0].tolist() == drawn[0.2].tolist()
    assert made[0.2].lr == 0.5
