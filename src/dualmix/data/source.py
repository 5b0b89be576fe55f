"""Source: where a data set lies on disk, what identifies it, and the choices that shape its
decoding.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal
from unicodedata import category

from dualmix.errors import DataError

Stamp = tuple[str, int, int]
"""A file's name below the source, its size and its modification time in ns; a folder's size counts
as 0.
"""
Fit = Literal["squeeze", "crop", "pad"]
"""How an image that is not square is brought to a square."""

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
    fit
        How images that are not square are brought to ``size``.
    skip
        Whether files that are no images are left out.
    """

    kind: str
    where: Path
    stamps: tuple[Stamp, ...]
    size: int | None = None
    held_out: float | None = None
    seed: int | None = None
    fit: Fit = "squeeze"
    skip: bool = False

    def options(self) -> dict[str, Any]:
        """Give the choices as plain data; those that came later only where they are used, so that
        older decoded copies keep their names.
        """
        plain: dict[str, Any] = {"size": self.size, "held_out": self.held_out, "seed": self.seed}
        if self.fit != "squeeze":
            plain["fit"] = self.fit
        if self.skip:
            plain["skip"] = True
        return plain

    def signature(self, root: Path, version: int) -> str:
        """Hash all that decides the decoded result: place below the root, stamps, choices,
        version.
        """
        place = self.where.relative_to(root) if self.where.is_relative_to(root) else self.where
        known = [self.kind, place.as_posix(), self.stamps, self.options(), version]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def stamp(path: Path, below: Path) -> Stamp:
    """Stamp one file or folder."""
    facts = path.stat()
    return (
        path.relative_to(below).as_posix(),
        0 if stat.S_ISDIR(facts.st_mode) else facts.st_size,
        facts.st_mtime_ns,
    )


def stamps(paths: Iterable[Path], below: Path) -> tuple[Stamp, ...]:
    """Stamp several files or folders, in order of name."""
    return tuple(sorted(stamp(path, below) for path in paths))


def walk(folder: str, prefix: str) -> Iterator[Stamp]:
    """Stamp all that lies in a tree, sorted, without hidden files and what file browsers leave
    behind.

    Links to files are followed. Links to folders, which may lead in a circle, pipes and whatever
    else is no file are stamped too: `open_file` refuses them, so that nothing is left out silently.
    """
    waiting = [(folder, prefix)]
    while waiting:
        place, name = waiting.pop()
        if not name.endswith("/"):
            yield _leaf(place, name)
            continue
        with os.scandir(place) as held:
            entries = sorted(held, key=lambda entry: entry.name, reverse=True)
        for entry in entries:
            if not entry.name.startswith(".") and entry.name.lower() not in JUNK:
                tail = "/" if entry.is_dir(follow_symlinks=False) else ""
                waiting.append((entry.path, f"{name}{entry.name}{tail}"))


def _leaf(path: str, name: str) -> Stamp:
    try:
        facts = os.stat(path)  # noqa: PTH116 (a Path for each of 100,000 files takes its time)
    except OSError:
        facts = os.lstat(path)
    return name, facts.st_size, facts.st_mtime_ns


def subfolders(folder: Path) -> list[Path]:
    """List the visible folders in a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file; a pipe, a socket or a device is refused instead of waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DataError(f"{path} is no file that can be read: remove it.")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path, most: int, remedy: str) -> bytes:
    """Read a whole file that may have so many bytes and no more."""
    with open_file(path) as stream:
        if os.fstat(stream.fileno()).st_size > most:
            raise DataError(f"{path} is far larger than such a file can be: {remedy}.")
        return stream.read()


def locate(given: Path, root: Path) -> Path:
    """Return what the user's path means: as it stands, else below the data root."""
    path = expanded(given)
    try:
        return path.resolve() if path.exists() else (root / path).resolve()
    except (RuntimeError, ValueError):  # a circle of links; a name with a null character
        raise DataError(f"{given} cannot be opened: give another --data.path.") from None


def expanded(path: Path) -> Path:
    """Put the home folder in the place of ``~``."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise DataError(
            f"{path}: the home folder is not known here; give a path without ~, or set HOME."
        ) from None


def missing(title: str, name: str, root: Path, holds: str) -> DataError:
    """Build the one sentence that helps when a data set is not there."""
    return DataError(
        f"{title} is not in {root}: run `dualmix data get {name}`, or point --data.root or "
        f"DUALMIX_DATA to the folder that holds {holds}."
    )


@contextmanager
def readable(title: str) -> Iterator[None]:
    """Turn what the system says about unreadable files, or too little memory, into a sentence for
    the user that every terminal can print.
    """
    try:
        yield
    except DataError as fault:
        raise DataError(printable(str(fault))) from fault.__cause__
    except OSError as fault:
        what = f"{fault.filename}: " if fault.filename else ""
        raise DataError(
            printable(
                f"{title} cannot be read ({what}{fault.strerror or fault}): check that the file is "
                "whole and may be read."
            )
        ) from fault
    except MemoryError as fault:
        raise DataError(
            f"{title} does not fit into memory: give a smaller --data.size or use a larger machine."
        ) from fault


@contextmanager
def parsing(sentence: str) -> Iterator[None]:
    """Turn whatever a parser of files from outside raises into one sentence.

    Python's readers of archives and arrays raise what their innards raise: on damaged and hostile
    files more than twenty kinds of exceptions were met, `RecursionError` and
    `NotImplementedError` among them.
    """
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as fault:
        raise DataError(sentence) from fault


def printable(text: str) -> str:
    r"""Write characters that a terminal would obey or could not print as escapes.

    Examples
    --------
    >>> printable("a\x1b[31m/\udcff.png: ü")
    'a\\x1b[31m/\\udcff.png: ü'
    """
    return "".join(
        ascii(c)[1:-1] if category(c) in ("Cc", "Cs", "Zl", "Zp") and c != "\n" else c for c in text
    )


def check_room(count: int, title: str) -> None:
    """Refuse what cannot fit into this machine's memory before it is asked for."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if count > there:
        raise DataError(
            f"{title} needs {count / 1e9:,.1f} GB, more than this machine's memory of "
            f"{there / 1e9:.1f} GB: give a smaller --data.size or use a larger machine."
        )


def checksum(path: Path) -> str:
    """Return a file's MD5, by which data sets are published, without holding it in memory."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
