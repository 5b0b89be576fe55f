"""Builds of single layers and of mutated transforms, in a folder of their own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import dualmix.engine

SOURCES = Path(dualmix.engine.__file__).parent
HERE = Path(__file__).parent
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-Wno-psabi",
)
MACHINE = {
    "portable": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"),
}

needs_engine = pytest.mark.skipif(
    not dualmix.engine.available(), reason="the native engine was not built"
)
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def compiled(
    source: Path, folder: Path, *, build: str = "portable", headers: Path = SOURCES
) -> ctypes.CDLL:
    out = folder / f"{source.stem}-{build}.so"
    words = ["gcc", *FLAGS, *MACHINE[build], f"-I{headers}", str(source), "-o", str(out), "-lm"]
    subprocess.run(words, check=True, capture_output=True)
    return ctypes.CDLL(str(out))
