"""Many finished runs in one zip file, without their learners: what is published and kept.

The archive holds the files of each run as the run filed them, at ``NAME/config.json`` and so on, so
that any zip program reads it. Members are sorted, compressed one by one and carry no date: adding a
run leaves the bytes of the others as they are, which keeps a history of the file small.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dualmix.errors import StoreError
from dualmix.store.files import digest, typed, write_bytes
from dualmix.store.folder import Folder
from dualmix.store.names import plain
from dualmix.store.run_files import SUMS
from dualmix.store.store import Store

NAME = "runs.zip"
"""The archive of a store has this name in the store's folder."""
FILES = (
    "config.json",
    "plan.json",
    "facts.json",
    "log.jsonl",
    "times.json",
    "probes.json",
    "confusion.npz",
    "scores.json",
)
"""What is kept of a run: all that tables, figures and commands read. Its digests come with it."""
UNIX = 3
END, MANY = b"PK\x05\x06", 2**16 - 1
"""The last record of a zip file, and what it has in place of a number of members above that."""
LARGEST = 2**28
"""Bytes of a file in an archive; more is no file of a run."""
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""What zipfile raises for a damaged, encrypted or unknown kind of member."""


class Archive:
    """A zip file of runs; it is read once, and each member when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def runs(self) -> dict[str, dict[str, zipfile.ZipInfo]]:
        """The members by run and file.

        Raises
        ------
        StoreError
            The file is not an archive of runs.
        """
        runs: dict[str, dict[str, zipfile.ZipInfo]] = {}
        for member in self._zip.infolist() if self._zip else ():
            run, _, file = member.filename.partition("/")
            if not plain(run) or file not in (*FILES, SUMS) or file in runs.get(run, ()):
                raise StoreError(
                    f"{self.path} is not an archive of runs: it has {member.filename!r} in it."
                )
            runs.setdefault(run, {})[file] = member
        return runs

    @cached_property
    def _zip(self) -> zipfile.ZipFile | None:
        try:
            content = self.path.read_bytes()
            archive = zipfile.ZipFile(io.BytesIO(content))
            listed = struct.unpack_from("<H", content, content.rindex(END) + 10)[0]
            if listed not in (len(archive.infolist()), MANY):
                raise zipfile.BadZipFile(f"{listed} members are listed")
            return archive
        except FileNotFoundError:
            return None
        except DAMAGE as fault:
            raise StoreError(
                f"{self.path} cannot be read ({fault}): it is damaged, get the file again."
            ) from fault

    def read(self, run: str, file: str) -> bytes:
        """Return a file of a run."""
        try:
            member = self.runs[run][file]
            if member.file_size > LARGEST or self._zip is None:
                raise ValueError(f"{member.file_size} bytes are more than a run files")
            with self._zip.open(member) as content:
                return content.read(LARGEST)
        except DAMAGE as fault:
            raise StoreError(
                f"{self.path.parent / run / file} cannot be read ({fault}): it is damaged in "
                f"{self.path.name}."
            ) from fault

    def files(self, run: str) -> dict[str, bytes]:
        """Return all files of a run."""
        return {file: self.read(run, file) for file in self.runs.get(run, ())}

    def add(self, runs: Mapping[str, Mapping[str, bytes]]) -> Archive:
        """Replace the file at once by one that has these runs too, and return the new archive; a
        run of a name that is there takes its place.
        """
        every = {name: self.files(name) for name in self.runs if name not in runs} | {**runs}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            for name in sorted(every):
                for file in sorted(every[name]):
                    member = zipfile.ZipInfo(f"{name}/{file}")  # its date is always 1980-01-01
                    member.compress_type = zipfile.ZIP_DEFLATED
                    member.create_system, member.external_attr = UNIX, 0o100644 << 16
                    target.writestr(member, every[name][file], compresslevel=9)
        write_bytes(self.path, buffer.getvalue())
        return Archive(self.path)


class ArchivedRun(Folder):
    """A finished run in an archive, until a folder of its name is made: then it is that one."""

    def __init__(self, path: Path, key: str, archive: Archive) -> None:
        super().__init__(path, key)
        self.archive = archive

    @property
    def done(self) -> bool:
        """Whether the run has ended and its scores stand, as those of every archived run do."""
        return super().done if self.path.is_dir() else True

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run."""
        return self.path.is_dir() and super().busy

    def has(self, name: str) -> bool:
        """Whether the run has a file."""
        if self.path.is_dir():
            return super().has(name)
        return name in self.archive.runs.get(self.path.name, ())

    @property
    def partial(self) -> bool:
        """Whether large files of the run may be elsewhere only."""
        return not self.path.is_dir()

    def sums(self) -> dict[str, Any] | None:
        """Return the sha256 of the run's files, which every archived run has."""
        if self.path.is_dir():
            return super().sums()
        sums = self.read_json(SUMS)
        if not isinstance(sums, dict) or not isinstance(sums.get("files"), dict):
            raise StoreError(f"{self.path / SUMS} holds no sums: it is damaged in the archive.")
        return sums

    def read(self, name: str) -> bytes:
        """Return the content of one of the run's files, if it is as the run wrote it."""
        if self.path.is_dir():
            return super().read(name)
        content = self.archive.read(self.path.name, name)
        if name != SUMS and (self.sums() or {})["files"].get(name) != digest(content):
            raise StoreError(f"{self.path / name} is not as the run wrote it.")
        return content


class ArchiveStore(Store):
    """A store whose runs are in an archive, or some in an archive and some in folders beside it."""

    def __init__(self, root: Path, archive: Archive, run: Path | None = None) -> None:
        super().__init__(root, run)
        self.archive = archive

    def open(self, path: Path) -> Folder:
        """Open a run that exists."""
        return self.at(path).opened()

    def at(self, path: Path, key: str = "") -> Folder:
        """Return a run without a look at what it holds."""
        if path.name in self.archive.runs:
            return ArchivedRun(path, key, self.archive)
        return super().at(path, key)

    def paths(self) -> list[Path]:
        """Return where runs are, or would be if they were no longer in the archive; by name."""
        return sorted({*super().paths(), *(self.root / name for name in self.archive.runs)})

    def _ending(self, end: str) -> list[str]:
        archived = {name for name in self.archive.runs if name.endswith(end)}
        return sorted({*super()._ending(end), *archived})

    def _begun(self, path: Path) -> float:
        if path.is_dir():
            return super()._begun(path)
        try:
            started = self.at(path).read_json("facts.json")["sessions"][0]["started"]
            return datetime.strptime(started, "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except (StoreError, LookupError, TypeError, ValueError):
            return 0.0


def open_folder(location: Path | str, run: Path | None = None) -> Store:
    """Return the store in a folder, with the archive that may be in it, or the one in an archive.

    Parameters
    ----------
    run
        One run's folder, as `Store` takes it.
    """
    root = Path(location)
    with typed(root, "read"):
        for path in (root, root / NAME):
            if path.suffix == ".zip" and path.is_file():
                return ArchiveStore(root, Archive(path), run)
    return Store(root, run)


def find_run(store: Store, name: str) -> Folder:
    """Return a run as `Store.find` does, also by a path into another archive (``results/NAME``)."""
    path = Path(name)
    home = open_folder(path.parent)
    if isinstance(home, ArchiveStore) and path.name in home.archive.runs:
        return home.open(path)
    return store.find(name)
