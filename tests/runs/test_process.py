"""What a process does before it trains."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, sys, torch
from dualmix.runs.process import settle
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e f g top".split()]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Heap
if sys.argv[1] == "settled":
    settle(3)
before = library.mallinfo2()
block = torch.zeros(20, 2**20, dtype=torch.uint8)
held = library.mallinfo2()
del block
after = library.mallinfo2()
print(torch.get_num_threads(), held.mapped - before.mapped, after.arena - before.arena)
"""


def heap(how: str) -> tuple[int, int, int]:
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True
    ).stdout
    threads, mapped, kept = said.split()
    return int(threads), int(mapped), int(kept)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOT GLIBC: no heap to look into")
@pytest.mark.slow
def test_a_settled_process_keeps_what_was_freed() -> None:
    _, mapped, kept = heap("not")
    assert mapped >= 20 * 2**20 and kept < 2**20
    threads, mapped, kept = heap("settled")
    assert threads == 3
    assert mapped == 0 and kept >= 20 * 2**20
