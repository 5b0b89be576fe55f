"""Downloads against a server of our own: whole, broken, resumed, wrong."""

import hashlib
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from dualmix.data import DATASETS, fetch
from dualmix.data.catalog import Download
from dualmix.errors import ConfigError, DataError

BODY = np.random.default_rng(0).integers(0, 256, 1_500_000, dtype=np.uint8).tobytes()


class Handler(BaseHTTPRequestHandler):
    """Serves BODY; the server's settings say how well."""

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        if self.path != "/file.bin":
            self.send_error(404)
            return
        start = 0
        if server.ranges and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}"
            )
        else:
            self.send_response(200)
        rest = server.body[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("Content-Type", "application/x-gzip")
        self.end_headers()
        self.wfile.write(rest if server.stop_after is None else rest[: server.stop_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None
    server.body, server.ranges, server.stop_after, server.asked = BODY, True, None, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/file.bin"
    download = Download(server.url, f"md5:{hashlib.md5(BODY).hexdigest()}", "file.bin")
    monkeypatch.setitem(DATASETS, "cifar100", replace(DATASETS["cifar100"], downloads=(download,)))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def left(root):
    return {path.name for path in root.iterdir() if not path.name.endswith(".lock")}


def test_whole_transfer_and_nothing_the_second_time(server, tmp_path, capsys):
    root = tmp_path / "new" / "root"
    told = []
    path = fetch.get("cifar100", root, show=lambda *facts: told.append(facts))
    assert path == root / "file.bin" and path.read_bytes() == BODY and left(root) == {"file.bin"}
    assert told[-1] == ("file.bin", len(BODY), len(BODY)) and told == sorted(told)
    fetch.get("cifar100", root)
    assert len(server.asked) == 1
    assert capsys.readouterr() == ("", "")


def test_the_command_shows_lines_where_there_is_no_terminal(server, tmp_path, dualmix_):
    code, out, err = dualmix_("data", "get", "cifar100", "--data.root", tmp_path)
    assert code == 0 and out.endswith("is here and whole.\n")
    assert "file.bin: 1.5 of 1.5 MB" in err and len(err.splitlines()) <= 11
    (tmp_path / "file.bin").unlink()
    code, out, err = dualmix_("data", "get", "cifar100", "--data.root", tmp_path, "--json")
    assert code == 0 and err == "" and '"name": "cifar100"' in out


def test_broken_transfer_goes_on_where_it_broke(server, tmp_path):
    server.stop_after = 700_000
    with pytest.raises(
        DataError, match=r"broke off: run the same command again, it goes on from 0\.7 MB\."
    ):
        fetch.get("cifar100", tmp_path)
    assert left(tmp_path) == {"file.bin.part"}
    server.stop_after = None
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY
    assert server.asked == [None, "bytes=700000-"] and left(tmp_path) == {"file.bin"}


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"other" * 1000)
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY
    assert server.asked == ["bytes=5000-"]


def test_a_complete_part_is_taken(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY)
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY + b"more")
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_wrong_checksum_is_removed_and_the_next_try_is_clean(server, tmp_path):
    server.body = BODY[:-1] + b"?"
    with pytest.raises(
        DataError,
        match=r"not the published file\.bin .* was removed: run `dualmix data get cifar100`",
    ):
        fetch.get("cifar100", tmp_path)
    assert left(tmp_path) == set()
    server.body = BODY
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_a_wrong_part_costs_one_more_try(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="was removed"):
        fetch.get("cifar100", tmp_path)
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_a_damaged_file_is_fetched_anew(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(BODY[:100])
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_not_found(server, tmp_path):
    with pytest.raises(DataError, match=r"answers 404 \(Not Found\)"):
        fetch.get("cifar100", tmp_path, urls=[server.url + ".gone"])
    assert left(tmp_path) == set()


def test_no_network(server, tmp_path):
    for url in ("http://127.0.0.1:9/file.bin", "http://nowhere.invalid/file.bin", "not-an-address"):
        with pytest.raises(DataError, match=r"cannot be (reached|read)"):
            fetch.get("cifar100", tmp_path, urls=[url])


def test_no_network_keeps_what_is_here(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY[:500_000])
    with pytest.raises(DataError, match=r"it goes on from 0\.5 MB"):
        fetch.get("cifar100", tmp_path, urls=["http://127.0.0.1:9/file.bin"])
    assert fetch.get("cifar100", tmp_path).read_bytes() == BODY


def test_no_room(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(DataError, match="no room is left"):
        fetch.get("cifar100", tmp_path)


def test_a_root_that_is_a_file(server, tmp_path):
    (tmp_path / "root").write_text("x")
    with pytest.raises(DataError, match="cannot be written to"):
        fetch.get("cifar100", tmp_path / "root")


def test_two_at_once_do_not_mix(server, tmp_path):
    from filelock import FileLock

    with (
        FileLock(tmp_path / ".file.bin.lock"),
        pytest.raises(DataError, match="Another process is downloading"),
    ):
        fetch.get("cifar100", tmp_path)


def test_mirror_keeps_the_published_checksum(server, tmp_path):
    url = server.url
    assert fetch.get("cifar100", tmp_path, urls=[url]).read_bytes() == BODY
    with pytest.raises(ConfigError, match="needs 1 addresses"):
        fetch.get("cifar100", tmp_path, urls=[url, url])


def test_sets_that_cannot_be_fetched_say_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"nothing to get"):
        fetch.get("digits", tmp_path)
    with pytest.raises(DataError) as caught:
        fetch.get("mini_imagenet", tmp_path)
    for part in ("train", "val", "test"):
        assert f"mini-imagenet-cache-{part}.pkl" in str(caught.value)
    assert str(tmp_path / "mini_imagenet") in str(caught.value)
    with pytest.raises(DataError, match=r"data\.path"):
        fetch.get("folder", tmp_path)
    with pytest.raises(ConfigError, match="choose one of"):
        fetch.get("mnist", tmp_path)


def test_a_bar_on_a_terminal(server, tmp_path, monkeypatch, dualmix_):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, _, err = dualmix_("data", "get", "cifar100", "--data.root", tmp_path)
    assert code == 0 and "file.bin" in err and "MB" in err


def test_published_addresses_are_the_official_ones():
    assert DATASETS["cifar100"].downloads[0].checksum == "md5:eb9058c3a382ffc7106e4002c42a8d85"
    assert DATASETS["tiny_imagenet"].downloads[0].checksum == "md5:90528d7ca1a48142e341f4ef8d21d0de"
