"""What carries one run's folder to and from an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dualmix.errors import StoreError
from dualmix.store.copy import READ, Copy, carried, whole
from dualmix.store.files import parse_json, read_bytes, read_json, typed, write_bytes
from dualmix.store.lease import Lease, alive
from dualmix.store.location import Found
from dualmix.store.lock import HOLDER
from dualmix.store.run_files import CLEARING, LOG, SCORES, SNAPSHOT

if TYPE_CHECKING:
    from dualmix.store.mirror import Mirror


class FolderMirror:
    """The other end of a run's folder.

    `Folder` calls it before it reads (`pull`), after it wrote (`push`), and while it is held
    (`held`). What counts is what is there: a run is done once its scores have arrived, and they
    are sent when all the rest is there.

    Attributes
    ----------
    working
        Whether this process holds the run.
    """

    def __init__(self, mirror: Mirror, name: str) -> None:
        self.mirror, self.name = mirror, name
        self.copy = Copy(mirror.root, name)
        self.lease = Lease(mirror.location, f"{name}/{HOLDER}")
        self.working = False

    def __str__(self) -> str:
        return f"{self.mirror}/{self.name}"

    def pull(self, after: float = 0.0) -> None:
        """Fetch what is read of the run, if it changed and nothing on this machine works on it."""
        if not self.working:
            self.mirror.look(self.name, after)

    def pull_snapshots(self) -> None:
        """Fetch the snapshots of a run that is only looked at."""
        if not self.working:
            listing = self.mirror.location.listing(self.name)
            self.mirror.follow({self.name: listing}, lambda file: bool(SNAPSHOT.fullmatch(file)))

    def pull_again(self, file: str) -> bool:
        """Fetch a file whose copy is damaged; return whether it came."""
        if self.working:
            return False
        with self.copy.lock():
            listing = self.mirror.location.listing(self.name)
            content = self._there(file)
            if file not in listing or content is None:
                return False
            self.copy.take({file: content}, listing)
        return True

    def confirms(self, file: str) -> bool:
        """Whether a file here is the one that is there."""
        return self.copy.same(file, self.copy.record())

    @property
    def busy(self) -> bool:
        """Whether a process of another machine worked on the run when it was last looked at."""
        try:
            return alive(read_json(self.copy.path / HOLDER))
        except StoreError:
            return False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run between machines; begin with what is newest, end with all of it there."""
        with ExitStack() as held:
            self.lease.hold()
            held.callback(self._let_go)
            self.working = True
            self._reconcile()
            with self.lease.renewed():
                try:
                    yield
                except StoreError:
                    raise
                except Exception:
                    with suppress(StoreError):
                        self.push()
                    raise
            self.push()

    def _let_go(self) -> None:
        self.working = False
        with suppress(StoreError):
            self.lease.release()

    def _reconcile(self) -> None:
        """Go on from what is furthest: what was not sent yet, else what is there."""
        record, listing = self.copy.record(), self.mirror.location.listing(self.name)
        note = self.copy.path / CLEARING
        if CLEARING in listing and not note.is_file():
            write_bytes(note, self._there(CLEARING) or b"{}", follow=False)
        elif CLEARING not in listing and self.copy.same(CLEARING, record):
            with typed(note):
                note.unlink()  # it came from there, where the clearing has ended
        if note.is_file():
            return  # all of it is void, and about to be removed
        if SCORES in listing and not whole(SCORES, self._there(SCORES)):
            del listing[SCORES]
        self._drop_damaged()
        if self.copy.ahead(listing):
            self._join_logs(listing)
            self.push()
            return
        changed = [
            file
            for file in listing
            if carried(file)
            and (file in READ or SCORES not in listing)
            and not self.copy.follows(file, listing, record)
        ]
        contents = self.mirror.location.read([f"{self.name}/{file}" for file in changed])
        self.copy.take({file: contents.get(f"{self.name}/{file}") for file in changed}, listing)
        with typed(self.copy.path):
            for file in self.copy.changed():
                (self.copy.path / file).unlink(missing_ok=True)

    def _drop_damaged(self) -> None:
        """Remove snapshots that changed here and are none: they must not pass for what is ahead."""
        from dualmix.store import snapshot

        for file in self.copy.changed():
            if SNAPSHOT.fullmatch(file):
                try:
                    snapshot.read(self.copy.path / file)
                except StoreError:
                    with typed(self.copy.path):
                        (self.copy.path / file).unlink(missing_ok=True)

    def _join_logs(self, listing: Mapping[str, Found]) -> None:
        """Take over the lines that others wrote there: the log here does not know them."""
        path = self.copy.path / LOG
        theirs = (self._there(LOG) or b"") if LOG in listing else b""
        ours = read_bytes(path) if path.is_file() else b""
        joined = _joined(ours, theirs)
        if joined != ours:
            write_bytes(path, joined, follow=False)

    def _there(self, file: str) -> bytes | None:
        path = f"{self.name}/{file}"
        return self.mirror.location.read([path]).get(path)

    def push(self) -> None:
        """Send what changed, the scores once all the rest is there; then remove the snapshots that
        are void.

        The facts come after what they stand for, as `Folder.begin` writes them.
        """
        self.lease.hold()
        local, record, changed = self.copy.files(), self.copy.record(), self.copy.changed()
        first = sorted(
            (file for file in changed if file != SCORES), key=lambda file: file == "facts.json"
        )
        for group in (first, [SCORES] if SCORES in changed else []):
            if group:
                self._send({file: changed[file] for file in group}, record)
        void = {file for file in record if SNAPSHOT.fullmatch(file) and file not in local}
        if SCORES in changed:
            listing = self.mirror.location.listing(self.name)
            void |= {file for file in listing if SNAPSHOT.fullmatch(file) and file not in local}
        for file in sorted(void):
            self.mirror.location.remove(f"{self.name}/{file}")
            record.pop(file, None)
        if void:
            self.copy.write(record)

    def _send(self, files: Mapping[str, list[int]], record: dict[str, Any]) -> None:
        """Send files as they are described here, see that they have arrived whole, and write that
        down.
        """
        sent: dict[str, int] = {}
        for file in files:
            content = read_bytes(self.copy.path / file)
            self.mirror.location.write(f"{self.name}/{file}", content)
            sent[file] = len(content)
        listing = self.mirror.location.listing(self.name)
        for file, described in files.items():
            arrived = listing.get(file)
            if arrived is None or arrived.size not in (None, sent[file]):
                raise StoreError(
                    f"{self}/{file} did not arrive whole: the same command goes on from what is "
                    "here."
                )
            record[file] = {"here": described, "there": arrived.mark}
        self.copy.write(record)

    def push_log(self) -> None:
        """Send the log at once where no run does; lines that others wrote there are kept."""
        if self.working:
            return
        with self.copy.lock():
            self._join_logs(self.mirror.location.listing(self.name))
            self._send({LOG: self.copy.files()[LOG]}, self.copy.record())

    def publish(self) -> None:
        """Send what trackers have added in folders of their own."""
        with self.copy.lock():
            added = {
                file: described for file, described in self.copy.changed().items() if "/" in file
            }
            if added:
                self._send(added, self.copy.record())

    def remove(self, file: str) -> None:
        """Remove a file there."""
        self.mirror.location.remove(f"{self.name}/{file}")
        record = self.copy.record()
        if record.pop(file, None) is not None:
            self.copy.write(record)

    def clear(self, folders: Sequence[str]) -> None:
        """Remove all of the run there after a note that says so: scores first, the note last."""
        self.lease.hold()
        location = self.mirror.location
        location.write(f"{self.name}/{CLEARING}", read_bytes(self.copy.path / CLEARING))
        own = [
            file
            for file in location.listing(self.name)
            if carried(file) and ("/" not in file or file.split("/")[0] in folders)
        ]
        for file in sorted(own, key=lambda file: (file != SCORES, file)):
            location.remove(f"{self.name}/{file}")
        kept = {file: seen for file, seen in self.copy.record().items() if file not in own}
        self.copy.write(kept)
        location.remove(f"{self.name}/{CLEARING}")


def _joined(ours: bytes, theirs: bytes) -> bytes:
    r"""Return two logs as one: what they share, then what is theirs alone, then what is ours.

    Examples
    --------
    >>> _joined(b'{"a": 1}\n{"b": 2}\n', b'{"a": 1}\n{"c": 3}\n')
    b'{"a": 1}\n{"c": 3}\n{"b": 2}\n'
    """
    mine, others = ours.splitlines(), [line for line in theirs.splitlines() if _is_entry(line)]
    shared = 0
    while shared < min(len(mine), len(others)) and mine[shared] == others[shared]:
        shared += 1
    fresh = [line for line in others[shared:] if line not in mine]
    if not fresh:
        return ours
    return b"".join(line + b"\n" for line in (*mine[:shared], *fresh, *mine[shared:]))


def _is_entry(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line, ""), dict)
    except StoreError:
        return False
