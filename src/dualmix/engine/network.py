"""Features of a reduced ResNet-18 on a CPU, with gradients, and its evaluation with batch-norm
folded in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dualmix.engine.library import MOST_BLOCKS, Block, Layer, Net, Space, library
from dualmix.errors import InputError


class Backbone(Protocol):
    """A stem, blocks and 4x4 average pooling: what `ReducedResNet18` is."""

    @property
    def stem(self) -> nn.Conv2d:
        """The first convolution."""

    bn: nn.BatchNorm2d
    blocks: nn.Sequential
    features: int


class _Pass:
    """One call: network, images and groups, as the library wants to know them."""

    def __init__(self, backbone: Backbone, x: Tensor, sizes: Sequence[int], training: bool) -> None:
        _check(x, backbone.stem.in_channels)
        self.features = backbone.features
        self.x_stride = (ctypes.c_int64 * 4)(*x.stride())
        self.layers = _layers(backbone)
        images, channels, height, width = x.shape
        net = self.net = Net(images, channels, height, width, backbone.stem.out_channels)
        for number, block in enumerate(backbone.blocks):
            one: Any = block.conv1
            project = isinstance(block.shortcut, nn.Sequential)
            net.block[number] = Block(one.in_channels, one.out_channels, one.stride[0], project)
        net.blocks = len(backbone.blocks)
        self.group(sizes)
        net.training = training
        if training and min(sizes) * self._last_pixels() < 2:
            raise InputError(
                "A batch of one image leaves batch-norm one pixel a channel: there is no variance."
            )

    def group(self, sizes: Sequence[int]) -> None:
        """Say which images share their statistics."""
        images = self.net.images
        if sum(sizes) != images or (images and min(sizes) < 1):
            raise InputError(f"Groups of {list(sizes)} images do not make up {images} images.")
        first = [0]
        for size in sizes:
            first.append(first[-1] + size)
        self.first = (ctypes.c_int64 * len(first))(*first)
        self.net.groups, self.net.first = len(sizes), self.first

    def _last_pixels(self) -> int:
        height, width = self.net.height, self.net.width
        for number in range(self.net.blocks):
            if self.net.block[number].stride == 2:
                height, width = (height + 1) // 2, (width + 1) // 2
        return int(height * width)

    def table(self, slopes: Sequence[Tensor] = (), apart: bool = False) -> ctypes.Array[Layer]:
        """Return all layers with their weights, and where their gradients go."""
        table = (Layer * len(self.layers))()
        for number, one in enumerate(self.layers):
            layer = table[number]
            layer.taps, layer.stride[:] = one.taps.data_ptr(), one.taps.stride()
            layer.scale, layer.shift = one.scale.data_ptr(), one.shift.data_ptr()
            layer.mean, layer.var = one.mean.data_ptr(), one.var.data_ptr()
            layer.eps, layer.momentum = one.eps, one.momentum
            if slopes:
                taps, scale, shift = slopes[3 * number : 3 * number + 3]
                layer.taps_slope = taps.data_ptr()
                layer.scale_slope, layer.shift_slope = scale.data_ptr(), shift.data_ptr()
                layer.slope_stride[:] = taps.stride()[1:] if apart else taps.stride()
        return table

    def forward(self, x: Tensor, tape: bool) -> tuple[Tensor, Space]:
        """Return the features and the maps, which a backward pass needs if there is a tape."""
        native, net = library(), self.net
        net.tape = tape
        maps = Space(native.dm_maps_space(net))
        scratch = Space(native.dm_scratch_space(net, tape))  # the backward pass takes it next
        out = torch.empty(net.images, self.features)
        native.dm_forward(
            net,
            self.table(),
            x.data_ptr(),
            self.x_stride,
            maps.address,
            scratch.address,
            out.data_ptr(),
        )
        if net.training:
            for one in self.layers:
                if one.batches is not None:
                    one.batches.add_(net.groups)
        return out, maps

    def backward(
        self, slope: Tensor, maps: Space, dx: Tensor | None, slopes: Sequence[Tensor]
    ) -> None:
        """Fill the gradients of the weights and, if wanted, of the images."""
        native, net = library(), self.net
        slope = slope.contiguous()
        scratch = Space(native.dm_scratch_space(net, 1))
        native.dm_backward(
            net,
            self.table(slopes, bool(net.apart)),
            slope.data_ptr(),
            maps.address,
            scratch.address,
            None if dx is None else dx.data_ptr(),
            None if dx is None else (ctypes.c_int64 * 4)(*dx.stride()),
        )


class _Layer(NamedTuple):
    """The tensors of a convolution and of the batch-norm behind it."""

    taps: Tensor
    scale: Tensor
    shift: Tensor
    mean: Tensor
    var: Tensor
    batches: Tensor | None
    eps: float
    momentum: float


def _layers(backbone: Backbone) -> list[_Layer]:
    pairs: list[tuple[Any, Any]] = [(backbone.stem, backbone.bn)]
    for block in backbone.blocks:
        parts: Any = block._modules
        pairs += [(parts["conv1"], parts["bn1"]), (parts["conv2"], parts["bn2"])]
        if isinstance(parts["shortcut"], nn.Sequential):
            conv, norm = parts["shortcut"]
            pairs.append((conv, norm))
    if len(backbone.blocks) > MOST_BLOCKS:
        raise InputError(f"The native engine takes at most {MOST_BLOCKS} blocks.")
    found = []
    for conv, norm in pairs:  # dictionaries, because a module's attributes are slow to look up
        weights, buffers = norm._parameters, norm._buffers
        tensors = conv._parameters["weight"], weights["weight"], weights["bias"]
        running = buffers["running_mean"], buffers["running_var"]
        for tensor in (*tensors, *running):
            if tensor is None or tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
                _is_float32(tensor, "weights")
        if norm.momentum is None:
            raise InputError("The native engine needs a batch-norm with a momentum.")
        found.append(
            _Layer(*tensors, *running, buffers["num_batches_tracked"], norm.eps, norm.momentum)
        )
    return found


def _is_float32(tensor: Tensor | None, what: str) -> None:
    if tensor is None:
        raise InputError(
            "The native engine needs a batch-norm with weights and running statistics."
        )
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
        raise InputError(
            f"The native engine takes float32 {what} on a CPU, "
            f"but these are {tensor.dtype} on {tensor.device}: "
            "use the torch engine."
        )


def _check(x: Tensor, channels: int) -> None:
    _is_float32(x, "images")
    if x.dim() != 4 or min(x.shape[2:]) < 4:
        raise InputError(
            f"Images must be (n, channels, height, width) from 4x4 pixels on, not {tuple(x.shape)}."
        )
    if x.shape[1] != channels:
        raise InputError(f"Images have {x.shape[1]} channels, but the network takes {channels}.")


class _Features(torch.autograd.Function):
    """The whole backbone as one function of images and weights."""

    @staticmethod
    def forward(ctx: Any, call: _Pass, x: Tensor, *weights: Tensor) -> Tensor:
        """Run the network and keep its maps."""
        out, ctx.maps = call.forward(x, tape=True)
        ctx.call, ctx.like = call, x
        ctx.save_for_backward(*weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of images and weights."""
        weights = ctx.saved_tensors
        slopes = [torch.empty_like(weight) for weight in weights]
        dx = torch.empty_like(ctx.like) if ctx.needs_input_grad[1] else None
        ctx.call.backward(slope, ctx.maps, dx, slopes)
        needed = ctx.needs_input_grad[2:]
        return (
            None,
            dx,
            *(each if needs else None for each, needs in zip(slopes, needed, strict=True)),
        )


def features(
    backbone: Backbone,
    x: Tensor,
    groups: Sequence[int] | None = None,
    *,
    training: bool | None = None,
) -> Tensor:
    """Return one feature vector an image, through which gradients flow to the weights and, if it
    asks, to x.

    Parameters
    ----------
    x
        (n, C, H, W), float32, in any memory format.
    groups
        Sizes of consecutive batches, each with statistics of its own; the running statistics follow
        them in order. None: one batch.
    training
        Whether batch-norm takes the statistics of each batch, or the running ones; None: as its
        mode says.

    Raises
    ------
    InputError
        Images or weights are not float32 on a CPU, or the groups do not make up the batch.
    """
    training = backbone.bn.training if training is None else training
    if not len(x):
        return x.new_zeros(0, backbone.features)
    call = _Pass(backbone, x, groups or [len(x)], training)
    weights = [tensor for one in call.layers for tensor in one[:3]]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights)):
        out: Tensor = _Features.apply(call, x, *weights)  # type: ignore[no-untyped-call]
        return out
    return call.forward(x, tape=False)[0]


def each_gradient(backbone: Backbone, x: Tensor, slope: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the gradient of each image's loss, with running statistics: (n, *shape) for each of
    the parameters.

    Parameters
    ----------
    slope
        Makes of the features (n, F) the gradient (n, F) of each image's own loss.
    """
    call = _Pass(backbone, x, [1] * len(x), training=False)
    out, maps = call.forward(x, tape=True)
    call.net.apart = True
    slopes = [torch.empty((len(x), *tensor.shape)) for one in call.layers for tensor in one[:3]]
    call.backward(slope(out), maps, None, slopes)
    return slopes


class Folded:
    """A network in evaluation mode as it is now: weights are prepared once, for any number of
    images.
    """

    PIXELS = 1 << 14
    """Of the images that are evaluated together: their maps stay in the caches."""

    def __init__(self, backbone: Backbone) -> None:
        self.features, self.channels = backbone.features, backbone.stem.in_channels
        native, shape = library(), (1, self.channels, 4, 4)
        call = _Pass(backbone, torch.empty(shape), [1], training=False)
        self.net = call.net
        self.space = Space(native.dm_folded_space(call.net))
        native.dm_fold(call.net, call.table(), self.space.address)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of images, without gradients."""
        _check(x, self.channels)
        out = torch.empty(len(x), self.features)
        at_once = max(1, self.PIXELS // x.shape[-2:].numel())
        pieces = max(1, round(len(x) / at_once))  # a short rest costs as much as a whole piece
        for number in range(pieces if len(x) else 0):
            to = None if number == pieces - 1 else (number + 1) * at_once
            part = slice(number * at_once, to)
            self._evaluate(x[part], out[part])
        return out

    def _evaluate(self, x: Tensor, out: Tensor) -> None:
        native, net = library(), Net.from_buffer_copy(self.net)  # threads share this network
        net.images, _, net.height, net.width = x.shape
        first = (ctypes.c_int64 * 2)(0, len(x))
        net.first = first
        maps, scratch = Space(native.dm_maps_space(net)), Space(native.dm_scratch_space(net, 0))
        native.dm_evaluate(
            net,
            self.space.address,
            x.data_ptr(),
            (ctypes.c_int64 * 4)(*x.stride()),
            maps.address,
            scratch.address,
            out.data_ptr(),
        )


def evaluate(backbone: Backbone, x: Tensor) -> Tensor:
    """Return features in evaluation mode, without gradients; `Folded` does it for many batches."""
    return Folded(backbone)(x)
