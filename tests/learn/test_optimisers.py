"""Momentum, Adam and AdamW take torch's steps, grow with a head, and go on exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dualmix
from dualmix.config.compose import compose
from dualmix.errors import ConfigError, StoreError, TrainingError
from dualmix.learn.optimisers import Optimiser

pytestmark = pytest.mark.usefixtures("shallow")

THEIRS = {
    ("sgd", 0.9): lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=0.01),
    ("adam", 0.0): lambda w: torch.optim.Adam(w, lr=0.1, weight_decay=0.01),
    ("adamw", 0.0): lambda w: torch.optim.AdamW(w, lr=0.1, weight_decay=0.01),
}


def weights(rng):
    return [
        torch.nn.Parameter(torch.from_numpy(rng.normal(size=shape).astype(np.float32)))
        for shape in ((4, 3), (4,), (2, 3, 1, 1))
    ]


@pytest.mark.parametrize(("name", "momentum"), THEIRS)
def test_steps_are_torchs(name, momentum):
    ours, theirs = weights(np.random.default_rng(0)), weights(np.random.default_rng(0))
    optim, moments, rng = THEIRS[name, momentum](theirs), {}, np.random.default_rng(1)
    for _ in range(12):
        for a, b in zip(ours, theirs, strict=True):
            b.grad = torch.from_numpy(rng.normal(size=tuple(a.shape)).astype(np.float32))
            a.grad = b.grad.clone()
        optim.step()
        Optimiser(name, momentum).step(ours, moments, 0.1, 0.01, lambda length: None)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


def test_rows_that_come_late_begin_as_early_ones_did():
    early, late = torch.nn.Parameter(torch.zeros(1, 2)), torch.nn.Parameter(torch.zeros(1, 2))
    moments: dict[str, torch.Tensor] = {}
    adam = Optimiser("adam")
    early.grad = torch.ones(1, 2)
    for _ in range(5):
        adam.step([early], moments, 0.1, 0.0, lambda length: None)
    both = torch.nn.Parameter(torch.cat([early.detach(), late.detach()]))
    both.grad = torch.ones(2, 2)
    adam.step([both], moments, 0.1, 0.0, lambda length: None)
    assert both[1].tolist() == pytest.approx([-0.1, -0.1], rel=1e-5)  # Adam's first step is lr
    assert moments["0.steps"].tolist() == [[6.0], [1.0]]


def test_moments_follow_a_weight_that_grows_in_its_last_direction():
    """Steps of 1 with momentum 0.5: 1, then 1 + 0.5 where it was and 1 where it is new."""
    moments: dict[str, torch.Tensor] = {}
    for columns in (1, 3):
        weight = torch.nn.Parameter(torch.zeros(2, 2, columns))
        weight.grad = torch.ones_like(weight)
        Optimiser("sgd", 0.5).step([weight], moments, 1.0, 0.0, lambda length: None)
    assert weight.tolist() == [[[-1.5, -1.0, -1.0]] * 2] * 2


OPTIONS = [{"momentum": 0.9}, {"optimiser": "adam"}, {"optimiser": "adamw", "weight_decay": 0.1}]


def learner(method="er", **options):
    return dualmix.create(method, shape=(4,), memory=8, hidden=5, **{"lr": 0.01, **options})


def batch(step):
    rng = np.random.default_rng(step)
    return rng.normal(size=(6, 4)), rng.integers(0, 1 + step, 6)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("method", ["er+dualmix", "gdumb", "scr"])
def test_a_saved_learner_goes_on_exactly(method, options):
    whole = learner(method, **options)
    for step in range(4):
        whole.observe(*batch(step))
    whole.consolidate()
    cut = dualmix.load(dualmix.to_bytes(whole))
    for one in (whole, cut):
        for step in range(4, 7):
            one.observe(*batch(step))
        one.consolidate()
    assert same(whole.model.state_dict().values(), cut.model.state_dict().values())
    assert same(whole.moments.values(), cut.moments.values()) and whole.moments


@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_another_learner_than_plain_sgd(options):
    plain, other = learner(), learner(**options)
    for one in (plain, other):
        for step in range(3):
            one.observe(*batch(step))
    assert not torch.equal(plain.model.weight, other.model.weight)
    assert "moments" not in plain.state_dict() and not plain.moments


def test_a_batch_that_diverges_leaves_the_moments_alone():
    one = learner(optimiser="adam", iterations=2)
    one.observe(*batch(2))
    before = {name: moment.clone() for name, moment in one.moments.items()}
    one.model.weight.data[0, 0] = float("nan")
    with pytest.raises(TrainingError):
        one.observe(*batch(2))
    assert before.keys() == one.moments.keys()
    assert same(before.values(), one.moments.values())


def test_the_key_knows_it_only_where_it_is_set():
    plain, spelled, adam = (
        compose("er", values).config.key("data")
        for values in ({}, {"method.optimiser": "sgd"}, {"method.optimiser": "adam"})
    )
    assert plain == spelled != adam


def test_momentum_of_adam_is_refused():
    with pytest.raises(ConfigError, match="momentum is for sgd"):
        learner(optimiser="adam", momentum=0.5)


@pytest.mark.parametrize("name", ["9.mean", "0.other", "0.mean"])
def test_forged_moments_are_refused(name):
    from dualmix.store import snapshot

    one = learner(optimiser="adam")
    one.observe(*batch(2))
    state = one.state_dict()
    state["moments"][name] = torch.zeros(99, 7)
    with pytest.raises(StoreError, match="moments"):
        dualmix.load(snapshot.state_bytes({"recipe": one.recipe, "learner": state}))
