"""Operations on images that torch rounds differently on other CPUs, with the same bytes on all of
them.

Sums, products of matrices and `add(alpha)` depend on the CPU in torch; single operations on single
numbers do not."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def crop(x: Tensor, boxes: NDArray[np.int64]) -> Tensor:
    """Resize the box (top, left, height, width) of each image to the image's size, bilinear, edges
    repeated.

    Each pixel is a * (1 - share) + b * share of its two neighbours, first along the rows, then
    along the columns."""
    height, width = x.shape[-2:]
    image = torch.arange(len(x))[:, None, None]
    low, high, share = _neighbours(boxes[:, 1], boxes[:, 3], width)
    rows, pixels = torch.arange(height)[:, None], x.permute(0, 2, 3, 1)
    share = share[:, None, :, None]
    wide = (
        pixels[image, rows, low[:, None]] * (1 - share) + pixels[image, rows, high[:, None]] * share
    )
    low, high, share = _neighbours(boxes[:, 0], boxes[:, 2], height)
    share, image = share[:, :, None, None], image[:, :, 0]
    return (wide[image, low] * (1 - share) + wide[image, high] * share).permute(0, 3, 1, 2)


def _neighbours(
    start: NDArray[np.int64], length: NDArray[np.int64], size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each pixel of the result (n, size) its two source pixels and the share of the
    second.
    """
    at = (np.arange(size) + 0.5) * length[:, None] / size - 0.5
    at = np.clip(at, 0, length[:, None] - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, length[:, None] - 1)
    share = (at - low).astype(np.float32)
    return (
        torch.from_numpy(start[:, None] + low),
        torch.from_numpy(start[:, None] + high),
        torch.from_numpy(share),
    )


def means(x: Tensor) -> Tensor:
    """Return the mean of each image (n, 1, 1, 1), added up in float64 in order of pixels."""
    flat = x.detach().contiguous().flatten(1)
    sums = flat.double().cumsum(1)[:, -1:]
    return (sums / flat.shape[1]).float().view(-1, 1, 1, 1)


def grey(x: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """Return the weighted sum of three channels (n, 1, H, W), added up in order."""
    red, green, blue = (
        channel * weight for channel, weight in zip(x.unbind(1), weights, strict=True)
    )
    return ((red + green) + blue)[:, None]
