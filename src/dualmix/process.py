"""The process that trains: its threads and its memory."""

from __future__ import annotations

import ctypes
import sys

import torch

TRIM, TOP_PAD, MMAP = -1, -2, -3
"""Parameters of the C library's ``mallopt``, from its header."""


def settle(threads: int) -> None:
    """Set the number of torch's threads, and keep freed memory for the next step.

    Every step takes and frees the same tens of megabytes. By default the C library gives them back to the system each
    time, and each of their pages costs a fault when it is touched again: thousands a step.
    """
    torch.set_num_threads(threads)
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(TRIM, 2**31 - 1)
        library.mallopt(TOP_PAD, 2**26)
        library.mallopt(MMAP, 2**25)
