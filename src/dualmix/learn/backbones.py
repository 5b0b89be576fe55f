"""Backbones by name: what turns images or vectors into features, for a linear head to read.

ResNet: He et al., 2016, arXiv:1512.03385. The reduced ResNet-18, with fewer channels per layer:
Lopez-Paz and Ranzato, 2017, arXiv:1706.08840."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix import engine as native
from dualmix.errors import ConfigError
from dualmix.learn.arithmetic import Engine
from dualmix.learn.types import Shape
from dualmix.plugins import keep_backbone
from dualmix.registry import nearest
from dualmix.rng import generator

REDUCED = "reduced-resnet18"
FARTHEST = 10.0
"""Deviations from the mean beyond which a standardised number is cut off: a feature that was
constant so far would otherwise fill the whole vector when it first moves."""


POOL = 4
NARROW = 16
"""Below this many channels oneDNN's strided 1x1 convolution overruns its workspace
(uxlfoundation/oneDNN#6035).
"""


class Conv(nn.Conv2d):
    """A convolution of zeros until `initialise` fills it: torch's own generator, which is global,
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
        shape: Shape = (3, 32, 32),
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


class Standardise(nn.Module):
    """Take off the mean and divide by the deviation of all rows that were learned so far.

    Running sums over the whole stream, and not batch-norm: vectors of any range are usable from the
    first batch on, a batch of one row too, and answers do not lag behind."""

    count: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("spread", torch.zeros(features, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return standardised rows; in training mode they count first."""
        if self.training:
            self._add(x.detach().double())
        variance = self.spread / self.count.clamp(min=1)
        deviation = torch.where(variance > 0, variance, torch.ones_like(variance)).sqrt()
        return ((x - self.mean) / deviation).clamp(-FARTHEST, FARTHEST).to(x.dtype)

    def _add(self, rows: Tensor) -> None:
        """Join the sums of squares of two groups of rows (Chan et al., 1983)."""
        mean = rows.mean(0)
        total, apart = self.count + len(rows), mean - self.mean
        self.spread += (rows - mean).square().sum(0) + apart.square() * (
            self.count * len(rows) / total
        )
        self.mean += apart * (len(rows) / total)
        self.count += len(rows)

    def restart(self) -> None:
        """Forget all rows."""
        for sums in (self.count, self.mean, self.spread):
            sums.zero_()


class Dense(nn.Linear):
    """A linear layer of zeros until `initialise` fills it: torch's own generator, which is
    global, draws nothing.
    """

    def reset_parameters(self) -> None:
        """Set weights and bias to zeros."""
        self.weight.data.zero_()
        self.bias.data.zero_()


class Linear(nn.Module):
    """The rows themselves as features, so that the head alone learns."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.features = math.prod(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Return one flat vector per row."""
        return x.flatten(1)


class MLP(nn.Module):
    """Standardised numbers through two layers of `hidden` units with ReLU."""

    def __init__(self, shape: Shape, hidden: int) -> None:
        super().__init__()
        self.scale = Standardise(math.prod(shape))
        self.inner, self.outer = Dense(math.prod(shape), hidden), Dense(hidden, hidden)
        self.features = hidden

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector of hidden units per row."""
        return F.relu(self.outer(F.relu(self.inner(self.scale(x.flatten(1))))))


class Basic(nn.Module):
    """A basic block of ResNet-18, with the names of parts that weight files have."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                Conv(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's feature map."""
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """ResNet-18 as for ImageNet: a 7x7 stem of stride 2, max-pooling, four stages of 64 to 512
    channels and the mean over the map.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.conv1 = Conv(shape[0], 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage in range(4):
            outputs, stride = 64 * 2**stage, 1 + (stage > 0)
            blocks = nn.Sequential(Basic(inputs, outputs, stride), Basic(outputs, outputs, 1))
            self.add_module(f"layer{stage + 1}", blocks)
            inputs = outputs
        self.features = inputs

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector of 512 numbers per image."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(4):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean((2, 3))


Maker = Callable[[Shape, int], nn.Module]
_MAKERS: dict[str, tuple[Maker, bool]] = {}


def register_backbone(name: str, *, images: bool = False) -> Callable[[Maker], Maker]:
    """Make a backbone known by a name: a function of the shape of a row and of `model.hidden` that
    returns a module.

    The module returns a vector per row. Weights of convolutions and linear layers are drawn from
    the run's seed afterwards; give `model.weights` to begin with others.

    Parameters
    ----------
    images
        It takes images only.
    """

    def keep(maker: Maker) -> Maker:
        if name in ("auto", REDUCED, *_MAKERS):
            raise ConfigError(f"There is a backbone {name!r} already: give yours another name.")
        _MAKERS[name] = maker, images
        keep_backbone(name, sys._getframe(1).f_globals["__name__"], maker)
        return maker

    return keep


def names() -> list[str]:
    """Return the names of all backbones."""
    return sorted([REDUCED, *_MAKERS])


def known(name: str) -> bool:
    """Whether a backbone may go by a name."""
    return name in ("auto", *names()) or importlib.util.find_spec("timm") is not None


def make(
    name: str, shape: Shape, *, seed: int, width: int, hidden: int, engine: Engine
) -> nn.Module:
    """Return the backbone of a name with weights drawn from a seed.

    Parameters
    ----------
    name
        ``auto``: reduced-resnet18 for images and mlp for vectors.
    width, hidden
        Channels of a reduced ResNet-18's first stage; units of what has hidden layers.
    """
    if name == "auto":
        name = "mlp" if len(shape) == 1 else REDUCED
    if engine == "native" and name != REDUCED:
        raise ConfigError(
            f"The native engine has no {name}: give --model.engine torch, or --model.name "
            f"{REDUCED}."
        )
    maker, images = _MAKERS.get(name, (None, name == REDUCED))
    if images and len(shape) != 3:
        raise ConfigError(f"{name} takes images, not vectors of {shape[0]}: give --model.name mlp.")
    if name == REDUCED:
        network: nn.Module = ReducedResNet18(shape, width, engine)
    elif maker is None:
        network = _from_timm(name, shape)
    else:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw from its global generator
            network = maker(shape, hidden)
        if not isinstance(network, nn.Module):
            raise ConfigError(f"The backbone {name!r} must be a torch module, not {network!r:.80}.")
    initialise(network, seed)
    return network


def _from_timm(name: str, shape: Shape) -> nn.Module:
    if not known(name):
        raise ConfigError(
            f"There is no backbone {name!r}: give {', '.join(names())}, --plugin with the file "
            "that registers it, or install timm for the names of its models."
        )
    try:
        import timm
    except Exception as fault:  # a torchvision that does not fit torch may raise anything
        raise ConfigError(
            f"There is no backbone {name!r} of dualmix's, and timm cannot be imported "
            f"({str(fault).splitlines()[0][:200]}): mend timm, or give {', '.join(names())}."
        ) from fault
    models = timm.list_models()
    if len(shape) != 3 or name not in models:
        raise ConfigError(
            f"Neither dualmix nor timm has a backbone {name!r} for rows of {shape}"
            f"{nearest(name, models)}: give {', '.join(names())} or a name of timm.list_models()."
        )
    with torch.random.fork_rng(devices=[]):  # timm draws from torch's global generator
        network: nn.Module = timm.create_model(name, num_classes=0, in_chans=shape[0])
    return network


def length_of(backbone: nn.Module, shape: Shape) -> int:
    """Return the length of a backbone's vectors: its `features`, or what it makes of two rows.

    Raises
    ------
    ConfigError
        It cannot take such rows, or returns something else than a vector for each.
    """
    if isinstance(known := getattr(backbone, "features", None), int):
        return known
    training = backbone.training
    like = next(backbone.parameters(), torch.empty(0))
    try:
        with torch.no_grad():
            made = backbone.eval()(torch.zeros(2, *shape, device=like.device))
    except Exception as fault:  # the module is the user's own: it may raise anything
        raise ConfigError(
            f"The backbone cannot take rows of {shape} ({type(fault).__name__}: "
            f"{str(fault).splitlines()[0][:200] if str(fault) else 'no message'}): give one for "
            "that shape."
        ) from fault
    finally:
        backbone.train(training)
    if not isinstance(made, Tensor) or made.ndim != 2 or len(made) != 2 or not made.shape[1]:
        got = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise ConfigError(
            f"The backbone must return one vector per row, (2, d) for two of them, not {got}: "
            "flatten what it returns."
        )
    return made.shape[1]


def initialise(backbone: nn.Module, seed: int) -> None:
    """Fill weights as torch does (uniform within 1/sqrt(fan-in)), but from our generator.

    What other layers hold is drawn alike, unless it is constant (a norm's ones and zeros)."""
    rng = generator(seed, "init")
    for module in backbone.modules():
        owned = [weight for weight in module._parameters.values() if weight is not None]
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_parameters()
        elif isinstance(module, Standardise):
            module.restart()
        elif isinstance(module, nn.Conv2d | nn.Linear) or not all(map(_constant, owned)):
            bound = 1 / math.sqrt(max(1, *(weight[0].numel() for weight in owned)))
            for weight in owned:
                drawn = rng.uniform(-bound, bound, tuple(weight.shape)).astype(np.float32)
                weight.data.copy_(torch.from_numpy(drawn))


def _constant(weight: Tensor) -> bool:
    return not weight.numel() or bool((weight.detach() == weight.detach().flatten()[0]).all())


register_backbone("linear")(lambda shape, hidden: Linear(shape))
register_backbone("mlp")(MLP)
register_backbone("resnet18", images=True)(lambda shape, hidden: ResNet18(shape))
