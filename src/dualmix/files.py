"""Files that are replaced at once and durably: whenever the process dies, a reader finds the old or the new, whole."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file at once and durably: temporary file, flush to disk, rename, flush the folder.

    Raises
    ------
    StoreError
        The disk is full or the folder cannot be written; the old file is untouched.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
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
            else f"{path.parent} cannot be written ({fault.strerror}): give another folder with --store or "
            "mend its permissions."
        ) from fault


def write_json(path: Path, plain: Any) -> None:
    """Replace a JSON file at once and durably."""
    write_bytes(path, (json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
