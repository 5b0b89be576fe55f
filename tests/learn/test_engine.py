"""Every method runs on the native engine and stays close to what torch makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.engine import available
from dualmix.errors import ConfigError
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch
from dualmix.methods.gss import each_gradient
from dualmix.registry import presets
from dualmix.runs.build import build, load, save
from tests.kit import SHAPE

needs_engine = pytest.mark.skipif(not available(), reason="the native engine was not built")
TINY = 1e-3
"""A learning rate at which rounding does not grow into another learner within a few steps."""


def losses(name: str, engine: str) -> list[float]:
    values = {"method.lr": TINY, "model.engine": engine}
    values |= {} if name in ("finetune", "iid-offline", "iid-online") else {"method.memory": 12}
    method = compose(name, values).config.method
    learner = build(method, SHAPE, seed=1, model=Model(width=3, engine=engine))
    rng = np.random.default_rng(0)
    return [
        float(learner.observe(rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8), y))
        for y in ([0, 1, 0, 1, 0], [1, 1, 0, 0, 2], [2, 2, 3, 3, 3], [0, 3, 2, 1, 4])
    ]


@needs_engine
@pytest.mark.parametrize("name", sorted(presets()))
def test_a_method_learns_alike_on_both_engines(name: str) -> None:
    np.testing.assert_allclose(losses(name, "native"), losses(name, "torch"), rtol=2e-3)


@needs_engine
def test_each_gradient_is_the_one_of_torch() -> None:
    x = torch.from_numpy(np.random.default_rng(3).random((4, *SHAPE), dtype=np.float32))
    y = torch.tensor([0, 2, 1, 0])
    rows = {}
    for engine in ("torch", "native"):
        model = Classifier(SHAPE, classes=3, width=3, mean=(0.4,), std=(0.3,), engine=engine)
        rows[engine] = each_gradient(model, Batch(x, y))
    largest = rows["torch"].abs().max()
    torch.testing.assert_close(rows["native"], rows["torch"], rtol=0, atol=float(largest) * 1e-4)


@needs_engine
def test_a_saved_learner_goes_on_with_its_engine(tmp_path) -> None:
    method = compose("er").config.method
    learner = build(method, SHAPE, model=Model(width=3, engine="native"))
    x = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)
    learner.observe(x, [0, 1, 2, 0, 1, 2])
    save(learner, tmp_path / "learner.safetensors")
    again = load(tmp_path / "learner.safetensors")
    assert again.model.backbone.engine == "native"
    assert float(again.observe(x, [0, 1, 2, 0, 1, 2])) == float(
        learner.observe(x, [0, 1, 2, 0, 1, 2])
    )
    for a, b in zip(again.model.parameters(), learner.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_auto_is_written_down_as_what_it_stands_for() -> None:
    engine = compose("er", {"model.engine": "auto"}).config.model.engine
    assert engine == ("native" if available() else "torch")
    half = {"model.engine": "auto", "model.precision": "bfloat16"}
    assert compose("er", half).config.model.engine == "torch"


def test_the_engine_is_part_of_the_key() -> None:
    keys = {e: compose("er", {"model.engine": e}).config.key("x") for e in ("torch", "native")}
    assert keys["torch"] == compose("er").config.key("x") != keys["native"]


def test_what_the_native_engine_cannot_do_is_said() -> None:
    with pytest.raises(ConfigError, match="runs in float32 on a CPU"):
        Classifier(SHAPE, precision="bfloat16", engine="native")
