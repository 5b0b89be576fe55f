"""A store at an address such as ``s3://bucket/runs``: runs work in a copy on this machine, and what
counts is carried.

Every run's folder has a copy below the cache folder. A run that begins fetches what is ahead of the
copy; after each snapshot and at its end what changed is uploaded, the scores last, and only then
what became void is removed. So the address never holds a finished run that is not whole, and
whatever is lost costs at most the steps since a snapshot."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.config.compose import Composed
from dualmix.errors import ConfigError, StoreError
from dualmix.store.archive import open_folder
from dualmix.store.files import write_bytes
from dualmix.store.folder import RECENT, Folder, Store
from dualmix.store.lease import Lease, alive
from dualmix.store.location import Found, Location, plain
from dualmix.store.mirror import LEASE, SCORES, Copy, whole

if TYPE_CHECKING:
    from dualmix.learn.types import State

READ = frozenset(
    (
        "config.json",
        "plan.json",
        "facts.json",
        "log.jsonl",
        "times.json",
        "probes.json",
        "confusion.npz",
        SCORES,
        LEASE,
    )
)
"""Files of a run that commands read; the others are fetched only to go on with it."""
TOGETHER = 64
"""Runs whose files are fetched at a time."""


def open_store(location: Path | str, run: Path | None = None) -> Store:
    """Return the store in a folder, or at an address that fsspec reaches.

    Parameters
    ----------
    run
        One run's folder on this machine, as `Store` takes it.
    """
    if not str(location):
        raise ConfigError("The store has no name: give a folder or an address with --store.")
    return RemoteStore(str(location), run) if "://" in str(location) else open_folder(location, run)


class RemoteStore(Store):
    """A store at an address, with a copy in the cache folder of this machine (``DUALMIX_CACHE``)."""

    def __init__(self, url: str, run: Path | None = None) -> None:
        self.location = Location(url)
        super().__init__(_cache(self.location), run)
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise StoreError(
                f"{self.root.parent}, for copies of {self}, cannot be written ({fault.strerror}): set DUALMIX_CACHE to "
                "a folder that can."
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
                f"{self} is seen by one process only: runs in processes of their own need another store."
            )
        return self.location.url

    def below(self, *names: str) -> Store:
        """Return the store in a folder of this one."""
        return RemoteStore("/".join((self.location.url, *names)))

    def refresh(self, after: float = 0.0) -> None:
        """Fetch what is read of every run that changed."""
        if self._recent("", after):
            return
        listed: dict[str, dict[str, Found]] = {}
        for path, found in self.location.listing().items():
            name, slash, file = path.partition("/")
            if slash:
                listed.setdefault(name, {})[file] = found
        self._names = set(listed)
        copied = {record.stem for record in (self.root / ".copies").glob("*.json")}
        self.follow({name: listed.get(name, {}) for name in sorted({*listed, *copied})})
        if listed:
            self.root.mkdir(parents=True, exist_ok=True)
        self._looked = {"": time.monotonic()}

    def look(self, name: str, after: float) -> None:
        """Fetch what is read of one run, if it changed."""
        if not self._recent(name, after) and not Folder(self.root / name, "").busy:
            self.follow({name: self.location.listing(name)})
            self._looked[name] = time.monotonic()

    def _recent(self, name: str, after: float) -> bool:
        last = max(self._looked.get("", -np.inf), self._looked.get(name, -np.inf))
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
                    if wanted(file) and not copies[name].follows(file, listing, seen[name])
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
                        and not Folder(copy.path, "").busy
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
        if len(content) > (path.stat().st_size if path.is_file() else 0):
            write_bytes(path, content)

    def publish(self, name: str) -> None:
        """Upload a file that belongs to no run."""
        self.location.write(name, (self.root / name).read_bytes())

    def open(self, path: Path) -> RemoteFolder:
        """Open the copy of a run."""
        return self.at(path, Folder.open(path).key)

    def find(self, name: str) -> Folder:
        """Return a run as `Store.find` does, also by its address."""
        return super().find(
            name.rstrip("/").removeprefix(f"{self}/").removeprefix(f"{self.location.url}/")
        )

    def folder(self, composed: Composed, fingerprint: str) -> Folder:
        """Return the folder of a configuration, after a look at what there is of it."""
        folder = super().folder(composed, fingerprint)
        folder.refresh(after=RECENT)
        return folder

    def _ending(self, end: str) -> list[Path]:
        if self._names is None:
            self._names = set(filter(plain, self.location.folders()))
        there = [self.root / name for name in self._names if name.endswith(end)]
        return sorted({*there, *super()._ending(end)})

    def at(self, path: Path, key: str = "") -> RemoteFolder:
        """Return the copy of a run without a look at what it holds."""
        return RemoteFolder(path, key, self)


class RemoteFolder(Folder):
    """One run at an address, by its copy on this machine."""

    def __init__(self, path: Path, key: str, store: RemoteStore) -> None:
        super().__init__(path, key)
        self.store = store
        self.copy = Copy(store.root, path.name)
        self.lease = Lease(store.location, f"{path.name}/{LEASE}")
        self.held = False

    def __str__(self) -> str:
        return f"{self.store}/{self.path.name}"

    def refresh(self, after: float = 0.0) -> None:
        """Fetch what is read of the run, if it changed and nothing on this machine works on it."""
        if not self.held:
            self.store.look(self.path.name, after)

    @property
    def done(self) -> bool:
        """Whether the run has ended and its scores stand at the address, not only here."""
        return super().done and self.copy.same(SCORES, self.copy.record())

    @property
    def busy(self) -> bool:
        """Whether a process of this machine or, when last looked at, another's works on the run."""
        if super().busy:
            return True
        try:
            return alive(json.loads((self.path / LEASE).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run on this machine by its lock and between machines by its lease; begin with
        what is newest.
        """
        with ExitStack() as held:
            with self.copy.lock():
                held.enter_context(super().locked())
            self.lease.hold()
            held.callback(self._let_go)
            self.held = True
            self._reconcile()
            with self.lease.renewed():
                try:
                    yield
                except StoreError:
                    raise
                except Exception:
                    with suppress(StoreError):
                        self._upload()
                    raise
            self._upload()

    def _let_go(self) -> None:
        self.held = False
        with suppress(StoreError):
            self.lease.release()

    def _reconcile(self) -> None:
        """Go on from what is furthest: what was not uploaded yet, else what is at the address."""
        name, record = self.path.name, self.copy.record()
        listing = self.store.location.listing(name)
        if SCORES in listing and not whole(SCORES, self._there(SCORES)):
            del listing[SCORES]
        if self.copy.ahead(listing):
            self._upload()
            return
        changed = [
            file
            for file in listing
            if (file in READ or SCORES not in listing)
            and file != LEASE
            and not (self.copy.follows(file, listing, record) and self.copy.same(file, record))
        ]
        contents = self.store.location.read([f"{name}/{file}" for file in changed])
        self.copy.take({file: contents.get(f"{name}/{file}") for file in changed}, listing)
        for file in self.copy.changed():
            (self.path / file).unlink(missing_ok=True)

    def _there(self, file: str) -> bytes | None:
        path = f"{self.path.name}/{file}"
        return self.store.location.read([path]).get(path)

    def _upload(self) -> None:
        """Upload what changed, the scores once all the rest is there; then remove the snapshots
        that are void.

        The facts come after what they stand for, as `begin` writes them.
        """
        self.lease.hold()
        name, local, record = self.path.name, self.copy.files(), self.copy.record()
        changed = self.copy.changed()
        first = sorted(
            (file for file in changed if file != SCORES), key=lambda file: file == "facts.json"
        )
        for group in (first, [SCORES] if SCORES in changed else []):
            if group:
                self._send({file: changed[file] for file in group}, record)
        void = {file for file in record if file.startswith("snapshot-") and file not in local}
        if SCORES in changed:
            void |= {
                f
                for f in self.store.location.listing(name)
                if f.startswith("snapshot-") and f not in local
            }
        for file in sorted(void):
            self.store.location.remove(f"{name}/{file}")
            record.pop(file, None)
        if void:
            self.copy.write(record)

    def _send(self, files: Mapping[str, list[int]], record: dict[str, Any]) -> None:
        """Upload files as they are described here, see that they have arrived whole, and write that
        down.
        """
        sent: dict[str, int] = {}
        for file in files:
            content = (self.path / file).read_bytes()
            self.store.location.write(f"{self.path.name}/{file}", content)
            sent[file] = len(content)
        listing = self.store.location.listing(self.path.name)
        for file, described in files.items():
            found = listing.get(file)
            if found is None or found.size not in (None, sent[file]):
                raise StoreError(
                    f"{self}/{file} did not arrive whole: the same command goes on from what is here."
                )
            record[file] = {"here": described, "there": found.mark}
        self.copy.write(record)

    def clear(self) -> None:
        """Remove all that an earlier attempt left, there and here; the scores first."""
        self.lease.hold()
        listing = self.store.location.listing(self.path.name)
        for file in sorted(listing, key=lambda file: (file != SCORES, file)):
            if file != LEASE:
                self.store.location.remove(f"{self.path.name}/{file}")
        self.copy.write({})
        super().clear()

    def begin(
        self,
        composed: Composed,
        plan: Mapping[str, Any],
        rows: Mapping[str, NDArray[np.int64]],
        data: Any,
    ) -> None:
        """Write down what is about to run, and let others see it."""
        super().begin(composed, plan, rows, data)
        self._upload()

    def save(self, step: int, state: State) -> None:
        """Add a snapshot here, then at the address."""
        super().save(step, state)
        self._upload()

    def latest(self) -> tuple[State | None, list[str]]:
        """Return the newest good snapshot, fetched first where the run is only looked at."""
        if not self.held:
            name = self.path.name
            self.store.follow(
                {name: self.store.location.listing(name)}, lambda file: file.startswith("snapshot-")
            )
        return super().latest()

    def finish(
        self,
        learner: State,
        counts: NDArray[np.int64],
        scores: Mapping[str, Any],
        times: Mapping[str, Any],
    ) -> None:
        """File the results here, then at the address."""
        super().finish(learner, counts, scores, times)
        self._upload()

    def log(self, **entry: Any) -> None:
        """Append a line to the log; the run uploads it with what comes next, another process at
        once.
        """
        super().log(**entry)
        if not self.held:
            with self.copy.lock():
                self._send({"log.jsonl": self.copy.files()["log.jsonl"]}, self.copy.record())

    def publish(self) -> None:
        """Upload what trackers have added in folders of their own."""
        with self.copy.lock():
            added = {
                file: described for file, described in self.copy.changed().items() if "/" in file
            }
            if added:
                self._send(added, self.copy.record())


def _cache(location: Location) -> Path:
    """Return where the copy of a store is kept."""
    from platformdirs import user_cache_path

    given = os.environ.get("DUALMIX_CACHE")
    base = Path(given) if given else user_cache_path("dualmix", appauthor=False)
    name = re.sub(r"[^\w.-]+", "-", location.name)[-60:].strip("-.")
    return base / "stores" / f"{name}-{hashlib.sha256(location.url.encode()).hexdigest()[:12]}"
