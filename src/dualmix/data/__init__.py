"""Files on disk become labelled images, checked and decoded once, and the order of a stream.

One file per data set, the cache that processes share, and the way to add a set by a plugin belong
here. It imports only the root and learn, with numpy and pillow, and never torch.
"""

from __future__ import annotations

from pydantic import ValidationError

from dualmix.data import cache
from dualmix.data.cache import DataWarning
from dualmix.data.catalog import DATASETS, Dataset, add_dataset, root, title
from dualmix.data.config import Data
from dualmix.data.images import Decoded, Images, check, fingerprint
from dualmix.data.plugin import register_dataset
from dualmix.data.source import readable
from dualmix.errors import DataError

__all__ = [
    "DATASETS",
    "Data",
    "DataWarning",
    "Dataset",
    "Decoded",
    "Images",
    "add_dataset",
    "load",
    "register_dataset",
    "root",
]


def load(data: Data | str) -> Images:
    """Open a data set, decoding it first where that was not done before.

    Parameters
    ----------
    data
        Which set, where it lies and how to decode it; or its name alone.

    Returns
    -------
    Images
        Read-only. Out of the cache they are memory-mapped and compared in full with what was
        written, once per process; a damaged copy is decoded again, with a `DataWarning`.

    Raises
    ------
    DataError
        One sentence that says what is missing or broken and what to do.
    """
    if isinstance(data, str):
        if data not in DATASETS:
            raise DataError(f"There is no data set {data!r}: give {', '.join(sorted(DATASETS))}.")
        data = _named(data)
    if not isinstance(data, Data):
        raise DataError(f"Data go by their name or by Data(...), not by a {type(data).__name__}.")
    entry = DATASETS[data.name]
    with readable(title(data)):
        folder = root(data.root)
        source = entry.find(folder, data)
        if entry.cached:
            return cache.load(data.name, source, folder, entry.decode, entry.version)
        decoded = entry.decode(source)
        check(decoded, data.name)
        arrays = {part: getattr(decoded, part).view() for part in cache.PARTS}
        for array in arrays.values():
            array.flags.writeable = False
        mark = fingerprint(decoded)
        return Images(
            data.name, **arrays, classes=decoded.classes, fingerprint=mark, notes=decoded.notes
        )


def _named(name: str) -> Data:
    try:
        return Data(name=name)
    except ValidationError as fault:
        raise DataError(f"{fault.errors()[0]['msg'].removeprefix('Value error, ')}") from fault
