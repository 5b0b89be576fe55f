"""A data set of one's own in one file: copy it, rename it, change it.

    dualmix run er --plugin examples/my_data.py --data.name my-data
    dualmix data verify my-data --plugin examples/my_data.py

The function returns images and labels. Here they are drawn; yours would read files from `folder`,
which is the data root (--data.root or DUALMIX_DATA). Name those files by `files=` and the images
are decoded only once: `@register_dataset("my-data", files=["my-data/*.png"])`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dualmix import Decoded, register_dataset

CLASSES = ("horizontal", "vertical", "falling", "rising")
SIZE = 8


def stripes(kind: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw stripes of one direction at random distances and places, with some noise."""
    row, column = np.indices((SIZE, SIZE))
    along = (row, column, row - column, row + column)[kind]
    phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    waves = np.sin(along * rng.uniform(1, 2, (count, 1, 1)) + phase)
    noisy = 128 + 90 * waves + rng.normal(0, 12, (count, SIZE, SIZE))
    return noisy.clip(0, 255).astype(np.uint8)[..., None]


@register_dataset("my-data", title="Stripes", tasks=2)
def my_data(folder: Path) -> Decoded:
    """Stripes of four directions, 8x8 grey; drawn on the spot."""
    rng = np.random.default_rng(0)
    parts = []
    for count in (100, 25):
        parts.append(np.concatenate([stripes(kind, count, rng) for kind in range(len(CLASSES))]))
        parts.append(np.repeat(np.arange(len(CLASSES)), count))
    return Decoded(*parts, CLASSES)
