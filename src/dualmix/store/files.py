"""Files that are read whole and replaced at once and durably: whenever the process dies, a reader
finds the old file or the new one.

Every fault of a path is a `StoreError` of one sentence.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError

PART = re.compile(r"\..{1,40}\.[0-9a-f]{16}\.part", re.DOTALL)
"""Names of files that are being written."""
OLD_PART = re.compile(r"\..+\.\d+\.part", re.DOTALL)
"""What such files were called by earlier versions."""
LARGEST_JSON = 2**28
"""Bytes above which a JSON file is none of ours."""


def _no_number(text: str) -> None:
    raise ValueError(f"it holds {text}")


_JSON = json.JSONDecoder(parse_constant=_no_number)


@contextmanager
def typed(path: Path, done: str = "written") -> Iterator[None]:
    """Make one sentence of whatever the system says about a path."""
    try:
        yield
    except OSError as fault:
        raise _refused(path, fault, done) from fault
    except ValueError as fault:
        if not isinstance(fault, UnicodeEncodeError) and "null byte" not in str(fault):
            raise
        raise StoreError(f"{str(path)!r} cannot be a file's name: give another.") from fault
    except RuntimeError as fault:
        if "Symlink loop" not in str(fault):
            raise
        raise StoreError(f"{path} is a link that leads back to itself: mend it.") from fault


def _refused(path: Path, fault: OSError, done: str) -> StoreError:
    match fault.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreError(
                f"The disk of {path.parent} is full: free some space and give the same command "
                "again, it goes on from the last snapshot."
            )
        case errno.ENAMETOOLONG:
            return StoreError(f"{str(path)[:80]}... is too long a name: give a shorter one.")
    reason = fault.strerror or fault
    if done == "read":
        return StoreError(
            f"{path} cannot be read ({reason}): see that it is there and open to you."
        )
    return StoreError(
        f"{path} cannot be {done} ({reason}): choose another folder (a store: --store) or mend its "
        "permissions."
    )


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file; a pipe or a device is refused before it can hang.

    Raises
    ------
    StoreError
        It is not there, may not be read, is no file or has more than `most` bytes.
    """
    with typed(path, "read"):
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            facts = os.fstat(number)
            if not stat.S_ISREG(facts.st_mode):
                raise StoreError(f"{path} is no regular file: move it away.")
            if most is not None and facts.st_size > most:
                raise StoreError(
                    f"{path} has {facts.st_size:,} bytes, far more than such a file has."
                )
            parts = []
            while part := os.read(number, max(facts.st_size + 1, 2**16)):
                parts.append(part)
            return b"".join(parts)
        except MemoryError as fault:
            raise StoreError(f"{path} is too large for this machine's memory.") from fault
        finally:
            os.close(number)


def write_bytes(path: Path, content: bytes, *, follow: bool = True) -> None:
    """Replace a file at once and durably: temporary file, flush to disk, rename, flush the folder.

    The temporary file is new, has a name of its own and the mode of what it replaces. Its writer
    holds a lock on it, so that one without a lock was left by a process that died.

    Parameters
    ----------
    follow
        Replace what a link points to; else the link itself.

    Raises
    ------
    StoreError
        The disk is full, the folder cannot be written or something else than a file has that name;
        it is untouched.
    """
    with typed(path):
        path = path.resolve() if follow else path
        mode = _mode(path)
        sweep_parts(path.parent)
        part, number = _part(path, mode)
        try:
            with os.fdopen(number, "wb") as file:
                if mode is not None:
                    os.fchmod(number, mode)
                file.write(content)
                file.flush()
                os.fsync(number)
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk."""
    with typed(path):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def sweep_parts(folder: Path, *, old: bool = False) -> None:
    """Remove what killed processes left half-written in a folder, if this may.

    Parameters
    ----------
    old
        Also what earlier versions left, which held no lock: the folder must be this process's own.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        for name in names:
            if PART.fullmatch(name):
                _remove_if_left(folder / name)
            elif old and OLD_PART.fullmatch(name):
                (folder / name).unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, where they are missing."""
    with typed(path, "made"):
        path.mkdir(parents=True, exist_ok=True)


def json_bytes(plain: Any) -> bytes:
    """Return the one text of a value, as JSON files hold it."""
    return (json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def parse_json(content: bytes, path: Path | str) -> Any:
    """Return what a JSON file holds; NaN and infinity are no JSON."""
    try:
        return _JSON.decode(content.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        reason = "it is nested too deep" if isinstance(fault, RecursionError) else fault
        raise StoreError(f"{path} cannot be read ({reason}): run again with --fresh.") from fault


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    return parse_json(read_bytes(path, LARGEST_JSON), path)


def write_json(path: Path, plain: Any) -> None:
    """Replace a JSON file at once and durably."""
    write_bytes(path, json_bytes(plain))


def digest(content: bytes) -> str:
    """Return the sha256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def _mode(path: Path) -> int | None:
    """Return the mode of the file that will be replaced, if there is one."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        return None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise StoreError(f"{path} is {kind}: give another name.")
    return stat.S_IMODE(mode)


def _part(path: Path, mode: int | None) -> tuple[Path, int]:
    """Make a new file beside a path and lock it."""
    while True:
        part = path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        number = os.open(part, flags, 0o666 if mode is None else 0o600)
        with suppress(OSError):  # where locks are not supported nobody can take it for abandoned
            fcntl.flock(number, fcntl.LOCK_EX)
        if os.fstat(number).st_nlink:
            return part, number
        os.close(number)  # it was swept between its making and its locking


def _remove_if_left(part: Path) -> None:
    with suppress(OSError):
        number = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            os.close(number)
