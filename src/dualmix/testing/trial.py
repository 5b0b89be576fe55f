"""What a method is tried on: a small learner, a short stream, and batches that must be refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualmix.config.fields import Model
from dualmix.learn.types import Learner, Shape
from dualmix.registry import Method
from dualmix.rng import generator
from dualmix.runs.build import build

Step = tuple[NDArray[np.uint8], NDArray[np.int64]]

CAPACITY = 20
STEPS = 8
ROWS = 4


def small_learner(
    method: Method, shape: Shape, *, seed: int = 0, classes: int | None = None
) -> Learner:
    """Build a narrow network with a memory of at most `CAPACITY` rows."""
    memory = getattr(method, "memory", None)
    if isinstance(memory, int):
        method = method.model_copy(update={"memory": min(memory, CAPACITY)})
    return build(method, shape, classes=classes, seed=seed, model=Model(width=4, hidden=8))


def taught(learner: Learner, batches: list[Step], *, consolidate: bool = True) -> Learner:
    """Return the learner after the batches, and after the end of the task."""
    for x, y in batches:
        learner.observe(x, y)
    if consolidate:
        learner.consolidate()
    return learner


def stream(shape: Shape, steps: int = STEPS, rows: int = ROWS) -> list[Step]:
    """Return batches in which each step brings one new class beside old ones."""
    rng = generator(0, "contract labels")
    return [
        (
            images(shape, rows, step),
            np.append(rng.integers(0, step + 1, rows - 1), min(step, STEPS - 1)) % STEPS,
        )
        for step in range(steps)
    ]


def images(shape: Shape, rows: int, number: int) -> NDArray[np.uint8]:
    """Return the rows of a batch, always the same for its number."""
    return generator(0, "contract images", number).integers(0, 256, (rows, *shape), np.uint8)


def bad_images(shape: Shape) -> Iterator[tuple[str, Any]]:
    """Yield what no learner can predict, each with its description."""
    good = images(shape, 2, 5)
    if len(shape) == 1:
        yield from _bad_vectors(good)
        return
    channels, height, width = shape
    for name, pixel in {
        "NaN": np.nan,
        "infinite": np.inf,
        "negative": -0.1,
        "above 1": 1.5,
    }.items():
        x = good / np.float32(255)
        x[1, 0, 0, 0] = pixel
        yield f"{name} float pixels", x
        yield f"{name} float pixels in a tensor", torch.from_numpy(x)
    yield "an empty batch", good[:0]
    yield (
        "another number of channels",
        np.repeat(good[:, :1], 4 - channels if channels < 4 else 1, axis=1),
    )
    yield "another height", good[:, :, : height - 1]
    yield "another width", np.concatenate([good, good], axis=3)
    yield "whole numbers that are not uint8", good.astype(np.int32)
    yield "whole numbers that are not uint8, in a tensor", torch.from_numpy(good.astype(np.int64))
    yield "one image without the axis of the batch", good[0]
    if (height, width, channels) != shape:
        yield "channels that come last", good.transpose(0, 2, 3, 1)


def _bad_vectors(good: NDArray[Any]) -> Iterator[tuple[str, Any]]:
    for number in (np.nan, np.inf, 1e300):
        x = good.astype(np.float64)
        x[1, 0] = number
        yield f"vectors with {number}", x
        yield f"vectors with {number} in a tensor", torch.from_numpy(x)
    yield "an empty batch", good[:0]
    yield "longer vectors", np.concatenate([good, good], axis=1)
    yield "one vector without the axis of the batch", good[0]
    yield "images", good[:, None, :, None]
    yield "text", good.astype(str)


def bad_batches(shape: Shape) -> Iterator[tuple[str, Any, Any]]:
    """Yield what no learner can learn, each with its description."""
    for what, x in bad_images(shape):
        yield what, x, [50, 51][: len(x)]
    good = images(shape, 2, 5)
    yield "fractional labels", good, [0.5, 50.0]
    yield "NaN labels", good, [50.0, np.nan]
    yield "too few labels", good, [50]
    yield "too many labels", good, [50, 51, 52]
    yield "one label without an axis", good, np.int64(50)
    yield "labels in a table", good, [[50], [51]]
    yield "labels that are no labels", good, [None, None]
    yield "text after numbers", good, ["fifty", "one"]
