"""Npy: numpy's array files read with suspicion: nothing is allocated before it is known to be
there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 20


class PickledError(ValueError):
    """The array holds Python objects, which only code in the file could bring back."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an array file says of itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """Read the head of an array file; raises whatever numpy raises on a bad one."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        parts = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        parts = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version}")
    header = Header(*parts)
    if header.dtype.hasobject:
        raise PickledError
    if any(n < 0 for n in header.shape) or not header.dtype.itemsize:
        raise ValueError(f"the shape {header.shape} of {header.dtype}")
    return header


def read(stream: IO[bytes], size: int) -> NDArray[Any]:
    """Read an array out of a stream of so many bytes.

    Raises
    ------
    PickledError
        Where Python objects would have to be made.
    Exception
        Any other, where the stream is not one array from its beginning to its end.
    """
    header = read_header(stream)
    if header.size > size:
        raise ValueError("fewer bytes than the shape needs")
    raw = bytearray()
    while part := stream.read(CHUNK):
        raw += part
        if len(raw) > header.size:
            raise ValueError("more bytes than the shape needs")
    if len(raw) < header.size:
        raise EOFError
    if not raw:
        return np.empty(header.shape, header.dtype)
    flat = np.frombuffer(raw, header.dtype, count=math.prod(header.shape))
    return flat.reshape(header.shape, order="F" if header.fortran else "C")
