"""The store: one folder a run, found by the hash of what affects its result."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dualmix.config.compose import Composed
from dualmix.errors import BusyError, StoreError
from dualmix.runs.facts import facts
from dualmix.store.files import digest, write_bytes, write_json

if TYPE_CHECKING:
    from dualmix.learn.types import State

SUMS = "sums.json"
"""The digests of a finished run's files, filed just before its scores."""
KEPT = 2
"""Snapshots kept: if the newest is damaged, the one before it is used."""
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
    """

    def __init__(self, root: Path | str, run: Path | None = None) -> None:
        if "://" in str(root):
            raise StoreError(f"{root} is an address: `open_store` opens it.")
        self.root = Path(root)
        self.run = run

    def __str__(self) -> str:
        return str(self.root)

    @property
    def address(self) -> str:
        """How a process anywhere is told which store this is."""
        return str(self.root.absolute())

    def below(self, *names: str) -> Store:
        """Return the store in a folder of this one."""
        return Store(self.root.joinpath(*names))

    def refresh(self, after: float = 0.0) -> None:
        """Learn what changed where the store is; a folder is always as it is.

        Parameters
        ----------
        after
            Do nothing if that was done in the last so many seconds.
        """

    def fetch(self, name: str) -> None:
        """Get a file of the store that belongs to no run, if it is newer where the store is."""

    def publish(self, name: str) -> None:
        """Put a file of the store that belongs to no run where the store is."""

    def open(self, path: Path) -> Folder:
        """Open a run that exists."""
        return Folder.open(path)

    def folder(self, composed: Composed, fingerprint: str) -> Folder:
        """Return the folder of a configuration on given data, whether or not it exists yet."""
        key = composed.config.key(fingerprint)
        if self.run is not None and Folder.open(self.run).key == key:
            return Folder(self.run, key)
        known = self._ending(f"-{key[:12]}")
        name = f"{composed.label}-{composed.config.data.name}-s{composed.config.seed}-{key[:12]}"
        return self.at(known[0] if known else self.root / name, key)

    def _ending(self, end: str) -> list[Path]:
        return sorted(self.root.glob(f"*{end}"))

    def at(self, path: Path, key: str = "") -> Folder:
        """Return a run's folder without a look at what it holds; the key is for those who write to
        it.
        """
        return Folder(path, key)

    def find(self, name: str) -> Folder:
        """Return a run by its path, its folder's name or a part of that; of several the one begun
        last.
        """
        if (Path(name) / "config.json").is_file():
            return Folder.open(Path(name))
        self.refresh()
        matches = self.matches(name)
        if not matches:
            raise StoreError(
                f"There is no run {name!r} in {self}: give a run's folder, or the store with --store."
            )
        return self.open(matches[0])

    def matches(self, name: str) -> list[Path]:
        """Return the runs whose folder's name begins with a method's name, else holds the text; the
        latest first.
        """
        named = [path for path in self.paths() if path.name.startswith(f"{name}-")]
        named = named or [path for path in self.paths() if name in path.name]
        return sorted(
            named,
            key=lambda path: (self._begun(path), path.name),
            reverse=True,
        )

    def _begun(self, path: Path) -> float:
        """Return when a run was begun, in seconds since the epoch."""
        return (path / "config.json").stat().st_mtime

    def paths(self) -> list[Path]:
        """Return the folders that hold a run, by name."""
        return sorted(path.parent for path in self.root.glob("*/config.json"))


class Folder:
    """One run on disk.

    ``config.json`` what was asked for and where each value came from; ``plan.json`` and
    ``plan.npz`` the stream; ``facts.json`` versions, commit, host, data; ``log.jsonl`` what
    happened; ``snapshot-*.safetensors`` where to go on; and when the run is done
    ``learner.safetensors``, ``confusion.npz``, ``times.json`` and, last, ``scores.json``."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key

    def __str__(self) -> str:
        return str(self.path)

    def refresh(self, after: float = 0.0) -> None:
        """Learn what changed where the store is, as `Store.refresh` does."""

    def publish(self) -> None:
        """Put what trackers have added to the run where the store is."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open a run that exists."""
        return cls(path, "").opened()

    def opened(self) -> Folder:
        """Return the run with its key, after a look that it is one."""
        config = self.read_json("config.json")
        if not isinstance(config, dict) or not config.keys() >= {"key", "label", "config"}:
            raise StoreError(
                f"{self.path / 'config.json'} is not the record of a run: run again with --fresh."
            )
        self.key = str(config["key"])
        return self

    @property
    def done(self) -> bool:
        """Whether the run has ended and its scores stand."""
        return self.has("scores.json")

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run."""
        if not (self.path / "lock").is_file():
            return False
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:
            return (self.path / "holder.json").is_file()
        lock.release()
        return False

    def serves(self, composed: Composed) -> bool:
        """Whether the run is done, with all probes that are asked for: they cannot be made up for
        later.
        """
        asked = composed.config.probes
        if not self.done or not asked.on:
            return self.done
        if not self.has("probes.json"):
            return False
        made = self.read_json("config.json")["config"].get("probes", {})
        same = all(made.get(name) == getattr(asked, name) for name in ("draws", "rows", "past"))
        return same and set(asked.operators) <= set(made.get("operators", ()))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; a killed process lets go of it by itself.

        Raises
        ------
        BusyError
            Another process holds it; it is left alone.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "lock")
            lock.acquire(timeout=0)
        except Timeout:
            holder = self.path / "holder.json"
            who = parsed(holder.read_bytes(), holder) if holder.is_file() else {}
            raise BusyError(
                f"Process {who.get('pid', '?')} on {who.get('host', '?')} is working on {self.path} "
                f"(since {who.get('since', '?')}): it was left alone; wait for it or stop it."
            ) from None
        except OSError as fault:
            raise StoreError(
                f"{self.path} cannot be written ({fault.strerror or fault}): give another folder with --store or "
                "mend its permissions."
            ) from fault
        try:
            for left in self.path.glob(".*.part"):
                left.unlink(missing_ok=True)
            self.write_json(
                "holder.json", {"pid": os.getpid(), "host": platform.node(), "since": _now()}
            )
            yield
        finally:
            (self.path / "holder.json").unlink(missing_ok=True)
            lock.release()

    def clear(self) -> None:
        """Remove all that an earlier attempt left, but the lock; the scores first, so that half a
        run is never done.
        """
        (self.path / "scores.json").unlink(missing_ok=True)
        for path in self.path.iterdir():
            if path.name in ("lock", "holder.json"):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def begin(
        self,
        composed: Composed,
        plan: Mapping[str, Any],
        rows: Mapping[str, NDArray[np.int64]],
        data: Any,
    ) -> None:
        """Write down what is about to run, once; later sessions only add themselves to the facts."""
        facts_path = self.path / "facts.json"
        if not facts_path.is_file():
            self.write_json(
                "config.json",
                {
                    "key": self.key,
                    "label": composed.label,
                    "config": composed.config.record(),
                    "origins": dict(composed.origins),
                },
            )
            self.write_json("plan.json", dict(plan))
            self.write_arrays("plan.npz", rows)
            self.write_json("facts.json", {**facts(), "data": data, "sessions": []})
        recorded = self.read_json("facts.json")
        recorded["sessions"].append(
            {"started": _now(), "pid": os.getpid(), "host": platform.node()}
        )
        self.write_json("facts.json", recorded)

    def save(self, step: int, state: State) -> None:
        """Add a snapshot and drop all but the newest few."""
        from dualmix.store import snapshot

        snapshot.write(self.path / f"snapshot-{step:09d}.safetensors", state)
        for old in self._snapshots()[:-KEPT]:
            old.unlink(missing_ok=True)

    def latest(self) -> tuple[State | None, list[str]]:
        """Return the newest good snapshot, if there is any, and a remark for each damaged one.

        Raises
        ------
        StoreError
            There are snapshots but none is good, so that going on would mean starting over unasked.
        """
        from dualmix.store import snapshot

        remarks: list[str] = []
        for path in reversed(self._snapshots()):
            try:
                state = snapshot.read(path)
                if state["key"] != self.key:
                    raise StoreError(f"{path} belongs to another run.")
                return state, remarks
            except (StoreError, KeyError) as fault:
                remarks.append(f"{fault} It is passed over.")
        if remarks:
            raise StoreError(
                f"No snapshot in {self.path} can be used: start over with --fresh. {' '.join(remarks)}"
            )
        return None, []

    def drop_after(self, step: int) -> None:
        """Remove snapshots past a step: the run goes on from there and will write them again."""
        for path in self._snapshots():
            if int(path.stem.split("-")[1]) > step:
                path.unlink(missing_ok=True)

    def finish(
        self,
        learner: State,
        counts: NDArray[np.int64],
        scores: Mapping[str, Any],
        times: Mapping[str, Any],
    ) -> None:
        """File the results; the run counts as done once the scores are there."""
        from dualmix.store import snapshot

        snapshot.write(self.path / "learner.safetensors", learner)
        self.write_arrays("confusion.npz", {"counts": counts})
        self.write_json("times.json", dict(times))
        self.write_json("scores.json", dict(scores))
        for path in self._snapshots():
            path.unlink(missing_ok=True)

    def log(self, **entry: Any) -> None:
        """Append a line to the log."""
        try:
            with (self.path / "log.jsonl").open("a+b") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
                broken = file.read(1) not in (b"", b"\n")
                file.write(b"\n" * broken + json.dumps({"at": _now(), **entry}).encode() + b"\n")
        except OSError as fault:
            raise StoreError(
                f"{self.path} cannot be written ({fault.strerror}): free some space or mend its permissions, then give "
                "the same command again."
            ) from fault

    def counts(self) -> NDArray[np.int64]:
        """Return the confusion counts of every stage measured so far, (stages, classes, classes)."""
        if self.done:
            try:
                content = self.read("confusion.npz")
                with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                    return np.asarray(arrays["counts"], dtype=np.int64)
            except (
                ValueError,
                KeyError,
                EOFError,
                OSError,
                RuntimeError,
                MemoryError,
                BadZipFile,
                zlib.error,
            ) as fault:
                raise StoreError(
                    f"{self.path / 'confusion.npz'} is damaged ({fault}): run again with --fresh."
                ) from fault
        state, _ = self.latest()
        if state is None:
            return np.zeros((0, 0, 0), dtype=np.int64)
        return np.asarray(state["counts"].numpy(), dtype=np.int64)

    def has(self, name: str) -> bool:
        """Whether the run has a file."""
        return (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        """Return the content of one of the run's files, if it is as the run wrote it."""
        try:
            content = (self.path / name).read_bytes()
        except OSError as fault:
            raise StoreError(
                f"{self.path / name} cannot be read ({fault.strerror}): run again with --fresh."
            ) from fault
        sums = self.sums() if self.done and name != SUMS else None
        if sums and sums["files"].get(name, digest(content)) != digest(content):
            raise StoreError(
                f"{self.path / name} is not as the run wrote it: run again with --fresh."
            )
        return content

    def sums(self) -> dict[str, Any] | None:
        """Return the sha256 of the run's files; nothing for a run of an earlier version."""
        if not self.has(SUMS):
            return None
        sums = parsed(self.read(SUMS), self.path / SUMS)
        if not isinstance(sums, dict) or not isinstance(sums.get("files"), dict):
            raise StoreError(f"{self.path / SUMS} holds no sums: run again with --fresh.")
        return sums

    def read_json(self, name: str) -> Any:
        """Return one of the run's JSON files, as `read` does."""
        return parsed(self.read(name), self.path / name)

    def write_json(self, name: str, plain: Any) -> None:
        """Replace one of the run's JSON files at once."""
        write_json(self.path / name, plain)

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[np.int64]]) -> None:
        """Replace one of the run's array files at once; rows are stored in the smallest type that
        holds them.
        """
        buffer = io.BytesIO()
        small = {
            key: a.astype(np.min_scalar_type(int(a.max(initial=0)))) for key, a in arrays.items()
        }
        np.savez_compressed(buffer, **small)  # type: ignore[arg-type]
        write_bytes(self.path / name, buffer.getvalue())

    def _snapshots(self) -> list[Path]:
        return sorted(self.path.glob("snapshot-*.safetensors"))


def parsed(content: bytes, path: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError, MemoryError) as fault:
        reason = fault if isinstance(fault, ValueError) else "it is nested too deep"
        raise StoreError(f"{path} cannot be read ({reason}): run again with --fresh.") from fault


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
