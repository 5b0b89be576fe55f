"""Pixels: any picture that pillow opens becomes uint8 RGB of one size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from dualmix.data.images import Pixels

Read = Callable[[str], IO[bytes]]


def rgb(image: Image) -> Image:
    """Turn a picture of any mode upright and into RGB.

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


def stack(names: Sequence[str], read: Read, size: int | None, what: str) -> Pixels:
    """Decode pictures into one array ``(n, H, W, 3)``.

    Parameters
    ----------
    names
        What to hand to ``read``; also shown in messages.
    read
        Opens one picture.
    size
        Height and width to resize to, antialiased and bilinear; None keeps the one size that all
        must have.
    what
        The data set, for messages.

    Raises
    ------
    DataError
        When some pictures cannot be read, with their number and the first names, or when sizes
        differ.
    """
    from PIL import Image as Pil

    result = np.empty((0, 0, 0, 3), np.uint8)
    side: tuple[int, int] | None = (size, size) if size else None
    unreadable: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Pil.DecompressionBombWarning)
        for row, name in enumerate(names):
            try:
                with read(name) as stream, Pil.open(stream) as opened:
                    image = rgb(opened)
                    if size and image.size != side:
                        image = image.resize((size, size), Pil.Resampling.BILINEAR)
                    pixels = np.asarray(image)
            except Exception:  # pillow's plugins raise whatever they like on a broken file
                unreadable.append(name)
                continue
            side = side or image.size
            if image.size != side:
                wide, high = image.size
                raise DataError(
                    f"{what} has images of {side[0]}x{side[1]} and of {wide}x{high} ({name}): "
                    "give one size for all with --data.size, for example --data.size 64."
                )
            if not len(result):
                result = np.empty((len(names), side[1], side[0], 3), np.uint8)
            result[row] = pixels
    if unreadable:
        first = ", ".join(unreadable[:3]) + (", ..." if len(unreadable) > 3 else "")
        count = (
            "1 file that is no readable image"
            if len(unreadable) == 1
            else f"{len(unreadable)} unreadable images"
        )
        raise DataError(f"{what} has {count} ({first}): remove or replace and try again.")
    return result


def resize(x: Pixels, size: int | None) -> Pixels:
    """Resize images ``(n, H, W, C)`` to a square, antialiased and bilinear; None changes nothing."""
    if size is None or x.shape[1:3] == (size, size):
        return x
    from PIL import Image as Pil

    result = np.empty((len(x), size, size, x.shape[3]), np.uint8)
    for row, image in enumerate(x):
        flat = image[:, :, 0] if x.shape[3] == 1 else image
        resized = np.asarray(Pil.fromarray(flat).resize((size, size), Pil.Resampling.BILINEAR))
        result[row] = resized.reshape(size, size, x.shape[3])
    return result
