"""What a process does before it trains."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from dualmix.bench import floor
from dualmix.process import settle
if sys.argv[1] == "settled":
    settle(3)
threads = torch.get_num_threads()
torch.set_num_threads(1)
step = floor()
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(threads, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5)
"""


def faults(how: str) -> tuple[int, float]:
    said = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, check=True).stdout
    threads, number = said.split()
    return int(threads), float(number)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOT GLIBC: nothing to keep its memory from")
def test_a_settled_process_keeps_the_memory_of_a_step() -> None:
    threads, settled = faults("settled")
    assert threads == 3
    assert settled < 200
    assert faults("not")[1] > 5 * settled + 500
