"""What a user may hand to a learner, checked before anything changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dualmix.errors import InputError, quoted
from dualmix.learn.lazy import torch
from dualmix.learn.types import ImagesLike, Labels, LabelsLike, Shape

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Make one sentence of what torch says about a kind of tensor whose values it cannot give."""
    try:
        yield
    except (RuntimeError, TypeError) as fault:
        raise InputError(
            f"{what} cannot be read as numbers ({quoted(fault)}): give an ordinary array or tensor."
        ) from fault


def as_rows(x: ImagesLike, shape: Shape) -> Tensor:
    """Return images or vectors as they are stored: see `as_pixels` and `as_vectors`."""
    return as_vectors(x, shape) if len(shape) == 1 else as_pixels(x, shape)


@_readable("Vectors")
def as_vectors(x: ImagesLike, shape: Shape) -> Tensor:
    """Return vectors as float32 rows (n, d).

    Parameters
    ----------
    x
        (n, d), finite numbers of any range.
    shape
        (d,) that the learner was made for.
    """
    if not isinstance(x, torch.Tensor):
        x = as_array(x, "Vectors")
        if x.dtype.kind not in "iufb" or x.dtype.itemsize > 8:
            raise InputError(f"Vectors must be numbers, but they are {x.dtype}: convert them.")
        kind = np.float64 if x.dtype.kind in "iu" else x.dtype.newbyteorder("=")
        x = torch.from_numpy(np.array(x, kind, order="C"))
    x = _dense(x, "Vectors")
    if x.ndim != 2 or tuple(x.shape[1:]) != shape:
        raise InputError(_vector_fault(tuple(x.shape), shape[0]))
    if not len(x):
        raise InputError("The batch is empty: give at least one vector.")
    if x.is_complex():
        raise InputError("Vectors must be real numbers, but they are complex: convert them.")
    rows = x.detach().float().contiguous()
    if not bool(torch.isfinite(rows).all()):
        raise InputError(
            "The vectors hold NaN, infinite or too large numbers (above 3.4e38): clean the batch "
            "before it is learned."
        )
    return rows


def _vector_fault(got: tuple[int, ...], want: int) -> str:
    if got == (want,):
        return f"Vectors must be a batch (n, {want}), but this is one vector: give x[None]."
    return (
        f"Vectors must be (n, {want}), but they are {got}: flatten them, or make a learner for "
        "their shape."
    )


@_readable("Images")
def as_pixels(x: ImagesLike, shape: Shape) -> Tensor:
    """Return images as uint8 rows (n, H, W, C), the layout that is stored and that the network
    reads fastest.

    Parameters
    ----------
    x
        (n, C, H, W), uint8, or floats in [0, 1] which are rounded to the nearest of 256 levels.
    shape
        (C, H, W) that the learner was made for.
    """
    if not isinstance(x, torch.Tensor):
        x = as_array(x, "Images")
        if not (
            x.dtype == np.uint8 or (np.issubdtype(x.dtype, np.floating) and x.dtype.itemsize <= 8)
        ):
            raise InputError(
                f"Images must be uint8, or floats in [0, 1], but they are {x.dtype}: convert them."
            )
        if not (x.flags.writeable and x.dtype.isnative) or min(x.strides, default=0) < 0:
            x = x.astype(x.dtype.newbyteorder("="))
        x = torch.from_numpy(x)
    x = _dense(x, "Images")
    if x.ndim != 4 or tuple(x.shape[1:]) != shape:
        raise InputError(_shape_fault(tuple(x.shape), shape))
    if not len(x):
        raise InputError("The batch is empty: give at least one image.")
    if x.dtype != torch.uint8:
        x = _rounded(x.detach())
    return x.permute(0, 2, 3, 1).contiguous()


def as_array(given: Any, what: str) -> np.ndarray[Any, Any]:
    """Return what may be one array, but for masked ones and for what numpy would change: numbers
    beside text, and text that ends with a NUL.
    """
    if _masked(given):
        raise InputError(
            f"{what} are a masked array, and a learner knows no masks: give an ordinary array of "
            "the rows that count."
        )
    try:
        flat = isinstance(given, Sequence) or (
            isinstance(given, np.ndarray) and given.dtype.kind == "O" and given.ndim == 1
        )
        texts = [isinstance(one, str) for one in given] if flat else []
        if any(texts) and not all(texts):
            raise InputError(f"{what} are numbers and text in one batch: use one kind of label.")
        if any(texts) and any(one.endswith("\0") for one in given):
            raise InputError(f"{what} end with a NUL character, which numpy drops: rename them.")
        return np.asarray(given)
    except InputError:
        raise
    except Exception as fault:  # any class may have an __array__ of its own
        raise InputError(
            f"{what} cannot be read as one array ({quoted(fault)}): give rows of one shape."
        ) from fault


def _masked(given: Any) -> bool:
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return any(map(_masked, given))
    return isinstance(given, np.ma.MaskedArray)


def _dense(given: Tensor, what: str) -> Tensor:
    """Return a tensor that is torch's own, not of a class that would spread into the learner."""
    wraps = type(given).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    odd = given.is_meta or given.is_nested or given.is_quantized
    if wraps or odd or given.layout != torch.strided:
        raise InputError(
            f"{what} must be an ordinary tensor with values, not a sparse, nested, quantised, "
            "masked or meta one: convert it."
        )
    return given.as_subclass(torch.Tensor)


def _rounded(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        raise InputError(
            f"Images must be uint8, or floats in [0, 1], but they are {x.dtype}: convert them."
        )
    if not bool(torch.isfinite(x).all()):
        raise InputError(
            "The images hold NaN or infinite pixels: clean the batch before it is learned."
        )
    low, high = (float(v) for v in torch.aminmax(x))
    if low < 0 or high > 1:
        raise InputError(
            f"Float images must lie in [0, 1], but these range from {low:g} to {high:g}: scale "
            "them, or give uint8."
        )
    return (x * 255).round().to(torch.uint8)


def _shape_fault(got: tuple[int, ...], want: Shape) -> str:
    channels, height, width = want
    asked = f"(n, {channels}, {height}, {width})"
    one = {(height, width, channels): "x.transpose(2, 0, 1)[None]", want: "x[None]"}
    if channels == 1:
        one[height, width] = "x[None, None]"
    if got in one:
        return f"Images must be a batch {asked}, but this is one image {got}: give {one[got]}."
    if got[1:] == (height, width) and len(got) == 3 and channels > 1:
        return (
            f"Images must have {channels} channels {asked}, but they are grey {got}: give "
            f"x[:, None].repeat({channels}, 1)."
        )
    if got[1:] == (height, width) and channels == 1:
        return (
            f"Images must be {asked}, but they have no axis for their one channel {got}: give "
            "x[:, None]."
        )
    if len(got) == 4 and got[1:] == (height, width, channels):
        return (
            f"Images must be {asked}, but their channels come last {got}: give "
            "x.transpose(0, 3, 1, 2)."
        )
    if len(got) == 4 and got[2:] == (height, width):
        return (
            f"Images must have {channels} channels {asked}, but they have {got[1]}: convert them."
        )
    return (
        f"Images must be {asked}, but they are {got}: resize them, or make a learner for their "
        "shape."
    )


@_readable("Labels")
def as_labels(y: LabelsLike, count: int | None = None) -> Labels:
    """Return raw labels as a flat array of int64 or text.

    Parameters
    ----------
    y
        Whole numbers of any sign and size, or text; one for each image.
    count
        How many there must be.
    """
    if isinstance(y, torch.Tensor):
        y = _dense(y, "Labels")
        y = (y.double() if y.is_floating_point() else y).detach().cpu().numpy()
    array = as_array(y, "Labels")
    if array.ndim != 1 or (count is not None and len(array) != count):
        raise InputError(
            f"Labels must be one for each of {count} rows, but their shape is {array.shape}."
            if count is not None
            else f"Labels must be a flat list, but their shape is {array.shape}."
        )
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(np.str_)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or (array != np.trunc(array)).any():
            raise InputError(
                "Labels are floats with fractions or NaN: labels must be whole numbers or text."
            )
        if (np.abs(array) >= 2.0**53).any():
            raise InputError(
                "Labels are floats too large to be exact: give them as whole numbers or text."
            )
    if array.dtype.kind == "U":
        return array.astype(np.str_)
    if array.dtype.kind not in "iufb" or (
        array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any()
    ):
        raise InputError(
            f"Labels must be whole numbers (64 bits) or text, but they are {array.dtype}."
        )
    return array.astype(np.int64)
