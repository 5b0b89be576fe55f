"""Graphs are off by default and need CUDA; where a replay would be wrong they step aside.

There is no CUDA here. A stand-in for the capture keeps one place for images, features and slopes,
as a CUDA graph does, and so gives wrong gradients or values wherever a replay comes too early or is
given other weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.errors import ConfigError
from dualmix.learn.graphs import SHAPES, Graphs
from dualmix.learn.learners.parts import Parts
from dualmix.learn.network import Classifier, ahead, glance, still_norms
from dualmix.registry import get_method, presets
from dualmix.runs.build import build

SHAPE = (3, 8, 8)
NAMES = sorted(
    name for name in presets() if "+" not in name.rstrip("+") or name.endswith("+dualmix")
)


def one_place(shell: nn.Module, given: tuple[Tensor]) -> Any:
    """Return a replay: whoever calls it twice before the backward pass, or with other weights, gets
    what is wrong.
    """
    (images,) = given
    weights = list(shell.parameters())
    for _ in range(3):
        shell(images)
    values = [weight.data for weight in weights]
    slopes = [torch.empty_like(weight) for weight in weights]
    place: dict[str, Tensor] = {}

    class Replayed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *_: Tensor) -> Tensor:
            images.copy_(x)
            now = [weight.data for weight in weights]
            for weight, value in zip(weights, values, strict=True):
                weight.data = value
            with torch.enable_grad():
                features = shell(images)
            for weight, value in zip(weights, now, strict=True):
                weight.data = value
            place["graph"] = features
            if "features" in place:
                place["features"].copy_(features.detach())
            else:
                place["features"] = features.detach().clone()
            return place["features"].detach()

        @staticmethod
        def backward(ctx: Any, slope: Tensor) -> Any:
            found = torch.autograd.grad(place["graph"], weights, slope)
            for kept, new in zip(slopes, found, strict=True):
                kept.copy_(new)
            return (None, *(kept.detach() for kept in slopes))

    return lambda x: Replayed.apply(x, *weights)


class Counted:
    """The stand-in, and how often it captured."""

    def __init__(self) -> None:
        self.captures, self.replays = 0, 0

    def __call__(self, shell: nn.Module, given: tuple[Tensor]) -> Any:
        self.captures += 1
        replay = one_place(shell, given)

        def counted(x: Tensor) -> Tensor:
            self.replays += 1
            return replay(x)

        return counted


def trained(name: str, capture: Counted | None, steps: int = 5) -> Parts:
    composed = compose(
        name, {"model.width": 4} | ({"method.memory": 20} if "memory" in _fields(name) else {})
    )
    learner = build(composed.config.method, SHAPE, seed=1, model=composed.config.model)
    assert isinstance(learner, Parts)
    if capture:
        learner.model._graphs = Graphs(learner.model.backbone, capture)
    rng = np.random.default_rng(0)
    for step in range(steps):
        learner.observe(
            rng.integers(0, 256, (10, *SHAPE), dtype=np.uint8), rng.integers(0, 2 + step, 10)
        )
    learner.consolidate()
    learner.predict(rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8))
    return learner


def _fields(name: str) -> Any:
    return get_method(presets()[name].kind).model_fields


@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_the_same_with_graphs(name: str) -> None:
    capture = Counted()
    plain, replayed = trained(name, None), trained(name, capture)
    for key, value in plain.model.state_dict().items():
        torch.testing.assert_close(
            replayed.model.state_dict()[key], value, rtol=1e-5, atol=1e-6, msg=f"{name}: {key}"
        )
    assert torch.equal(plain.memory.x, replayed.memory.x)
    assert capture.replays >= 3, "graphs were not used"


def graphed() -> tuple[Classifier, Counted]:
    model, made = Classifier(SHAPE, classes=3, width=4, seed=2), Counted()
    model._graphs = Graphs(model.backbone, made)
    return model, made


def test_a_shape_is_captured_once_and_leaves_no_trace() -> None:
    (model, made), plain = graphed(), Classifier(SHAPE, classes=3, width=4, seed=2)
    for _ in range(3):
        x = torch.rand(6, *SHAPE)
        for one in (model, plain):
            one.zero_grad()
            one(x).sum().backward()
        for a, b in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
        for a, b in zip(model.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(a, b)
    assert (made.captures, made.replays) == (1, 3)
    model(torch.rand(5, *SHAPE)).sum().backward()
    assert made.captures == 2
    assert set(model.state_dict()) == set(plain.state_dict())


def test_only_so_many_shapes_are_captured() -> None:
    model, made = graphed()
    for size in range(2, SHAPES + 5):
        model(torch.rand(size, *SHAPE)).sum().backward()
    assert (made.captures, made.replays) == (SHAPES, SHAPES)


def test_gradients_of_several_passes_are_added() -> None:
    (model, made), plain = graphed(), Classifier(SHAPE, classes=3, width=4, seed=2)
    for x in (torch.rand(6, *SHAPE), torch.rand(6, *SHAPE)):
        for one in (model, plain):
            one(x).square().sum().backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert made.replays == 2


def test_it_steps_aside_where_a_replay_would_be_wrong() -> None:
    model, made = graphed()
    x = torch.rand(6, *SHAPE)
    model(x).sum().backward()
    assert made.replays == 1
    with glance(model):
        model(x)
    with still_norms(model):
        model(x).sum().backward()
    with ahead(model, 0.1):
        model(x).sum().backward()
    model(x.clone().requires_grad_()).sum().backward()
    functional_call(
        model, {name: weight.detach() * 2 for name, weight in model.named_parameters()}, (x,)
    )
    assert made.replays == 1
    first, second = model(x), model(x)
    assert made.replays == 2
    (first.sum() + second.sum()).backward()
    model(x).sum().backward()
    assert made.replays == 3


def test_features_that_are_kept_stay_as_they_were() -> None:
    model, _ = graphed()
    kept = model.embed(torch.rand(6, *SHAPE))
    before = kept.detach().clone()
    kept.sum().backward()
    model.embed(torch.rand(6, *SHAPE)).sum().backward()
    assert torch.equal(kept.detach(), before)


def test_it_is_off_by_default_and_refused_without_cuda() -> None:
    assert not compose("er").config.graphs
    assert Classifier(SHAPE)._graphs is None
    with pytest.raises(ConfigError, match="graphs are for CUDA"):
        compose("er", {"graphs": True})
    assert compose("er", {"graphs": True, "device": "cuda"}).config.graphs
    with pytest.raises(ConfigError, match="Graphs are for CUDA"):
        build(compose("er").config.method, SHAPE, model=Model(width=2), graphs=True)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: graphs are not tried for real"
)
def test_on_a_real_device() -> None:
    torch.backends.cudnn.deterministic = True
    rng = np.random.default_rng(0)
    batches = [
        (rng.integers(0, 256, (10, *SHAPE), dtype=np.uint8), rng.integers(0, 2 + step, 10))
        for step in range(5)
    ]
    made = [
        build(
            compose("er+dualmix").config.method,
            SHAPE,
            seed=1,
            model=Model(width=4),
            device="cuda",
            graphs=graphs,
        )
        for graphs in (False, True)
    ]
    for learner in made:
        for x, y in batches:
            learner.observe(x, y)
    plain, replayed = (learner.state_dict()["model"] for learner in made)
    for key, value in plain.items():
        torch.testing.assert_close(replayed[key], value, rtol=1e-3, atol=1e-4, msg=key)
