"""Stores at an address: the bytes of a run in a folder, whatever is lost and on whichever machine
it goes on.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dualmix.config.compose import compose
from dualmix.errors import BusyError, ConfigError, StoreError
from dualmix.runs.events import Began
from dualmix.runs.filing import place
from dualmix.runs.run import Result, Stopped, run
from dualmix.runs.status import standings
from dualmix.store import files, folder_mirror, lease, snapshot
from dualmix.store.folder import Folder
from dualmix.store.lease import Lease, alive
from dualmix.store.location import Location
from dualmix.store.names import plain
from dualmix.store.opening import open_store
from dualmix.store.store import Store
from dualmix.sweeps.executors import Local
from dualmix.sweeps.sweep import Job, entries, sweep

pytestmark = pytest.mark.usefixtures("shallow")

VALUES = {
    "model.width": 4,
    "method.memory": 20,
    "stream.first": 1,
    "stream.batch": 60,
    "save_every": 2,
}
SMALL = compose("er", VALUES)
SHORT = compose("er", {**VALUES, "stream.batch": 150, "save_every": 1})
RESULTS = ("confusion.npz", "learner.safetensors", "scores.json")
URL = "trying://runs"


class Killed(BaseException):
    """The process is gone, as far as it can be in one that goes on."""


class Trying(MemoryFileSystem):
    """A place that fails when it is told to."""

    protocol = "trying"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    asked: ClassVar[list[str]] = []
    fault: BaseException | None = None
    at: int | None = None
    half = False
    check: Callable[[], None] = staticmethod(lambda: None)

    def _ask(self, what: str, path: str, value: bytes | None = None) -> None:
        type(self).check()
        self.asked.append(f"{what} {path}")
        if self.fault is not None and self.at is not None and len(self.asked) > self.at:
            if self.half and value is not None and len(self.asked) == self.at + 1:
                super().pipe_file(path, value[: len(value) // 2])
            raise self.fault

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        self._ask("write", path, value)
        super().pipe_file(path, value, **more)

    def rm_file(self, path: str) -> None:
        self._ask("remove", path)
        super().rm_file(path)

    def cat_file(self, path: str, **more: Any) -> bytes:
        self._ask("read", path)
        return super().cat_file(path, **more)

    def find(self, path: str, **more: Any) -> Any:
        self._ask("find", path)
        return super().find(path, **more)

    def ls(self, path: str, *more: Any, **named: Any) -> Any:
        self._ask("list", path)
        return super().ls(path, *more, **named)

    @classmethod
    def mend(cls) -> None:
        cls.asked.clear()
        cls.fault, cls.at, cls.half, cls.check = None, None, False, staticmethod(lambda: None)

    @classmethod
    def breaks(cls, fault: BaseException, at: int = 0, *, half: bool = False) -> None:
        cls.mend()
        cls.fault, cls.at, cls.half = fault, at, half


@pytest.fixture(autouse=True)
def _trying() -> Iterator[None]:
    fsspec.register_implementation("trying", Trying, clobber=True)
    for kind in (Trying, MemoryFileSystem):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]
    Trying.mend()
    yield
    Trying.mend()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Return what gives this process the empty cache of another machine."""
    made: list[Path] = []

    def move() -> Path:
        made.append(tmp_path / f"machine-{len(made)}")
        monkeypatch.setenv("DUALMIX_CACHE", str(made[-1]))
        return made[-1]

    move()
    return move


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the results of the run in a folder."""
    done = run(SMALL, Store(tmp_path_factory.mktemp("alone")))
    return {name: (done.folder.path / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the results of the shorter run in a folder."""
    done = run(SHORT, Store(tmp_path_factory.mktemp("short")))
    return {name: (done.folder.path / name).read_bytes() for name in RESULTS}


def there(url: str, name: str = "") -> dict[str, bytes]:
    """Return what is at an address below the only run, or the one that has a text in its name."""
    location = Location(url)
    names = [path for path in location.listing() if name in path]
    assert len({path.partition("/")[0] for path in names}) <= 1
    return {path.partition("/")[2]: content for path, content in location.read(names).items()}


def results(url: str) -> dict[str, bytes]:
    return {name: content for name, content in there(url).items() if name in RESULTS}


def begun(url: str) -> list[int]:
    lines = map(json.loads, there(url)["log.jsonl"].decode().splitlines())
    return [line["step"] for line in lines if line["event"] == "begin"]


def stopped_after(steps: int, store: Store) -> None:
    left = iter(range(steps - 1))
    with pytest.raises(Stopped):
        run(SMALL, store, stop=lambda: next(left, None) is None)


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_run_has_the_bytes_of_one_in_a_folder_and_is_trained_once(
    protocol: str, tmp_path: Path, machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    url = "memory://runs" if protocol == "memory" else f"file://{tmp_path}/deep/runs/"
    first = run(SMALL, open_store(url))
    assert (
        results(url) == alone == {name: (first.folder.path / name).read_bytes() for name in RESULTS}
    )
    assert set(there(url)) == {p.name for p in first.folder.path.iterdir()} - {"lock"}, (
        "no lease, no snapshot is left"
    )
    assert str(first.folder) == f"{url.rstrip('/')}/{first.folder.path.name}"

    machine()
    again = run(SMALL, open_store(url))
    assert again.scores == first.scores and again.folder.path != first.folder.path
    assert not (again.folder.path / "learner.safetensors").exists(), "nobody asked for it"
    assert begun(url) == [0]


def test_a_stopped_run_goes_on_where_it_was_on_another_machine(
    machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    stopped_after(3, open_store(URL))
    assert {name for name in there(URL) if name.startswith("snapshot-")} == {
        f"snapshot-{step:09d}.safetensors" for step in (2, 3)
    }
    machine()
    run(SMALL, open_store(URL))
    assert results(URL) == alone and begun(URL) == [0, 3]
    facts = json.loads(there(URL)["facts.json"])
    assert len(facts["sessions"]) == 2


def whole(alone: dict[str, bytes]) -> Callable[[], None]:
    """Return a check that what looks like a finished run is one."""

    def check() -> None:
        files = {path.rpartition("/")[2]: file.getvalue() for path, file in Trying.store.items()}
        if b"}" in files.get("scores.json", b""):
            assert {name: files.get(name) for name in RESULTS} == alone
            assert json.loads(files["times.json"]) and json.loads(files["plan.json"])

    return check


def operations(machine: Callable[[], Path]) -> list[str]:
    machine()
    run(SHORT, open_store(URL))
    asked = [line.partition(" ")[0] for line in Trying.asked]
    Trying.store.clear()
    Trying.mend()
    return asked


@pytest.mark.slow
def test_a_run_killed_before_or_in_any_change_goes_on_here_or_elsewhere_to_the_same_bytes(
    machine: Callable[[], Path], short: dict[str, bytes]
) -> None:
    changes = [at for at, what in enumerate(operations(machine)) if what in ("write", "remove")]
    for number, at in enumerate(changes):
        Trying.store.clear()
        machine()
        Trying.breaks(Killed(), at, half=bool(number % 2))
        Trying.check = staticmethod(whole(short))
        with pytest.raises(Killed):
            run(SHORT, open_store(URL))
        done = "scores.json" in there_now()
        Trying.mend()
        Trying.check = staticmethod(whole(short))
        if number // 2 % 2:
            machine()
        run(SHORT, open_store(URL))
        assert results(URL) == short, f"killed at operation {at}"
        assert done or not [name for name in there(URL) if name.startswith("snapshot-")]


def there_now() -> set[str]:
    return {path.rpartition("/")[2] for path in Trying.store}


@pytest.mark.long
def test_a_place_that_fails_at_any_operation_stops_the_run_and_the_same_command_goes_on(
    machine: Callable[[], Path], short: dict[str, bytes]
) -> None:
    count = len(operations(machine))
    for at in range(count):
        Trying.store.clear()
        machine()
        Trying.breaks(OSError("the cable is cut"), at, half=bool(at % 2))
        try:
            run(SHORT, open_store(URL))
            assert at >= count - 2, "only giving back the lease may fail in silence"
        except StoreError as fault:
            assert "the cable is cut" in str(fault) and "same command" in str(fault)
        Trying.mend()
        run(SHORT, open_store(URL))
        assert results(URL) == short, f"failed at operation {at}"


def test_a_result_that_could_not_be_uploaded_is_uploaded_later_without_training(
    machine: Callable[[], Path], alone: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(URL)
    end = Folder.finish

    def cut(*given: Any, **named: Any) -> None:
        Trying.breaks(ConnectionError("gone"))
        end(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "finish", cut)
        with pytest.raises(StoreError, match="kept on this machine"):
            run(SMALL, store)
    Trying.mend()
    folder = place(store, SMALL, _fingerprint())
    assert (folder.path / "scores.json").is_file() and not folder.done, (
        "done here is not done there"
    )
    assert "scores.json" not in there(URL)
    run(SMALL, store)
    assert results(URL) == alone and begun(URL) == [0]
    assert not [name for name in there(URL) if name.startswith("snapshot-")]


def _fingerprint() -> str:
    from dualmix.data import load

    return load(SMALL.config.data).fingerprint


def test_what_is_furthest_wins(machine: Callable[[], Path], alone: dict[str, bytes]) -> None:
    stopped_after(2, open_store(URL))
    behind = machine()
    stopped_after(2, open_store(URL))
    assert begun(URL) == [0, 2]
    Trying.breaks(OSError("no"), at=10**6)
    store = open_store(URL)
    folder = place(store, SMALL, _fingerprint())
    Trying.mend()
    kept = max(folder.path.glob("snapshot-*"))
    assert kept.name == "snapshot-000000004.safetensors"
    content = kept.read_bytes()
    Trying.store.pop(f"{Location(URL).base}/{folder.path.name}/{kept.name}")
    kept.write_bytes(content)
    os.utime(kept, (1, 1))
    left = iter(())
    with pytest.raises(Stopped):
        run(SMALL, store, stop=lambda: next(left, None) is None)
    assert begun(URL)[-1] == 4, "what was not uploaded is not lost"
    assert behind.is_dir()
    run(SMALL, store)
    assert results(URL) == alone


def test_another_machines_result_is_fetched_though_this_one_was_on_the_way(
    machine: Callable[[], Path], alone: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine()
    stopped_after(2, open_store(URL))
    machine()
    run(SMALL, open_store(URL))
    monkeypatch.setenv("DUALMIX_CACHE", str(here))
    done = run(SMALL, open_store(URL))
    assert (
        begun(URL) == [0, 2]
        and (done.folder.path / "scores.json").read_bytes() == alone["scores.json"]
    )
    assert not list(done.folder.path.glob("snapshot-*"))


def test_starting_over_clears_what_is_there_and_other_machines_follow(
    machine: Callable[[], Path], alone: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine()
    run(SMALL, open_store(URL))
    machine()
    with pytest.raises(Stopped):
        run(SMALL, open_store(URL), fresh=True, stop=lambda: True)
    assert "scores.json" not in there(URL) and begun(URL) == [0]
    monkeypatch.setenv("DUALMIX_CACHE", str(here))
    store = open_store(URL)
    assert [one.state for one in standings(store, now=0.0)] == ["stopped"]
    run(SMALL, store)
    assert begun(URL) == [0, 1] and results(URL) == alone


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[: len(content) // 2], lambda content: content[:-9] + b"x" * 9],
)
def test_a_damaged_snapshot_is_passed_over(
    damage: Callable[[bytes], bytes], machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    stopped_after(3, open_store(URL))
    path = max(path for path in Trying.store if "snapshot-" in path)
    Trying().pipe_file(path, damage(Trying.store[path].getvalue()))
    machine()
    run(SMALL, open_store(URL))
    assert begun(URL) == [0, 2] and results(URL) == alone
    assert "damaged snapshot" in there(URL)["log.jsonl"].decode()


def test_half_a_score_is_none(machine: Callable[[], Path], alone: dict[str, bytes]) -> None:
    stopped_after(2, open_store(URL))
    (folder,) = {path.rpartition("/")[0] for path in Trying.store}
    Trying().pipe_file(f"{folder}/scores.json", alone["scores.json"][:50])
    machine()
    assert [one.state for one in standings(open_store(URL), now=0.0)] == ["stopped"]
    run(SMALL, open_store(URL))
    assert results(URL) == alone and begun(URL) == [0, 2]


def test_an_upload_that_lost_bytes_in_silence_is_noticed(
    machine: Callable[[], Path], alone: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Trying.pipe_file

    def lossy(self: Trying, path: str, value: bytes, **more: Any) -> None:
        write(self, path, value[:-1] if path.endswith("learner.safetensors") else value, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Trying, "pipe_file", lossy)
        with pytest.raises(StoreError, match=r"learner.safetensors did not arrive whole"):
            run(SMALL, open_store(URL))
    assert "scores.json" not in there(URL)
    run(SMALL, open_store(URL))
    assert results(URL) == alone


def test_a_finished_run_has_no_snapshot_whoever_wrote_it(machine: Callable[[], Path]) -> None:
    def stray(event: object) -> None:
        if isinstance(event, Began):
            Trying().pipe_file(
                f"{Location(URL).base}/{event.path.name}/snapshot-000000001.safetensors",
                b"another's",
            )

    run(SMALL, open_store(URL), watch=stray)
    assert not [name for name in there(URL) if name.startswith("snapshot-")]


def note(**changed: Any) -> bytes:
    return json.dumps(
        {"host": "elsewhere", "pid": 1, "since": "noon", "at": time.time(), **changed}
    ).encode()


def test_a_run_that_another_machine_works_on_is_left_alone_until_it_is_silent(
    machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    stopped_after(2, open_store(URL))
    (folder,) = {path.rpartition("/")[0] for path in Trying.store}
    machine()
    Trying().pipe_file(f"{folder}/holder.json", note())
    before = there(URL)
    store = open_store(URL)
    with pytest.raises(
        BusyError, match="Process 1 on elsewhere is working on trying://runs/er-digits"
    ):
        run(SMALL, store)
    assert there(URL) == before
    assert [one.state for one in standings(store, now=0.0)] == ["running"]
    Trying().pipe_file(f"{folder}/holder.json", note(at=time.time() - lease.VALID - 1))
    assert [one.state for one in standings(store, now=0.0)] == ["stopped"]
    run(SMALL, store)
    assert results(URL) == alone and "holder.json" not in there(URL)


def test_who_loses_the_lease_stops_and_leaves_the_other_alone(machine: Callable[[], Path]) -> None:
    store = open_store(URL)

    def rob(_: object) -> None:
        for path in list(Trying.store):
            if path.endswith("holder.json"):
                MemoryFileSystem.pipe_file(Trying(), path, note())

    with pytest.raises(BusyError, match="elsewhere"):
        run(SMALL, store, watch=rob)
    assert json.loads(there(URL)["holder.json"])["host"] == "elsewhere"
    assert not [name for name in there(URL) if name.startswith("snapshot-")]
    folder = place(store, SMALL, _fingerprint())
    assert list(folder.path.glob("snapshot-*")), "what was done is kept here"


def test_a_note_counts_while_its_process_lives() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = platform.node()
    assert alive(json.loads(note()))
    assert alive(json.loads(note(host=here, pid=os.getpid())))
    assert not alive(json.loads(note(host=here, pid=ended.pid)))
    assert not alive(json.loads(note(at=0)))
    for nonsense in (None, [], {}, {"at": "now"}):
        assert not alive(nonsense)


@pytest.mark.parametrize(
    "at",
    [math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e300, True, "1", 4e9, *(60.0, 10.0**6)],
)
def test_no_stamp_holds_a_run_longer_than_is_said(at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    stamp = now + at if isinstance(at, float) and math.isfinite(at) and at < 1e9 else at
    told = {"host": "elsewhere", "pid": 10**30, "at": stamp}
    assert not alive(told)
    for ahead in (0.0, lease.SKEW - 1):
        told = {"host": "elsewhere", "pid": 1, "at": now + ahead}
        assert alive(told)
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: now + lease.VALID + 1)
            assert not alive(told)


def test_a_damaged_copy_is_fetched_again(machine: Callable[[], Path]) -> None:
    store = open_store(URL)
    done = run(SMALL, store)
    for name in ("scores.json", "times.json", "config.json", "confusion.npz"):
        path = done.folder.path / name
        good, when = path.read_bytes(), path.stat()
        for content in (good[:-2], bytes([good[0] ^ 1]) + good[1:]):
            path.write_bytes(content)
            if len(content) == len(good):  # a bit that fell over: neither size nor time tell
                os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
            again = open_store(URL)
            again.refresh()
            assert again.open(done.folder.path).read(name) == good
    assert run(SMALL, open_store(URL)).scores == done.scores


def test_a_damaged_snapshot_of_the_copy_never_replaces_the_good_one(
    machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    store = open_store(URL)
    stopped_after(3, store)
    kept = max(place(store, SMALL, _fingerprint()).path.glob("snapshot-*"))
    kept.write_bytes(kept.read_bytes()[:-9] + b"x" * 9)
    run(SMALL, open_store(URL))
    assert begun(URL) == [0, 3] and results(URL) == alone


def test_lines_that_others_logged_are_kept(machine: Callable[[], Path]) -> None:
    """A run that is killed between a snapshot and its sending is ahead when it goes on, and its log
    does not know what the sweep wrote of its death.
    """
    here = machine()
    store = open_store(URL)
    stopped_after(2, store)
    folder = place(store, SMALL, _fingerprint())
    machine()
    other = open_store(URL)
    place(other, SMALL, _fingerprint()).log(event="failed", error="killed")
    os.environ["DUALMIX_CACHE"] = str(here)
    kept = max(folder.path.glob("snapshot-*"))
    state = snapshot.read(kept)
    Trying.store.pop(f"{Location(URL).base}/{folder.path.name}/{kept.name}")
    snapshot.write(kept, state)
    os.utime(kept, (1, 1))
    run(SMALL, open_store(URL))
    lines = map(json.loads, there(URL)["log.jsonl"].decode().splitlines())
    assert [line["event"] for line in lines if line["event"] != "task"] == [
        "begin",
        "failed",
        "begin",
        "end",
    ]


def test_a_clearing_that_was_cut_off_is_ended_by_whoever_comes(
    machine: Callable[[], Path], alone: dict[str, bytes]
) -> None:
    run(SMALL, open_store(URL))
    kept = {path: Trying.store[path].getvalue() for path in Trying.store}
    for at in range(0, 14, 2):
        Trying.mend()
        for path in list(Trying.store):
            del Trying.store[path]
        for path, content in kept.items():
            Trying().pipe_file(path, content)
        machine()
        store = open_store(URL)
        folder = place(store, SMALL, _fingerprint())
        with pytest.raises((Killed, StoreError)), folder.locked():
            Trying.breaks(Killed(), at)
            folder.clear()
            raise StoreError("it was cleared")
        Trying.mend()
        machine()
        done = run(SMALL, open_store(URL))
        assert results(URL) == alone and done.folder.done
        assert len(json.loads(there(URL)["facts.json"])["sessions"]) == 1
        assert "clearing.json" not in there(URL)


def test_a_lease_is_renewed_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWAL", 0.01)
    held = Lease(Location(URL), "er/holder.json")
    held.hold()
    first = json.loads(there(URL)["holder.json"])["at"]
    with held.renewed():
        until = time.monotonic() + 600
        while json.loads(there(URL)["holder.json"])["at"] == first:
            assert time.monotonic() < until
    held.release()
    assert there(URL) == {}
    Trying().pipe_file("/runs/er/holder.json", b'{"host": ')
    held.hold()
    assert json.loads(there(URL)["holder.json"])["pid"] == os.getpid()


def command(cache: Path, *words: object) -> list[str]:
    return ["env", f"DUALMIX_CACHE={cache}", sys.executable, "-m", "dualmix", *map(str, words)]


@pytest.mark.long
def test_a_process_killed_at_random_goes_on_from_an_empty_cache(
    tmp_path: Path,
) -> None:
    url = f"file://{tmp_path}/store"
    longer = {**VALUES, "stream.epochs": 20}
    settings = [w for name, at in longer.items() for w in (f"--{name}", at)]
    words = ["run", "er", "--store", url, *settings, "--json"]
    for killed in range(2):
        process = subprocess.Popen(
            command(tmp_path / f"cache-{killed}", *words), stdout=subprocess.DEVNULL
        )
        wanted, until = f"snapshot-{20 * (killed + 1):09d}", time.monotonic() + 600
        while not [path for path in (tmp_path / "store").rglob("snapshot-*") if path.name > wanted]:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        process.kill()
        process.wait()
    ended = subprocess.run(
        command(tmp_path / "cache-9", *words), capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout)["run"].startswith(url)
    beside = ["run", "er", "--store", str(tmp_path / "alone"), *settings, "--json"]
    whole = subprocess.run(
        command(tmp_path / "cache-8", *beside), capture_output=True, text=True, check=True
    )
    folder = Path(json.loads(whole.stdout)["run"])
    assert results(url) == {name: (folder / name).read_bytes() for name in RESULTS}
    starts = begun(url)
    assert len(starts) == 3 and starts[1] >= 20 and starts[2] >= 40


@pytest.mark.slow
def test_a_polite_kill_uploads_the_last_step(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    values = {**VALUES, "stream.epochs": 200, "save_every": 100_000}
    words = [
        "run",
        "er",
        "--store",
        url,
        *(w for name, at in values.items() for w in (f"--{name}", at)),
        "--quiet",
    ]
    process = subprocess.Popen(
        command(tmp_path / "cache", *words), stderr=subprocess.PIPE, text=True
    )
    while not list((tmp_path / "store").rglob("facts.json")):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=900)
    assert process.returncode == 130 and "goes on from there" in err
    (snapshot,) = (name for name in there(url) if name.startswith("snapshot-"))
    assert f"step {int(snapshot[9:18])} of" in err and "holder.json" not in there(url)


def test_commands_read_an_address_and_fetch_what_they_need_only(
    dualmix_: Callable[..., tuple[int, str, str]], machine: Callable[[], Path], tmp_path: Path
) -> None:
    store = open_store(URL)
    run(SMALL, store)
    run(compose("er", {**VALUES, "seed": 1}), store)
    left = iter(range(1))
    with pytest.raises(Stopped):
        run(
            compose("finetune", {k: v for k, v in VALUES.items() if k != "method.memory"}),
            store,
            stop=lambda: next(left, None) is None,
        )
    cache = machine()
    Trying.mend()
    code, out, _ = dualmix_("status", "--store", URL, "--json")
    assert code == 0 and sorted(one["state"] for one in json.loads(out)) == [
        "done",
        "done",
        "stopped",
    ]
    read = [line for line in Trying.asked if line.startswith("read")]
    assert not [line for line in read if "safetensors" in line or "plan.npz" in line]

    Trying.mend()
    code, out, err = dualmix_(
        "report", "--store", URL, "--format", "md", "--out", tmp_path / "r.md"
    )
    page = (tmp_path / "r.md").read_text()
    assert code == 0 and f"Runs of `{URL}`" in page and "2 finished runs of 1 method" in page
    assert not [line for line in Trying.asked if not line.startswith("find")], "nothing has changed"
    code, out, _ = dualmix_(
        "export", "--store", URL, "--format", "csv", "--out", tmp_path / "e", "--json"
    )
    assert code == 0 and json.loads(out)["runs"] == 2
    code, out, _ = dualmix_("compare", "er-digits-s0", "er-digits-s1", "--store", URL, "--json")
    assert code == 0 and json.loads(out)["names"][0].startswith("er-digits-s0")
    assert not list(cache.rglob("*.safetensors"))

    code, out, _ = dualmix_("show", "finetune", "--store", URL, "--json")
    assert (
        code == 0
        and json.loads(out)["run"].startswith(f"{URL}/finetune")
        and list(cache.rglob("snapshot-*"))
    )
    address = json.loads(out)["run"]
    code, out, _ = dualmix_("show", address, "--store", URL, "--json")
    assert code == 0 and json.loads(out)["run"] == address
    code, _, err = dualmix_("show", "scr", "--store", URL)
    assert code == 2 and f"There is no run 'scr' in {URL}" in err
    code, _, err = dualmix_("report", "--store", "trying://nothing", "--format", "md")
    assert code == 2 and "There is no store trying://nothing" in err


def test_what_grows_while_it_is_sent_is_sent_again(
    machine: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trackers write in the run's folder from threads of their own."""
    read = files.read_bytes

    def late(path: Path, most: int | None = None) -> bytes:
        if path.name == "events":
            with path.open("ab") as file:
                file.write(b"more")
        return read(path)

    def track(event: object) -> None:
        if isinstance(event, Began):
            (event.path / "board").mkdir()
            (event.path / "board" / "events").write_bytes(b"first")
            monkeypatch.setattr(folder_mirror, "read_bytes", late)

    run(SMALL, open_store(URL), watch=track)
    assert there(URL)["board/events"].startswith(b"firstmoremore")


def test_of_several_runs_the_one_begun_last_is_shown(machine: Callable[[], Path]) -> None:
    for seed in (1, 0):
        run(compose("er", {**VALUES, "seed": seed}), open_store(URL))
    machine()
    assert "-s0-" in open_store(URL).find("er").path.name


@pytest.mark.usefixtures("in_process")
def test_a_sweep_fills_an_address(
    tmp_path: Path,
    machine: Callable[[], Path],
    alone: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"file://{tmp_path}/store"
    store = open_store(url)
    jobs = [Job("er", VALUES)]
    runs = entries(jobs, store)
    sweep(runs, Local(store, 1))
    assert [entry.state for entry in runs] == ["done"] and results(url) == alone
    machine()
    assert [entry.state for entry in entries(jobs, open_store(url))] == ["done"]


def test_a_sweep_outlives_a_place_that_is_gone_for_a_moment(machine: Callable[[], Path]) -> None:
    from dualmix.sweeps.sweep import Entry, _settle

    store = open_store(URL)
    (entry,) = entries([Job("er", VALUES)], store)
    assert isinstance(entry, Entry)
    Trying.breaks(OSError("gone"))
    entry.state = "running"
    assert entry.standing().state == "waiting"
    _settle(entry, "no luck", 1, stopping=False)
    assert entry.state == "waiting" and entry.fault.startswith(
        "no luck\ntrying://runs cannot be read"
    )
    Trying.mend()
    run(SMALL, store)
    _settle(entry, "", 1, stopping=False)
    assert entry.state == "done"


def test_a_failure_is_seen_from_elsewhere(machine: Callable[[], Path]) -> None:
    from dualmix.sweeps.sweep import _settle

    stopped_after(2, open_store(URL))
    machine()
    (entry,) = entries([Job("er", VALUES)], open_store(URL))
    _settle(entry, "no luck", 0, stopping=False)
    machine()
    assert [(one.state, one.fault) for one in standings(open_store(URL), now=0.0)] == [
        ("failed", "no luck")
    ]


def test_files_of_no_run_are_carried_and_the_longer_one_counts(machine: Callable[[], Path]) -> None:
    here = open_store(URL).below("tune", "er")
    here.root.mkdir(parents=True)
    (here.root / "trials").write_bytes(b"12")
    here.publish("trials")
    machine()
    other = open_store(URL).below("tune", "er")
    other.root.mkdir(parents=True)
    other.fetch("trials")
    assert (other.root / "trials").read_bytes() == b"12"
    (other.root / "trials").write_bytes(b"123")
    other.fetch("trials")
    assert (other.root / "trials").read_bytes() == b"123"
    other.fetch("nothing")
    assert other.address == "trying://runs/tune/er"


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_tuning_goes_on_elsewhere(
    dualmix_: Callable[..., tuple[int, str, str]], machine: Callable[[], Path], tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    url = f"file://{tmp_path}/store"
    flags = (
        "--stream.first",
        1,
        "--stream.batch",
        100,
        "--model.width",
        4,
        "--workers",
        1,
        "--only",
        "method.lr",
    )
    code, out, _ = dualmix_("tune", "finetune", *flags, "--trials", 1, "--store", url, "--json")
    assert code == 0
    first = json.loads(out)["trials"]
    machine()
    code, out, _ = dualmix_("tune", "finetune", *flags, "--trials", 2, "--store", url, "--json")
    assert (
        code == 0
        and json.loads(out)["trials"][0] == first[0]
        and len(json.loads(out)["trials"]) == 2
    )
    assert list((tmp_path / "store" / "tune").rglob("tune-finetune.json"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s4://bucket/runs", "fsspec knows no protocol 's4'; did you mean s3?"),
        (
            "missing://runs",
            "missing://runs needs the package no_such_driver: pip install no_such_driver",
        ),
        ("file://", "file:// names no folder"),
        ("file:///no_such_top/runs", "not found: there is no /no_such_top"),
        ("memory://runs", "seen by one process only"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence(
    url: str,
    says: str,
    dualmix_: Callable[..., tuple[int, str, str]],
    machine: Callable[[], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsspec.registry import known_implementations

    monkeypatch.setitem(
        known_implementations, "missing", {"class": "no_such_driver.Missing", "err": "Install it"}
    )
    (tmp_path / "grid.json").write_text(
        json.dumps({"presets": ["finetune"], "values": {"stream.first": 1}})
    )
    words = (
        ("sweep", tmp_path / "grid.json")
        if url.startswith("memory")
        else ("run", "finetune", "--stream.first", 1)
    )
    code, _, err = dualmix_(*words, "--store", url)
    assert code == 2 and says in err and len(err.splitlines()) <= 2
    monkeypatch.setenv("DUALMIX_STORE", url)
    if not url.startswith(("memory", "file")):
        code, _, err = dualmix_("status")
        assert code == 2 and says in err


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (PermissionError("not yours"), "no permission: not yours"),
        (TimeoutError(), "TimeoutError"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
    ],
)
def test_a_place_that_refuses_is_one_sentence(
    fault: Exception,
    says: str,
    dualmix_: Callable[..., tuple[int, str, str]],
    machine: Callable[[], Path],
) -> None:
    run(SMALL, open_store(URL))
    cache = machine()
    Trying.breaks(fault)
    for words in (("run", "er"), ("status",), ("report",), ("show", "er")):
        code, _, err = dualmix_(*words, "--store", URL)
        assert code == 2 and f"{URL} cannot be read ({says})" in err and err.count("\n") == 1
    assert not list(cache.rglob("config.json"))


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    (tmp_path / "store" / "er").mkdir(parents=True)
    location = Location(f"file://{tmp_path}/store")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    assert location.listing() == {}
    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    with pytest.raises(StoreError, match="no permission"):
        location.listing()


def test_names_from_elsewhere_stay_inside() -> None:
    assert plain("er-digits-s0-1", "config.json")
    for name in ("..", ".", "", ".hidden", "a\\b", "a\0b"):
        assert not plain(name) and not plain("run", name)
    base = Location(URL).base
    for path in ("er/../../evil.json", ".x/config.json", "er/.part", "er/config.json"):
        Trying().pipe_file("/file", b"{}")
        Trying.store[f"{base}/{path}"] = Trying.store.pop("/file")
    assert list(Location(URL).listing()) == ["er/config.json"]


def test_credentials_are_not_shown(machine: Callable[[], Path]) -> None:
    store = open_store("trying://me:secret@host/runs")
    assert str(store) == "trying://host/runs" and "secret" not in str(store.root)
    assert "secret" in store.address, "but another process needs them"


def test_a_cache_that_cannot_be_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUALMIX_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        StoreError, match=r"copies of trying://runs, cannot be written .* set DUALMIX_CACHE"
    ):
        open_store(URL)


def test_an_address_is_opened_by_its_own_function(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="open_store"):
        Store("s3://bucket/runs")
    assert open_store(tmp_path).mirror is None


def test_a_store_without_a_copy_of_the_record_is_looked_at_anew(
    machine: Callable[[], Path],
) -> None:
    store = open_store(URL)
    done: Result = run(SMALL, store)
    shutil.rmtree(store.root / ".copies")
    assert not done.folder.done
    store = open_store(URL)
    store.refresh()
    assert store.open(done.folder.path).done
    with pytest.raises(ConfigError, match="seen by one process"):
        _ = open_store("memory://runs").address
