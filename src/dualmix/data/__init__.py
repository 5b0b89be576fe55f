"""Source images: one file a data set, decoded once into a memory-mapped cache that processes share."""

from __future__ import annotations

from dualmix.data import cache
from dualmix.data.catalog import DATASETS, Dataset, root
from dualmix.data.config import Data
from dualmix.data.images import Images
from dualmix.data.source import readable

__all__ = ["DATASETS", "Data", "Dataset", "Images", "load", "root"]


def load(data: Data) -> Images:
    """Open a data set, decoding it first where that was not done before.

    Parameters
    ----------
    data
        Which set, where it lies and how to decode it.

    Returns
    -------
    Images
        Memory-mapped and read-only; the second call takes milliseconds.

    Raises
    ------
    DataError
        One sentence that says what is missing or broken and what to do.
    """
    entry = DATASETS[data.name]
    folder = root(data.root)
    with readable(entry.title):
        return cache.load(data.name, entry.find(folder, data), folder, entry.decode, entry.version)
