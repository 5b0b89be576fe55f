"""The client: one method per endpoint."""

from __future__ import annotations

import http.client
import io
import json
import os
import ssl
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualmix.errors import ConfigError, DualmixError, InputError
from dualmix.learn.inputs import as_array

AGAIN = (408, 429, 502, 503, 504, 507)
"""Answers after which the same request may succeed."""
_NPY = "application/x-npy"


class ServiceError(DualmixError):
    """The service refused, or could not be reached for as long as the client was told to try.

    Attributes
    ----------
    status
        Of HTTP; none: there was no answer.
    """

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


class Accepted(NamedTuple):
    """A batch that the service has on its disk.

    Attributes
    ----------
    number
        Its place in the journal.
    repeated
        The service had it already; it counts once.
    loss, correct
        Of a batch that was waited for.
    """

    number: int
    repeated: bool
    learned: bool
    loss: float | None
    correct: int | None


class Client:
    """Speaks with one service. Threads may share a client: each has a connection of its own.

    Parameters
    ----------
    url
        Such as ``http://127.0.0.1:8000``.
    token
        None: what DUALMIX_TOKEN says, if anything.
    timeout
        Seconds for one try.
    patience
        Seconds in all: until then a request that found the service busy, away or without room is
        made again. An `observe` keeps its id, so that it counts once.
    longest_pause
        Seconds of a pause between two tries, at most: else it is as long as the service says, or
        grows.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8000")
    >>> client.observe(images, labels)  # doctest: +SKIP
    >>> client.predict(images)  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        longest_pause: float = 10.0,
    ) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
            known = parts.scheme in ("http", "https") and self._host.encode("idna")
        except (ValueError, AttributeError, TypeError):
            known = False
        if not known:
            raise ConfigError(f"{url!a:.100} is no address such as http://127.0.0.1:8000.")
        self._secure = parts.scheme == "https"
        self._base = quote(parts.path.rstrip("/"), safe="/%")
        self._token = os.environ.get("DUALMIX_TOKEN") if token is None else token
        if self._token and not (self._token.isascii() and self._token.isprintable()):
            raise ConfigError("A token is made of printable ASCII letters: this one is not.")
        self._timeout, self._patience, self._longest = timeout, patience, longest_pause
        self._own = threading.local()

    def observe(
        self,
        x: ArrayLike,
        y: Sequence[int] | Sequence[str] | NDArray[Any],
        *,
        id: str | None = None,  # noqa: A002
        wait: bool = False,
    ) -> Accepted:
        """Send a batch; when this returns, the service will not lose it.

        Parameters
        ----------
        x, y
            As for a learner's `observe`.
        id
            Names the batch: the same id with the same batch counts once, however often it is sent;
            none: one is made.
        wait
            Return when the batch is learned, with its loss.

        Raises
        ------
        InputError
            The service cannot use the batch.
        ServiceError
            It could not be reached, or refuses for another reason.
        """
        query = {"id": id or uuid.uuid4().hex, "wait": str(wait).lower()}
        return _accepted(self._post("/observe", _saved(x, _labels(y)), query))

    def pause(self, *, id: str | None = None, wait: bool = False) -> Accepted:  # noqa: A002
        """Tell the learner of a pause in the stream (`consolidate`)."""
        query = {"id": id or uuid.uuid4().hex, "wait": str(wait).lower()}
        return _accepted(self._post("/pause", b"", query))

    def predict(self, x: ArrayLike, *, at_least: float = 0.0) -> NDArray[Any]:
        """Return a label per row; None (in an object array) where no class reached `at_least`."""
        said = self._post("/predict", _saved(x), {"at_least": str(at_least)})
        labels = _part(said, "labels")
        return np.asarray(labels, dtype=object if None in labels else None)

    def predict_proba(self, x: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return a probability per row and class, and the classes."""
        said = self._post("/probabilities", _saved(x))
        return np.asarray(_part(said, "probabilities")), np.asarray(_part(said, "classes"))

    def top_k(self, x: ArrayLike, k: int = 5) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the `k` likeliest labels per row and their probabilities."""
        said = self._post("/top-k", _saved(x), {"k": str(k)})
        return np.asarray(_part(said, "labels")), np.asarray(_part(said, "probabilities"))

    def labels(self) -> list[dict[str, Any]]:
        """Return the classes, when they came and how well they were recognised."""
        return _part(self._get("/labels"), "classes")

    def progress(self) -> dict[str, Any]:
        """Return prequential accuracy over time, and how the service goes."""
        said: dict[str, Any] = self._get("/progress")
        return said

    def settings(self) -> dict[str, Any]:
        """Return the learner's settings, and the limits of the service."""
        said: dict[str, Any] = self._get("/settings")
        return said

    def metrics(self) -> str:
        """Return the numbers in Prometheus' text format."""
        return self._request("GET", "/metrics").decode()

    def make_snapshot(self) -> dict[str, Any]:
        """Have the service save its learner now."""
        said: dict[str, Any] = self._post("/snapshot", b"")
        return said

    def learner(self) -> bytes:
        """Return the learner as it is now, as a file that `dualmix.load` reads."""
        return self._request("GET", "/snapshot")

    def wait_until_ready(self) -> None:
        """Return when the service takes batches, or raise `ServiceError` after `patience`."""
        self._get("/ready")

    def close(self) -> None:
        """Close this thread's connection."""
        if (held := getattr(self._own, "connection", None)) is not None:
            held.close()
            self._own.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str) -> Any:
        return _parsed(self._request("GET", path))

    def _post(self, path: str, body: bytes, query: Mapping[str, str] | None = None) -> Any:
        address = path + ("?" + urlencode(query) if query else "")
        return _parsed(self._request("POST", address, body))

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask until there is an answer that no further try would change."""
        end, tries = time.monotonic() + self._patience, 0
        while True:
            tries += 1
            status: int | None = None
            pause = 0.05 * 2 ** min(tries, 8)
            try:
                status, asked, content = self._once(method, path, body)
                sentence = _detail(content, status)
                pause = asked or pause
            except (OSError, http.client.HTTPException) as fault:
                self.close()
                sentence = f"The service does not answer ({type(fault).__name__}: {fault})."
            if status is not None and status < 300:
                return content
            if status == 422:
                raise InputError(sentence)
            if status is not None and status not in AGAIN:
                raise ServiceError(sentence, status)
            # A little chance keeps many clients from coming back at one moment.
            pause = min(pause, self._longest) * (0.75 + os.urandom(1)[0] / 512)
            if time.monotonic() + pause > end:
                raise ServiceError(f"{sentence} Tried {tries} times.", status)
            time.sleep(pause)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, float, bytes]:
        headers = {"Content-Type": _NPY} if body else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        # It may have refused before it had read all, and said why.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, self._base + path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.will_close:
            self.close()
        after = answer.headers.get("Retry-After", "0")
        return answer.status, float(after) if after.isdecimal() else 0.0, content

    def _connection(self) -> http.client.HTTPConnection:
        held: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if held is None:
            if self._secure:
                context = ssl.create_default_context()
                held = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout, context=context
                )
            else:
                held = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            self._own.connection = held
        return held


def _saved(*arrays: ArrayLike) -> bytes:
    """Return arrays one after the other, as `numpy.save` writes them."""
    held = io.BytesIO()
    for given in arrays:
        array = as_array(given, "Rows")
        if array.dtype.kind not in "biufU":
            raise InputError(f"Rows must be numbers, and labels texts too, not {array.dtype}.")
        np.save(held, array, allow_pickle=False)
    return held.getvalue()


def _labels(y: Any) -> NDArray[Any]:
    """Return labels as one array; texts of Python are none of numpy's."""
    labels = as_array(y, "Labels")
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat):
        return labels.astype(np.str_)
    if labels.dtype.kind == "O":
        raise InputError("Labels must be whole numbers or text, of one kind.")
    return labels


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise _strange("it is no JSON") from fault


def _part(said: Any, name: str) -> list[Any]:
    part = said.get(name) if isinstance(said, dict) else None
    if not isinstance(part, list):
        raise _strange(f"it has no {name}")
    return part


def _strange(why: str) -> ServiceError:
    return ServiceError(f"The answer is none of a service of dualmix ({why}): see the address.")


def _accepted(said: Any) -> Accepted:
    if not isinstance(said, dict) or not said.keys() >= set(Accepted._fields):
        raise _strange("it does not acknowledge the batch")
    return Accepted(**{name: said[name] for name in Accepted._fields})


def _detail(content: bytes, status: int) -> str:
    try:
        return str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"The service answered with status {status}."
