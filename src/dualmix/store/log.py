"""A run's log: lines of JSON that are only ever appended."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError
from dualmix.store.files import parse_json, typed
from dualmix.store.lock import now

STEP = "step"
"""The event of the lines about a single step."""
_STEP_LINE = json.dumps({"event": STEP})[1:-1].encode()


def append(path: Path, entry: dict[str, Any]) -> None:
    """Append a line; one that was cut off before it is ended first."""
    with typed(path), path.open("a+b") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        broken = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * broken + json.dumps({"at": now(), **entry}).encode() + b"\n")


def parse_log(content: bytes, most: int | None, *, steps: bool) -> list[dict[str, Any]]:
    """Return the last lines; what cannot be read is passed over."""
    lines = [line for line in content.splitlines() if steps or _STEP_LINE not in line]
    entries = []
    for line in lines[-most if most else 0 :]:
        with suppress(StoreError):
            entry = parse_json(line, "")
            if isinstance(entry, dict):
                entries.append(entry)
    return entries
