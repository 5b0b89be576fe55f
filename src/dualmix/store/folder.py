"""One run's folder: its files, written so that whatever dies or is damaged is noticed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.errors import StoreError
from dualmix.store import log
from dualmix.store.files import (
    LARGEST_JSON,
    digest,
    json_bytes,
    parse_json,
    read_bytes,
    read_json,
    sweep_parts,
    sync_folder,
    typed,
    write_bytes,
)
from dualmix.store.lock import Lock, note, now
from dualmix.store.names import plain
from dualmix.store.run_files import (
    ASKED,
    CLEARING,
    FILED,
    LARGE,
    LEARNER,
    LOG,
    OWN,
    SCORES,
    SNAPSHOT,
    SUMS,
    TRASH,
)
from dualmix.store.sums import Sums, sums_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dualmix.store.folder_mirror import FolderMirror
    from dualmix.store.snapshot import State

KEPT = 2
"""Snapshots kept: if the newest is damaged, the one before it is used."""


class Folder:
    """One run on disk.

    ``config.json`` what was asked for and where each value came from; ``plan.json`` and
    ``plan.npz`` the stream; ``facts.json`` versions, commit, host, data; ``log.jsonl`` what
    happened; ``snapshot-*.safetensors`` where to go on; and when the run is done
    ``learner.safetensors``, ``confusion.npz``, ``probes.json``, ``times.json`` and, last,
    ``scores.json``.

    ``sums.json`` holds the sha256 of these files, so that a damaged or edited one is never taken
    for what the run wrote. It is written before the facts and before the scores: a file is what its
    sum says, or it is not believed. A run of an earlier version has no sums and is read as it is.

    Parameters
    ----------
    key
        Tells the run from all others; only those who write to it need it.
    mirror
        Carries the files to and from another place.
    """

    def __init__(self, path: Path, key: str = "", mirror: FolderMirror | None = None) -> None:
        self.path, self.key, self.mirror = path, key, mirror
        self._lock = Lock(path)
        self._sums = Sums(path / SUMS)

    def __str__(self) -> str:
        return str(self.mirror or self.path)

    @classmethod
    def open(cls, path: Path, mirror: FolderMirror | None = None) -> Folder:
        """Open a run that exists."""
        return cls(path, "", mirror).opened()

    def opened(self) -> Folder:
        """Return the run with its key, after a look that it is one."""
        self.key = self.config()["key"]
        return self

    def config(self) -> dict[str, Any]:
        """Return the record of what was asked for: key, label, configuration and origins."""
        config = self.read_json("config.json")
        if not isinstance(config, dict) or not (
            isinstance(config.get("key"), str)
            and isinstance(config.get("label"), str)
            and isinstance(config.get("config"), dict)
        ):
            raise StoreError(
                f"{self.path / 'config.json'} is not the record of a run: run again with --fresh."
            )
        return config

    def refresh(self, after: float = 0.0) -> None:
        """Learn what changed where the run is, unless that was done `after` seconds ago or less."""
        if self.mirror:
            self.mirror.pull(after)

    def publish(self) -> None:
        """Put what trackers have added to the run where the store is."""
        if self.mirror:
            self.mirror.publish()

    @property
    def done(self) -> bool:
        """Whether the run has ended and its scores stand; at an address: there, not only here."""
        return (
            self.has(SCORES)
            and not (self.path / CLEARING).is_file()
            and (self.mirror is None or self.mirror.confirms(SCORES))
        )

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run."""
        return self._lock.taken or (self.mirror is not None and self.mirror.busy)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; a killed process lets go of it by itself.

        Raises
        ------
        BusyError
            Another process holds it; it is left alone.
        """
        with ExitStack() as held:
            with self.mirror.copy.lock() if self.mirror else nullcontext():
                held.enter_context(self._lock.hold())
            if self.mirror:
                held.enter_context(self.mirror.held())
            sweep_parts(self.path, old=True)
            self._empty_trash()
            if (self.path / CLEARING).is_file():
                self._clear()
            yield

    def clear(self, also: Sequence[str] = ()) -> None:
        """Remove all that an earlier attempt left, there and here; what is not the run's stays.

        One note says that everything of the run is void, and is removed last. So a process that
        dies on the way leaves a run that is not done, and the next that holds it ends the clearing.

        Parameters
        ----------
        also
            Folders in the run's that are its own too.
        """
        self._write(CLEARING, json_bytes({"also": list(also)}))
        self._clear()

    def _clear(self) -> None:
        try:
            also = read_json(self.path / CLEARING)["also"]
            folders = [name for name in also if isinstance(name, str) and plain(name)]
        except (StoreError, KeyError, TypeError):
            folders = []
        if self.mirror:
            self.mirror.clear(folders)
        with typed(self.path):
            names = sorted(OWN, key=lambda name: name != SCORES)
            for path in [*(self.path / name for name in names), *self._snapshots()]:
                if path.is_symlink() or not path.is_dir():
                    path.unlink(missing_ok=True)
            for name in folders:
                path = self.path / name
                if path.is_dir() and not path.is_symlink():
                    path.rename(self.path / f".trash-{os.urandom(8).hex()}")
            sync_folder(self.path)
            (self.path / CLEARING).unlink(missing_ok=True)
        self._empty_trash()

    def _empty_trash(self) -> None:
        with typed(self.path):
            for path in list(self.path.iterdir()):
                if TRASH.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)

    def begin(
        self,
        config: Mapping[str, Any],
        plan: Mapping[str, Any],
        rows: Mapping[str, NDArray[np.int64]],
        facts: Callable[[], Mapping[str, Any]],
    ) -> list[str]:
        """Write down what is about to run, and return a remark for each file that was not as it had
        been written.

        Later sessions add themselves to the facts, and mend what was damaged. The first record of
        what was asked for stays if the same values are asked for again.
        """
        from dualmix.store.arrays import arrays_bytes

        remarks = []
        try:
            sums = self.sums() or {}
        except StoreError as fault:
            sums = {}
            remarks.append(f"{fault} It is written anew.")
        wanted = {
            "config.json": json_bytes(dict(config)),
            "plan.json": json_bytes(dict(plan)),
            "plan.npz": arrays_bytes(rows),
        }
        for name in reversed(FILED):
            if name != SUMS and (self.path / name).is_file():
                self._drop(name)
        for name, content in wanted.items():
            known = self._peek(name)
            if known is not None and name == "config.json" and sums.get("files", {}).get(name):
                same = digest(known) == sums["files"][name] and _same_values(known, config)
                wanted[name] = known if same else content
            if known != wanted[name]:
                self._write(name, wanted[name])
                if known is not None:
                    remarks.append(f"{self.path / name} was not what is asked for: mended.")
        recorded = self._facts(sums, remarks) or {**facts(), "sessions": []}
        recorded["sessions"].append({"started": now(), **_without(note(), "since")})
        before = self._peek("facts.json")
        content = json_bytes(recorded)
        self._write_sums(
            {name: digest(wanted[name]) for name in ASKED} | {"facts.json": digest(content)},
            {"facts.json": digest(before)} if before is not None else {},
        )
        self._write("facts.json", content)
        self._push()
        return remarks

    def _facts(self, sums: Mapping[str, Any], remarks: list[str]) -> dict[str, Any] | None:
        """Return what earlier sessions wrote, if it is sound."""
        content = self._peek("facts.json")
        if content is None:
            return None
        told = {sums.get(part, {}).get("facts.json") for part in ("files", "before")} - {None}
        with suppress(StoreError):
            facts = parse_json(content, "")
            sessions = facts.get("sessions") if isinstance(facts, dict) else None
            if isinstance(sessions, list) and (not told or digest(content) in told):
                return dict(facts)
        remarks.append(f"{self.path / 'facts.json'} was damaged: what it said is lost.")
        return None

    def save(self, step: int, state: State) -> None:
        """Add a snapshot and drop all but the newest few."""
        from dualmix.store import snapshot

        self._write(f"snapshot-{step:09d}.safetensors", snapshot.state_bytes(state))
        with typed(self.path):
            for old in self._snapshots()[:-KEPT]:
                old.unlink(missing_ok=True)
        self._push()

    def latest(self) -> tuple[State | None, list[str]]:
        """Return the newest good snapshot, if there is any, and a remark for each damaged one.

        Raises
        ------
        StoreError
            There are snapshots but none is good, so that going on would mean starting over unasked.
        """
        from dualmix.store import snapshot

        if self.mirror:
            self.mirror.pull_snapshots()
        remarks: list[str] = []
        for path in reversed(self._snapshots()):
            try:
                state = snapshot.read(path)
                if state.get("key") != self.key:
                    raise StoreError(f"{path} belongs to another run.")
                return state, remarks
            except StoreError as fault:
                remarks.append(f"{fault} It is passed over.")
        if remarks:
            raise StoreError(
                f"No snapshot in {self.path} can be used: start over with --fresh. "
                f"{' '.join(remarks)}"
            )
        return None, []

    def drop_after(self, step: int) -> None:
        """Remove snapshots past a step: the run goes on from there and will write them again."""
        with typed(self.path):
            for path in self._snapshots():
                if _step(path) > step:
                    path.unlink(missing_ok=True)

    def finish(
        self,
        learner: State,
        counts: NDArray[np.int64],
        scores: Mapping[str, Any],
        times: Mapping[str, Any],
        probes: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """File the results; the run counts as done once the scores are there."""
        from dualmix.store import snapshot
        from dualmix.store.arrays import arrays_bytes

        contents = {
            LEARNER: snapshot.state_bytes(learner),
            "confusion.npz": arrays_bytes({"counts": counts}),
            **({"probes.json": json_bytes(list(probes))} if probes else {}),
            "times.json": json_bytes(dict(times)),
            SCORES: json_bytes(dict(scores)),
        }
        begun = (self.sums() or {}).get("files", {})
        for name, content in contents.items():
            if name == SCORES:
                filed = {name: digest(content) for name, content in contents.items()}
                self._write_sums({**begun, **filed})
            self._write(name, content)
        with typed(self.path):
            for path in self._snapshots():
                path.unlink(missing_ok=True)
        self._push()

    def log(self, **entry: Any) -> None:
        """Append a line to the log; a run carries it with what comes next, others at once."""
        log.append(self.path / LOG, entry)
        if self.mirror:
            self.mirror.push_log()

    def entries(self, most: int | None = 200, *, steps: bool = False) -> list[dict[str, Any]]:
        """Return the last lines of the log; what cannot be read is passed over.

        Parameters
        ----------
        most
            Lines to look at; none: all.
        steps
            Also those of single steps, of which there may be many.
        """
        return log.parse_log(self._peek(LOG) or b"", most, steps=steps)

    def counts(self) -> NDArray[np.int64]:
        """Return the confusion counts of each stage measured so far, (stages, classes, classes)."""
        import numpy as np

        from dualmix.store.arrays import parse_arrays

        if self.done:
            path = self.path / "confusion.npz"
            counts = parse_arrays(self.read("confusion.npz"), path).get("counts")
        else:
            path = self.path
            state, _ = self.latest()
            if state is None:
                return np.zeros((0, 0, 0), dtype=np.int64)
            try:
                counts = np.asarray(state["counts"].numpy(), dtype=np.int64)
            except (KeyError, AttributeError, TypeError, ValueError):
                counts = None
        if counts is None or counts.ndim != 3 or counts.shape[1] != counts.shape[2]:
            raise StoreError(f"{path} holds no confusion counts: run again with --fresh.")
        if counts.size and counts.min() < 0:
            raise StoreError(f"{path} holds counts below 0: run again with --fresh.")
        return counts

    def sums(self) -> dict[str, Any] | None:
        """Return the sha256 of the run's files: ``files`` by name, and ``before``, what a file that
        is being replaced may still be; nothing for a run that has none.
        """
        return self._sums.read()

    def check(self, *names: str) -> bool:
        """See that files are as the run wrote them; return whether that can be told.

        Parameters
        ----------
        names
            Files to look at; none: all that have a sum, but for large ones that are only elsewhere.

        Raises
        ------
        StoreError
            Names the first file that is missing, damaged, edited or of another run.
        """
        sums = self.sums()
        if sums is None:
            return False
        if self.done and SCORES not in sums["files"]:
            raise StoreError(f"{self.path / SUMS} lacks the scores: run again with --fresh.")
        for name in names or sums["files"]:
            elsewhere = self.partial and name in LARGE and not self.has(name)
            if plain(name) and (names or not elsewhere):
                self.read(name)
        if self.key and self.config()["key"] != self.key:
            raise StoreError(f"{self.path / 'config.json'} is of another run: use --fresh.")
        return True

    def has(self, name: str) -> bool:
        """Whether the run has a file."""
        return (self.path / name).is_file()

    @property
    def partial(self) -> bool:
        """Whether large files of the run may be elsewhere only."""
        return self.mirror is not None

    def read(self, name: str) -> bytes:
        """Return the content of one of the run's files, if it is as the run wrote it.

        A copy of a run that is filed elsewhere is fetched again where it is not."""
        sums = self.sums()
        if sums is None:
            return read_bytes(self.path / name)
        told = [sums[part].get(name) for part in ("files", "before")]
        if name == LOG or (told == [None, None] and not self.done):
            return read_bytes(self.path / name)
        for attempt in range(2):
            try:
                content = read_bytes(self.path / name)
            except StoreError:
                if attempt or self.mirror is None or not self.mirror.pull_again(name):
                    raise
                continue
            if digest(content) in told:
                return content
            if attempt or self.mirror is None or not self.mirror.pull_again(name):
                break
        raise StoreError(f"{self.path / name} is not as the run wrote it: run again with --fresh.")

    def read_json(self, name: str) -> Any:
        """Return one of the run's JSON files, as `read` does."""
        content = self.read(name)
        if len(content) > LARGEST_JSON:
            raise StoreError(f"{self.path / name} is far too large: run again with --fresh.")
        return parse_json(content, self.path / name)

    def _write(self, name: str, content: bytes) -> None:
        write_bytes(self.path / name, content, follow=False)

    def _write_sums(
        self, files: Mapping[str, str], before: Mapping[str, str] | None = None
    ) -> None:
        self._write(SUMS, sums_bytes(files, before or {}))

    def _peek(self, name: str) -> bytes | None:
        """Return what a file holds, be it what it may; nothing where it cannot be read."""
        with suppress(StoreError):
            return read_bytes(self.path / name)
        return None

    def _drop(self, name: str) -> None:
        if self.mirror:
            self.mirror.remove(name)
        with typed(self.path):
            (self.path / name).unlink(missing_ok=True)

    def _push(self) -> None:
        if self.mirror:
            self.mirror.push()

    def _snapshots(self) -> list[Path]:
        with suppress(OSError):
            paths = [p for p in self.path.iterdir() if SNAPSHOT.fullmatch(p.name) and p.is_file()]
            return sorted(paths, key=_step)
        return []


def _step(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _same_values(known: bytes, config: Mapping[str, Any]) -> bool:
    """Whether a record asks for the same run with the same values, wherever they came from."""
    try:
        recorded = parse_json(known, "")
        return all(recorded[part] == config[part] for part in ("key", "config"))
    except (StoreError, KeyError, TypeError):
        return False


def _without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}
