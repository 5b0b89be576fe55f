"""The whole process: signals, kills, a second server, limits of sockets."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="SERVE EXTRA MISSING: pip install 'dualmix[serve]'")

import dualmix
from dualmix.client import Client, ServiceError
from dualmix.errors import InputError
from tests.kit import wait_until

from .asking import batch, learner

pytestmark = pytest.mark.slow
Start = Callable[..., tuple[subprocess.Popen[str], Client]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[subprocess.Popen[str]] = []
    clients: list[Client] = []
    dualmix.save(learner(), tmp_path / "l.safetensors")

    def begin(*words: str, before: str = "") -> tuple[subprocess.Popen[str], Client]:
        log = tmp_path / f"log{len(made)}"
        code = f"{before}\nfrom dualmix.cli import main\nmain()"
        command = [sys.executable, "-c", code, "serve", "l.safetensors", "--port", "0", *words]
        with log.open("w") as to:
            made.append(subprocess.Popen(command, cwd=tmp_path, stderr=to, text=True))
        found: list[str] = []

        def listens() -> bool:
            assert made[-1].poll() is None, log.read_text()
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
        if process.poll() is None:
            process.kill()
        process.wait()


def bytes_after(count: int) -> bytes:
    made = learner()
    for seed in range(count):
        made.observe(*batch(seed))
    return dualmix.to_bytes(made)


def test_killed_asked_to_leave_and_begun_again_it_goes_on(start: Start, tmp_path: Path) -> None:
    process, client = start("--queue", "500")
    for seed in range(10):
        client.observe(*batch(seed), id=f"b{seed}")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process, client = start()
    assert client.learner() == bytes_after(10)
    assert client.observe(*batch(9), id="b9").repeated
    second = subprocess.run(
        [sys.executable, "-m", "dualmix", "serve", "l.safetensors", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert second.returncode == 2 and "is working on" in second.stderr
    for seed in range(10, 20):
        client.observe(*batch(seed))
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 0
    snapshot = tmp_path / "l.safetensors.journal" / "snapshot.safetensors"
    assert dualmix.to_bytes(dualmix.load(snapshot)) == bytes_after(20)
    assert "left after 20 records" in (tmp_path / "log1").read_text()
    dualmix.save(learner(classes=9), tmp_path / "l.safetensors")
    with pytest.raises(AssertionError, match="journal of another learner"):
        start()


def test_a_full_disk_refuses_batches_and_answers_go_on(start: Start, tmp_path: Path) -> None:
    limit = 40_000
    before = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    process, client = start(before=before)
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
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 0
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
