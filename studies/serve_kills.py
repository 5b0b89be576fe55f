"""Must show 2: the service is killed again and again at random moments while clients send batches
and try again. Every acknowledged batch must be there once, and the final learner must be the one
that a sequential replay of the journal gives, byte for byte.

    python -m studies.serve_kills --kills 200
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dualmix
from dualmix.client import Client
from studies.serving import FILE, Server, begin, images, records


def main() -> None:
    """Run the study and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--port", type=int, default=8732)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=1.5, help="seconds from ready to kill")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        _study(Path(name), given)


def _study(folder: Path, given: argparse.Namespace) -> None:  # noqa: PLR0915
    x, y = images()
    words = ["--snapshot-every", "25", "--queue", "8"]
    begin(folder, (1, 8, 8))
    server = Server(folder, words, given.port)
    journal, history = folder / "journal", folder / "history"
    history.mkdir()
    over = threading.Event()
    acknowledged: dict[str, bytes] = {}
    repeats: list[str] = []

    def link() -> None:
        """Keep every segment, for the service forgets what its snapshots hold."""
        while not over.wait(0.02):
            for path in journal.glob("*.journal"):
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(path, history / path.name)

    def send(number: int) -> None:
        client = Client(server.url, patience=3600, timeout=20, longest_pause=0.3)
        rng = np.random.default_rng(number)
        turn = 0
        while not over.is_set():
            rows = rng.integers(0, len(x), 10)
            name = f"{number}-{turn}"
            got = client.observe(x[rows], y[rows], id=name)
            acknowledged[name] = x[rows].tobytes()
            if got.repeated:
                repeats.append(name)
            turn += 1

    rng = np.random.default_rng(given.seed)
    watcher = threading.Thread(target=link)
    senders = [threading.Thread(target=send, args=(number,)) for number in range(given.clients)]
    for thread in (watcher, *senders):
        thread.start()
    began = time.monotonic()
    for kill in range(given.kills):
        server.start()
        if rng.random() < 0.8:
            server.wait()
            time.sleep(rng.uniform(0, given.longest))
        else:  # while it begins
            time.sleep(rng.uniform(0, 1.5))
        server.kill()
        if kill % 20 == 19:
            print(f"{kill + 1} kills, {len(acknowledged)} batches acknowledged", flush=True)
    server.start()
    server.wait()
    time.sleep(1.0)
    for thread in senders:
        over.set()
        thread.join()
    code = server.stop()
    watcher.join()
    for path in journal.glob("*.journal"):
        with suppress(FileExistsError):
            os.link(path, history / path.name)
    _compare(journal, history, acknowledged)
    print(f"{given.kills} kills in {time.monotonic() - began:.0f} s, exit code {code}; "
          f"{len(repeats)} acknowledgements were lost and given again")  # fmt: skip


def _compare(journal: Path, history: Path, acknowledged: dict[str, bytes]) -> None:
    kept = records(sorted(history.glob("*.journal")))
    names = [record.name for record in kept]
    once = len(set(names)) == len(names)
    same = {record.name: record.x.tobytes() for record in kept} == acknowledged
    print(f"{len(acknowledged)} batches acknowledged, {len(names)} in the journal; each once: "
          f"{once}; the same batches: {same}")  # fmt: skip
    reference: Any = dualmix.load(journal.parent / FILE)
    for record in kept:
        reference.observe(record.x, list(record.y))
    served = dualmix.load(journal / "snapshot.safetensors")
    equal = dualmix.to_bytes(reference) == dualmix.to_bytes(served)
    print(f"final bytes equal to a sequential replay: {equal}")
    assert once and same and equal


if __name__ == "__main__":
    main()
