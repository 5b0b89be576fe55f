"""A store: one folder per run, found by the hash of what affects its result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dualmix.errors import StoreError
from dualmix.store.files import typed
from dualmix.store.folder import Folder
from dualmix.store.names import folder_name
from dualmix.store.run_files import SUMS

if TYPE_CHECKING:
    from dualmix.store.mirror import Mirror

RECENT = 30.0
"""Seconds for which what a store elsewhere told is taken to be so, where nothing is decided by it.
"""


class Store:
    """A folder of runs.

    Parameters
    ----------
    root
        Where runs are looked for and made.
    run
        One run's folder, which may have been moved or renamed: its configuration is found there and
        nowhere else.
    mirror
        Carries the runs to and from another place, of which `root` is the copy.
    """

    def __init__(
        self, root: Path | str, run: Path | None = None, mirror: Mirror | None = None
    ) -> None:
        if "://" in str(root):
            raise StoreError(f"{root} is an address: `open_store` opens it.")
        self.root, self.run, self.mirror = Path(root), run, mirror

    def __str__(self) -> str:
        return str(self.mirror or self.root)

    @property
    def address(self) -> str:
        """How a process anywhere is told which store this is."""
        return self.mirror.address if self.mirror else str(self.root.absolute())

    def below(self, *names: str) -> Store:
        """Return the store in a folder of this one."""
        if self.mirror is None:
            return Store(self.root.joinpath(*names))
        mirror = self.mirror.below(*names)
        return Store(mirror.root, mirror=mirror)

    def refresh(self, after: float = 0.0) -> None:
        """Learn what changed where the store is; a folder is always as it is.

        Parameters
        ----------
        after
            Do nothing if that was done in the last so many seconds.
        """
        if self.mirror:
            self.mirror.pull(after)

    def fetch(self, name: str) -> None:
        """Get a file of the store that belongs to no run, if it is newer where the store is."""
        if self.mirror:
            self.mirror.fetch(name)

    def publish(self, name: str) -> None:
        """Put a file of the store that belongs to no run where the store is."""
        if self.mirror:
            self.mirror.publish(name)

    def at(self, path: Path, key: str = "") -> Folder:
        """Return a run's folder without a look at what it holds; the key is for those who write to
        it.
        """
        return Folder(path, key, self.mirror.of(path) if self.mirror else None)

    def open(self, path: Path) -> Folder:
        """Open a run that exists."""
        return Folder.open(path, self.mirror.of(path) if self.mirror else None)

    def folder(self, name: str, key: str) -> Folder:
        """Return the folder of a run, whether or not it exists yet.

        Parameters
        ----------
        name
            What a new folder is called; the start of the key is appended. One that ends with that
            is the run's, whatever it is called.
        """
        if self.run is not None and Folder.open(self.run).key == key:
            return Folder(self.run, key)
        fresh = folder_name(name, key)
        known = self._ending(f"-{key[:12]}")
        folder = self.at(self.root / (known[0] if known else fresh), key)
        folder.refresh(after=RECENT)
        return folder

    def _ending(self, end: str) -> list[str]:
        there = self.mirror.names() if self.mirror else set()
        return sorted(name for name in {*there, *self._names()} if name.endswith(end))

    def find(self, name: str) -> Folder:
        """Return a run by its path, its folder's name or a part of that; of several the one begun
        last.
        """
        with typed(Path(name), "read"):
            if (Path(name) / "config.json").is_file():
                return Folder.open(Path(name))
        self.refresh()
        name = self.mirror.local(name) if self.mirror else name
        matches = self.matches(name)
        if not matches:
            raise StoreError(
                f"There is no run {name!r} in {self}: give a run's folder, or the store with "
                "--store."
            )
        return self.open(matches[0])

    def matches(self, name: str) -> list[Path]:
        """Return the runs whose folder's name begins with a method's name, else holds the text; the
        latest first.
        """
        named = [path for path in self.paths() if path.name.startswith(f"{name}-")]
        named = named or [path for path in self.paths() if name in path.name]
        return sorted(named, key=lambda path: (self._begun(path), path.name), reverse=True)

    def _begun(self, path: Path) -> float:
        """Return when a run was begun, in seconds since the epoch."""
        try:
            return (path / "config.json").lstat().st_mtime_ns / 1e9
        except OSError:
            return 0.0

    def paths(self) -> list[Path]:
        """Return the folders that hold a run, by name, also one that has lost its configuration."""
        return [
            self.root / name
            for name in self._names()
            if any(os.path.lexists(f"{self.root}/{name}/{file}") for file in ("config.json", SUMS))
        ]

    def _names(self) -> list[str]:
        """Return the names of the folders in the store, but for hidden ones."""
        with typed(self.root, "read"):
            try:
                with os.scandir(self.root) as entries:
                    return sorted(e.name for e in entries if not e.name.startswith("."))
            except (FileNotFoundError, NotADirectoryError):
                return []
            except OSError as fault:
                raise StoreError(
                    f"{self.root} cannot be read ({fault.strerror}): give another store with "
                    "--store."
                ) from fault
