"""The gate: who may ask, how much and for how long, before anything of a request is looked at."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dualmix.errors import ConfigError
from dualmix.serve.faults import RefusalError
from dualmix.serve.metrics import Metrics
from dualmix.store.files import read_bytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/docs", "/health", "/ready", "/openapi.json")
"""What needs no token: it tells nothing of what was learned."""
SHORTEST_TOKEN = 8
HEADER_BYTES = 16 * 1024
"""Of all headers of a request together."""
SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the gate lets pass.

    Attributes
    ----------
    token
        What `Authorization: Bearer` must say; none: anybody may ask.
    hosts
        Names that the Host header may have; none: any. On loopback it keeps pages of other sites
        out, whose names can be made to point here.
    body, seconds
        Bytes of a body, and how long one may take to arrive, or an answer to be fetched.
    """

    token: str | None = None
    hosts: frozenset[str] | None = None
    body: int = 16 * 2**20
    seconds: float = 30.0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path | None, told: str | None) -> str | None:
    """Return the token from a file, else from the environment; none where neither is given.

    Raises
    ------
    ConfigError
        It is empty, short or no printable ASCII: a header could not carry it.
    """
    if path is not None:
        token = read_bytes(path, 4096).decode("utf-8", "replace").strip()
        where = str(path)
    elif told:
        token, where = told.strip(), "DUALMIX_TOKEN"
    else:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"The token in {where} must be {SHORTEST_TOKEN} or more printable ASCII letters: make "
            "one, for example by `openssl rand -hex 32`."
        )
    return token


class Gate:
    """Wraps an app: token, host and origin first, then the length and the time of body and answer;
    counts all of it.
    """

    def __init__(self, app: App, rules: Rules, metrics: Metrics) -> None:
        self.app, self.rules, self.metrics = app, rules, metrics
        self._token = None if rules.token is None else _hashed(rules.token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SAFE]
            await asyncio.wait_for(send(message), self.rules.seconds)

        try:
            self._check(scope)
            await self.app(scope, self._measured(scope, receive), counted)
        except RefusalError as denied:
            if not status:
                await self._refuse(denied, counted)
        except TimeoutError:
            pass  # whoever asked does not fetch the answer: nothing is left to say
        finally:
            self.metrics.request(scope["path"], status, perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            raise RefusalError(431, f"The headers have more than {HEADER_BYTES} bytes: send fewer.")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self.rules.hosts is not None and name.strip("[]") not in self.rules.hosts:
            raise RefusalError(
                403,
                "This service is for this machine: ask it by 127.0.0.1 or localhost, or tell it by "
                "--name how a proxy calls it.",
            )
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin and origin.partition("://")[2] != host:
            raise RefusalError(403, "Pages of other sites may not use this service.")
        if self._token is not None and scope["path"] not in OPEN:
            told = headers.get(b"authorization", b"")
            kind, _, token = told.partition(b" ")
            fits = hmac.compare_digest(_hashed(token.strip()), self._token)
            if kind.lower() != b"bearer" or not fits:
                raise RefusalError(
                    401, "Send the header `Authorization: Bearer` with the right token."
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > self.rules.body:
            raise self._too_long()

    def _too_long(self) -> RefusalError:
        most = self.rules.body / 2**20
        return RefusalError(
            413, f"The body has more than {most:g} MB, the most: send smaller batches."
        )

    def _measured(self, scope: Scope, receive: Receive) -> Receive:
        """Receive a body of at most so many bytes within so many seconds."""
        loop = asyncio.get_running_loop()
        seen, end, whole = 0, loop.time() + self.rules.seconds, False

        async def measured() -> Message:
            nonlocal seen, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - loop.time()))
            except TimeoutError:
                seconds = self.rules.seconds
                raise RefusalError(
                    408, f"The body took more than {seconds:g} seconds: send smaller batches."
                ) from None
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if seen > self.rules.body:
                    raise self._too_long()
            return message

        return measured

    async def _refuse(self, denied: RefusalError, send: Send) -> None:
        content = json.dumps({"detail": str(denied)}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        if denied.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": denied.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _hashed(token: bytes) -> bytes:
    """Return a digest, so that a comparison tells neither letters nor length."""
    return hashlib.sha256(token).digest()
