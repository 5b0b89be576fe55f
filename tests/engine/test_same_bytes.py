"""Training gives the same bytes with every build, and with the libraries between the engine's calls
told to use other instructions.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dualmix import engine
from dualmix.learn import augment
from dualmix.learn.arithmetic import TORCH
from dualmix.learn.losses import cross_entropy
from tests.engine.building import needs_engine
from tests.engine.trained import METHODS, TOLD, told, trained

pytestmark = needs_engine


@pytest.fixture(autouse=True)
def fastest():
    yield
    engine.select()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_builds(method: str) -> None:
    found = {name: trained(method, name) for name in engine.available()}
    assert len(set(found.values())) == 1, found
    assert found["portable"] != trained(method, "portable", steps=9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["torch, SSE", *(pytest.param(how, marks=pytest.mark.long) for how in TOLD)]
)
def test_other_instructions(how: str) -> None:
    assert told(["er+dualmix", engine.available()[0]], how) == trained("er+dualmix", "portable")


def images(channels: int = 3) -> torch.Tensor:
    x = torch.rand(6, channels, 15, 20, generator=torch.Generator().manual_seed(0))
    x[0, :, :4] = x[0, :1, :4]  # without colour, ...
    x[1, :, 3:5], x[2, -1] = 1.0, 0.0  # ... at the ends of the range
    return x


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_those_of_torch(channels: int) -> None:
    rng, x = np.random.default_rng(0), images(channels)
    before = x.clone()
    boxes = augment.Crop().boxes(6, (15, 20), rng)
    torch.testing.assert_close(engine.crop(x, boxes), TORCH.crop(x, boxes))
    torch.testing.assert_close(engine.crop(x, np.array([[0, 0, 15, 20]] * 6)), x, rtol=0, atol=0)
    amount = rng.uniform(0.5, 1.5, (6, 4)).astype(np.float32) - np.float32([0, 0, 0, 1])
    order = rng.permuted(np.tile(np.arange(4), (6, 1)), axis=1)
    order[5, 2:] = -1
    for laid_out in (x, x.to(memory_format=torch.channels_last)):
        ours = engine.jitter(laid_out, amount, order, augment.GREY)
        torch.testing.assert_close(ours, augment.jitter(x, amount, order), rtol=0, atol=2e-6)
    assert torch.equal(x, before)
    if channels == 3:
        torch.testing.assert_close(engine.grey(x, augment.GREY), augment.grey(x))


@pytest.mark.parametrize("name", augment.NAMES)
def test_both_engines_draw_the_same_augmentation(name: str) -> None:
    one, two = (
        augment.transform(name, engine=by)(images(), np.random.default_rng(3))
        for by in ("torch", "native")
    )
    torch.testing.assert_close(one, two, rtol=0, atol=2e-6)


@pytest.mark.parametrize("softmax", ["all", "labels", "separated"])
@pytest.mark.parametrize("old", [0, 2])
def test_losses_are_those_of_torch(softmax: str, old: int) -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4, 6, generator=g).requires_grad_()
    rows = torch.rand(4, 6, generator=g)
    rows[:, 4:] = 0
    for y in (torch.tensor([0, 3, 2, 1]), rows / rows.sum(1, keepdim=True)):
        found = [
            cross_entropy(z, y, softmax, old=old, known=4, by=by)
            for by in (TORCH, augment.arithmetic("native"))
        ]
        torch.testing.assert_close(*found)
        torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in found))


def test_sums() -> None:
    rows = torch.randn(5, 33, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(engine.unit(rows), TORCH.unit(rows))
    assert float(engine.total(torch.tensor([1e8, 1.0, -1e8, 1.0]))) == 2
