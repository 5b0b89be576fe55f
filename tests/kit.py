"""Helpers that several rooms' tests share: small batches, networks and memories, chosen retrievals,
and waiting for other processes.
"""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Placement

SHAPE = (1, 8, 8)
RESULTS = (
    "learner.safetensors",
    "scores.json",
    "confusion.npz",
    "plan.json",
    "plan.npz",
    "config.json",
)
"""What a run files that is the same however it was cut off."""
PATIENCE = 600.0
"""Seconds to wait for another process: far more than it needs, since the machine may be busy, and
less than a test's time limit."""


def wait_until(
    holds: Callable[[], bool], otherwise: str, *, seconds: float = PATIENCE, every: float = 0.02
) -> None:
    """Return as soon as something holds; fail if it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(every)


@contextmanager
def heeded(*numbers: signal.Signals) -> Iterator[None]:
    """Let processes that start within heed these signals: those of a shell's background job ignore
    Ctrl-C, and those under nohup the end of the terminal.
    """
    kept = {number: signal.signal(number, lambda caught, frame: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        state = stat.read_text().rsplit(")", 1)[1].split()[0] if Path("/proc/self").exists() else ""
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def images(rows: int, seed: int, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), dtype=np.uint8)


def batch(rows: int, seed: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    return images(rows, seed), np.random.default_rng(seed + 1000).integers(0, classes, rows)


def floats(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).float() / 255


def network(classes: int | None = 4, known: int = 4, seed: int = 1) -> Classifier:
    """Return a small network whose columns 0..known-1 are the labels 0..known-1."""
    model = Classifier(SHAPE, classes=classes, width=4, seed=seed)
    model.admit(np.arange(known))
    return model


def raw_rows(
    count: int, seed: int, low: int = 0, high: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images as a memory stores them, and columns."""
    rng = np.random.default_rng(seed)
    raw = torch.from_numpy(rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8))
    return raw, torch.from_numpy(rng.integers(low, high, count))


def warm_network(classes: int = 4) -> Classifier:
    """Return a network in training mode whose running statistics are not the initial ones."""
    model = network(classes)
    model.train()
    with torch.no_grad():
        for number in range(4):
            model(model.pixels(raw_rows(8, 70 + number)[0]))
    return model


def filled(capacity: int, seed: int = 50, classes: int = 4) -> Memory:
    """Return a full memory."""
    memory = Memory(capacity, SHAPE)
    x, y = batch(capacity, seed, classes)
    raw = torch.from_numpy(x).permute(0, 2, 3, 1).contiguous()
    memory.write(Placement(np.arange(capacity)), raw, torch.from_numpy(y))
    return memory


def stored(memory: Memory, slots: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a copy of some rows as floats and columns, read without the memory's own gather."""
    rows = torch.as_tensor(slots)
    return floats(memory.x[rows].permute(0, 3, 1, 2).contiguous().numpy()), memory.y[rows].clone()


class Chosen:
    """Retrieval of slots that the test chooses, one list a call."""

    def __init__(self, *slots: list[int]) -> None:
        self.slots, self.calls = list(slots), 0

    def __call__(self, memory: Any, new: Any, model: Any, rng: Any) -> np.ndarray:
        self.calls += 1
        return np.array(self.slots[(self.calls - 1) % len(self.slots)], dtype=np.int64)


def assert_same(got: torch.nn.Module, want: torch.nn.Module, atol: float = 1e-6) -> None:
    for (name, a), b in zip(got.state_dict().items(), want.state_dict().values(), strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-4, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
        )


def assert_nearest(learner: Any, x: np.ndarray) -> None:
    """Demand that each answer is the class with the nearest mean of unit features, to within
    rounding.
    """
    model = copy.deepcopy(learner.model).eval()
    old, y = stored(learner.memory, range(len(learner.memory)))
    with torch.no_grad():
        f, old = (model.embed(rows).double() for rows in (floats(x), old))
    f, old = f / f.norm(dim=1, keepdim=True), old / old.norm(dim=1, keepdim=True)
    means = torch.stack([old[y == c].mean(0) for c in range(len(model.labels))])
    means = means / means.norm(dim=1, keepdim=True)
    distance = (f[:, None] - means).norm(dim=2)
    assert len(set(distance.argmin(1).tolist())) > 1
    answers = torch.from_numpy(learner.predict(x))
    assert (distance.gather(1, answers[:, None])[:, 0] <= distance.min(1).values + 1e-5).all()
    assert learner.predict(x).tolist() == answers.tolist()
    torch.testing.assert_close(learner.means.double(), means, rtol=0, atol=1e-5)
