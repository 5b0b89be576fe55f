"""What makes a store's folder the copy of one at an address such as ``s3://bucket/runs``.

Every run's folder has a copy below the cache folder. A run that begins fetches what is ahead of the
copy; after each snapshot and at its end what changed is sent, the scores last, and only then what
became void is removed. So the address never holds a finished run that is not whole, and whatever is
lost costs at most the steps since a snapshot."""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

from dualmix.errors import ConfigError, StoreError
from dualmix.folders import cache_folder
from dualmix.store.copy import READ, Copy, fetched
from dualmix.store.files import make_folder, read_bytes, typed, write_bytes
from dualmix.store.folder_mirror import FolderMirror
from dualmix.store.location import Found, Location
from dualmix.store.lock import Lock
from dualmix.store.names import plain

TOGETHER = 64
"""Runs whose files are fetched at a time."""


class Mirror:
    """A store at an address, with a copy in this machine's cache folder (``DUALMIX_CACHE``)."""

    def __init__(self, url: str) -> None:
        self.location = Location(url)
        self.root = _cache(self.location)
        try:
            make_folder(self.root.parent)
        except StoreError as fault:
            raise StoreError(
                f"{self.root.parent}, for copies of {self}, cannot be written "
                f"({getattr(fault.__cause__, 'strerror', fault)}): set DUALMIX_CACHE to a folder "
                "that can."
            ) from fault
        self._looked: dict[str, float] = {}
        self._names: set[str] | None = None

    def __str__(self) -> str:
        return str(self.location)

    @property
    def address(self) -> str:
        """The address, for processes that see what is there."""
        if not self.location.shared:
            raise ConfigError(
                f"{self} is seen by one process only: runs in processes of their own need another "
                "store."
            )
        return self.location.url

    def below(self, *names: str) -> Mirror:
        """Return the mirror of a folder of this one."""
        return Mirror("/".join((self.location.url, *names)))

    def of(self, path: Path) -> FolderMirror:
        """Return the mirror of a run's folder."""
        return FolderMirror(self, path.name)

    def local(self, name: str) -> str:
        """Return a run's name without the address in front of it."""
        return name.rstrip("/").removeprefix(f"{self}/").removeprefix(f"{self.location.url}/")

    def names(self) -> set[str]:
        """Return the names of the runs there, as far as they may be names here."""
        if self._names is None:
            self._names = set(filter(plain, self.location.folders()))
        return self._names

    def pull(self, after: float = 0.0) -> None:
        """Fetch what is read of every run that changed."""
        if self._recent("", after):
            return
        listed: dict[str, dict[str, Found]] = {}
        for path, stamp in self.location.listing().items():
            name, slash, file = path.partition("/")
            if slash:
                listed.setdefault(name, {})[file] = stamp
        self._names = set(listed)
        copied = {record.stem for record in (self.root / ".copies").glob("*.json")}
        self.follow({name: listed.get(name, {}) for name in sorted({*listed, *copied})})
        if listed:
            make_folder(self.root)
        self._looked = {"": time.monotonic()}

    def look(self, name: str, after: float) -> None:
        """Fetch what is read of one run, if it changed."""
        if not self._recent(name, after) and not Lock(self.root / name).taken:
            self.follow({name: self.location.listing(name)})
            self._looked[name] = time.monotonic()

    def _recent(self, name: str, after: float) -> bool:
        last = max(self._looked.get("", -math.inf), self._looked.get(name, -math.inf))
        return time.monotonic() - last < after

    def follow(
        self,
        listings: Mapping[str, Mapping[str, Found]],
        wanted: Callable[[str], bool] = READ.__contains__,
    ) -> None:
        """Make the copies of runs what their folders are, as far as wanted; a copy that is ahead is
        left as it is.
        """
        left = iter(listings.items())
        while some := dict(islice(left, TOGETHER)):
            copies = {name: Copy(self.root, name) for name in some}
            seen = {name: copy.record() for name, copy in copies.items()}
            changed = {
                name: [
                    file
                    for file in listing
                    if wanted(file)
                    and fetched(file)
                    and not copies[name].follows(file, listing, seen[name])
                ]
                for name, listing in some.items()
            }
            contents = self.location.read(
                [f"{name}/{file}" for name, files in changed.items() for file in files]
            )
            for name, copy in copies.items():
                if not changed[name] and seen[name].keys() <= some[name].keys():
                    continue
                with copy.lock():
                    if (
                        copy.record() == seen[name]
                        and not Lock(copy.path).taken
                        and not copy.ahead(some[name])
                    ):
                        copy.take(
                            {file: contents.get(f"{name}/{file}") for file in changed[name]},
                            some[name],
                        )

    def fetch(self, name: str) -> None:
        """Get a file that belongs to no run, if there is more in it than in the one here: it only
        ever grows.
        """
        path = self.root / name
        content = self.location.read([name]).get(name, b"")
        with typed(path):
            size = path.stat().st_size if path.is_file() else 0
        if len(content) > size:
            write_bytes(path, content)

    def publish(self, name: str) -> None:
        """Send a file that belongs to no run."""
        self.location.write(name, read_bytes(self.root / name))


def _cache(location: Location) -> Path:
    """Return where the copy of a store is kept."""
    given = os.environ.get("DUALMIX_CACHE")
    base = Path(given) if given else cache_folder()
    name = re.sub(r"[^\w.-]+", "-", location.name)[-60:].strip("-.")
    return base / "stores" / f"{name}-{hashlib.sha256(location.url.encode()).hexdigest()[:12]}"
