"""Layers and networks of the engine against torch in float64; the same bytes from every build."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from dualmix import engine
from tests.engine.building import HERE, compiled, needs_compiler, needs_engine
from tests.engine.layers import TIMES, Convolution, Network, Norm, address, compare

pytestmark = [needs_engine, needs_compiler]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("probe")
    return {name: compiled(HERE / "probe.c", folder, build=name) for name in engine.available()}


@pytest.fixture(autouse=True)
def fastest():
    yield
    engine.select()


CONVOLUTIONS = [
    Convolution(2, 3, 8, 8, 20, 3, 1),
    Convolution(20, 20, 32, 32, 20, 3, 1),
    Convolution(5, 20, 32, 32, 40, 3, 2),
    Convolution(3, 5, 21, 11, 7, 3, 2),
    Convolution(1, 1, 9, 13, 1, 3, 1),
    Convolution(128, 4, 8, 9, 3, 3, 1),
    Convolution(1, 3, 96, 95, 2, 3, 1),
    Convolution(2, 64, 10, 10, 64, 3, 1),
    Convolution(4, 20, 15, 18, 40, 1, 2),
    Convolution(3, 7, 12, 9, 13, 1, 1),
]


DRAWN = [Convolution.draw(np.random.default_rng(seed)) for seed in range(12)]


@pytest.mark.parametrize("layer", [*CONVOLUTIONS, *DRAWN], ids=str)
@pytest.mark.slow
def test_convolution(layer: Convolution, builds: dict[str, ctypes.CDLL]) -> None:
    times = compare(layer.run(builds[engine.available()[0]]))
    assert max(times.values()) < TIMES, times


@pytest.mark.parametrize(
    "layer", [Norm.draw(np.random.default_rng(seed)) for seed in range(16)], ids=str
)
def test_norm(layer: Norm, builds: dict[str, ctypes.CDLL]) -> None:
    times = compare(layer.run(builds[engine.available()[0]]))
    assert max(times.values(), default=0) < 2, times


@pytest.mark.parametrize(
    "layer", [Network.draw(np.random.default_rng(seed)) for seed in range(12)], ids=str
)
def test_network(layer: Network) -> None:
    times = compare(layer.run())
    assert max(times.values()) < TIMES, times


def test_sums_of_long_maps_lose_no_digits(builds: dict[str, ctypes.CDLL]) -> None:
    made = Norm((64,), 2, 84, 84, training=True, relu=False, add=False).run(
        builds[engine.available()[0]]
    )
    ours, _, true = made["mean"]
    assert float((ours.double() - true).abs().max()) < 1.5e-7 * float(true.abs().max())
    ours, _, true = made["shift"]
    assert float((ours.double() - true).abs().max()) < 1e-6 * float(true.abs().max())


@pytest.mark.parametrize(
    "layer",
    [
        Convolution(3, 5, 13, 21, 7, 3, 1),
        Convolution(2, 20, 16, 16, 40, 3, 2),
        Convolution(2, 17, 9, 9, 33, 1, 2),
        Norm((3, 1, 5), 3, 11, 14, training=True, relu=True, add=True),
        Norm((2, 20), 2, 8, 8, training=True, relu=True, add=False),
    ],
    ids=str,
)
def test_builds_give_the_same_bytes(
    layer: Convolution | Norm, builds: dict[str, ctypes.CDLL]
) -> None:
    first, *others = [layer.run(library) for library in builds.values()]
    for other in others:
        for part, (ours, _, _) in first.items():
            assert ours.numpy().tobytes() == other[part][0].numpy().tobytes(), part


@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_does_not_depend_on_how_many_stand_beside_it(
    stride: int, builds: dict[str, ctypes.CDLL]
) -> None:
    """Taps are transformed piece by piece for few tiles, and all at once for many."""
    g = torch.Generator().manual_seed(3)
    x, taps = torch.randn(40, 43, 8, 8, generator=g), torch.randn(45, 43, 3, 3, generator=g)
    dy = torch.randn(40, 45, 8 // stride, 8 // stride, generator=g)

    def run(images: int) -> list[torch.Tensor]:
        y, dx = torch.empty_like(dy[:images]), torch.empty_like(x[:images])
        numbers = (images, 43, 8, 8, 45, 3, stride)
        tensors = (x[:images], taps, dy[:images], y, dx, torch.empty_like(taps))
        next(iter(builds.values())).probe_convolution(
            *map(ctypes.c_int64, numbers), *map(address, tensors)
        )
        return [y, dx]

    for few, many in zip(run(16), run(40), strict=True):
        assert few.numpy().tobytes() == many[:16].numpy().tobytes()


def test_networks_give_the_same_bytes() -> None:
    layer = Network(3, 18, 13, 5, (3, 2), training=True)
    found = []
    for name in engine.available():
        engine.select(name)
        found.append(
            {part: tensors[0].detach().numpy().tobytes() for part, tensors in layer.run().items()}
        )
    assert all(each == found[0] for each in found)


def test_weights_in_another_layout_give_the_same_bytes() -> None:
    torch.manual_seed(0)
    from dualmix.learn.backbones import ReducedResNet18, initialise

    network = ReducedResNet18((3, 16, 16), 6)
    initialise(network, 0)
    x = torch.rand(4, 3, 16, 16)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        network.to(memory_format=layout).zero_grad()
        out = engine.features(network, x.to(memory_format=layout), [2, 2])
        out.square().sum().backward()
        slopes = [weight.grad.contiguous().numpy().tobytes() for weight in network.parameters()]
        found.append([out.detach().numpy().tobytes(), *slopes])
    assert found[0] == found[1]
