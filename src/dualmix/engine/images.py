"""Augmentations with the same bytes on every CPU."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualmix.engine.library import library
from dualmix.errors import InputError


def _inside(x: Tensor) -> Tensor:
    """Return images (n, H, W, C) in a row."""
    if x.dtype is not torch.float32 or x.device.type != "cpu" or x.dim() != 4:
        raise InputError(
            "The native engine augments float32 images (n, C, H, W) on a CPU, "
            f"not {x.dtype} {tuple(x.shape)} on {x.device}."
        )
    return x.detach().permute(0, 2, 3, 1).contiguous()


def crop(x: Tensor, boxes: NDArray[np.int64]) -> Tensor:
    """Resize the box (top, left, height, width) of each image to the image's size, bilinear, edges
    repeated.

    Each pixel is a * (1 - share) + b * share of its two neighbours, first along the rows, then
    along the columns."""
    images, where = _inside(x), np.ascontiguousarray(boxes, dtype=np.int64)
    count, height, width, channels = images.shape
    top, left, down, across = where.T
    fits = (top >= 0) & (left >= 0) & (top + down <= height) & (left + across <= width)
    if where.shape != (count, 4) or not (fits & (down > 0) & (across > 0)).all():
        raise InputError("Each image needs one box of at least one pixel that lies inside it.")
    out, work = torch.empty_like(images), torch.empty_like(images[:1])
    library().dm_crop(
        images.data_ptr(),
        count,
        height,
        width,
        channels,
        where.ctypes.data,
        work.data_ptr(),
        out.data_ptr(),
    )
    return out.permute(0, 3, 1, 2)


def jitter(
    x: Tensor,
    amount: NDArray[np.float32],
    order: NDArray[np.int64],
    weights: tuple[float, float, float],
) -> Tensor:
    """Change each image's brightness (0), contrast (1), saturation (2) and hue (3) by its amounts
    in its order, clipped to [0, 1] after every change.

    Parameters
    ----------
    amount
        (n, 4): three factors and a turn.
    order
        (n, 4): which change comes first, second, third, fourth; -1 for none.
    weights
        Of the channels in a grey.
    """
    images = _inside(x)
    images = images.clone() if images.data_ptr() == x.data_ptr() else images
    count, height, width, channels = images.shape
    if amount.shape != (count, 4) or order.shape != (count, 4):
        raise InputError("Each image needs four amounts and the order of four changes.")
    much = np.ascontiguousarray(amount, dtype=np.float32)
    changes = np.ascontiguousarray(order, dtype=np.int64)
    library().dm_jitter(
        images.data_ptr(),
        count,
        height * width,
        channels,
        much.ctypes.data,
        changes.ctypes.data,
        (ctypes.c_float * 3)(*weights),
    )
    return images.permute(0, 3, 1, 2)


def grey(x: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """Return the weighted sum of three channels (n, 1, H, W), added up in order."""
    red, green, blue = (
        channel * weight for channel, weight in zip(x.unbind(1), weights, strict=True)
    )
    return ((red + green) + blue)[:, None]
