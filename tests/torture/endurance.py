"""Endurance: memory stays flat over many calls, and thousands of classes come one by one."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

import dualmix
from tests.torture.calls import methods, pixels, tiny
from tests.torture.jail import Kind, Outcome, WrongError, digest, judged
from tests.torture.shallow import shallow

CALLS = 1_000
ROUNDS = 20
GROWTH = 1 << 20
"""Bytes per 1,000 calls that are noise."""
CLASSES = 5_000


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Let one method learn for long; the first case also meets thousands of classes."""
    name = "er" if index == 0 else chance.choice(methods())
    with shallow():
        if index == 0:
            yield judged(f"{CLASSES} classes one by one", _classes)
        learner, sizes = tiny(name), []
        for _ in range(ROUNDS):
            yield judged(f"{CALLS} x tiny({name!r}).observe", lambda: _calls(learner))
            gc.collect()
            sizes.append(resident())
        story = f"memory of tiny({name!r}) over {ROUNDS * CALLS} calls: {sizes}"
        yield judged(story, lambda: _flat(sizes))


def _calls(learner: dualmix.Learner) -> None:
    for number in range(CALLS):
        learner.observe(pixels(1 + number % 3), [number % 7] * (1 + number % 3))
        if not number % 10:
            learner.predict(pixels(2))


def _flat(sizes: list[int]) -> None:
    half = sizes[len(sizes) // 2 :]
    slope = float(np.polyfit(np.arange(len(half)), half, 1)[0])
    if slope > GROWTH:
        raise WrongError(f"memory grows by more than {GROWTH >> 10} KiB per {CALLS} calls")


def _classes() -> None:
    learner = tiny("er")
    for label in range(CLASSES):
        learner.observe(pixels(1), [label])
    dualmix.save(learner, "many")
    if digest(dualmix.load("many").state_dict()) != digest(learner.state_dict()):
        raise WrongError(f"a learner of {CLASSES} classes is another one when it is loaded")
    if not 0 <= learner.predict(pixels(1))[0] < CLASSES:
        raise WrongError("predict gave a label that was never seen")


KIND = Kind("endurance", "memory over 20,000 calls per case", 105, ROUNDS + 1, 600, attempt)
