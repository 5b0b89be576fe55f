"""What the studies of the service share: a server in a process of its own, and real images."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dualmix
from dualmix.cli import main
from dualmix.client import Client, ServiceError
from dualmix.config.compose import compose_data
from dualmix.data import load
from dualmix.serve.record import Record, parse

FILE = "learner.safetensors"
Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def images(name: str = "digits", root: str | None = None) -> Batch:
    """Return the training images (n, C, H, W) and labels of a data set, classes in turn: what a
    stream of a new class now and then looks like.
    """
    told: dict[str, Any] = {"data.name": name}
    if root:
        told["data.root"] = root
    found = load(compose_data(told))
    order = np.argsort(found.train_y // 2, kind="stable")
    rng = np.random.default_rng(0)
    for pair in np.unique(found.train_y // 2):
        rows = np.flatnonzero(found.train_y[order] // 2 == pair)
        order[rows] = rng.permutation(order[rows])
    x = np.ascontiguousarray(found.train_x[order].transpose(0, 3, 1, 2))
    return x, found.train_y[order]


def begin(folder: Path, shape: tuple[int, ...]) -> None:
    """Save a new learner, which the service and the reference begin with."""
    dualmix.save(dualmix.create("er", shape, memory=500, width=8, lr=0.05), folder / FILE)


def _run(folder: Path, words: Sequence[str]) -> None:
    """Be `dualmix serve`."""
    os.chdir(folder)
    log = os.open("server.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 2)
    main(words)


class Server:
    """`dualmix serve` in a process of its own, on a port that stays the same.

    The process is forked from one that has imported torch already, so that it begins at once."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["studies.serving", "dualmix.serve.server", "sklearn.datasets"])

    def __init__(self, folder: Path, words: Sequence[str], port: int) -> None:
        self.folder, self.words, self.port = folder, list(words), port
        self.process: Any = None
        self.log = folder / "server.log"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.is_alive():
            self.kill()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it may need a moment until it answers."""
        words = ["serve", FILE, *self.words, "--journal", "journal", "--port", str(self.port)]
        self.process = self.context.Process(target=_run, args=(self.folder, words), daemon=True)
        self.process.start()

    def kill(self) -> None:
        """End it as a power cut does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def stop(self) -> int:
        """Ask it to leave, and return its exit code."""
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.join(600)
        return int(self.process.exitcode)

    def wait(self) -> None:
        """Wait until it takes batches."""
        end = time.monotonic() + 300
        client = Client(self.url, patience=1, longest_pause=0.1)
        while True:
            assert self.process.is_alive(), self.log.read_text()
            try:
                return client.wait_until_ready()
            except ServiceError:
                assert time.monotonic() < end, "the service did not begin"


def records(segments: Sequence[Path]) -> list[Record]:
    """Return the records of all segments in order, each number once."""
    from dualmix.serve.journal import Segment

    found: dict[int, bytes] = {}
    for path in segments:
        frames = Segment(int(path.stem), path).frames()
        next(frames, None)
        for frame in frames:
            assert found.setdefault(frame.number, frame.payload) == frame.payload
    assert sorted(found) == list(range(len(found))), "the journal has a gap"
    return [parse(found[number]) for number in sorted(found)]


def percentiles(seconds: Sequence[float]) -> str:
    """Write the median and the 99th percentile in milliseconds."""
    low, high = np.percentile(np.asarray(seconds), (50, 99)) * 1000
    return f"p50 {low:.1f} ms, p99 {high:.1f} ms"
