"""A learner on a hub, tried against a server on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub", reason="HUB EXTRA MISSING: pip install 'dualmix[hub]'")

import dualmix
from dualmix.export.hub import card

from .test_export import names

pytestmark = pytest.mark.slow
COMMIT = "0" * 39 + "1"


class Hub:
    """As much of the hub as a push and a pull need."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.made: dict[str, Any] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def say(self, status: int, content: bytes, **headers: str) -> None:
                self.send_response(status)
                kept = {"Content-Type": "application/json", "Content-Length": str(len(content))}
                for name, value in {**kept, **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/api/repos/create":
                    hub.made = json.loads(body)
                    self.say(200, json.dumps({"url": f"{hub.url}/me/mine"}).encode())
                elif "/preupload/" in self.path:
                    files = [
                        {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                        for one in json.loads(body)["files"]
                    ]
                    self.say(200, json.dumps({"files": files}).encode())
                elif "/commit/" in self.path:
                    for line in body.splitlines():
                        told = json.loads(line)
                        if told["key"] == "file":
                            value = told["value"]
                            hub.files[value["path"]] = base64.b64decode(value["content"])
                    url = f"{hub.url}/me/mine/commit/{COMMIT}"
                    self.say(200, json.dumps({"commitUrl": url, "commitOid": COMMIT}).encode())
                else:
                    self.say(200, b'{"errors": [], "warnings": []}')

            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2].partition("?")[0]
                if "/resolve/" in self.path and name in hub.files:
                    content = hub.files[name]
                    etag = f'"{hashlib.sha256(content).hexdigest()}"'
                    self.say(200, content, ETag=etag, X_Repo_Commit=COMMIT)
                else:
                    self.say(404, b'{"error": "not here"}', X_Error_Code="RepoNotFound")

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def run(hub: Hub, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    told = {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "hf_test",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "dualmix", "hub", *words],
        cwd=folder,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.long
def test_a_learner_is_pushed_with_its_card_and_pulled_as_it_was(hub: Hub, tmp_path: Path) -> None:
    learner = names(text=True)
    dualmix.save(learner, tmp_path / "l.safetensors")
    pushed = run(hub, tmp_path, "push", "l.safetensors", "me/mine")
    assert pushed.returncode == 0 and COMMIT in pushed.stdout, pushed.stderr
    assert hub.made.get("visibility") == "private" or hub.made.get("private"), "it is data"
    assert hub.files["learner.safetensors"] == (tmp_path / "l.safetensors").read_bytes()
    assert hub.files["README.md"].decode() == card(learner, "me/mine")
    pulled = run(hub, tmp_path, "pull", "me/mine")
    assert pulled.returncode == 0 and "4 classes" in pulled.stdout, pulled.stderr
    back = dualmix.load(tmp_path / "mine.safetensors")
    assert dualmix.to_bytes(back) == dualmix.to_bytes(learner)
    hub.files["learner.safetensors"] = b"\x80\x04 no learner"
    (tmp_path / "hf").rename(tmp_path / "old")
    refused = run(hub, tmp_path, "pull", "me/mine", "--out", "bad.safetensors")
    assert refused.returncode == 2 and not (tmp_path / "bad.safetensors").exists()
    gone = run(hub, tmp_path, "pull", "me/other name")
    assert gone.returncode == 2 and "no name of a repository" in gone.stderr


def test_a_card_says_what_the_file_holds() -> None:
    text = card(names(text=True), "me/mine")
    assert "**30 rows of the training data" in text and "class 3" in text
    assert text.startswith("---\nlibrary_name: dualmix\n")
