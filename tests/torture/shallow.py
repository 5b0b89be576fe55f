"""A network of one block in place of the reduced ResNet-18, whose depth no other promise needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn

from dualmix.errors import ConfigError
from dualmix.learn import network


class Shallow(network.ReducedResNet18):
    """The stem, one block and the pooling."""

    def __init__(
        self,
        shape: tuple[int, int, int] = (3, 32, 32),
        width: int = 20,
        engine: Literal["torch", "native"] = "torch",
    ) -> None:
        nn.Module.__init__(self)
        channels, *sides = shape
        if min(sides) < network.POOL:
            raise ConfigError(f"Images of {sides[0]}x{sides[1]} pixels are too small.")
        self.engine = engine
        self.stem = network.Conv(channels, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(network.Block(width, width, 1))
        self.features = width * math.prod(side // network.POOL for side in sides)


@contextmanager
def shallow(on: bool = True) -> Iterator[None]:
    """Make every network of this process a shallow one."""
    whole = network.ReducedResNet18
    network.ReducedResNet18 = Shallow if on else whole  # type: ignore[misc]
    try:
        yield
    finally:
        network.ReducedResNet18 = whole  # type: ignore[misc]
