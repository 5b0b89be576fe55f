"""The copy, on this machine, of a run that is filed elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from dualmix.errors import StoreError
from dualmix.store.files import make_folder, parse_json, read_json, typed, write_bytes, write_json
from dualmix.store.location import Found
from dualmix.store.lock import HOLDER
from dualmix.store.names import plain
from dualmix.store.run_files import CLEARING, LOG, SCORES, SNAPSHOT, SUMS, is_own

READ = frozenset(
    (
        "config.json",
        "plan.json",
        "facts.json",
        LOG,
        "times.json",
        "probes.json",
        "confusion.npz",
        SUMS,
        SCORES,
        HOLDER,
        CLEARING,
    )
)
"""Files of a run that commands read; the others are fetched only to go on with it."""
NOTHING = (0, 0)


class Copy:
    """The copy of a run's folder, with a record of which files are the same here and there.

    A file is described here by its size and time, and there by the mark of a listing. So a change
    is seen on either side without reading the file."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        self._record, self._lock = (
            root / ".copies" / f"{name}.json",
            root / ".copies" / f"{name}.lock",
        )

    def lock(self) -> FileLock:
        """Return the lock that keeps processes of this machine from changing the copy at the same
        time.
        """
        make_folder(self._lock.parent)
        return FileLock(self._lock)

    def record(self) -> dict[str, Any]:
        """Return what was the same when last seen; nothing where that is not known."""
        try:
            record = read_json(self._record)
        except StoreError:
            return {}
        known = record.items() if isinstance(record, dict) else ()
        return {
            file: seen
            for file, seen in known
            if isinstance(seen, dict) and seen.keys() >= {"here", "there"}
        }

    def write(self, record: Mapping[str, Any]) -> None:
        """Write down what is the same."""
        write_json(self._record, dict(record))

    def files(self) -> dict[str, list[int]]:
        """Return the files that belong to the run, and how each is described here."""
        paths = sorted(path for path in self.path.rglob("*") if path.is_file())
        names = {path.relative_to(self.path).as_posix(): path for path in paths}
        return {name: _described(path) for name, path in names.items() if carried(name)}

    def changed(self) -> dict[str, list[int]]:
        """Return the files that are not, as far as is known, the same there."""
        record = self.record()
        return {
            file: described
            for file, described in self.files().items()
            if not self.same(file, record)
        }

    def ahead(self, listing: Mapping[str, Found]) -> bool:
        """Whether what is only here takes the run at least as far as what is there.

        What is there may be half of an upload that failed. But once the scores are there, all the
        rest is, whole."""
        mine = _reach(self.changed())
        return mine > NOTHING and mine >= _reach(listing) and SCORES not in listing

    def same(self, file: str, record: Mapping[str, Any]) -> bool:
        """Whether a file here is the one that was there when last seen."""
        path = self.path / file
        return file in record and path.is_file() and record[file]["here"] == _described(path)

    def follows(self, file: str, listing: Mapping[str, Found], record: Mapping[str, Any]) -> bool:
        """Whether a file there is the one that was seen last, and is here as it was fetched."""
        return self.same(file, record) and record[file]["there"] == listing[file].mark

    def take(self, contents: Mapping[str, bytes | None], listing: Mapping[str, Found]) -> None:
        """Write what was fetched, the scores last, and remove what is gone there; what is not whole
        is passed over.
        """
        record = self.record()
        with typed(self.path):
            for file in [file for file in record if file not in listing]:
                if plain(*file.split("/")):
                    (self.path / file).unlink(missing_ok=True)
                del record[file]
            for file in sorted(contents, key=lambda file: (file == SCORES, file)):
                content, path = contents[file], self.path / file
                if (
                    content is None
                    or not whole(file, content)
                    or listing[file].size not in (None, len(content))
                ):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path, content, follow=False)
                if (written := listing[file].written) is not None:
                    os.utime(path, (written, written))
                record[file] = {"here": _described(path), "there": listing[file].mark}
        self.write(record)


def carried(name: str) -> bool:
    """Whether a file of a run's folder is carried: what the run writes, and folders of trackers."""
    return plain(*name.split("/")) and ("/" in name or is_own(name))


def fetched(name: str) -> bool:
    """Whether a file there is of use here: what is carried, and the notes of others."""
    return carried(name) or name in (HOLDER, CLEARING)


def whole(file: str, content: bytes | None) -> bool:
    """Whether a file can be what was meant: half a JSON file is none; other kinds carry checksums
    of their own.
    """
    if content is None:
        return False
    if file.endswith(".json"):
        try:
            parse_json(content, file)
        except StoreError:
            return False
    return True


def _reach(files: Iterable[str]) -> tuple[int, int]:
    """Return how far files take a run: to its end, to a step, or nowhere."""
    names = set(files)
    steps = [int(m[1]) for name in names if (m := SNAPSHOT.fullmatch(name))]
    return (2, 0) if SCORES in names else (1, max(steps)) if steps else NOTHING


def _described(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]
