"""The client: it tries again, keeps ids, and tells what cannot be helped."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from dualmix.client import Client, ServiceError
from dualmix.errors import ConfigError, InputError

X = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
DONE = {"number": 3, "repeated": False, "learned": False, "loss": None, "correct": None}


class Stub:
    """Answers with what it is told, in order; None ends the connection without an answer."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any] | None] = []
        self.seen: list[tuple[str, bytes, str | None]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub.seen.append((self.path, body, self.headers.get("Authorization")))
                told = stub.answers.pop(0)
                if told is None:
                    self.close_connection = True
                    return
                content = json.dumps(told[1]).encode()
                self.send_response(told[0])
                if isinstance(told[1], dict) and "after" in told[1]:
                    self.send_header("Retry-After", str(told[1]["after"]))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def test_a_batch_is_sent_again_under_the_same_id(stub: Stub) -> None:
    stub.answers = [None, (503, {"detail": "busy"}), (429, {"detail": "full"}), (200, DONE)]
    with Client(stub.url, token="word", longest_pause=0.01) as client:
        assert client.observe(X, [7]).number == 3
    assert len({path for path, _, _ in stub.seen}) == 1 and "id=" in stub.seen[0][0]
    assert {said for _, _, said in stub.seen} == {"Bearer word"}
    held = io.BytesIO(stub.seen[-1][1])
    assert (np.load(held) == X).all() and np.load(held).tolist() == [7]


def test_a_batch_that_cannot_be_used_is_not_sent_again(stub: Stub) -> None:
    stub.answers = [(422, {"detail": "Wrong shape."}), (401, {"detail": "No token."})]
    with Client(stub.url) as client:
        with pytest.raises(InputError, match="Wrong shape"):
            client.observe(X, ["a"])
        with pytest.raises(ServiceError, match="No token") as fault:
            client.predict(X)
    assert fault.value.status == 401 and len(stub.seen) == 2


def test_patience_has_an_end(stub: Stub) -> None:
    stub.answers = [(503, {"detail": "Away."})] * 50
    with (
        Client(stub.url, patience=0.1, longest_pause=0.02) as client,
        pytest.raises(ServiceError, match=r"Away\. Tried \d+ times") as fault,
    ):
        client.predict(X)
    assert fault.value.status == 503 and len(stub.seen) > 1
    with pytest.raises(ServiceError, match="does not answer"):
        Client("http://127.0.0.1:9", patience=0).predict(X)


def test_it_waits_as_long_as_the_service_says(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("dualmix.client.client.time.sleep", pauses.append)
    stub.answers = [(429, {"detail": "full", "after": 2})] * 9 + [
        (503, {"detail": ""}),
        (200, DONE),
    ]
    with Client(stub.url, patience=1000) as client:
        client.observe(X, [7])
    assert all(1.5 <= pause <= 2.5 for pause in pauses[:9]), "it does not grow beyond"
    assert pauses[9] > 5, "without a word of the service it does"


def test_labels_of_two_kinds_are_not_made_one(stub: Stub) -> None:
    with Client(stub.url) as client:
        for labels in ([1, "a"], [None, 1], np.array(["a", 2], object)):
            with pytest.raises(InputError, match="one kind"):
                client.observe(X, labels)
        stub.answers = [(200, DONE)]
        client.observe(X, np.array(["a"], object))
    assert len(stub.seen) == 1


def test_answers_are_arrays(stub: Stub) -> None:
    stub.answers = [
        (200, {"labels": ["a", "b"], "batches": 1}),
        (200, {"labels": [3, None], "batches": 1}),
        (200, {"labels": [[1, 2]], "probabilities": [[0.9, 0.1]], "batches": 1}),
        (200, {"classes": [1, 2], "probabilities": [[0.9, 0.1]], "batches": 1}),
    ]
    with Client(stub.url) as client:
        assert client.predict(X).tolist() == ["a", "b"]
        assert client.predict(X, at_least=0.5).tolist() == [3, None]
        assert [part.tolist() for part in client.top_k(X, 2)] == [[[1, 2]], [[0.9, 0.1]]]
        assert [part.tolist() for part in client.predict_proba(X)] == [[[0.9, 0.1]], [1, 2]]
    assert "at_least=0.5" in stub.seen[1][0] and "k=2" in stub.seen[2][0]


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", ""])
def test_an_address_must_be_one(url: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        Client(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://[::1", "http://\ud800", None, 3], ids=ascii
)
def test_what_is_no_address_at_all(url: Any) -> None:
    with pytest.raises(ConfigError, match="is no address such as"):
        Client(url)


@pytest.mark.parametrize("token", ["a\r\nX: y", "\u540d"])
def test_a_token_is_one_line_of_ascii(token: str) -> None:
    with pytest.raises(ConfigError, match="printable ASCII"):
        Client("http://127.0.0.1:1", token=token)


@pytest.mark.parametrize("told", [None, [], {}, {"labels": 3}, "x"])
def test_an_answer_of_another_program_is_one_sentence(stub: Stub, told: Any) -> None:
    stub.answers = [(200, told), (200, told)]
    with Client(stub.url) as client:
        with pytest.raises(ServiceError, match="none of a service of dualmix"):
            client.predict(X)
        with pytest.raises(ServiceError, match="none of a service of dualmix"):
            client.observe(X, [1])


def test_a_redirection_is_not_taken_for_an_answer(stub: Stub) -> None:
    stub.answers = [(302, {"labels": [1]})]
    with Client(stub.url) as client, pytest.raises(ServiceError, match="status 302"):
        client.predict(X)


def test_what_no_learner_takes_is_not_sent() -> None:
    client = Client("http://127.0.0.1:1", patience=0)
    masked: Any = np.ma.masked_equal(X, 0)
    for x in (masked, None, X.astype(complex)):
        with pytest.raises(InputError):
            client.predict(x)
    for y in ([None], [0, "a"], np.ma.masked_equal([0], 0), [object()]):
        with pytest.raises(InputError):
            client.observe(X, y)  # type: ignore[arg-type]
