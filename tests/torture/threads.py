"""Threads: eight predict while one observes, and two observe, for every method."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.torture.calls import methods, pixels, tiny
from tests.torture.jail import Kind, Outcome, WrongError, digest, judged
from tests.torture.shallow import shallow

BATCHES = 25
THREADS = 8
PREDICTIONS = 1_000


def batches(chance: Random) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a small stream of six classes."""
    draw = np.random.default_rng(chance.getrandbits(32))
    shapes = [(int(draw.integers(1, 6)), 1, 8, 8) for _ in range(BATCHES)]
    return [(draw.integers(0, 256, s, dtype=np.uint8), draw.integers(0, 6, s[0])) for s in shapes]


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Try both kinds of concurrency on one method."""
    name, stream = methods()[index % len(methods())], batches(chance)
    with shallow(index % 7 != 0):
        yield judged(
            f"{THREADS} threads predict while tiny({name!r}) observes", lambda: _reads(name, stream)
        )
        yield judged(f"two threads observe with tiny({name!r})", lambda: _writes(name, stream))


def _reads(name: str, stream: list[tuple[np.ndarray, np.ndarray]]) -> None:
    x, alone, shared = pixels(6), tiny(name), tiny(name)
    answers = []
    for batch in stream:
        alone.observe(*batch)
        answers.append(alone.predict(x).tolist())
    shared.observe(*stream[0])
    at, done, faults = [0], threading.Event(), []
    made = [0] * THREADS

    def ask(number: int) -> None:
        try:
            while not done.is_set() or sum(made) < PREDICTIONS:
                first = at[0]
                got = shared.predict(x).tolist()
                made[number] += 1
                if got not in answers[first : at[0] + 2]:
                    raise WrongError("a prediction belongs to no state before or after a batch")
        except BaseException as fault:
            faults.append(fault)

    crowd = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    for thread in crowd:
        thread.start()
    for number, batch in enumerate(stream[1:], 1):
        time.sleep(0.005)
        shared.observe(*batch)
        at[0] = number
    done.set()
    for thread in crowd:
        thread.join()
    if faults:
        raise faults[0]
    if digest(shared.state_dict()) != digest(alone.state_dict()):
        raise WrongError("predictions beside it changed what was learned")


def _writes(name: str, stream: list[tuple[np.ndarray, np.ndarray]]) -> None:
    learner = tiny(name)
    learner.observe(*stream[0])
    for pair in zip(stream[1::2], stream[2::2], strict=True):
        before = copy.deepcopy(learner.state_dict())
        orders = [digest(_after(name, before, order).state_dict()) for order in (pair, pair[::-1])]
        together = threading.Barrier(2)
        faults: list[BaseException] = []

        def work(batch: Any, together: Any = together, faults: Any = faults) -> None:
            together.wait()
            try:
                learner.observe(*batch)
            except BaseException as fault:
                faults.append(fault)

        crowd = [threading.Thread(target=work, args=(batch,)) for batch in pair]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        if faults:
            raise faults[0]
        if digest(learner.state_dict()) not in orders:
            raise WrongError("two batches observed at once were learned in neither order")


def _after(name: str, state: Any, order: Any) -> Any:
    learner = tiny(name)
    learner.load_state_dict(copy.deepcopy(state))
    for batch in order:
        learner.observe(*batch)
    return learner


KIND = Kind("threads", "predict beside observe, and two observes", 92, 2, 120, attempt)
