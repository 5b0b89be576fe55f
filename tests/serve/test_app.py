"""The endpoints: what they take, what they refuse and in which words."""

from __future__ import annotations

import asyncio
import io
import json
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="SERVE EXTRA MISSING: pip install 'dualmix[serve]'")

from dualmix.errors import ConfigError, InputError
from dualmix.serve import bodies, page, pictures
from dualmix.serve.app import make_app
from dualmix.serve.desk import DECODED
from dualmix.serve.gate import Rules, is_loopback, read_token
from dualmix.serve.pictures import decode
from dualmix.serve.service import Service
from studies.serve_fuzz import KINDS, PATHS, QUERIES, mutated, seeds

from .asking import GONE, SHAPE, Answer, ask, asking, batch, learner, saved, service

X, Y = batch(0)
BODY = json.dumps({"x": X.tolist(), "y": Y.tolist()}).encode()
NPY = "application/x-npy"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Service]:
    made = service(tmp_path / "journal")
    yield made
    made.close()


RULES = Rules(hosts=frozenset({"127.0.0.1"}), body=50_000, seconds=5)


@pytest.fixture
def app(served: Service) -> Any:
    return make_app(served, RULES)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that learns nothing, for requests that are refused."""
    made = service(tmp_path_factory.mktemp("untouched"))
    yield made
    made.close()


def picture(kind: str = "PNG", size: tuple[int, int] = (20, 10)) -> bytes:
    held = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(held, kind)
    return held.getvalue()


def learned(app: Any, *bodies: bytes) -> None:
    for body in bodies or (BODY,):
        answer = ask(app, "POST", "/observe?wait=true", body)
        assert answer.status == 200 and answer.json["learned"], answer.body


def test_a_batch_is_accepted_and_learned_in_every_form(app: Any, served: Service) -> None:
    first = ask(app, "POST", "/observe?wait=true", BODY).json
    assert (first["number"], first["repeated"], first["learned"]) == (0, False, True)
    assert first["loss"] > 0 and first["correct"] == 0
    assert ask(app, "POST", "/observe", saved(X, Y), NPY).json["number"] == 1
    assert ask(app, "POST", "/observe?label=1&label=2", saved(X[:2]), NPY).json["number"] == 2
    assert ask(app, "POST", "/observe?label=2", picture(), "image/png").json["number"] == 3
    assert ask(app, "POST", "/observe?label=2", picture("JPEG"), "image/jpeg").json["number"] == 4
    part = b'--e\r\nContent-Disposition: form-data; name="image"; filename="/etc/passwd"\r\n\r\n'
    label = b'--e\r\nContent-Disposition: form-data; name="label"\r\n\r\n1\r\n'
    form = part + picture() + b"\r\n" + label + b"--e--\r\n"
    answer = ask(app, "POST", "/observe?wait=1", form, "multipart/form-data; boundary=e")
    assert answer.json["number"] == 5 and answer.json["learned"]
    assert served.accuracy.images == 4 + 4 + 2 + 1 + 1 + 1


def test_whole_numbers_are_pixels_and_fractions_shares(app: Any, served: Service) -> None:
    learned(app, BODY, json.dumps({"x": (X / 255).tolist(), "y": Y.tolist()}).encode())
    held = [parsed.x for parsed in map(_parsed, served.journal.records(0))]
    assert (held[0] == X).all() and (held[1] == X).all()


def _parsed(numbered: tuple[int, bytes]) -> Any:
    from dualmix.serve.record import parse

    return parse(numbered[1])


def test_an_id_may_stand_in_the_address_the_header_or_the_body(app: Any) -> None:
    named = json.dumps({"x": X.tolist(), "y": Y.tolist(), "id": "a"}).encode()
    assert not ask(app, "POST", "/observe", named).json["repeated"]
    assert ask(app, "POST", "/observe?id=a", BODY).json["repeated"]
    assert ask(app, "POST", "/observe", BODY, idempotency_key="a").json["repeated"]
    assert ask(app, "POST", "/observe?id=b", named).status == 422
    assert ask(app, "POST", "/observe?id=a", saved(X[:1], Y[:1]), NPY).status == 409


def test_answers_are_those_of_the_learner(app: Any, served: Service) -> None:
    learned(app, BODY, saved_json(1), saved_json(2))
    twin = learner()
    for seed in range(3):
        twin.observe(*batch(seed))
    x, _ = batch(7)
    body = saved(x)
    said = ask(app, "POST", "/predict", body, NPY).json
    assert said == {"labels": twin.predict(x).tolist(), "batches": 3}
    said = ask(app, "POST", "/probabilities", body, NPY).json
    np.testing.assert_allclose(said["probabilities"], twin.predict_proba(x), atol=1e-6)
    assert said["classes"] == twin.classes_.tolist()
    labels, shares = twin.top_k(x, 2)
    said = ask(app, "POST", "/top-k?k=2", body, NPY).json
    assert said["labels"] == labels.tolist()
    np.testing.assert_allclose(said["probabilities"], shares, atol=1e-6)
    sure = twin.predict_proba(x).max(1)
    unsure = ask(app, "POST", f"/predict?at_least={np.median(sure)}", body, NPY).json["labels"]
    assert [label is None for label in unsure] == (sure < np.median(sure)).tolist()


def saved_json(seed: int) -> bytes:
    x, y = batch(seed)
    return json.dumps({"x": x.tolist(), "y": y.tolist()}).encode()


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "words"),
    [
        ("/predict", b"", "text/plain", 415, "Content-Type"),
        ("/predict", b"{", "application/json", 422, "no JSON"),
        ("/predict", b"[" * 20_000, "application/json", 422, "no JSON"),
        ("/predict", b'{"x": [1, [2]]}', "application/json", 422, "one shape"),
        ("/predict", b'{"x": NaN}', "application/json", 422, "NaN"),
        ("/predict", b'{"x": [[[[300]]]]}', "application/json", 422, "0 to 255"),
        ("/predict", b'{"x": [[[["a"]]]]}', "application/json", 422, "numbers only"),
        ("/predict", b'{"z": []}', "application/json", 422, "object with x"),
        ("/predict", BODY, "application/json", 422, "for /observe"),
        ("/predict", b"\x93NUMPY\x01\x00", NPY, 422, "numpy.save"),
        ("/predict", saved(X)[:-5], NPY, 422, "cut short"),
        ("/predict", saved(X) + b"more", NPY, 422, "numpy.save"),
        ("/predict", b"%!PS-Adobe", "image/png", 422, "cannot be read"),
        ("/predict", picture()[:60], "image/png", 422, "cannot be read"),
        ("/predict", b"nonsense", "multipart/form-data; boundary=e", 422, "form"),
        ("/predict", b"nonsense", "multipart/form-data", 422, "form"),
        ("/predict?at_least=2", BODY, "application/json", 422, "at_least"),
        ("/top-k?k=0", BODY, "application/json", 422, "k: "),
        ("/observe", saved(X), NPY, 422, "missing"),
        ("/observe?label=x", saved(X, Y), NPY, 422, "once"),
        (
            "/observe",
            json.dumps({"x": X.tolist(), "y": [1]}).encode(),
            "application/json",
            422,
            "4",
        ),
        ("/observe?label=1", saved(np.zeros((1, 1, 9, 9), np.uint8)), NPY, 422, "resize"),
        ("/observe?label=1", saved(np.full((1, *SHAPE), np.nan)), NPY, 422, "NaN"),
        ("/observe?id=" + "a" * 300, BODY, "application/json", 422, "id"),
        ("/observe?id=%00", BODY, "application/json", 422, "printable"),
        ("/nothing", b"", "application/json", 404, "/docs"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(
    untouched: Service, path: str, body: bytes, kind: str, status: int, words: str
) -> None:
    answer = ask(make_app(untouched, RULES), "POST", path, body, kind)
    assert answer.status == status and words in answer.detail, answer.body
    assert untouched.journal.next == 0


def test_objects_and_text_that_is_none_are_refused(app: Any) -> None:
    pickled = saved(X).replace(b"|u1", b"|O8")
    assert "Python objects" in ask(app, "POST", "/predict", pickled, NPY).detail
    letters = bytearray(saved(X[:1], np.array(["ab"])))
    letters[-4:] = b"\xff\xff\xff\x7f"
    assert "no letter" in ask(app, "POST", "/observe", bytes(letters), NPY).detail


def test_before_the_first_batch_there_is_no_answer(app: Any) -> None:
    answer = ask(app, "POST", "/predict", saved(X), NPY)
    assert answer.status == 422 and "Nothing has been learned" in answer.detail


def test_mutated_bodies_never_break_it(app: Any, served: Service) -> None:
    rng, sound = np.random.default_rng(11), seeds()
    statuses = set()
    for _ in range(150):
        kind, content = sound[int(rng.integers(0, len(sound)))]
        kind = KINDS[int(rng.integers(0, len(KINDS)))] if rng.random() < 0.2 else kind
        path = PATHS[int(rng.integers(0, 5))] + QUERIES[int(rng.integers(0, len(QUERIES)))]
        answer = ask(app, "POST", path, mutated(content, rng), kind)
        statuses.add(answer.status)
        assert answer.status in (200, 409, 413, 415, 422), answer.body
    assert {200, 422} <= statuses and served.fault is None


def test_a_body_that_is_too_long_or_too_slow_is_refused(app: Any, served: Service) -> None:
    said = ask(app, "POST", "/predict", b"1" * 60_000)
    assert said.status == 413 and "MB" in said.detail
    assert ask(app, "POST", "/predict", [b"1" * 30_000, b"1" * 30_000]).status == 413
    slow = make_app(served, Rules(seconds=0.05))
    said = ask(slow, "POST", "/predict", [b"1", 1.0, b"1"])
    assert said.status == 408 and "seconds" in said.detail


def test_whoever_goes_away_is_no_fault_of_the_service(
    app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ask(app, "POST", "/predict", [b"1", GONE])
    counted = ask(app, "GET", "/metrics").body.decode()
    assert 'path="/predict",status="499"} 1' in counted and 'status="500"' not in counted
    assert not caplog.records


def test_few_bodies_are_decoded_at_once(
    app: Any, served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, now, most = threading.Lock(), [0], [0]
    plain = bodies.decode

    def slow(*given: Any) -> Any:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return plain(*given)

    monkeypatch.setattr(bodies, "decode", slow)

    async def many() -> list[Answer]:
        asked = [asking(app, "POST", "/observe", saved(X, Y), NPY) for _ in range(8)]
        return await asyncio.gather(*asked)

    assert {answer.status for answer in asyncio.run(many())} == {200}
    assert most[0] == DECODED


def test_headers_that_are_too_long_are_refused(app: Any) -> None:
    assert ask(app, "GET", "/health", x_long="a" * 17_000).status == 431


def test_pages_of_other_sites_and_other_hosts_are_kept_out(app: Any) -> None:
    assert ask(app, "POST", "/observe", BODY, origin="http://evil.example").status == 403
    assert ask(app, "POST", "/observe", BODY, host="evil.example:8000").status == 403
    for odd in ("null", "http://[", "//127.0.0.1:8000", "127.0.0.1:8000", "http://"):
        assert ask(app, "POST", "/observe", BODY, origin=odd).status == 403
    assert ask(app, "POST", "/observe", BODY, origin="http://127.0.0.1:8000").status == 200


def test_a_token_guards_all_that_was_learned(served: Service) -> None:
    app = make_app(served, Rules(token="s3cret-word"))
    for path in ("/labels", "/metrics", "/settings", "/progress", "/memory", "/snapshot"):
        answer = ask(app, "GET", path)
        assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer wrong", "s3cret-word", "Basic s3cret-word", "Bearer s3cret-wor"):
        assert ask(app, "POST", "/observe", BODY, authorization=wrong).status == 401
    assert ask(app, "POST", "/observe", BODY, authorization="Bearer s3cret-word").status == 200
    for path in ("/", "/health", "/ready", "/docs", "/openapi.json"):
        assert ask(app, "GET", path).status == 200


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789\n")
    assert read_token(tmp_path / "token", "ignored!") == "0123456789"
    assert read_token(None, "from-environment") == "from-environment"
    assert read_token(None, None) is None and read_token(None, "") is None
    for bad in ("", "short", "ä" * 9, "with\nline-break"):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(ConfigError, match="printable ASCII"):
            read_token(tmp_path / "token", None)


def test_loopback_is_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org")))


def test_the_looks_tell_what_was_learned(app: Any, served: Service) -> None:
    learned(app, BODY, saved_json(1))
    classes = ask(app, "GET", "/labels").json["classes"]
    assert [one["label"] for one in classes] == served.learner.model.labels
    assert sum(one["images"] for one in classes) == 8
    assert sum(one["stored"] for one in classes) == 8
    assert all(one["first_seen"].endswith("+00:00") for one in classes)
    progress = ask(app, "GET", "/progress").json
    assert progress["batches"] == 2 and len(progress["course"]) == 2
    assert progress["accuracy"] == progress["course"][1]["accuracy"] / 2
    rows = ask(app, "GET", "/memory").json["rows"]
    assert len(rows) == 8
    shown = Image.open(io.BytesIO(__import__("base64").b64decode(rows[0]["picture"][22:])))
    assert shown.size == (8, 8)
    stored = served.learner.memory.x.numpy()[:8, :, :, 0]
    assert any((np.asarray(shown) == row).all() for row in stored)


def test_settings_name_no_path_of_the_machine(tmp_path: Path) -> None:
    def start() -> Any:
        made = learner()
        made.recipe["plugin"] = "/home/me/secret.py"
        made.recipe["model"]["weights"] = "/home/me/weights.safetensors"
        return made

    served = service(tmp_path, start=start)
    answer = ask(make_app(served), "GET", "/settings")
    assert answer.json["method"] == "er" and answer.json["shape"] == [1, 8, 8]
    assert b"/home" not in answer.body and str(tmp_path).encode() not in answer.body
    served.close()


def test_a_snapshot_is_made_and_fetched(app: Any, served: Service) -> None:
    import dualmix

    learned(app)
    assert ask(app, "POST", "/snapshot").json["batches"] == 1
    fetched = dualmix.load(ask(app, "GET", "/snapshot").body)
    assert dualmix.to_bytes(fetched) == dualmix.to_bytes(served.learner)


def test_methods_that_an_address_lacks_are_named(app: Any) -> None:
    answer = ask(app, "DELETE", "/snapshot")
    assert answer.status == 405 and answer.headers["allow"] == "GET, POST"


def test_metrics_are_prometheus_text(app: Any) -> None:
    learned(app, BODY, saved_json(1))
    ask(app, "GET", "/somewhere")
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = re.compile(r'[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? [-+.\de]+')
    lines = answer.body.decode().splitlines()
    assert all(one.startswith("# ") or line.fullmatch(one) for one in lines)
    assert "dualmix_images_total 8" in lines and "dualmix_queue_batches 0" in lines
    assert 'dualmix_requests_total{path="/observe",status="200"} 2' in lines
    assert 'dualmix_requests_total{path="other",status="404"} 1' in lines
    assert 'dualmix_request_seconds_count{path="/observe"} 2' in lines


def test_text_labels_are_escaped_for_prometheus(tmp_path: Path) -> None:
    served = service(tmp_path)
    app = make_app(served)
    body = json.dumps({"x": X[:1].tolist(), "y": ['a "b" \\ </script>']}).encode()
    learned(app, body)
    text = ask(app, "GET", "/metrics").body.decode()
    assert 'dualmix_class_images_total{class="a \\"b\\" \\\\ </script>"} 1' in text
    assert ask(app, "POST", "/observe?label=3", saved(X[:1]), NPY).status == 200, "3 is text here"
    served.close()


def test_labels_of_an_address_are_of_the_kind_that_waits(app: Any, served: Service) -> None:
    """Whether the first batch is learned yet makes no difference."""
    go, plain = threading.Event(), served._step
    served._step = lambda one: (go.wait(60), plain(one))[1]  # type: ignore[method-assign]
    body = json.dumps({"x": X[:1].tolist(), "y": ["cat"]}).encode()
    assert ask(app, "POST", "/observe", body).status == 200
    assert ask(app, "POST", "/observe?label=7", saved(X[:1]), NPY).status == 200
    go.set()
    learned(app, body)
    assert served.learner.model.labels == ["cat", "7"]


def test_digits_of_other_scripts_are_text(app: Any, served: Service) -> None:
    assert ask(app, "POST", "/observe?wait=1&label=%D9%A3", saved(X[:1]), NPY).status == 200
    assert served.learner.model.labels == ["\u0663"]


def test_labels_of_an_address_are_of_the_learners_kind(app: Any, served: Service) -> None:
    learned(app)
    answer = ask(app, "POST", "/observe?label=cat", saved(X[:1]), NPY)
    assert answer.status == 422 and "whole numbers" in answer.detail


def test_a_service_that_begins_or_ends_says_so(tmp_path: Path) -> None:
    served = service(tmp_path)
    app = make_app(served)
    served.ready = False
    for method, path in (("GET", "/ready"), ("POST", "/observe")):
        answer = ask(app, method, path, BODY if method == "POST" else b"")
        assert answer.status == 503 and answer.headers["retry-after"] == "1"
    assert ask(app, "GET", "/health").status == 200
    served.ready = served.leaving = True
    assert ask(app, "GET", "/ready").status == 503
    assert "leaving" in ask(app, "POST", "/observe", BODY).detail
    served.close()


def test_the_pages_run_their_own_script_only(app: Any) -> None:
    for path in ("/", "/docs"):
        answer = ask(app, "GET", path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        text = answer.body.decode()
        assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
        assert not re.search(r"\son\w+=|\sstyle=", text), "the policy would not let it"
    described = ask(app, "GET", "/openapi.json").json
    for path in described["paths"]:
        assert path in ask(app, "GET", "/docs").body.decode()
    assert ask(app, "GET", "/snapshot").headers["cross-origin-resource-policy"] == "same-origin"
    assert "style-src 'sha256-" in page.policy(page.html())["content-security-policy"]


def test_pictures_are_resized_as_data_sets_are() -> None:
    content = picture(size=(20, 10))
    image = Image.open(io.BytesIO(content)).convert("RGB")
    want = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)[None]
    np.testing.assert_array_equal(decode([content], (3, 16, 16), "squeeze"), want)
    middle = image.resize((16, 16), Image.Resampling.BILINEAR, box=(5, 0, 15, 10))
    got = decode([content], (3, 16, 16), "crop")
    np.testing.assert_array_equal(got, np.asarray(middle).transpose(2, 0, 1)[None])
    padded = decode([content], (3, 16, 16), "pad")
    assert (padded[0, :, :4] == 0).all() and (padded[0, :, 12:] == 0).all()
    gray = decode([content], (1, 10, 20), "pad")
    np.testing.assert_array_equal(gray[0, 0], np.asarray(image.convert("L")))
    with pytest.raises(InputError, match="takes rows of 4 numbers"):
        decode([content], (4,), "squeeze")


def test_pictures_of_too_many_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = [
        struct.pack(">I", len(inner) - 4) + inner + struct.pack(">I", zlib.crc32(inner))
        for inner in (head, b"IDAT" + zlib.compress(bytes(999)))
    ]
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    with pytest.raises(InputError, match="too many pixels"):
        decode([bomb], (3, 8, 8), "squeeze")
    held = io.BytesIO()
    Image.new("1", (10_000, 6_000)).save(held, "PNG")
    with pytest.raises(InputError, match="make it smaller"):
        decode([held.getvalue()], (3, 8, 8), "squeeze")
    held = io.BytesIO()
    Image.new("1", (10_000, 5_000)).save(held, "PNG")
    with monkeypatch.context() as inner:
        inner.setattr(pictures, "fitted", lambda *_: Image.new("RGB", (8, 8)))
        inner.setattr(pictures, "rgb", lambda image: image)
        assert decode([held.getvalue()] * 4, (3, 8, 8), "squeeze").shape == (4, 3, 8, 8)
        with pytest.raises(InputError, match="with those before it"):
            decode([held.getvalue()] * 5, (3, 8, 8), "squeeze")


def test_gathered_answers_are_the_same(served: Service) -> None:
    plain, gathered = make_app(served), make_app(served, gather=0.001)
    learned(plain)
    one = saved(X[:1])
    answers: list[Answer] = [ask(app, "POST", "/predict", one, NPY) for app in (plain, gathered)]
    assert answers[0].json == answers[1].json
    assert ask(gathered, "POST", "/predict", saved(X[:1, :, :5]), NPY).status == 422
