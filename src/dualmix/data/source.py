"""Source: where a data set lies on disk, what identifies it, and the choices that shape its
decoding.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dualmix.errors import DataError

Stamp = tuple[str, int, int]
"""A file's name below the source, its size and its modification time in ns; a folder's size counts
as 0.
"""

JUNK = {"thumbs.db", "desktop.ini"}


@dataclass(frozen=True, slots=True)
class Source:
    """A data set found on disk, not yet read.

    Attributes
    ----------
    kind
        Which layout was found; the decoder branches on it.
    where
        The file or folder that holds it.
    stamps
        What identifies the content without reading it.
    size, held_out, seed
        Choices that change the decoded result; None where they do not apply to this layout.
    """

    kind: str
    where: Path
    stamps: tuple[Stamp, ...]
    size: int | None = None
    held_out: float | None = None
    seed: int | None = None

    def options(self) -> dict[str, int | float | None]:
        """Give the choices as plain data."""
        return {"size": self.size, "held_out": self.held_out, "seed": self.seed}

    def signature(self, root: Path, version: int) -> str:
        """Hash all that decides the decoded result: place below the root, stamps, choices, version."""
        place = self.where.relative_to(root) if self.where.is_relative_to(root) else self.where
        known = [self.kind, place.as_posix(), self.stamps, self.options(), version]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def stamp(path: Path, below: Path) -> Stamp:
    """Stamp one file or folder."""
    facts = path.stat()
    return (
        path.relative_to(below).as_posix(),
        0 if path.is_dir() else facts.st_size,
        facts.st_mtime_ns,
    )


def stamps(paths: Iterable[Path], below: Path) -> tuple[Stamp, ...]:
    """Stamp several files or folders, in order of name."""
    return tuple(sorted(stamp(path, below) for path in paths))


def walk(folder: str, prefix: str) -> Iterator[Stamp]:
    """Stamp every file in a tree, sorted, without hidden files and what file browsers leave behind."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in JUNK:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file():
            facts = entry.stat()
            yield f"{prefix}{entry.name}", facts.st_size, facts.st_mtime_ns


def subfolders(folder: Path) -> list[Path]:
    """List the visible folders in a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def missing(title: str, name: str, root: Path, holds: str) -> DataError:
    """Build the one sentence that helps when a data set is not there."""
    return DataError(
        f"{title} is not in {root}: run `dualmix data get {name}`, or point --data.root or DUALMIX_DATA to "
        f"the folder that holds {holds}."
    )


@contextmanager
def readable(title: str) -> Iterator[None]:
    """Turn what the system says about unreadable files, or too little memory, into a sentence for
    the user.
    """
    try:
        yield
    except OSError as fault:
        what = f"{fault.filename}: " if fault.filename else ""
        raise DataError(
            f"{title} cannot be read ({what}{fault.strerror or fault}): check that the file is whole and may be read."
        ) from fault
    except MemoryError as fault:
        raise DataError(
            f"{title} does not fit into memory: give a smaller --data.size or use a larger machine."
        ) from fault


def checksum(path: Path) -> str:
    """Return a file's MD5, by which data sets are published, without holding it in memory."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
