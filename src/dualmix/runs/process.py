"""The process that trains: its threads and its memory."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import torch

TRIM, TOP_PAD, MMAP = -1, -2, -3
"""Parameters of the C library's ``mallopt``, from its header."""


def settle(threads: int) -> None:
    """Set the number of torch's threads, and keep freed memory for the next step.

    Every step takes and frees the same tens of megabytes. By default the C library gives them back
    to the system each time, and each of their pages costs a fault when it is touched again:
    thousands a step."""
    torch.set_num_threads(threads)
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(TRIM, 2**31 - 1)
        library.mallopt(TOP_PAD, 2**26)
        library.mallopt(MMAP, 2**25)


def resident(*, peak: bool = False) -> float:
    """Return the process's memory in MB: what it holds now, or the most it has held.

    Linux tells both; elsewhere the most is all that is told, and that of a large parent counts
    there too."""
    status = Path("/proc/self/status")
    if not status.is_file():
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    wanted = "VmHWM" if peak else "VmRSS"
    line = next(
        line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith(wanted)
    )
    return int(line.split()[1]) / 1024
