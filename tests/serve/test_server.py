"""The whole process: signals, kills, a second server, limits of sockets."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="SERVE EXTRA MISSING: pip install 'dualmix[serve]'")

import dualmix
from dualmix.cli import main
from dualmix.client import Client, ServiceError
from dualmix.errors import InputError
from tests.kit import wait_until

from .asking import batch, learner

pytestmark = pytest.mark.slow
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["torch", "dualmix.cli", "dualmix.runs.build", "dualmix.serve.server"]
)
"""What takes seconds to import is imported once, and each service is forked from there."""


class Process:
    """`dualmix serve` in a process of its own."""

    def __init__(self, folder: Path, log: Path, words: Sequence[str], limit: int | None) -> None:
        self.log = log
        self.made = FORKED.Process(target=be, args=(folder, log, list(words), limit), daemon=True)
        self.made.start()

    def end(self, number: int) -> int | None:
        """Send a signal, and return the exit code."""
        assert self.made.pid is not None
        os.kill(self.made.pid, number)
        return self.wait()

    def wait(self) -> int | None:
        self.made.join(600)
        return self.made.exitcode


def be(folder: Path, log: Path, words: list[str], limit: int | None) -> None:
    """Be the command."""
    os.chdir(folder)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    main(["serve", "l.safetensors", "--port", "0", *words])


Start = Callable[..., tuple[Process, Client]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Process] = []
    clients: list[Client] = []
    dualmix.save(learner(), tmp_path / "l.safetensors")

    def begin(*words: str, limit: int | None = None) -> tuple[Process, Client]:
        log = tmp_path / f"log{len(made)}"
        log.touch()
        made.append(Process(tmp_path, log, words, limit))
        found: list[str] = []

        def listens() -> bool:
            assert made[-1].made.is_alive(), log.read_text()
            found[:] = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())
            return bool(found)

        wait_until(listens, "the service did not begin")
        client = Client(found[0], longest_pause=0.1)
        clients.append(client)
        client.wait_until_ready()
        return made[-1], client

    yield begin
    for client in clients:
        client.close()
    for process in made:
        if process.made.is_alive():
            process.end(signal.SIGKILL)


def bytes_after(count: int) -> bytes:
    made = learner()
    for seed in range(count):
        made.observe(*batch(seed))
    return dualmix.to_bytes(made)


def test_killed_asked_to_leave_and_begun_again_it_goes_on(start: Start, tmp_path: Path) -> None:
    process, client = start("--queue", "500")
    for seed in range(10):
        client.observe(*batch(seed), id=f"b{seed}")
    assert process.end(signal.SIGKILL) == -signal.SIGKILL
    process, client = start()
    assert client.learner() == bytes_after(10)
    assert client.observe(*batch(9), id="b9").repeated
    second = Process(tmp_path, tmp_path / "second", [], None)
    assert second.wait() == 2 and "is working on" in second.log.read_text()
    for seed in range(10, 20):
        client.observe(*batch(seed))
    assert process.end(signal.SIGTERM) == 0
    snapshot = tmp_path / "l.safetensors.journal" / "snapshot.safetensors"
    assert dualmix.to_bytes(dualmix.load(snapshot)) == bytes_after(20)
    assert "left after 20 records" in (tmp_path / "log1").read_text()
    dualmix.save(learner(classes=9), tmp_path / "l.safetensors")
    with pytest.raises(AssertionError, match="journal of another learner"):
        start()


def test_a_full_disk_refuses_batches_and_answers_go_on(start: Start, tmp_path: Path) -> None:
    process, client = start(limit=40_000)
    accepted = 0
    with (
        Client(f"http://{client._host}:{client._port}", patience=0) as hasty,
        pytest.raises(ServiceError, match="free some space") as fault,
    ):
        for seed in range(200):
            hasty.observe(*batch(seed % 5, rows=16), wait=True)
            accepted += 1
    assert fault.value.status == 507 and accepted > 5
    assert len(client.predict(batch(1)[0])) == 4
    assert client.progress()["batches"] == accepted
    assert process.end(signal.SIGTERM) == 0
    _, client = start()
    assert client.progress()["batches"] == accepted, "what was acknowledged is there"


def test_headers_are_bounded_in_length_and_time(start: Start) -> None:
    _, client = start("--time-limit", "1", "--connections", "8")
    with socket.create_connection((client._host, client._port or 0)) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        slow.settimeout(300)
        assert slow.recv(100) == b"", "it hangs up"
    connection = http.client.HTTPConnection(client._host, client._port, timeout=300)
    connection.putrequest("GET", "/health")
    connection.putheader("X-Long", "a" * 100_000)
    connection.endheaders()
    assert connection.getresponse().status in (400, 431)
    connection.close()
    client.wait_until_ready()


def test_listening_elsewhere_without_a_token_is_warned_of(start: Start, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-enough-token")
    os.environ.pop("DUALMIX_TOKEN", None)
    _, client = start("--token-file", "token")
    with pytest.raises(ServiceError, match="Bearer"):
        client.predict(batch(0)[0])
    with (
        Client(f"http://{client._host}:{client._port}", token="a-long-enough-token") as known,
        pytest.raises(InputError, match="Nothing has been learned"),
    ):
        known.predict(batch(0)[0])
    process = subprocess.Popen(
        [sys.executable, "-m", "dualmix", "serve", "l.safetensors", "--port", "0", "--host",
         "0.0.0.0", "--journal", "other"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "WARNING" in process.stderr.readline()
    process.kill()
    process.communicate()
