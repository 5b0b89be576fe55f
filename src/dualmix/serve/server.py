"""The process that serves: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dualmix.data.source import Fit
from dualmix.errors import ConfigError
from dualmix.serve.app import make_app
from dualmix.serve.gate import HEADER_BYTES, Rules, is_loopback
from dualmix.serve.service import Limits, Service
from dualmix.store.lock import Lock

DONE = "the snapshot is made."
WATCH = 0.2
"""Seconds between two looks whether the writer lives."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the service listens, and what it takes.

    Attributes
    ----------
    port
        0: any that is free.
    names
        Under which a proxy of this machine offers the service: what the Host header may say too.
    connections
        At the same time; more are refused.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    token: str | None = None
    body: int = 16 * 2**20
    seconds: float = 30.0
    connections: int = 128
    fit: Fit = "squeeze"
    gather: float = 0.0
    limits: Limits = field(default_factory=Limits)
    keep: bool = False


def origin_of(*parts: Any) -> str:
    """Return what tells one start of a journal from another."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def serve(start: Callable[[], Any], folder: Path, origin: str, place: Place, say: Say) -> None:
    """Serve a learner until a signal ends it: SIGTERM and Ctrl-C finish what was accepted, make a
    snapshot and leave.

    Parameters
    ----------
    start
        Makes the learner, where the folder has no snapshot yet.
    folder
        Of journal and snapshot.
    origin
        What tells this learner from another, the same at every start (`origin_of`).
    say
        Told what happens, a sentence at a time.

    Raises
    ------
    BusyError
        Another process serves from this folder.
    DualmixError
        The journal is damaged or another learner's, or the port is taken.
    """
    with Lock(folder).hold(), _listening(place) as listener:
        service = Service(start, folder, origin, limits=place.limits, keep=place.keep)
        if service.journal.cut:
            say(f"a write that was cut off ({service.journal.cut} bytes, never acknowledged) went.")
        if replayed := service.replay_to - service.replay_from:
            say(f"{replayed} batches of the journal are learned again.")
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        rules = Rules(place.token, _hosts(place), place.body, place.seconds)
        app = make_app(service, rules, fit=place.fit, gather=place.gather)
        config = uvicorn.Config(
            app,
            http=_protocol(place.seconds),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=place.connections,
            timeout_keep_alive=max(5, int(place.seconds)),
            timeout_graceful_shutdown=max(5, int(place.seconds)),
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        server = _Server(config, service)
        if place.token is None and not is_loopback(place.host):
            say(
                f"WARNING: {shown} can be reached from other machines, and anybody there may read "
                "and change the learner: give --token-file, or DUALMIX_TOKEN."
            )
        say(f"serving {service.learner!r} at http://{shown}:{port} (journal: {folder}).")
        service.start()
        try:
            with _signals(server):
                asyncio.run(server.serve(sockets=[listener]))
        finally:
            if waiting := service.waiting:
                say(f"leaving: {waiting} batches are learned first.")
            service.close()
        if service.fault is not None:
            raise service.fault
        say(f"left after {service.learned} records; {service.snapshot_fault or DONE}")


@contextmanager
def _listening(place: Place) -> Iterator[socket.socket]:
    """Take the port before anything is loaded."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (place.host, place.port), family=family, backlog=min(place.connections, 1024)
        )
    except (OSError, OverflowError) as fault:
        raise ConfigError(
            f"Port {place.port} of {place.host} cannot be listened on ({fault}): give another "
            "--port or --host."
        ) from fault
    with listener:
        yield listener


def _hosts(place: Place) -> frozenset[str] | None:
    """Return the names by which a service may be asked; none: any."""
    if not is_loopback(place.host):
        return None
    names = (place.host, *place.names)
    return frozenset({"localhost", "127.0.0.1", "::1", *(name.lower() for name in names)})


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to us and ends when the writer does."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again at its end."""
        yield

    async def main_loop(self) -> None:
        """Serve until asked to stop, or until nothing can be learned any more."""
        watch = asyncio.create_task(self._watch())
        try:
            await super().main_loop()
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while self.service.fault is None:
            await asyncio.sleep(WATCH)
        self.should_exit = True


@contextmanager
def _signals(server: uvicorn.Server) -> Iterator[None]:
    """Let the first SIGTERM or Ctrl-C end the server in peace, and the second at once."""

    def leave(*_: object) -> None:
        if server.should_exit:
            server.force_exit = True
        server.should_exit = True

    numbers = (signal.SIGTERM, signal.SIGINT)
    kept = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _protocol(seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol with a time limit for headers, which it has none for."""

    class Timed(H11Protocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._cancel()
            elif self.timer is None:
                self._start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def _start(self) -> None:
            self.timer = self.loop.call_later(seconds, self._give_up)

        def _cancel(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def _give_up(self) -> None:
            self.timer = None
            if self.conn.their_state is h11.IDLE:
                self.transport.close()

    return Timed
