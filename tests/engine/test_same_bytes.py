"""Training gives the same bytes with every build, and with torch told to use other instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dualmix import engine
from dualmix.learn import augment
from dualmix.learn.arithmetic import TORCH
from tests.engine.building import needs_engine
from tests.engine.trained import main

pytestmark = needs_engine
ROOT = Path(__file__).parents[2]
TOLD = {
    "plain": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}


@pytest.fixture(autouse=True)
def fastest():
    yield
    engine.select()


def test_builds() -> None:
    found = {name: main(name) for name in engine.available()}
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("told", ["plain", pytest.param("avx2", marks=pytest.mark.long)])
def test_torch_told_to_use_other_instructions(told: str) -> None:
    words = [sys.executable, "-m", "tests.engine.trained", engine.available()[0]]
    path = os.pathsep.join([str(Path(engine.__file__).parents[2]), str(ROOT)])
    told_so = {**os.environ, **TOLD[told], "PYTHONPATH": path}
    ran = subprocess.run(words, env=told_so, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == main(engine.available()[0])


def test_images_are_those_of_torch() -> None:
    rng = np.random.default_rng(0)
    x = torch.rand(6, 3, 15, 20, generator=torch.Generator().manual_seed(0))
    boxes = augment.Crop().boxes(6, (15, 20), rng)
    torch.testing.assert_close(engine.crop(x, boxes), TORCH.crop(x, boxes))
    torch.testing.assert_close(engine.grey(x, augment.GREY), augment.grey(x))
    torch.testing.assert_close(engine.means(x), x.mean((1, 2, 3), keepdim=True))
