"""The reduced ResNet-18 and a linear head that is fixed or grows with the classes.

ResNet: He et al., 2016, arXiv:1512.03385. The reduced ResNet-18, with fewer channels per layer:
Lopez-Paz and Ranzato, 2017, arXiv:1706.08840."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix import engine as native
from dualmix.errors import ConfigError, InputError
from dualmix.learn.arithmetic import Arithmetic, Engine, arithmetic
from dualmix.learn.types import Labels
from dualmix.rng import generator

POOL = 4
NARROW = 16
"""Below this many channels oneDNN's strided 1x1 convolution overruns its workspace
(uxlfoundation/oneDNN#6035).
"""


class Conv(nn.Conv2d):
    """A convolution of zeros until `_initialise` fills it: torch's own generator, which is global,
    draws nothing.
    """

    def reset_parameters(self) -> None:
        """Set the weights to zeros."""
        self.weight.data.zero_()


class Block(nn.Module):
    """conv-BN-ReLU-conv-BN plus shortcut, then ReLU; a 1x1 conv and BN on the shortcut where the
    shape changes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.thin = stride if inputs < NARROW else 1
        self.shortcut = (
            nn.Sequential(
                Conv(inputs, outputs, 1, stride // self.thin, bias=False), nn.BatchNorm2d(outputs)
            )
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's feature map."""
        out: Tensor = self.bn1(self.conv1(x)).relu_()
        out = self.bn2(self.conv2(out))
        return out.add_(self.shortcut(x[:, :, :: self.thin, :: self.thin])).relu_()


class ReducedResNet18(nn.Module):
    """Basic blocks [2, 2, 2, 2] of widths w, 2w, 4w, 8w on a 3x3 stem without max-pooling, then 4x4
    average pooling.

    A stage halves the map only while it stays at least as large as the pooling window, so that
    images below 32 pixels work too; at 32 pixels and above this is the network of the paper's
    baselines.

    Attributes
    ----------
    features
        Length of the feature vector: 160 at 32 pixels, 640 at 64 and at 84 (width 20).
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (3, 32, 32),
        width: int = 20,
        engine: Engine = "torch",
    ) -> None:
        super().__init__()
        self.engine: Engine = engine
        channels, *sides = shape
        if min(sides) < POOL:
            raise ConfigError(
                f"Images of {sides[0]}x{sides[1]} pixels are too small: the least is {POOL}x{POOL}."
            )
        self.stem = Conv(channels, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            halved = [math.ceil(side / 2) for side in sides]
            stride = 2 if stage and min(halved) >= POOL else 1
            sides = halved if stride == 2 else sides
            outputs = width * 2**stage
            blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.features = inputs * math.prod(side // POOL for side in sides)

    def forward(self, x: Tensor, groups: Sequence[int] | None = None) -> Tensor:
        """Return one feature vector per image.

        Parameters
        ----------
        groups
            Sizes of consecutive batches in `x`, each of which has a pass of its own: in training
            its own statistics. None: one batch.
        """
        if self.engine == "native":
            return native.features(self, x, groups)
        if groups is not None and len(groups) > 1:
            return torch.cat([self(part) for part in x.split(list(groups))])
        x = self.blocks(self.bn(self.stem(x)).relu_())
        return F.avg_pool2d(x, POOL).flatten(1)


class Classifier(nn.Module):
    """Backbone and linear head over raw labels, which take head columns in the order in which they
    are first seen.

    Parameters
    ----------
    shape
        (C, H, W) of the images.
    classes
        Columns of a fixed head, all of which take part in the softmax from the start; None: the
        head grows.
    seed
        Decides every initial weight; the row of a column is the same in a fixed and in a growing
        head.
    width
        Channels of the first stage.
    mean, std
        Channel statistics that normalise pixels in [0, 1]; empty: no normalisation.
    precision
        ``bfloat16``: the network is run under `torch.autocast`; weights, features and logits are
        float32 all the same.
    engine
        What runs the network: ``torch``, or ``native``, the C kernels of `dualmix.engine`.

    Attributes
    ----------
    cosine
        Above 0: logits are this many times the cosines of features and head rows, without a bias.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        classes: int | None = None,
        seed: int = 0,
        width: int = 20,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        precision: Literal["float32", "bfloat16"] = "float32",
        device: str | torch.device = "cpu",
        engine: Engine = "torch",
    ) -> None:
        super().__init__()
        if engine == "native" and (precision != "float32" or torch.device(device).type != "cpu"):
            raise ConfigError(
                "The native engine runs in float32 on a CPU: give model.engine torch, or device "
                "cpu and precision float32."
            )
        if engine == "native":
            native.current()
        if mean and len(mean) != shape[0]:
            raise ConfigError(
                f"model.mean has {len(mean)} numbers, but the images have {shape[0]} channels."
            )
        self.shape, self.classes, self.seed = shape, classes, seed
        self.precision: Literal["float32", "bfloat16"] = precision
        self.cosine = 0.0
        self.labels: list[int | str] = []
        self._fused: Callable[[Tensor], Tensor] | None = None
        self._columns: dict[int | str, int] = {}
        self.backbone = ReducedResNet18(shape, width, engine)
        _initialise(self.backbone, seed)
        self.weight = nn.Parameter(torch.empty(0, self.backbone.features))
        self.bias = nn.Parameter(torch.empty(0))
        self._grow(classes or 0)
        self.register_buffer("mean", torch.tensor(tuple(mean)).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(tuple(std)).view(-1, 1, 1), persistent=False)
        self._parts = tuple(self.modules())[1:]
        self.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Yield all weights in torch's order; torch's own walk costs a twentieth of a step."""
        for module in (self, *self._parts) if recurse else (self,):
            for weight in module._parameters.values():
                if weight is not None:
                    yield weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weight.device

    @property
    def arithmetic(self) -> Arithmetic:
        """The engine's sums and products."""
        return arithmetic(self.backbone.engine)

    def pixels(self, raw: Tensor) -> Tensor:
        """Turn uint8 rows (n, H, W, C) into floats (n, C, H, W) in [0, 1] without moving a byte of
        the layout.
        """
        return raw.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)

    def normalised(self, x: Tensor) -> Tensor:
        """Return images in [0, 1] as the backbone takes them."""
        return (x - self.mean) / self.std if len(self.mean) else x

    def embed(self, x: Tensor, groups: Sequence[int] | None = None) -> Tensor:
        """Return the features of images in [0, 1]; groups as in `ReducedResNet18.forward`."""
        normal = self.normalised(x)
        network = self._fused or partial(self.backbone, groups=groups)
        if self.precision == "float32":
            return network(normal)
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            return network(normal).float()

    def forward(self, x: Tensor, groups: Sequence[int] | None = None) -> Tensor:
        """Return logits over all columns; groups as in `ReducedResNet18.forward`."""
        features = self.embed(x, groups)
        if self.precision == "float32":
            return self._logits(features)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self._logits(features).float()

    def _logits(self, features: Tensor) -> Tensor:
        if not self.cosine:
            return self.arithmetic.linear(features, self.weight, self.bias)
        return self.cosine * F.linear(F.normalize(features), F.normalize(self.weight))

    def admit(self, labels: Labels) -> Tensor:
        """Return the head column of each raw label; a label never seen takes the next column.

        Raises
        ------
        InputError
            Text after numbers or numbers after text, or more classes than a fixed head has columns.
            Nothing changed.
        """
        raw = labels.tolist()
        fresh = list(dict.fromkeys(label for label in raw if label not in self._columns))
        if fresh and self.labels and type(fresh[0]) is not type(self.labels[0]):
            raise InputError(
                f"Labels so far are {type(self.labels[0]).__name__}, but {fresh[0]!r} is "
                f"{type(fresh[0]).__name__}: use one kind of label."
            )
        total = len(self.labels) + len(fresh)
        if self.classes is not None and total > self.classes:
            raise InputError(
                f"Label {fresh[-1]!r} is class number {total}, but the head was fixed at "
                f"{self.classes} classes: make the learner without classes and its head grows."
            )
        for label in fresh:
            self._columns[label] = len(self.labels)
            self.labels.append(label)
        if total > len(self.weight):
            self._grow(total)
        return torch.tensor([self._columns[label] for label in raw])

    def names(self, columns: Tensor) -> Labels:
        """Return the raw labels of head columns."""
        names: Labels = np.asarray(self.labels)[columns.cpu().numpy()]
        return names

    def restore(self, labels: Sequence[int] | Sequence[str], state: dict[str, Tensor]) -> None:
        """Take over labels and weights of another classifier of the same shape."""
        self.labels = list(labels)
        self._columns = {label: column for column, label in enumerate(self.labels)}
        self.weight = nn.Parameter(torch.empty_like(state["weight"], device=self.device))
        self.bias = nn.Parameter(torch.empty_like(state["bias"], device=self.device))
        self.load_state_dict(state)

    def reset(self) -> None:
        """Go back to the initial weights and statistics; labels keep their columns."""
        _initialise(self.backbone, self.seed)
        columns, device = len(self.weight), self.device
        self.weight = nn.Parameter(torch.empty(0, self.backbone.features, device=device))
        self.bias = nn.Parameter(torch.empty(0, device=device))
        self._grow(columns)

    def _grow(self, total: int) -> None:
        rows = [
            _head_row(self.seed, column, self.weight.shape[1])
            for column in range(len(self.weight), total)
        ]
        if rows:
            fresh = torch.from_numpy(np.stack(rows)).to(self.device)
            self.weight = nn.Parameter(_longer(self.weight.detach(), fresh[:, :-1]))
            self.bias = nn.Parameter(_longer(self.bias.detach(), fresh[:, -1]))


def _longer(rows: Tensor, more: Tensor) -> Tensor:
    """Return `rows` with `more` behind them, in the same storage where it has room for them.

    What is moved gets room for half as many rows again, so that a head which grows by one class per
    step is seldom moved."""
    known, total = len(rows), len(rows) + len(more)
    if rows.untyped_storage().nbytes() >= total * more[0].numel() * rows.element_size():
        longer = rows.as_strided((total, *rows.shape[1:]), rows.stride())
    else:
        longer = rows.new_empty((max(total, known * 3 // 2), *rows.shape[1:]))[:total]
        longer[:known] = rows
    longer[known:] = more
    return longer


def _head_row(
    seed: int, column: int, features: int
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    bound = 1 / math.sqrt(features)
    return generator(seed, "head", column).uniform(-bound, bound, features + 1).astype(np.float32)


def _initialise(backbone: nn.Module, seed: int) -> None:
    """Fill weights as torch does (uniform within 1/sqrt(fan-in)), but from our generator."""
    rng = generator(seed, "init")
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            bound = 1 / math.sqrt(module.weight[0].numel())
            drawn = rng.uniform(-bound, bound, tuple(module.weight.shape)).astype(np.float32)
            module.weight.data.copy_(torch.from_numpy(drawn))
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
