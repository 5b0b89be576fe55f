"""Arrays of whole numbers in one npz file, which tells its damage by the checksums of zip."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import StoreError

LARGEST = 2**31
"""Bytes that arrays may unpack to: no count and no plan comes near it."""


def arrays_bytes(arrays: Mapping[str, NDArray[np.int64]]) -> bytes:
    """Return arrays packed, each in the smallest type that holds it; equal arrays, equal bytes."""
    buffer = io.BytesIO()
    small = {key: a.astype(np.min_scalar_type(int(a.max(initial=0)))) for key, a in arrays.items()}
    np.savez_compressed(buffer, **small)  # type: ignore[arg-type]
    return buffer.getvalue()


def parse_arrays(content: bytes, path: Path) -> dict[str, NDArray[np.int64]]:
    """Return the arrays that `arrays_bytes` packed.

    Raises
    ------
    StoreError
        The file is cut short, changed or not ours.
    """
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise ValueError("its arrays are far too large")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            tables = {name: arrays[name] for name in arrays.files}
        for name, array in tables.items():
            if array.dtype.kind not in "ui":
                raise ValueError(f"{name} is not of whole numbers")
        return {name: array.astype(np.int64, casting="same_kind") for name, array in tables.items()}
    except Exception as fault:  # zip, zlib, struct, tokenize...: each parser has faults of its own
        raise StoreError(f"{path} is damaged ({fault}): run again with --fresh.") from fault
