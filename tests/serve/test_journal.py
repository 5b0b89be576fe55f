"""The journal: what was appended comes back, whatever cut it off; what is damaged is not passed
over.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from dualmix.errors import StoreError
from dualmix.serve.journal import Journal, NoRoomError, frame

PAYLOADS = [b"first", b"", b"dmxj in the middle" * 9, bytes(range(256))]


def filled(folder: Path, **more: bool) -> Journal:
    folder.mkdir(exist_ok=True)
    journal = Journal(folder, "mine", 0, **more)
    assert [journal.append(payload) for payload in PAYLOADS] == [0, 1, 2, 3]
    return journal


def held(folder: Path, least: int = 0) -> list[bytes]:
    journal = Journal(folder, "mine", least)
    journal.close()
    return [payload for _, payload in journal.records(0)]


def test_what_was_appended_comes_back_in_order(tmp_path: Path) -> None:
    filled(tmp_path).close()
    journal = Journal(tmp_path, "mine", 0)
    assert list(journal.records(2)) == [(2, PAYLOADS[2]), (3, PAYLOADS[3])]
    assert journal.next == 4 and journal.append(b"more") == 4
    assert held(tmp_path) == [*PAYLOADS, b"more"]


def test_a_write_cut_off_anywhere_is_cut_away_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    journal = Journal(tmp_path / "a", "mine", 0)
    journal.append(b"acknowledged")
    whole = journal._end
    journal.append(b"not acknowledged: dmxj")
    journal.close()
    (path,) = (tmp_path / "a").glob("*.journal")
    content = path.read_bytes()
    for length in range(whole, len(content)):
        path.write_bytes(content[:length])
        journal = Journal(tmp_path / "a", "mine", 0)
        assert journal.cut == length - whole and journal.next == 1
        assert journal.append(b"again") == 1
        journal.close()
        assert held(tmp_path / "a") == [b"acknowledged", b"again"]


def test_zeros_that_a_power_cut_leaves_are_cut_away(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert held(tmp_path) == PAYLOADS
    assert held(tmp_path) == PAYLOADS


def test_a_byte_that_changed_before_the_last_record_is_damage(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a")
    end = journal._end - len(PAYLOADS[-1]) - 36
    journal.close()
    (path,) = (tmp_path / "a").glob("*.journal")
    content = path.read_bytes()
    for place in range(0, end, 7):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        (tmp_path / "b").mkdir()
        changed = bytearray(content)
        changed[place] ^= 0x10
        (tmp_path / "b" / path.name).write_bytes(changed)
        with pytest.raises(StoreError, match=r"damaged|another learner"):
            Journal(tmp_path / "b", "mine", 0)


def test_a_byte_that_changed_in_the_last_record_is_damage_too(tmp_path: Path) -> None:
    """It is whole in length and holds no zeros of a power cut: it may have been acknowledged."""
    journal = filled(tmp_path)
    last = journal._end - len(PAYLOADS[-1]) - 36
    journal.close()
    (path,) = tmp_path.glob("*.journal")
    content = path.read_bytes()
    for place in range(last, len(content), 11):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(StoreError, match="record 3 cannot be read"):
            Journal(tmp_path, "mine", 0)
    path.write_bytes(content)
    assert held(tmp_path) == PAYLOADS


def test_a_sector_of_zeros_in_the_last_record_is_a_power_cut(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "mine", 0)
    journal.append(b"acknowledged")
    journal.append(bytes(range(1, 256)) * 10)
    journal.close()
    (path,) = tmp_path.glob("*.journal")
    content = bytearray(path.read_bytes())
    content[1024:1536] = bytes(512)
    path.write_bytes(content)
    assert held(tmp_path) == [b"acknowledged"]


def test_a_torn_batch_that_holds_a_whole_frame_is_torn(tmp_path: Path) -> None:
    """Pixels are whatever a client sends: a frame among them must not stop the next start."""
    journal = Journal(tmp_path, "mine", 0)
    journal.append(b"acknowledged")
    journal.append(b"pixels" + frame(2, b"a frame") + b"more pixels")
    journal.close()
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-5])
    assert held(tmp_path) == [b"acknowledged"]


def test_a_full_disk_refuses_and_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, write = filled(tmp_path), os.write
    fault: list[int] = [errno.ENOSPC]

    def half(number: int, content: bytes) -> int:
        if not fault:
            return write(number, content)
        write(number, bytes(content[: len(content) // 2]))
        raise OSError(fault[0], os.strerror(fault[0]))

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(NoRoomError):
        journal.append(b"too much")
    fault[0] = errno.EIO
    with pytest.raises(StoreError, match="Input/output"):
        journal.append(b"broken")
    with monkeypatch.context() as inner:
        inner.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
        with pytest.raises(StoreError):
            journal.append(b"not even mended")
    fault.clear()
    assert journal.append(b"room again") == 4
    journal.close()
    assert held(tmp_path) == [*PAYLOADS, b"room again"]


def test_what_is_learned_is_forgotten_and_what_waits_is_not(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.forget(2)
    assert [segment.first for segment in journal.segments()] == [0, 4], "2 and 3 are still needed"
    journal.append(b"five")
    journal.forget(5)
    assert [segment.first for segment in journal.segments()] == [5]
    journal.close()
    assert Journal(tmp_path, "mine", 5).next == 5
    with pytest.raises(StoreError, match="record 3 is not there"):
        Journal(tmp_path, "mine", 3)


def test_a_history_is_kept_on_demand(tmp_path: Path) -> None:
    journal = filled(tmp_path, keep=True)
    journal.forget(4)
    journal.append(b"five")
    assert [payload for _, payload in journal.records(0)] == [*PAYLOADS, b"five"]


def test_a_gap_and_another_learners_journal_are_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path, keep=True)
    journal.forget(4)
    journal.append(b"five")
    journal.forget(5)
    journal.close()
    with pytest.raises(StoreError, match="another learner"):
        Journal(tmp_path, "yours", 0)
    (tmp_path / "0000000000000004.journal").unlink()
    with pytest.raises(StoreError, match="gone"):
        Journal(tmp_path, "mine", 0)
