"""bfloat16 is off by default, leaves weights and logits float32, and trains every method the same
way twice.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dualmix import create
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.learn.common import Parts
from dualmix.learn.modes import fused_bn, in_float32
from dualmix.learn.network import Classifier
from dualmix.registry import get_method, presets
from dualmix.runs.build import build, load, save

pytestmark = pytest.mark.usefixtures("shallow")

KINDS = sorted({p.kind for p in presets().values() if get_method(p.kind).trains})
SHAPE = (3, 8, 8)


def trained(kind: str, precision: str, steps: int = 4) -> Parts:
    model = Model.model_validate({"precision": precision, "width": 4})
    settings = {"memory": 20} if "memory" in get_method(kind).model_fields else {}
    learner = build(get_method(kind).model_validate(settings), SHAPE, seed=1, model=model)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        loss = learner.observe(
            rng.integers(0, 256, (10, *SHAPE), dtype=np.uint8), rng.integers(0, 3, 10)
        )
        assert bool(torch.isfinite(loss))
    learner.consolidate()
    learner.predict(rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8))
    assert isinstance(learner, Parts)
    return learner


def same(a: Parts, b: Parts) -> bool:
    return all(
        torch.equal(x, y)
        for x, y in zip(a.model.state_dict().values(), b.model.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_every_method_trains_in_bfloat16_and_repeats_itself(kind: str) -> None:
    one, again, exact = (
        trained(kind, "bfloat16"),
        trained(kind, "bfloat16"),
        trained(kind, "float32"),
    )
    assert same(one, again) and not same(one, exact)
    assert all(
        tensor.dtype in (torch.float32, torch.int64) for tensor in one.model.state_dict().values()
    )


def test_it_is_off_by_default_and_then_changes_nothing() -> None:
    assert compose("er").config.model.precision == "float32"
    model = Classifier(SHAPE, classes=5, width=4, seed=2).eval()
    x = torch.from_numpy(np.random.default_rng(0).random((6, *SHAPE), dtype=np.float32))
    assert torch.equal(model(x), F.linear(model.backbone(x), model.weight, model.bias))
    assert same(trained("er", "float32"), plain())


def plain() -> Parts:
    learner = build(
        get_method("er").model_validate({"memory": 20}), SHAPE, seed=1, model=Model(width=4)
    )
    rng = np.random.default_rng(0)
    for _ in range(4):
        learner.observe(rng.integers(0, 256, (10, *SHAPE), dtype=np.uint8), rng.integers(0, 3, 10))
    assert isinstance(learner, Parts)
    return learner


@pytest.mark.parametrize("fold", [False, True])
def test_features_and_logits_are_rounded_but_float32(fold: bool) -> None:
    exact, rough = (
        Classifier(SHAPE, classes=5, width=4, seed=2, precision=p).eval()
        for p in ("float32", "bfloat16")
    )
    x = torch.from_numpy(np.random.default_rng(0).random((6, *SHAPE), dtype=np.float32))
    outputs = []
    for model in (exact, rough):
        if fold:
            with fused_bn(model):
                outputs.append((model.embed(x), model(x)))
        else:
            outputs.append((model.embed(x), model(x)))
    for a, b in zip(*outputs, strict=True):
        assert a.dtype == b.dtype == torch.float32
        assert not torch.equal(a, b)
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)


def test_gradients_are_float32_and_nothing_stays_cast_outside() -> None:
    model = Classifier(SHAPE, classes=5, width=4, precision="bfloat16")
    F.cross_entropy(model(torch.rand(4, *SHAPE)), torch.tensor([0, 1, 2, 3])).backward()
    assert {
        parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None
    } == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


def test_a_model_can_be_looked_at_exactly() -> None:
    exact, rough = (
        Classifier(SHAPE, classes=5, width=4, seed=2, precision=p).eval()
        for p in ("float32", "bfloat16")
    )
    x = torch.from_numpy(np.random.default_rng(0).random((6, *SHAPE), dtype=np.float32))
    with in_float32(rough):
        assert torch.equal(rough(x), exact(x))
    assert rough.precision == "bfloat16" and not torch.equal(rough(x), exact(x))


def test_a_saved_learner_keeps_its_precision(tmp_path) -> None:
    learner = trained("er", "bfloat16")
    save(learner, tmp_path / "learner")
    found = load(tmp_path / "learner")
    assert isinstance(found, Parts) and found.model.precision == "bfloat16"
    assert create("er", shape=SHAPE).model.precision == "float32"
