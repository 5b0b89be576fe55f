"""Files that are replaced at once and durably: whenever the process dies, a reader finds the old or
the new, whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file at once and durably: temporary file, flush to disk, rename, flush the folder.

    A link is followed: what it points to is replaced.

    Raises
    ------
    StoreError
        The disk is full, the folder cannot be written or something else than a file has that name;
        it is untouched.
    """
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            raise StoreError(
                f"{path} is {'a folder' if path.is_dir() else 'no regular file'}: give another name."
            )
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StoreError(
            f"The disk of {path.parent} is full: free some space and give the same command again, it goes on from the "
            "last snapshot."
            if full
            else f"{path.parent} cannot be written ({fault.strerror}): choose another folder (a store: --store) or "
            "mend its permissions."
        ) from fault


def make_folder(path: Path) -> None:
    """Make a folder, and those it lies in, where they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise StoreError(
            f"The folder {path} cannot be made ({fault.strerror}): choose another one."
        ) from fault


def json_bytes(plain: Any) -> bytes:
    """Return the one text of a value, as JSON files hold it."""
    return (json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def digest(content: bytes) -> str:
    """Return the sha256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, plain: Any) -> None:
    """Replace a JSON file at once and durably."""
    write_bytes(path, json_bytes(plain))
