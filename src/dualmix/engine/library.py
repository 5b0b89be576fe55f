"""The native library: which builds there are, which one is used, and the shapes of what is handed
to it.
"""

from __future__ import annotations

import ctypes
import mmap
from ctypes import POINTER, c_double, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from threading import RLock
from typing import ClassVar

from dualmix.errors import ConfigError

BUILDS = ("avx512", "avx2", "portable")
"""Names of the builds, the fastest first."""
LEVELS = {"avx512": 2, "avx2": 1, "portable": 0}
MOST_BLOCKS = 32


class Block(ctypes.Structure):
    """Two convolutions and a shortcut."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("stride", c_int64),
        ("project", c_int64),
    )


class Net(ctypes.Structure):
    """A network, its images and how they are grouped."""

    _fields_ = (
        ("images", c_int64),
        ("channels", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("stem", c_int64),
        ("blocks", c_int64),
        ("block", Block * MOST_BLOCKS),
        ("groups", c_int64),
        ("first", POINTER(c_int64)),
        ("training", c_int64),
        ("tape", c_int64),
        ("apart", c_int64),
    )


class Layer(ctypes.Structure):
    """A convolution and its batch-norm."""

    _fields_ = (
        ("taps", c_void_p),
        ("taps_slope", c_void_p),
        ("stride", c_int64 * 4),
        ("slope_stride", c_int64 * 4),
        ("scale", c_void_p),
        ("shift", c_void_p),
        ("mean", c_void_p),
        ("var", c_void_p),
        ("scale_slope", c_void_p),
        ("shift_slope", c_void_p),
        ("eps", c_double),
        ("momentum", c_double),
    )


class Matrix(ctypes.Structure):
    """A matrix of any layout."""

    _fields_ = (("at", c_void_p), ("row", c_int64), ("column", c_int64))


_DOORS = {
    "dm_cpu": (ctypes.c_int, []),
    "dm_maps_space": (c_int64, [POINTER(Net)]),
    "dm_scratch_space": (c_int64, [POINTER(Net), c_int64]),
    "dm_forward": (
        None,
        [POINTER(Net), c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
    ),
    "dm_backward": (
        None,
        [POINTER(Net), c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
    ),
    "dm_folded_space": (c_int64, [POINTER(Net)]),
    "dm_fold": (None, [POINTER(Net), c_void_p, c_void_p]),
    "dm_evaluate": (
        None,
        [POINTER(Net), c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
    ),
    "dm_matmul_space": (c_int64, [c_int64, c_int64, c_int64]),
    "dm_matmul": (
        None,
        [POINTER(Matrix), POINTER(Matrix), c_int64, c_int64, c_int64, POINTER(Matrix), c_void_p],
    ),
    "dm_cross_entropy": (
        None,
        [c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_void_p],
    ),
    "dm_crop": (None, [c_void_p, *[c_int64] * 4, c_void_p, c_void_p, c_void_p]),
    "dm_jitter": (
        None,
        [c_void_p, *[c_int64] * 3, c_void_p, c_void_p, POINTER(c_float)],
    ),
    "dm_length": (c_double, [POINTER(c_void_p), POINTER(c_int64), c_int64]),
    "dm_descend": (
        None,
        [POINTER(c_void_p), POINTER(c_void_p), POINTER(c_int64), c_int64, c_float, c_float],
    ),
}


@cache
def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name, (result, arguments) in _DOORS.items():
        door = getattr(library, name)
        door.restype, door.argtypes = result, arguments
    return library


@cache
def _built(name: str) -> ctypes.CDLL | None:
    return _opened(Path(__file__).with_name(f"_{name}.so"))


@cache
def available() -> list[str]:
    """Return the builds that were made and that this CPU can run, the fastest first; none: there is
    no engine.
    """
    portable = _built("portable")
    if portable is None:
        return []
    level = portable.dm_cpu()
    return [name for name in BUILDS if LEVELS[name] <= level and _built(name) is not None]


_chosen: list[str] = []


def select(name: str | None = None) -> str:
    """Use a build by name, or the fastest; return its name.

    Raises
    ------
    ConfigError
        There is no such build, or this CPU cannot run it.
    """
    known = available()
    if not known:
        raise ConfigError(
            "The native engine was not built: install a C compiler and dualmix again, or use torch."
        )
    if name is not None and name not in known:
        raise ConfigError(
            f"The native engine has no build {name!r} for this CPU (there is {', '.join(known)})."
        )
    _chosen[:] = [name or known[0]]
    return _chosen[0]


def current() -> str:
    """Return the name of the build in use."""
    return _chosen[0] if _chosen else select()


def library() -> ctypes.CDLL:
    """Return the build in use."""
    found = _built(current())
    assert found is not None
    return found


class Space:
    """A piece of memory of at least so many floats, which goes back to be used again when nobody
    holds it: fresh memory costs a page fault every 4 KiB, which is a tenth of a step.
    """

    KEPT = 3
    _free: ClassVar[list[mmap.mmap]] = []
    _lock: ClassVar[RLock] = (
        RLock()
    )  # a piece may come back while the same thread takes another one

    def __init__(self, floats: int) -> None:
        wanted = 4 * floats
        with self._lock:
            fitting = [place for place, piece in enumerate(self._free) if len(piece) >= wanted]
            best = min(fitting, key=lambda place: len(self._free[place]), default=None)
            if best is not None:
                self.piece = self._free.pop(best)
                return
            del self._free[:1]  # too small, though the largest: the new piece takes its place
        self.piece = mmap.mmap(-1, wanted)

    @property
    def address(self) -> int:
        """Where the memory begins: at a page."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.piece))

    def __del__(self) -> None:
        with self._lock:
            self._free.append(self.piece)
            self._free.sort(key=len, reverse=True)
            del self._free[self.KEPT :]
