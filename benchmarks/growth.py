"""How the time of a step and the memory of a process grow with stream, classes and memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import ratio_rows
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.errors import DualmixError
from dualmix.learn.arithmetic import Engine
from dualmix.learn.common import Parts
from dualmix.learn.types import Placement
from dualmix.registry import get_method
from dualmix.report.speed import Row, Stage
from dualmix.rng import generator
from dualmix.runs.build import build
from dualmix.runs.process import resident, settle

ROOT = Path(__file__).parents[1]
MB = 2**20
ALLOWED = 300
"""MB that a process may occupy beside its memory and its network: torch and Python themselves are
most of it.
"""

FOOTPRINTS = {
    "1,000 images": (1_000, 100),
    "5,000 images": (5_000, 100),
    "20,000 images": (20_000, 100),
    "1,000 classes": (1_000, 1_000),
    "10,000 classes": (1_000, 10_000),
}
"""The processes that are weighed, by what is large in them: images in memory and classes."""


def scale(
    images: int,
    classes: int,
    *,
    side: int = 8,
    batch: int = 100,
    width: int = 8,
    stages: int = 20,
    watch: Callable[[int, str], None] = lambda done, facts: None,
) -> list[Stage]:
    """Stream synthetic images of ever new classes through experience replay; return how its cost
    develops.

    Parameters
    ----------
    side, batch, width
        Pixels of an image's side, images of a step beside the ten rehearsed, and channels of the
        first stage. The defaults make a step cheap, so that a million images take minutes and what
        grows is a large part of it.
    watch
        Is told after each step how many images are done, and facts about them.
    """
    settle(1)
    shape = (3, side, side)
    made = build(
        get_method("er").model_validate({"memory": 5000}), shape, seed=0, model=Model(width=width)
    )
    assert isinstance(made, Parts)
    rng = generator(0, "scale")
    reached = []
    starts = np.arange(0, images, batch)
    for stretch in np.array_split(starts, min(stages, len(starts))):
        taken = []
        for start in stretch.tolist():
            done = min(start + batch, images)
            known, newest = len(made.model.labels), max(1, round(classes * done / images))
            y = rng.integers(max(0, newest - 50), newest, done - start)
            fresh = np.arange(known, newest)[: len(y)]
            y[: len(fresh)] = fresh
            x = rng.integers(0, 256, (len(y), *shape), dtype=np.uint8)
            began = time.process_time()
            made.observe(x, y)
            taken.append(time.process_time() - began)
            watch(done, f"{len(made.model.labels):,} classes")
        reached.append(Stage(done, len(made.model.labels), statistics.median(taken), resident()))
    return reached


@dataclass(frozen=True, slots=True)
class Footprint:
    """MB of a process at its peak, and of the memory and the network that it must hold."""

    peak: float
    memory: float
    network: float


def footprint(images: int, classes: int, *, steps: int = 10) -> Footprint:
    """Fill a memory of 32x32 images, learn `classes` labels one batch after the other, and answer
    for 500 images.

    To be called in a fresh process: the peak is that of the process.
    """
    settle(1)
    made = build(get_method("er").model_validate({"memory": images}), (3, 32, 32), seed=0)
    assert isinstance(made, Parts)
    rng = generator(0, "footprint")
    for start in range(0, classes, 10):
        made.model.admit(np.arange(start, min(start + 10, classes)))
    for start in range(0, images, 100):
        rows = min(100, images - start)
        raw = torch.from_numpy(rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8))
        columns = torch.from_numpy(rng.integers(0, classes, rows))
        made.memory.write(Placement(np.arange(start, start + rows)), raw, columns)
    for _ in range(steps):
        made.observe(
            rng.integers(0, 256, (10, 3, 32, 32), dtype=np.uint8), rng.integers(0, classes, 10)
        )
    made.predict(rng.integers(0, 256, (500, 3, 32, 32), dtype=np.uint8))
    memory = made.memory.x.nbytes + made.memory.y.nbytes
    network = sum(tensor.nbytes for tensor in made.model.state_dict().values())
    return Footprint(resident(peak=True), memory / MB, network / MB)


def weigh(rounds: int) -> list[Row]:
    """Measure the peak memory of fresh processes, each against its memory and network and `ALLOWED`
    MB.
    """
    peaks: dict[str, list[float]] = {"imports alone": [], **{name: [] for name in FOOTPRINTS}}
    ratios: dict[str, list[float]] = {name: [] for name in FOOTPRINTS}
    for _ in range(rounds):
        peaks["imports alone"].append(_in_new_process("growth.resident(peak=True)"))
        for name, (images, classes) in FOOTPRINTS.items():
            told = Footprint(**_in_new_process(f"asdict(growth.footprint({images}, {classes}))"))
            peaks[name].append(told.peak)
            ratios[name].append(told.peak / (told.memory + told.network + ALLOWED))
    rows = []
    for name, some in peaks.items():
        low, median, high = np.quantile(some, [0.25, 0.5, 0.75])
        spread = float((high - low) / 2 / median)
        if name not in ratios:
            rows.append(Row("memory", name, float(median), spread, unit="MB"))
            continue
        low, ratio, high = (float(q) for q in np.quantile(ratios[name], [0.25, 0.5, 0.75]))
        rows.append(Row("memory", name, float(median), spread, ratio, low, high, 1.0, unit="MB"))
    return rows


def trained(preset: str, engine: Engine, *, steps: int = 30) -> float:
    """Return the peak MB of this process, which must be a fresh one, once it has trained."""
    settle(1)
    method = compose(preset, {"data.name": "cifar100", "method.memory": 1000}).config.method
    made = build(method, (3, 32, 32), seed=0, model=Model(engine=engine))
    rng = generator(0, "trained")
    for _ in range(steps):
        made.observe(rng.integers(0, 256, (10, 3, 32, 32), dtype=np.uint8), rng.integers(0, 50, 10))
    return resident(peak=True)


def weigh_engines(presets: Iterable[str], rounds: int) -> list[Row]:
    """Measure the peak memory of fresh processes that train, native against torch."""
    rows = []
    for preset in presets:
        peaks: dict[str, list[float]] = {
            f"{engine}, {preset}": [
                _in_new_process(f"growth.trained({preset!r}, {engine!r})") for _ in range(rounds)
            ]
            for engine in ("torch", "native")
        }
        limits = {f"native, {preset}": 1.0}
        weighed = ratio_rows("engine, memory", peaks, f"torch, {preset}", limits)
        rows += [replace(row, unit="MB") for row in weighed]
    return rows


def _in_new_process(expression: str) -> Any:
    """Return what an expression gives in a fresh process."""
    script = (
        "import json; from dataclasses import asdict; from benchmarks import growth; "
        f"print(json.dumps({expression}))"
    )
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=ROOT
    )
    if ran.returncode:
        why = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DualmixError(f"A process to be weighed ended with code {ran.returncode}: {why}.")
    return json.loads(ran.stdout)
