"""Files: replaced at once, durably, and with nothing left behind when that fails."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dualmix.errors import StoreError
from dualmix.store.files import write_bytes, write_json


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
