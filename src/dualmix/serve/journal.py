"""The journal: a write-ahead log on the disk, so that what was acknowledged survives any end of the
process.

A folder of segments, each named after the number of its first record. A segment is a row of frames:

    mark (4 bytes), length, number, CRC-32 of these | payload | BLAKE2b of all before (16 bytes)

The first frame of a segment says whose journal it is. A frame is on the disk before the next one is
begun, so that only the last one can be torn. A bad frame that is not torn is damage, and is not
passed over.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dualmix.errors import StoreError
from dualmix.store.files import sync_folder, typed, write_bytes

MARK = b"dmxj"
SUFFIX = ".journal"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HEAD = struct.Struct("<4sIQI")
_DIGEST = 16
_SECTOR = 512
"""Bytes that a disk writes whole or not at all."""

_flush = getattr(os, "fdatasync", os.fsync)


class NoRoomError(StoreError):
    """The disk, or what a user may have of it, is full; the journal is as it was."""


class Frame(NamedTuple):
    """A payload, its number, and where the next frame begins."""

    number: int
    payload: bytes
    end: int


def frame(number: int, payload: bytes) -> bytes:
    """Return a payload as the journal holds it."""
    head = struct.pack("<4sIQ", MARK, len(payload), number)
    whole = head + struct.pack("<I", zlib.crc32(head)) + payload
    return whole + _digest(whole)


def _digest(whole: bytes) -> bytes:
    return hashlib.blake2b(whole, digest_size=_DIGEST).digest()


class _Head(NamedTuple):
    """What a frame's head says: its number, and where it ends."""

    number: int
    end: int


def _head_at(held: mmap.mmap | bytes, start: int) -> _Head | None:
    """Return the head that begins at a place, or nothing where none is whole."""
    if start + _HEAD.size > len(held):
        return None
    mark, length, number, check = _HEAD.unpack_from(held, start)
    if mark != MARK or zlib.crc32(held[start : start + 16]) != check:
        return None
    return _Head(number, start + _HEAD.size + length + _DIGEST)


def _frame_at(held: mmap.mmap | bytes, start: int) -> Frame | None:
    """Return the frame that begins at a place, or nothing where none is whole."""
    head = _head_at(held, start)
    if head is None or head.end > len(held):
        return None
    body = head.end - _DIGEST
    if _digest(held[start:body]) != held[body : head.end]:
        return None
    return Frame(head.number, held[start + _HEAD.size : body], head.end)


class Segment(NamedTuple):
    """A file of the journal.

    Attributes
    ----------
    first
        The number of its first record, from its name.
    """

    first: int
    path: Path

    def frames(self) -> Iterator[Frame]:
        """Yield its frames, the one that says whose it is first, as far as they are whole."""
        with typed(self.path, "read"), self.path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
                place = 0
                while (frame := _frame_at(held, place)) is not None:
                    yield frame
                    place = frame.end

    def torn_at(self, place: int) -> bool:
        """Whether what begins at a place, where no whole frame does, is a write that was cut off.

        It is, if the file ends before the frame does, or if a power cut left zeros where a part of
        it should be; but never if a whole frame comes after it. All else was whole once, and may
        have been acknowledged."""
        with typed(self.path, "read"):
            rest = self.path.read_bytes()[place:]
        head = _head_at(rest, 0)
        end = _HEAD.size if head is None else head.end
        if len(rest) < end:
            return True
        # What the frame itself holds may look like a frame, so that the search begins behind it.
        at = rest.find(MARK, 1 if head is None else end)
        while at >= 0:
            if _frame_at(rest, at) is not None:
                return False
            at = rest.find(MARK, at + 1)
        edges = [0, *range(_SECTOR - place % _SECTOR, len(rest), _SECTOR), len(rest)]
        return any(not any(rest[low:high]) for low, high in pairwise(edges))


class Journal:
    """An open journal; whoever opens it holds the folder's lock.

    Parameters
    ----------
    origin
        Of what learner it is: text that must be the same when it is opened again.
    least
        The number of the first record that is still needed.
    keep
        Keep records that are no longer needed, as a history of all that was learned.

    Attributes
    ----------
    next
        The number that the next record gets.
    cut
        Bytes of a torn write that were removed when it was opened.
    """

    def __init__(self, folder: Path, origin: str, least: int, *, keep: bool = False) -> None:
        self.folder, self.origin, self.keep = folder, origin, keep
        self.cut = 0
        self._torn = False
        segments = self.segments()
        if not segments:
            self._begin(least)
            segments = self.segments()
        self.next = self._check(segments, least)
        self._open(segments[-1])

    def segments(self) -> list[Segment]:
        """Return the files of the journal in order."""
        paths = sorted(self.folder.glob(f"*{SUFFIX}"))
        return [Segment(int(path.stem), path) for path in paths if path.stem.isdecimal()]

    def _check(self, segments: list[Segment], least: int) -> int:
        """Look at every frame and cut a torn end; return the next number."""
        number = segments[0].first
        for segment in segments:
            if segment.first != number:
                raise self._damaged(segment.path, f"records {number} to {segment.first} are gone")
            place = -1
            for frame in segment.frames():
                if place < 0:
                    self._check_origin(segment, frame)
                elif frame.number != number:
                    raise self._damaged(segment.path, f"record {number} is gone")
                else:
                    number += 1
                place = frame.end
            if place < 0:
                raise self._damaged(segment.path, "its beginning cannot be read")
            if place < segment.path.stat().st_size:
                if segment is not segments[-1] or not segment.torn_at(place):
                    raise self._damaged(segment.path, f"record {number} cannot be read")
                self.cut = segment.path.stat().st_size - place
                with typed(segment.path), segment.path.open("r+b") as file:
                    file.truncate(place)
                    os.fsync(file.fileno())
        if not segments[0].first <= least <= number:
            raise self._damaged(self.folder, f"record {least} is not there")
        return number

    def _check_origin(self, segment: Segment, first: Frame) -> None:
        if first.payload != self._says(segment.first):
            raise StoreError(
                f"{segment.path} is the journal of another learner: give another folder by "
                "--journal."
            )

    def _says(self, first: int) -> bytes:
        return json.dumps({"journal": 1, "first": first, "origin": self.origin}).encode()

    def _damaged(self, path: Path, why: str) -> StoreError:
        return StoreError(
            f"{path} is damaged ({why}), and batches that were acknowledged would be lost: restore "
            "it from a copy, or move the folder away to begin anew."
        )

    def _begin(self, first: int) -> Segment:
        path = self.folder / f"{first:016d}{SUFFIX}"
        write_bytes(path, frame(first, self._says(first)), follow=False)
        return Segment(first, path)

    def _open(self, segment: Segment) -> None:
        with typed(segment.path):
            self._file = os.open(segment.path, os.O_RDWR | os.O_APPEND)
            self._end = os.fstat(self._file).st_size
        self._segment = segment

    def records(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield numbers and payloads from a number on, as they are on the disk now."""
        for segment in self.segments():
            frames = segment.frames()
            next(frames, None)
            for frame in frames:
                if frame.number >= start:
                    yield frame.number, frame.payload

    def append(self, payload: bytes) -> int:
        """Add a record; when this returns its number, it is on the disk.

        Raises
        ------
        NoRoomError
            The disk is full.
        StoreError
            It cannot be written for another reason; in either case the journal is as it was.
        """
        whole = frame(self.next, payload)
        try:
            if self._torn:
                self._mend()
            left = memoryview(whole)
            while left:
                self._torn = True
                left = left[os.write(self._file, left) :]
            _flush(self._file)
        except OSError as fault:
            with suppress(OSError):
                self._mend()
            kind = NoRoomError if fault.errno in NO_ROOM else StoreError
            raise kind(fault.strerror or str(fault)) from fault
        self._torn = False
        self._end += len(whole)
        self.next += 1
        return self.next - 1

    def _mend(self) -> None:
        """Cut off what a failed write left."""
        os.ftruncate(self._file, self._end)
        os.fsync(self._file)
        self._torn = False

    def forget(self, before: int) -> None:
        """Begin a new segment, and remove those that hold only records before a number.

        Raises
        ------
        StoreError
            There is no room for a new segment; the journal goes on in the old one.
        """
        if self._segment.first < self.next:
            with typed(self._segment.path):
                if self._torn:
                    self._mend()
            fresh = self._begin(self.next)
            os.close(self._file)
            self._open(fresh)
        if self.keep:
            return
        segments = self.segments()
        for segment, after in pairwise(segments):
            if after.first <= before:
                with typed(segment.path):
                    segment.path.unlink()
        sync_folder(self.folder)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        total = 0
        for segment in self.segments():
            with suppress(FileNotFoundError):  # it may just have been forgotten
                total += segment.path.stat().st_size
        return total

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
