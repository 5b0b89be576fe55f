"""Micro-batches: single images that are asked about at the same time are looked at together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.learn.modes import CHUNK
from dualmix.serve.service import Scores

Ask = Callable[[NDArray[Any]], Scores]


class Gathering:
    """Collects rows for a moment and asks about all of them at once.

    Parameters
    ----------
    ask
        Scores a batch.
    patience
        Seconds that the first row waits for others.
    """

    def __init__(self, ask: Ask, patience: float) -> None:
        self._ask, self._patience = ask, patience
        self._rows: SimpleQueue[tuple[NDArray[Any], Future[Scores]] | None] = SimpleQueue()
        self.batches = self.rows = 0
        threading.Thread(target=self._work, name="gathering", daemon=True).start()

    def __call__(self, row: NDArray[Any]) -> Scores:
        """Score one row (1, ...), checked before, with whatever others come."""
        done: Future[Scores] = Future()
        self._rows.put((row, done))
        return done.result()

    def close(self) -> None:
        """End; rows that wait are still answered."""
        self._rows.put(None)

    def _work(self) -> None:
        while (first := self._rows.get()) is not None:
            held, end = [first], time.monotonic() + self._patience
            while len(held) < CHUNK:
                try:
                    more = self._rows.get(timeout=max(0.0, end - time.monotonic()))
                except Empty:
                    break
                if more is None:
                    self._rows.put(None)
                    break
                held.append(more)
            self._answer([row for row, _ in held], [done for _, done in held])

    def _answer(self, rows: list[NDArray[Any]], waiting: list[Future[Scores]]) -> None:
        self.batches, self.rows = self.batches + 1, self.rows + len(rows)
        try:
            scored = self._ask(np.concatenate(rows))
        except BaseException as fault:  # each of those who wait must hear of it
            for done in waiting:
                done.set_exception(fault)
            return
        for place, done in enumerate(waiting):
            done.set_result(scored._replace(scores=scored.scores[place : place + 1]))
