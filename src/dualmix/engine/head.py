"""What comes behind the features, with the same bytes on every CPU: linear head, cross-entropy,
step, small sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from ctypes import c_int64, c_void_p
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dualmix.engine.library import Matrix, library
from dualmix.errors import InputError


def _plain(tensor: Tensor, what: str) -> Tensor:
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
        raise InputError(
            f"The native engine takes float32 {what} on a CPU, "
            f"not {tensor.dtype} on {tensor.device}."
        )
    return tensor


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices of any layout, or of two stacks of as many; no gradients
    flow.

    Every number is one chain of fused multiply-adds along the inner side.
    """
    a, b = _plain(a.detach(), "matrices"), _plain(b.detach(), "matrices")
    if (
        a.dim() < 2
        or a.dim() != b.dim()
        or a.shape[:-2] != b.shape[:-2]
        or a.shape[-1] != b.shape[-2]
    ):
        raise InputError(f"Matrices of {tuple(a.shape)} and {tuple(b.shape)} have no product.")
    if a.dim() > 2:
        return torch.stack([matmul(*pair) for pair in zip(a, b, strict=True)])
    native, (rows, depth), columns = library(), a.shape, b.shape[1]
    out = torch.zeros(rows, columns)
    if rows and columns and depth:
        work = torch.empty(native.dm_matmul_space(rows, columns, depth))
        sides = [Matrix(side.data_ptr(), *side.stride()) for side in (a, b, out)]
        native.dm_matmul(sides[0], sides[1], rows, columns, depth, sides[2], work.data_ptr())
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return matmul(x, weight.T).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        ones = torch.ones(1, len(slope))
        return matmul(slope, weight), matmul(slope.T, x), matmul(ones, slope)[0]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x weight' + bias, as `torch.nn.functional.linear` does."""
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor, reduction: str) -> Tensor:
        rows, columns = logits.shape
        z, hard = _plain(logits, "logits").contiguous(), y.dim() == 1
        labels = y.to(torch.int64).contiguous() if hard else _plain(y, "labels").contiguous()
        losses, slopes = torch.empty(rows, dtype=torch.float64), torch.empty_like(z)
        address = labels.data_ptr()
        library().dm_cross_entropy(
            z.data_ptr(),
            rows,
            columns,
            address if hard else None,
            None if hard else address,
            losses.data_ptr(),
            slopes.data_ptr(),
        )
        ctx.mean = reduction == "mean"
        ctx.save_for_backward(slopes)
        return _mean(losses) if ctx.mean else losses.float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * (slope / len(slopes) if ctx.mean else slope[:, None]), None, None


def _mean(losses: Tensor) -> Tensor:
    """Return the mean of float64 numbers as float32, rounded once on the way."""
    rows = losses.tolist()
    return torch.tensor(math.fsum(rows) / len(rows) if rows else float("nan"), dtype=torch.float32)


def cross_entropy(logits: Tensor, y: Tensor, reduction: Literal["mean", "none"] = "mean") -> Tensor:
    """Return the cross-entropy of columns (n,) or of soft rows (n, K), with exp and log of our own.

    A logit of -inf takes no part: its probability and its gradient are 0, and a share of 0 for it
    costs nothing.

    Raises
    ------
    InputError
        A label is no column, or soft rows are not as wide as the logits.
    """
    if logits.dim() != 2 or len(y) != len(logits) or (y.dim() == 2 and y.shape != logits.shape):
        raise InputError(f"Labels {tuple(y.shape)} do not belong to logits {tuple(logits.shape)}.")
    if y.dim() == 1 and len(y) and not 0 <= int(y.min()) <= int(y.max()) < logits.shape[1]:
        raise InputError(f"A label is outside the {logits.shape[1]} columns.")
    out: Tensor = _CrossEntropy.apply(logits, y, reduction)  # type: ignore[no-untyped-call]
    return out


def softmax(logits: Tensor) -> Tensor:
    """Return the probabilities of rows of logits: the slopes of the cross-entropy of column 0, and
    1 more in that column.
    """
    z = logits.detach().requires_grad_()
    with torch.enable_grad():
        first = torch.zeros(len(z), dtype=torch.int64)
        (slopes,) = torch.autograd.grad(cross_entropy(z, first, "none").sum(), z)
    slopes[:, 0] += 1
    return slopes


def _dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def descend(
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float = 0.0,
    sound: Callable[[Tensor], Tensor | None] = lambda length: None,
) -> None:
    """Take a step of plain SGD, in place: w - lr * (gradient + decay * w), each operation rounded
    by itself.

    Parameters
    ----------
    sound
        Is shown lr times the gradient's length before the step is taken, and may raise; where it
        returns a tensor that is false the weights stay as they are.
    """
    moved = [weight for weight in parameters if weight.grad is not None and weight.numel()]
    if not moved:
        return
    places, slopes = [], []
    for weight in moved:
        slope = weight.grad
        assert slope is not None
        place = _plain(weight, "weights") if _dense(weight) else weight.contiguous()
        if _plain(slope, "gradients").stride() != place.stride():
            slope = torch.empty_like(place).copy_(slope)
        places.append(place)
        slopes.append(slope)
    native, many = library(), len(moved)
    counts = (c_int64 * many)(*(place.numel() for place in places))
    from_, to = ((c_void_p * many)(*(t.data_ptr() for t in some)) for some in (slopes, places))
    goes = sound(torch.tensor(lr * native.dm_length(from_, counts, many), dtype=torch.float32))
    if goes is not None and not bool(goes):
        return
    native.dm_descend(to, from_, counts, many, lr, weight_decay)
    for weight, place in zip(moved, places, strict=True):
        if place is not weight:
            weight.copy_(place)
        torch.autograd.graph.increment_version(weight)


def unit(rows: Tensor) -> Tensor:
    """Return rows over their L2 norms; no gradients flow."""
    return rows.detach() / row_norms(rows).clamp_min(1e-12)[:, None]


def total(values: Tensor) -> Tensor:
    """Return the sum of all numbers, rounded once; no gradients flow."""
    return torch.tensor(math.fsum(values.detach().flatten().tolist()), dtype=torch.float32)


def row_norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row; the squares are added up in float64, one after the other."""
    columns = rows.detach().double().square().cumsum(1)
    return columns[:, -1].sqrt().float() if columns.shape[1] else rows.new_zeros(len(rows))
