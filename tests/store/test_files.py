"""Files: replaced at once, durably, and with nothing left behind when that fails."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dualmix.errors import StoreError
from dualmix.store import files
from dualmix.store.files import read_bytes, read_json, sweep_parts, write_bytes, write_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    wholes = [bytes([n]) * 300_000 for n in range(4)]
    write_bytes(path, wholes[0])
    stop, torn, seen = threading.Event(), [], set()

    def look() -> None:
        while not stop.is_set():
            content = path.read_bytes()
            seen.add(content[:1])
            if content not in wholes:
                torn.append(len(content))

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(60):
        write_bytes(path, wholes[turn % 4])
    stop.set()
    reader.join()
    assert not torn
    assert len(seen) > 1
    assert names(tmp_path) == ["f"]


def test_bytes_reach_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "f", []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(number: int) -> None:
        order.append("folder" if os.path.samestat(os.fstat(number), tmp_path.stat()) else "file")
        if order[-1] == "file":
            assert os.fstat(number).st_size == 3
        real_sync(number)

    def replace(self: Path, target: Path) -> Path:
        order.append("name")
        assert self.parent == target.parent
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes(path, b"new")
    assert order == ["file", "name", "folder"]


@pytest.mark.parametrize("place", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_failure_keeps_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, number: int
) -> None:
    path = tmp_path / "f"
    write_bytes(path, b"old")

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os if place == "fsync" else Path, place, fail)
    with pytest.raises(StoreError) as caught:
        write_bytes(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]
    assert ("full" in str(caught.value)) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert str(tmp_path) in str(caught.value)


def test_ctrl_c_while_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write_bytes(path, b"old")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    for path in (tmp_path / "none" / "f", plain / "f", Path("/proc/f"), Path("/sys/f")):
        with pytest.raises(StoreError, match="cannot be written"):
            write_bytes(path, b"new")
    assert plain.read_text() == "x"
    assert names(tmp_path) == ["plain"]


def test_a_link_is_followed_and_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """A named pipe stands for devices, of which a test has none to lose."""
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_bytes(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    os.mkfifo(pipe)
    for path, what in ((pipe, "no regular file"), (tmp_path, "a folder")):
        with pytest.raises(StoreError, match=f"is {what}: give another name"):
            write_bytes(path, b"new")
    assert pipe.is_fifo() and names(tmp_path) == ["link", "pipe", "real"]


def test_json_is_one_text_for_one_value_and_refuses_nan(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"b": 1, "a": [1.5, None, "ä"]})
    first = path.read_bytes()
    assert json.loads(first) == {"a": [1.5, None, "ä"], "b": 1}
    write_json(path, {"a": [1.5, None, "ä"], "b": 1})
    assert path.read_bytes() == first
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert path.read_bytes() == first


def test_a_planted_link_is_not_followed_and_nobody_elses_name_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a name that can be guessed, a link there sends the bytes to a file of the user's."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    names_drawn = iter([b"\0" * 8, b"\1" * 8])
    monkeypatch.setattr(os, "urandom", lambda count: next(names_drawn))
    (tmp_path / f".f.{'00' * 8}.part").symlink_to(victim)
    with pytest.raises(StoreError, match="cannot be written"):
        write_bytes(tmp_path / "f", b"new")
    write_bytes(tmp_path / "f", b"new")
    assert victim.read_bytes() == b"mine" and (tmp_path / "f").read_bytes() == b"new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_bytes(path, b"new")
    assert path.stat().st_mode & 0o777 == mode and path.read_bytes() == b"new"


def test_many_threads_write_one_path_and_the_last_wins_whole(tmp_path: Path) -> None:
    path, faults = tmp_path / "f", []
    wholes = [bytes([n]) * 200_000 for n in range(4)]

    def write(content: bytes) -> None:
        try:
            for _ in range(10):
                write_bytes(path, content)
                if read_bytes(path) not in wholes:
                    faults.append("torn")
        except StoreError as fault:
            faults.append(str(fault))

    threads = [threading.Thread(target=write, args=(content,)) for content in wholes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and names(tmp_path) == ["f"]


def test_what_a_killed_process_left_is_swept_and_what_a_live_one_writes_is_not(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, os; from pathlib import Path; from dualmix.store import files\n"
        "os.fsync = lambda number: (print('writing', flush=True), sys.stdin.readline())\n"
        f"files.write_bytes(Path({str(tmp_path)!r}) / 'f', b'half')"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "writing\n"  # type: ignore[union-attr]
    (tmp_path / ".notes.part").write_text("the user's own")
    sweep_parts(tmp_path)
    write_bytes(tmp_path / "g", b"old")
    assert len(names(tmp_path)) == 3, "it is being written"
    writer.kill()
    writer.wait()
    assert len(names(tmp_path)) == 3
    write_bytes(tmp_path / "g", b"new")
    assert names(tmp_path) == [".notes.part", "g"]
    writer.stdin.close()  # type: ignore[union-attr]
    writer.stdout.close()  # type: ignore[union-attr]


def test_every_fault_of_a_path_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    strange = ("x" * 300, "\0", "\udcff\ud800", "loop", "pipe", "folder", "none/f")
    for name in strange:
        for attempt in (read_bytes, read_json, lambda path: write_bytes(path, b"")):
            if name == "loop" and attempt not in (read_bytes, read_json):
                continue
            with pytest.raises(StoreError) as caught:
                attempt(tmp_path / name)
            assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        files.make_folder(tmp_path / "pipe" / "deeper")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"[1e999, Infinity]"],
)
def test_what_is_no_json_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read"):
        read_json(tmp_path / "f.json")
