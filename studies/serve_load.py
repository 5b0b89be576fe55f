"""Must show 1: clients that observe and predict at once. Throughput, latency, memory, and every
answer held against a sequential reference.

    python -m studies.serve_load --seconds 60 --clients 8
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import dualmix
from dualmix.client import Client
from dualmix.client.client import _saved
from studies.serving import FILE, Server, begin, images, percentiles, records

ASKED = 4
"""Predictions per batch that is sent."""
MOST = 100_000
"""Requests of one client."""


class Asked(NamedTuple):
    """A prediction: rows, the answer, and the batches that had been learned."""

    x: NDArray[np.uint8]
    labels: list[int]
    batches: int


def main() -> None:
    """Run the study and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--root")
    parser.add_argument("--port", type=int, default=8731)
    parser.add_argument("--gather", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    x, y = images(given.data, given.root)
    words = ["--keep-journal", "--snapshot-every", "500"]
    words += ["--gather", given.gather] if given.gather else []
    with tempfile.TemporaryDirectory() as name:
        begin(Path(name), x.shape[1:])
        with Server(Path(name), words, given.port) as server:
            server.wait()
            Client(server.url).observe(x[:10], y[:10], wait=True)
            told = _drive(server, x, y, given)
            print(f"exit code {server.stop()}")
        _compare(Path(name), told)


def _drive(server: Server, x: Any, y: Any, given: argparse.Namespace) -> list[Asked]:
    end = time.monotonic() + given.seconds
    observed: list[float] = []
    predicted: list[float] = []
    asked: list[Asked] = []
    faults: list[str] = []
    place, lock = [10], threading.Lock()

    def work(number: int) -> None:
        client, rng = Client(server.url, patience=120), np.random.default_rng(number)
        for turn in range(MOST):
            if time.monotonic() > end:
                return
            try:
                if turn % (ASKED + 1) == 0:
                    with lock:
                        start = place[0] % (len(x) - 10)
                        place[0] += 10
                    began = time.perf_counter()
                    client.observe(x[start : start + 10], y[start : start + 10])
                    observed.append(time.perf_counter() - began)
                else:
                    rows = x[rng.integers(0, len(x), 1 if turn % 2 else 10)]
                    began = time.perf_counter()
                    said = client._post("/predict", _saved(rows))
                    predicted.append(time.perf_counter() - began)
                    asked.append(Asked(rows, said["labels"], said["batches"]))
            except Exception as fault:  # the study must tell it, not die of it
                faults.append(f"{type(fault).__name__}: {fault}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(given.clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    sizes = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(5.0, given.seconds / 8))
        text = Client(server.url).metrics()
        (line,) = [one for one in text.splitlines() if one.startswith("dualmix_resident_bytes ")]
        sizes.append(float(line.split()[1]) / 2**20)
    took = time.monotonic() - began
    print(f"{given.clients} clients, {took:.0f} s, {len(faults)} faults {faults[:3]}")
    print(f"observe: {len(observed)} batches of 10, {len(observed) / took:.1f} per second, "
          f"{percentiles(observed)}")  # fmt: skip
    print(f"predict: {len(predicted)}, {len(predicted) / took:.1f} per second, "
          f"{percentiles(predicted)}")  # fmt: skip
    print("resident MB:", " ".join(f"{size:.0f}" for size in sizes))
    return asked


def _compare(folder: Path, told: list[Asked]) -> None:
    """Learn the journal one record after the other, and ask what was asked at each moment."""
    reference: Any = dualmix.load(folder / FILE)
    by_step: dict[int, list[Asked]] = {}
    for one in told:
        by_step.setdefault(one.batches, []).append(one)
    wrong = checked = 0
    for record in records(sorted((folder / "journal").glob("*.journal"))):
        reference.observe(record.x, list(record.y))
        for one in by_step.pop(reference.ages.steps, []):
            checked += 1
            wrong += reference.predict(one.x).tolist() != one.labels
    assert not by_step, f"answers from states that never were: {sorted(by_step)[:5]}"
    print(f"answers checked against a sequential reference: {checked}, wrong: {wrong}")
    served = dualmix.load(folder / "journal" / "snapshot.safetensors")
    print(f"final bytes equal: {dualmix.to_bytes(reference) == dualmix.to_bytes(served)}")


if __name__ == "__main__":
    main()
