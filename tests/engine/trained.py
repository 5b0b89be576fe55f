"""Train learners on the native engine and print the hash of what they are in the end.

python -m tests.engine.trained                  # every build and instruction set of this machine
python -m tests.engine.trained er avx2 [steps] [side] [width]                    # one of them
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from dualmix import engine
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.runs.build import build, save

ROOT = Path(__file__).parents[2]
METHODS = ("er", "er+dualmix")
BATCH = 5
LONG = (20, 16, 8)
"""Steps, side of the images and width of the network, for the table."""
NUMPY = "SSSE3 SSE41 POPCNT SSE42 AVX F16C FMA3 AVX2 AVX512F AVX512CD AVX512_SKX"
LIBM = "-AVX512F,-AVX2,-AVX2_Usable,-FMA,-FMA_Usable"
TOLD = {
    "as it is": {},
    "torch, AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "torch, SSE": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
    },
    "numpy, SSE": {"NPY_DISABLE_CPU_FEATURES": NUMPY},
    "libm, SSE": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX2_Usable,-FMA,-FMA_Usable"
    },
}
"""Which instructions the libraries between the engine's calls are told to use."""


def trained(method: str, name: str, steps: int = 10, side: int = 8, width: int = 3) -> str:
    """Return the hash of a learner's file after some steps with a build."""
    torch.set_num_threads(1)
    engine.select(name)
    shape, rng = (3, side, side), np.random.default_rng(0)
    settings = compose(method, {"method.memory": 20}).config.method
    model = Model(width=width, engine="native", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))
    learner = build(settings, shape, seed=1, model=model)
    for step in range(steps):
        x = rng.integers(0, 256, (BATCH, *shape), dtype=np.uint8)
        learner.observe(x, rng.integers(0, 4 + step, BATCH))
    assert all(value.isfinite().all() for value in learner.model.state_dict().values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        save(learner, path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def told(words: list[str], how: str) -> str:
    """Return what this script prints in a process whose libraries are told to use other
    instructions.
    """
    path = os.pathsep.join([str(Path(engine.__file__).parents[2]), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.engine.trained", *words],
        env={**os.environ, **TOLD[how], "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def table() -> bool:
    """Print the hash for every build and instruction set; return whether they are the same for each
    method.
    """
    found: dict[str, set[str]] = {}
    for how in TOLD:
        for line in told(["all", "builds", *map(str, LONG)], how).splitlines():
            method, name, digest = line.split()
            found.setdefault(method, set()).add(digest)
            print(f"{how:12} {name:10} {method:12} {digest[:16]}", flush=True)
    return all(len(digests) == 1 for digests in found.values())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(0 if table() else 1)
    method, name, *numbers = sys.argv[1:]
    if (method, name) == ("all", "builds"):
        for build_ in engine.available():
            for one in METHODS:
                print(one, build_, trained(one, build_, *map(int, numbers)), flush=True)
    else:
        print(trained(method, name, *map(int, numbers)))
