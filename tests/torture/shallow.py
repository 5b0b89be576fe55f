"""A network of one block in place of the reduced ResNet-18, whose depth no other promise needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal
from unittest.mock import patch

from torch import nn

from dualmix.errors import ConfigError
from dualmix.learn import backbones, network


class Shallow(backbones.ReducedResNet18):
    """The stem, one block and the pooling."""

    def __init__(
        self,
        shape: tuple[int, int, int] = (3, 32, 32),
        width: int = 20,
        engine: Literal["torch", "native"] = "torch",
    ) -> None:
        nn.Module.__init__(self)
        channels, *sides = shape
        if min(sides) < backbones.POOL:
            raise ConfigError(f"Images of {sides[0]}x{sides[1]} pixels are too small.")
        self.engine = engine
        self.stem = backbones.Conv(channels, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(backbones.Block(width, width, 1))
        self.features = width * math.prod(side // backbones.POOL for side in sides)


@contextmanager
def shallow(on: bool = True) -> Iterator[None]:
    """Make every network of this process a shallow one."""
    with ExitStack() as patches:
        for module in (backbones, network) if on else ():
            patches.enter_context(patch.object(module, "ReducedResNet18", Shallow))
        yield
