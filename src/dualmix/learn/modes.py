"""Ways to run a network for a while: in evaluation mode, in float32, with fused batch-norm, with
frozen batch-norm, or as it would be after a step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualmix.learn.lazy import F, torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dualmix.learn.network import Classifier

CHUNK = 50
"""Images that are looked at together: larger chunks are no quicker and take more memory."""


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode and without gradients; its statistics and mode stay as they
    were.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@contextmanager
def in_float32(model: Classifier) -> Iterator[None]:
    """Run a model in evaluation mode and in float32, whatever its precision."""
    precision, model.precision = model.precision, "float32"
    try:
        with eval_mode(model):
            yield
    finally:
        model.precision = precision


@contextmanager
def frozen_bn(model: nn.Module) -> Iterator[None]:
    """Let batch-norm use its running statistics and leave them alone, while gradients flow as in
    training.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    ]
    training = [norm.training for norm in norms]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm, mode in zip(norms, training, strict=True):
            norm.train(mode)


@contextmanager
def virtual_step(
    model: nn.Module, lr: float = 0.0, gradient: Sequence[Tensor] | None = None
) -> Iterator[None]:
    """Run a model as it would be after a plain step along a gradient; without one, as it is.

    Weights and statistics come back as they were.
    """
    weights, buffers = list(model.parameters()), list(model.buffers())
    kept = [(tensor, tensor.data) for tensor in (*weights, *buffers)]
    if gradient is not None:
        for weight, slope in zip(weights, gradient, strict=True):
            weight.data = weight.data.sub(slope, alpha=lr)
    for buffer in buffers:
        buffer.data = buffer.data.clone()
    try:
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def replica(model: Classifier) -> Classifier:
    """Return a copy of a model as it is now, to ask only: batch-norm is fused, and it shares no
    tensor that training changes.
    """
    twin = copy.copy(model)
    with torch.no_grad():
        twin._fused = _fuse(_corrected(model.backbone) if model.unbiased else model.backbone)
        twin._parameters = {
            name: torch.nn.Parameter(getattr(model, name).clone(), requires_grad=False)
            for name in model._parameters
        }
    twin.labels = list(model.labels)
    return twin


@contextmanager
def fused_bn(model: Classifier) -> Iterator[None]:
    """Run a model in evaluation mode with every batch-norm fused into its convolution: quicker,
    and equal but for rounding.
    """
    with eval_mode(model):
        model._fused = _fuse(model.backbone)
        try:
            yield
        finally:
            model._fused = None


def _corrected(network: nn.Module) -> nn.Module:
    """Return a copy whose batch-norms have running statistics without their start.

    After n batches a running mean with momentum m is a weighted mean of theirs and, by (1 - m)^n,
    of the 0 that it began with; the variance likewise began with 1 (the correction of Kingma and
    Ba, 2015, arXiv:1412.6980, section 3)."""
    twin = copy.deepcopy(network)
    for norm in twin.modules():
        if not isinstance(norm, torch.nn.modules.batchnorm._BatchNorm) or norm.momentum is None:
            continue
        tracked = norm.num_batches_tracked
        if norm.running_mean is None or norm.running_var is None or tracked is None:
            continue
        start = (1 - norm.momentum) ** tracked.double()
        if float(start) < 1:
            norm.running_mean.copy_(norm.running_mean.double() / (1 - start))
            norm.running_var.copy_(((norm.running_var.double() - start) / (1 - start)).clamp(min=0))
    return twin


def _fuse(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the network's features in evaluation mode as a function of images, with the weights
    that it has now.
    """
    from dualmix import engine
    from dualmix.learn.backbones import POOL, Block, ReducedResNet18

    if not isinstance(network, ReducedResNet18):
        twin = copy.deepcopy(network).eval().requires_grad_(False)
        return twin.forward  # a function: a module would become a part of the model
    if network.engine == "native":
        return engine.Folded(network)

    def fuse(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
        assert norm.running_mean is not None and norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        return conv.weight * scale.view(-1, 1, 1, 1), norm.bias - norm.running_mean * scale

    stem = fuse(network.stem, network.bn)
    blocks = []
    for block in network.blocks:
        assert isinstance(block, Block)
        first, second = fuse(block.conv1, block.bn1), fuse(block.conv2, block.bn2)
        shortcut = None
        if isinstance(block.shortcut, torch.nn.Sequential):
            conv, norm = block.shortcut
            assert isinstance(conv, torch.nn.Conv2d) and isinstance(norm, torch.nn.BatchNorm2d)
            shortcut = fuse(conv, norm)
        blocks.append((first, second, shortcut, block.conv1.stride[0], block.thin))

    def features(x: Tensor) -> Tensor:
        x = F.conv2d(x, *stem, 1, 1).relu_()
        for first, second, shortcut, stride, thin in blocks:
            out = F.conv2d(F.conv2d(x, *first, stride, 1).relu_(), *second, 1, 1)
            if shortcut is not None:
                x = F.conv2d(x[:, :, ::thin, ::thin], *shortcut, stride // thin)
            x = out.add_(x).relu_()
        return F.avg_pool2d(x, POOL).flatten(1)

    return features
