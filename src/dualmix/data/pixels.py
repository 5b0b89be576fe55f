"""Pixels: any picture becomes uint8 RGB of one size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data.source import Fit, check_room
from dualmix.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from dualmix.data.images import Pixels

Read = Callable[[str], IO[bytes]]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What a picture may be, whatever its name says: formats that hold pixels.

Others are never tried: for EPS, pillow starts Ghostscript, an interpreter of programs.
"""


@contextmanager
def opened(stream: IO[bytes]) -> Iterator[Image]:
    """Open a picture of one of the `FORMATS`, the first frame where there are several.

    Raises whatever pillow raises, `OSError` for most files that are none; pictures of more pixels
    than pillow thinks safe are refused.
    """
    from PIL import Image as Pil

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Pil.DecompressionBombWarning)
        with Pil.open(stream, formats=FORMATS) as image:
            yield image


def rgb(image: Image) -> Image:
    """Turn a picture of any mode upright, as its EXIF orientation says, and into RGB.

    Transparency is laid over white. Pixels of 16 bits keep their upper eight; floating-point pixels
    may lie in [0, 1] or [0, 255]."""
    from PIL import Image as Pil
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Pil.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Pil.alpha_composite(Pil.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: NDArray[Any]) -> Pixels:
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 255):
            raise ValueError("floating-point pixels outside [0, 255]")
        values = np.rint(values * (255 if high <= 1 else 1))
        return values.astype(np.uint8)
    if low < 0 or high > 65535:
        raise ValueError("pixels of more than 16 bits")
    return (values.astype(np.uint32) >> 8).astype(np.uint8)


def fitted(image: Image, size: int | tuple[int, int], fit: Fit) -> Image:
    """Bring a picture to a square, or to a width and height, antialiased and bilinear.

    ``squeeze`` changes its proportions, ``crop`` cuts off what is longer on both sides alike,
    ``pad`` lays it on black.
    """
    from PIL import Image as Pil

    across, down = (size, size) if isinstance(size, int) else size
    wide, high = image.size
    if (wide, high) == (across, down):
        return image
    if wide * down == high * across or fit == "squeeze":
        return image.resize((across, down), Pil.Resampling.BILINEAR)
    if fit == "crop":
        inner = min(wide, high * across // down), min(high, wide * down // across)
        inner = max(1, inner[0]), max(1, inner[1])
        left, top = (wide - inner[0]) // 2, (high - inner[1]) // 2
        box = (left, top, left + inner[0], top + inner[1])
        return image.resize((across, down), Pil.Resampling.BILINEAR, box=box)
    scale = min(across / wide, down / high)
    inner = max(1, round(wide * scale)), max(1, round(high * scale))
    canvas = Pil.new(image.mode, (across, down))
    at = (across - inner[0]) // 2, (down - inner[1]) // 2
    canvas.paste(image.resize(inner, Pil.Resampling.BILINEAR), at)
    return canvas


def stack(
    names: Sequence[str],
    read: Read,
    size: int | None,
    what: str,
    fit: Fit = "squeeze",
) -> tuple[Pixels, list[str]]:
    """Decode pictures into one array ``(n, H, W, 3)``.

    Parameters
    ----------
    names
        What to hand to ``read``; also shown in messages.
    read
        Opens one picture.
    size
        Height and width to resize to; None keeps the one size that all must have.
    what
        The data set, for messages.
    fit
        How pictures that are not square are brought to ``size``.

    Returns
    -------
    array, list
        The pictures that could be read, in order, and the names of those that could not.

    Raises
    ------
    DataError
        When sizes differ.
    """
    result = np.empty((0, 0, 0, 3), np.uint8)
    side: tuple[int, int] | None = (size, size) if size else None
    unreadable: list[str] = []
    row = 0
    for name in names:
        try:
            with read(name) as stream, opened(stream) as image:
                picture = rgb(image)
                if size:
                    picture = fitted(picture, size, fit)
                pixels = np.asarray(picture)
        except MemoryError:
            raise
        except Exception:  # pillow's plugins raise whatever they like on a broken file
            unreadable.append(name)
            continue
        side = side or picture.size
        if picture.size != side:
            wide, high = picture.size
            raise DataError(
                f"{what} has images of {side[0]}x{side[1]} and of {wide}x{high} ({name}): "
                "give one size for all with --data.size, for example --data.size 64."
            )
        if not len(result):
            check_room(len(names) * side[0] * side[1] * 3, what)
            result = np.empty((len(names), side[1], side[0], 3), np.uint8)
        result[row] = pixels
        row += 1
    return result[:row], unreadable


def stack_all(
    names: Sequence[str],
    read: Read,
    size: int | None,
    what: str,
    fit: Fit = "squeeze",
    remedy: str = "remove or replace and try again",
) -> Pixels:
    """Decode pictures as `stack` does, and raise `DataError` with their number and the first names
    unless all can be read.
    """
    x, unreadable = stack(names, read, size, what, fit)
    if unreadable:
        count = (
            "1 file that is no readable image"
            if len(unreadable) == 1
            else f"{len(unreadable)} unreadable images"
        )
        raise DataError(f"{what} has {count} ({first(unreadable)}): {remedy}.")
    return x


def first(names: Sequence[str]) -> str:
    """Write the first names of a list."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def resize(x: Pixels, size: int | None, fit: Fit = "squeeze") -> Pixels:
    """Bring images ``(n, H, W, C)`` to a square as `fitted` does; None changes nothing."""
    if size is None or x.shape[1:3] == (size, size):
        return x
    from PIL import Image as Pil

    if 0 in x.shape[1:]:
        raise DataError(f"Images of the shape {x.shape[1:]} have no pixel: give images of a size.")
    check_room(len(x) * size * size * x.shape[3], "The resized set")
    result = np.empty((len(x), size, size, x.shape[3]), np.uint8)
    for row, image in enumerate(x):
        flat = image[:, :, 0] if x.shape[3] == 1 else image
        result[row] = np.asarray(fitted(Pil.fromarray(flat), size, fit)).reshape(result.shape[1:])
    return result
