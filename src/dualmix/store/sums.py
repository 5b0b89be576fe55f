"""The sha256 of a run's files, as the run wrote them down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError
from dualmix.store.files import json_bytes, read_json


class Sums:
    """The sums of one run; read again only when their file has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[tuple[int, ...], dict[str, Any]] | None = None

    def read(self) -> dict[str, Any] | None:
        """Return ``files`` by name, and ``before``, what a file that is being replaced may still
        be; nothing for a run that has none.
        """
        try:
            file = self.path.lstat()
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StoreError(f"{self.path} cannot be read ({fault.strerror}).") from fault
        mark = (file.st_ino, file.st_size, file.st_mtime_ns)
        if self._known is None or self._known[0] != mark:
            sums = read_json(self.path)
            parts = [sums.get(part) for part in ("files", "before")] if _is_dict(sums) else []
            if not parts or not all(map(_is_dict, parts)):
                raise StoreError(f"{self.path} holds no sums: run again with --fresh.")
            self._known = mark, sums
        return self._known[1]


def sums_bytes(files: Mapping[str, str], before: Mapping[str, str]) -> bytes:
    """Return sums as they are written."""
    return json_bytes({"files": dict(files), "before": dict(before)})


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)
