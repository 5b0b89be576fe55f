"""Sums and products whose last digits depend on who adds them up: torch, in the order of the CPU's
vectors, or the native engine, in one order on every CPU.

Operations on single numbers are rounded alike everywhere and need no choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dualmix import engine as native
from dualmix.learn.lazy import F, torch

if TYPE_CHECKING:
    from torch import Tensor, nn

Engine: TypeAlias = Literal["torch", "native"]
Reduction: TypeAlias = Literal["mean", "none"]
Sound: TypeAlias = "Callable[[Tensor], Tensor | None]"


class Arithmetic(Protocol):
    """What torch and the native engine both offer."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return x weight' + bias."""
        ...

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the product of two matrices, without gradients."""
        ...

    def cross_entropy(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Return the cross-entropy of columns (n,) or of soft rows (n, K)."""
        ...

    def softmax(self, logits: Tensor) -> Tensor:
        """Return the probabilities of rows of logits, without gradients."""
        ...

    def descend(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        sound: Sound = lambda length: None,
    ) -> None:
        """Take a step of plain SGD in place.

        Parameters
        ----------
        sound
            Is shown a length that is finite only if the step is, before it is taken, and may raise;
            where it returns a tensor that is false the weights stay as they are.
        """
        ...

    def row_norms(self, rows: Tensor) -> Tensor:
        """Return the L2 norm of each row, without gradients."""
        ...

    def unit(self, rows: Tensor) -> Tensor:
        """Return rows over their L2 norms, without gradients."""
        ...

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of some hundred numbers at most, without gradients."""
        ...

    def crop(self, x: Tensor, boxes: NDArray[np.int64]) -> Tensor:
        """Resize the box (top, left, height, width) of each image to the image's size, bilinear,
        edges repeated.
        """
        ...

    def grey(self, x: Tensor, weights: tuple[float, float, float]) -> Tensor:
        """Return the weighted sum of three channels (n, 1, H, W)."""
        ...


class _Torch:
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def cross_entropy(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        return F.cross_entropy(logits, y, reduction=reduction)

    def softmax(self, logits: Tensor) -> Tensor:
        return logits.detach().softmax(1)

    def descend(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        sound: Sound = lambda length: None,
    ) -> None:
        # by hand, because it is two lines and torch.optim takes seconds to load
        with torch.no_grad():
            moved = [weight for weight in parameters if weight.grad is not None]
            slopes: list[Tensor] = [weight.grad for weight in moved]  # type: ignore[misc]
            if weight_decay:
                slopes = [g.add(w, alpha=weight_decay) for w, g in zip(moved, slopes, strict=True)]
            if not slopes:
                return
            goes = sound(lr * torch.stack([torch.linalg.vector_norm(g) for g in slopes]).sum())
            for weight, slope in zip(moved, slopes, strict=True):
                weight.add_(slope if goes is None else torch.where(goes, slope, 0), alpha=-lr)

    def row_norms(self, rows: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(rows.detach(), dim=1)
        return norms

    def unit(self, rows: Tensor) -> Tensor:
        return F.normalize(rows, dim=1)

    def total(self, values: Tensor) -> Tensor:
        return values.sum()

    def crop(self, x: Tensor, boxes: NDArray[np.int64]) -> Tensor:
        height, width = x.shape[-2:]
        rows = _weights(boxes[:, 0], boxes[:, 2], height).to(x.device)
        columns = _weights(boxes[:, 1], boxes[:, 3], width).to(x.device)
        wide = torch.matmul(columns[:, None], x.permute(0, 2, 3, 1))
        tall = torch.matmul(rows, wide.flatten(2)).view(len(x), height, width, -1)
        return tall.permute(0, 3, 1, 2)

    def grey(self, x: Tensor, weights: tuple[float, float, float]) -> Tensor:
        return (x * x.new_tensor(weights).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _weights(start: NDArray[np.int64], length: NDArray[np.int64], size: int) -> Tensor:
    """Return (n, size, size) rows that weigh the two source pixels of each pixel of the result."""
    at = (np.arange(size) + 0.5) * length[:, None] / size - 0.5
    at = np.clip(at, 0, length[:, None] - 1)
    low = np.floor(at).astype(np.int64)
    share = (at - low).astype(np.float32)
    weights = np.zeros((len(start), size, size), dtype=np.float32)
    image, pixel = np.arange(len(start))[:, None], np.arange(size)
    weights[image, pixel, start[:, None] + low] = 1 - share
    weights[image, pixel, start[:, None] + np.minimum(low + 1, length[:, None] - 1)] += share
    return torch.from_numpy(weights)


TORCH: Arithmetic = _Torch()


def arithmetic(engine: Engine) -> Arithmetic:
    """Return the sums and products of an engine."""
    return native if engine == "native" else TORCH
