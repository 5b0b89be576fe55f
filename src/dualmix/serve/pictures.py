"""Pictures that are sent, as rows of the learner; and stored rows as pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data.pixels import fitted, opened, rgb
from dualmix.data.source import Fit
from dualmix.errors import InputError
from dualmix.learn.types import Shape

MOST_PIXELS = 50_000_000
"""Of a picture before it is made smaller."""
MOST_TOGETHER = 4 * MOST_PIXELS
"""Of all pictures of one request: a form of tiny files could ask for minutes of work."""


def decode(contents: Sequence[bytes], shape: Shape, fit: Fit) -> NDArray[np.uint8]:
    """Return picture files as images (n, C, H, W), resized as data sets are.

    Raises
    ------
    InputError
        One is no picture of a known format, or far too large; or the learner takes vectors.
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputError(
            f"This learner takes rows of {'x'.join(map(str, shape))} numbers, not pictures: send "
            "them as JSON or .npy."
        )
    rows, left = np.empty((len(contents), *shape), np.uint8), MOST_TOGETHER
    for row, content in enumerate(contents):
        with _readable(), opened(io.BytesIO(content)) as image:
            wide, high = image.size
            left -= wide * high
            if wide * high > MOST_PIXELS or left < 0:
                raise InputError(
                    f"The picture has {wide} x {high} pixels"
                    + (", too many with those before it" if left < 0 else "")
                    + ": make it smaller."
                )
            picture = fitted(rgb(image), (shape[2], shape[1]), fit)
            pixels = np.asarray(picture if shape[0] == 3 else picture.convert("L"))
            rows[row] = pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
    return rows


@contextmanager
def _readable() -> Iterator[None]:
    from PIL import Image

    try:
        yield
    except InputError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as fault:
        raise InputError("The picture has far too many pixels: make it smaller.") from fault
    except Exception as fault:  # pillow's plugins raise whatever they like on a broken file
        raise InputError(
            "The picture cannot be read: send a whole PNG or JPEG file (BMP, GIF, WEBP, TIFF and "
            "PPM do too)."
        ) from fault


def thumbnail(row: NDArray[Any]) -> str:
    """Return a stored image (H, W, C) as the address of a picture, for a page."""
    from PIL import Image

    flat = row[:, :, 0] if row.shape[2] == 1 else row[:, :, :3]
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(flat)).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()
