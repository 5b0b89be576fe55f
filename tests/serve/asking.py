"""A request to the app without a socket, and a service of a tiny learner."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dualmix
from dualmix.serve.service import Limits, Service
from tests.kit import wait_until

SHAPE = (1, 8, 8)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        return self.json["detail"]


GONE = "gone"
"""A part of a body: whoever asked goes away."""


def ask(app: Any, method: str, path: str, *given: Any, **headers: str) -> Answer:
    """Ask once."""
    return asyncio.run(asking(app, method, path, *given, **headers))


async def asking(
    app: Any,
    method: str,
    path: str,
    body: bytes | list[bytes | float | str] = b"",
    kind: str = "application/json",
    **headers: str,
) -> Answer:
    """Ask once; a body may come in parts, numbers among them are seconds to wait."""
    parts = [body] if isinstance(body, bytes) else list(body)
    path, _, query = path.partition("?")
    given = {"host": "127.0.0.1:8000", "content-type": kind, **headers}
    if isinstance(body, bytes) and body:
        given.setdefault("content-length", str(len(body)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    told: list[Any] = []

    async def receive() -> Any:
        while parts and isinstance(parts[0], float):
            await asyncio.sleep(parts.pop(0))
        if not parts:
            await asyncio.sleep(3600)
        part = parts.pop(0)
        if part == GONE:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    start = told[0]
    found = {k.decode(): v.decode() for k, v in start["headers"]}
    return Answer(start["status"], found, b"".join(m.get("body", b"") for m in told[1:]))


def saved(*arrays: Any) -> bytes:
    held = io.BytesIO()
    for array in arrays:
        np.save(held, np.asarray(array), allow_pickle=False)
    return held.getvalue()


def learner(**more: Any) -> Any:
    return dualmix.create("er", SHAPE, memory=20, model="linear", lr=0.5, seed=3, **more)


def batch(seed: int, rows: int = 4, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, *SHAPE), dtype=np.uint8), rng.integers(0, classes, rows)


def service(folder: Path, start: Any = learner, **limits: Any) -> Service:
    made = Service(start, folder, "origin", limits=Limits(**limits))
    made.start()
    wait_until(lambda: made.ready or made.fault is not None, "it never got ready")
    return made
