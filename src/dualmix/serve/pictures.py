"""Pictures that are sent, as rows of the learner; and stored rows as pictures."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data.pixels import fitted, opened, rgb
from dualmix.data.source import Fit
from dualmix.errors import InputError
from dualmix.learn.types import Shape

MOST_PIXELS = 50_000_000
"""Of a picture before it is made smaller."""


def decode(content: bytes, shape: Shape, fit: Fit) -> NDArray[np.uint8]:
    """Return a picture file as one image (1, C, H, W), resized as data sets are.

    Raises
    ------
    InputError
        It is no picture of a known format, or far too large; or the learner takes vectors.
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputError(
            f"This learner takes rows of {'x'.join(map(str, shape))} numbers, not pictures: send "
            "them as JSON or .npy."
        )
    channels, height, width = shape
    try:
        with opened(io.BytesIO(content)) as image:
            if image.size[0] * image.size[1] > MOST_PIXELS:
                raise InputError(
                    f"The picture has {image.size[0]} x {image.size[1]} pixels: make it smaller."
                )
            picture = fitted(rgb(image), (width, height), fit)
            pixels = np.asarray(picture if channels == 3 else picture.convert("L"))
    except InputError:
        raise
    except Exception as fault:  # pillow's plugins raise whatever they like on a broken file
        raise InputError(
            "The picture cannot be read: send a whole PNG or JPEG file (BMP, GIF, WEBP, TIFF and "
            "PPM do too)."
        ) from fault
    return np.ascontiguousarray(pixels.reshape(height, width, channels).transpose(2, 0, 1))[None]


def thumbnail(row: NDArray[Any]) -> str:
    """Return a stored image (H, W, C) as the address of a picture, for a page."""
    from PIL import Image

    flat = row[:, :, 0] if row.shape[2] == 1 else row[:, :, :3]
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(flat)).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()
