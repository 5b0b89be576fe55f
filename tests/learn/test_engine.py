"""Every method runs on the native engine and stays close to what torch makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dualmix import testing
from dualmix.config.compose import NOT_BUILT, compose
from dualmix.config.fields import Model
from dualmix.engine import available
from dualmix.errors import ConfigError
from dualmix.learn.network import Classifier
from dualmix.learn.replay import SeparatePasses
from dualmix.learn.types import Batch
from dualmix.methods.gss import each_gradient
from dualmix.registry import get_method, presets
from dualmix.rng import Rng
from dualmix.runs.build import build, load, save
from tests.kit import SHAPE

needs_engine = pytest.mark.skipif(not available(), reason="the native engine was not built")
TINY = 1e-3
"""A learning rate at which rounding does not grow into another learner within a few steps."""


def losses(name: str, engine: str, *, frozen: bool = False) -> list[float]:
    known = get_method(presets()[name].kind).model_fields
    small = {"lr": TINY, "memory": 12}
    values = {f"method.{part}": value for part, value in small.items() if part in known}
    values["model.engine"] = engine
    method = compose(name, values).config.method
    model = Model(width=3, engine=engine, frozen=frozen)
    learner = build(method, SHAPE, seed=1, model=model)
    rng = np.random.default_rng(0)
    return [
        float(learner.observe(rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8), y))
        for y in ([0, 1, 0, 1, 0], [1, 1, 0, 0, 2], [2, 2, 3, 3, 3], [0, 3, 2, 1, 4])
    ]


@needs_engine
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=() if name == preset.kind or name.startswith("er+") else pytest.mark.long
        )
        for name, preset in sorted(presets().items())
    ],
)
@pytest.mark.slow
def test_a_method_learns_alike_on_both_engines(name: str) -> None:
    np.testing.assert_allclose(losses(name, "native"), losses(name, "torch"), rtol=2e-3)


@needs_engine
@pytest.mark.parametrize("name", sorted(n for n, found in presets().items() if n == found.kind))
def test_a_method_learns_alike_on_both_engines_with_a_frozen_backbone(name: str) -> None:
    native, torchs = (losses(name, engine, frozen=True) for engine in ("native", "torch"))
    np.testing.assert_allclose(native, torchs, rtol=2e-3)


QUICK = ("a_seed_decides_everything", "a_batch_of_one_works")


@needs_engine
@pytest.mark.parametrize(
    "demand",
    [
        pytest.param(demand, marks=() if demand in QUICK else pytest.mark.long)
        for demand in testing.CHECKS
        if demand != "every_choice_works"
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "er" else pytest.mark.slow)
        for name in sorted({preset.kind for preset in presets().values()})
    ],
)
def test_a_method_keeps_the_contract(
    name: str, demand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualmix.testing.trial.Model", partial(Model, engine="native"))
    testing.CHECKS[demand](compose(name).config.method, SHAPE)


class Watched(Classifier):
    """Writes down the groups of its passes."""

    groups: list[list[int] | None]

    def forward(self, x: torch.Tensor, groups: Sequence[int] | None = None) -> torch.Tensor:
        self.groups.append(None if groups is None else list(groups))
        return super().forward(x, groups)


def groups(values: dict[str, object], name: str = "er+dualmix") -> list[list[int] | None]:
    """Return the passes of a second step on the native engine."""
    method = compose(name, {"method.memory": 6, "method.memory_batch": 2, **values}).config.method
    model = Watched(SHAPE, width=2, engine="native")
    model.groups = []
    learner = method.build(model, Rng(0))
    x = np.random.default_rng(0).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    learner.observe(x, [0, 1, 2])
    model.groups.clear()
    learner.observe(x, [0, 1, 3])
    return model.groups


@needs_engine
def test_separate_passes_are_one_call() -> None:
    """New, rehearsed, view, EnMix and AdpMix together; a rule that looks at the network comes after
    the passes before it.
    """
    assert groups({}, "er") == [[3, 2]]
    assert groups({}) == [[3, 2, 2, 2, 3]]
    assert groups({"method.forward": "still"}) == [[3, 2], [2, 2, 3]]
    assert groups({"method.mix.ratio": "output"}) == [[3, 2, 2, 2], None, [3]]
    assert groups({"method.subsample": 4}, "mir") == [[3], None, None, [2]]


@needs_engine
def test_statistics_follow_separate_passes_in_their_order() -> None:
    """One call leaves the running statistics and logits that one pass after the other does."""
    batches = [
        Batch(torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(n)), torch.arange(n))
        for n in (3, 2, 4)
    ]
    ends = []
    for together in (True, False):
        model = Classifier(SHAPE, classes=4, width=2, engine="native").train()
        passes = SeparatePasses(model, lambda batch, logits: F.cross_entropy(logits, batch.y))
        for number, batch in enumerate(batches):
            passes.learn(batch, float(number))
            if not together:
                passes.catch_up()
        passes.finish()
        ends.append((model, passes))
    (one, at_once), (two, in_turn) = ends
    for name, value in one.named_buffers():
        assert torch.equal(value, dict(two.named_buffers())[name]), name
    assert at_once.logits[0] is None and in_turn.logits[0] is None
    for a, b in zip(at_once.logits[1:], in_turn.logits[1:], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)


@needs_engine
@pytest.mark.parametrize("frozen", [False, True])
def test_each_gradient_is_the_one_of_torch(frozen: bool) -> None:
    x = torch.from_numpy(np.random.default_rng(3).random((4, *SHAPE), dtype=np.float32))
    y = torch.tensor([0, 2, 1, 0])
    rows = {}
    for engine in ("torch", "native"):
        model = Classifier(
            SHAPE, classes=3, width=3, mean=(0.4,), std=(0.3,), engine=engine, frozen=frozen
        ).eval()
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


def test_a_machine_without_the_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compose", "fields"):
        monkeypatch.setattr(f"dualmix.config.{module}.available", list)
    composed = compose("er", {"model.engine": "auto"})
    assert composed.config.model.engine == "torch"
    assert composed.origins["model.engine"] == NOT_BUILT


def test_the_engine_is_part_of_the_key() -> None:
    here = {"data.name": "cifar100"}
    keys = {
        e: compose("er", {**here, "model.engine": e}).config.key("x") for e in ("torch", "native")
    }
    assert keys["torch"] == compose("er", here).config.key("x") != keys["native"]


def test_what_the_native_engine_cannot_do_is_said() -> None:
    with pytest.raises(ConfigError, match="runs in float32 on a CPU"):
        Classifier(SHAPE, precision="bfloat16", engine="native")
