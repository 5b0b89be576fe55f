"""Must show 3: schemathesis against the OpenAPI description, and mutated bodies. No answer may be a
500, and what was accepted must be learned.

    python -m studies.serve_fuzz --bodies 10000
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dualmix.client import Client
from studies.serving import Server, begin

PATHS = ("/observe", "/predict", "/probabilities", "/top-k", "/pause", "/snapshot")
KINDS = (
    "application/json",
    "application/x-npy",
    "application/octet-stream",
    "image/png",
    "image/jpeg",
    "image/svg+xml",
    "multipart/form-data; boundary=edge",
    "multipart/form-data",
    "text/plain",
    "",
)
QUERIES = (
    "",
    "?label=1",
    "?label=-7&label=x",
    "?wait=true",
    "?k=2",
    "?k=0",
    "?at_least=nan",
    "?id=a",
)
FINE = {200, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503}


def seeds() -> list[tuple[str, bytes]]:
    """Return sound bodies of every kind for images of 1x8x8."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)

    def saved(*arrays: Any) -> bytes:
        held = io.BytesIO()
        for array in arrays:
            np.save(held, array, allow_pickle=False)
        return held.getvalue()

    def picture(kind: str) -> bytes:
        held = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(held, kind)
        return held.getvalue()

    part = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="../../etc/passwd"'
    form = part + b"\r\nContent-Type: image/png\r\n\r\n" + picture("PNG") + b"\r\n--edge--\r\n"
    plain = {"x": x.tolist(), "y": [0, 1]}
    return [
        (KINDS[0], json.dumps(plain).encode()),
        (KINDS[0], json.dumps({"x": (x / 255).round(3).tolist(), "y": [2, 3], "id": "q"}).encode()),
        (KINDS[0], b'{"x": ' + b"[" * 200 + b"]" * 200 + b', "y": [1]}'),
        (KINDS[0], b"[" * 100_000),
        (KINDS[0], b'{"x": [[[[1e999]]]], "y": [NaN]}'),
        (KINDS[0], b'{"x": [[["\\ud800"]]], "y": ["\\ud800"]}'),
        (KINDS[1], saved(x, np.array([1, 2]))),
        (KINDS[1], saved((x / 255).astype("<f4"))),
        (KINDS[1], saved(x, np.array(["a", "b"]))),
        (KINDS[3], picture("PNG")),
        (KINDS[4], picture("JPEG")),
        (KINDS[3], picture("GIF")),
        (KINDS[3], b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(id) (w) file\n"),
        (KINDS[6], form),
    ]


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a body a little, or a lot."""
    held = bytearray(content)
    for _ in range(int(rng.integers(0, 6))):
        at = int(rng.integers(0, len(held) + 1))
        match rng.integers(0, 6):
            case 0 if held:
                held[min(at, len(held) - 1)] ^= 1 << int(rng.integers(0, 8))
            case 1:
                del held[at : at + int(rng.integers(1, 40))]
            case 2:
                held[at:at] = rng.bytes(int(rng.integers(1, 20)))
            case 3:
                held[at:at] = held[at : at + int(rng.integers(1, 60))]
            case 4:
                del held[at:]
            case _:
                words = (b"null", b"-1", b"1e400", b"NaN", b"\x00", b"[[", b'"', b"\xff\xfe", b"O")
                held[at:at] = words[int(rng.integers(0, len(words)))]
    return bytes(held)


def main() -> None:
    """Run the study and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--examples", type=int, default=60, help="of schemathesis per endpoint")
    parser.add_argument("--port", type=int, default=8733)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        begin(Path(name), (1, 8, 8))
        words = ["--time-limit", "60", "--keep-journal"]
        with Server(Path(name), words, given.port) as server:
            server.wait()
            _study(server, given)


def _study(server: Server, given: argparse.Namespace) -> None:
    seen = fuzz(given.port, given.bodies)
    print("statuses:", dict(sorted(seen.items())))
    if not set(seen) <= FINE:
        print(server.log.read_text()[-6000:])
    assert set(seen) <= FINE, "an answer that should not be"
    _schemathesis(server.url, given.examples)
    client = Client(server.url)
    client.wait_until_ready()
    numbers = {
        line.split()[0]: float(line.split()[1])
        for line in client.metrics().splitlines()
        if line.startswith("dualmix_") and "{" not in line
    }
    print(
        f"the service lives; {numbers['dualmix_records_total']:.0f} records learned, "
        f"{numbers['dualmix_batches_refused_total']:.0f} refused; exit code {server.stop()}"
    )


def fuzz(port: int, bodies: int) -> Counter[int]:
    """Send mutated bodies; return how often each status came."""
    rng, sound = np.random.default_rng(1), seeds()
    seen: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for turn in range(bodies):
        kind, content = sound[int(rng.integers(0, len(sound)))]
        if rng.random() < 0.2:
            kind = KINDS[int(rng.integers(0, len(KINDS)))]
        path = PATHS[int(rng.integers(0, 4 if turn % 20 else len(PATHS)))]
        path += QUERIES[int(rng.integers(0, len(QUERIES)))]
        try:
            connection.request("POST", path, mutated(content, rng), {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            print(f"no answer to {path} {kind}: {fault!r}")
            connection.close()
            seen[0] += 1
            continue
        seen[answer.status] += 1
        if answer.status not in FINE or (answer.status == 422 and not json.loads(said)["detail"]):
            print(f"{answer.status} to {path} {kind}: {said[:300]!r}")
    return seen


def _schemathesis(url: str, examples: int) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
    command += ["--max-examples", str(examples), "--no-color", "--workers", "1"]
    command += ["--exclude-checks", "positive_data_acceptance,unsupported_method"]
    with tempfile.TemporaryDirectory() as name:  # it leaves its notes where it runs
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, cwd=name
        )
    print(done.stdout[-4000:], done.stderr[-1000:])
    print(f"schemathesis: exit code {done.returncode}")


if __name__ == "__main__":
    main()
