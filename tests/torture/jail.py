"""Cases tried in forked children: one that hangs, dies or takes all memory harms no other."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any

from dualmix.errors import DualmixError

VERDICTS = ("right", "typed", "untyped", "hang", "wrong")
ROOM = 2 << 30
"""Bytes that a case may take beyond what the harness holds itself."""
WAITS = 10
PIECE = 1 << 22
"""Numbers that are compared at once: a case's learner may fill its room."""
KEPT = 2
"""Failing cases whose files are kept, per cause."""


class WrongError(AssertionError):
    """A promise was broken without a word."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one try: a verdict, how to do it again, and what failures have in common."""

    verdict: str
    story: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of cases.

    Attributes
    ----------
    count
        Tries of a full run.
    each
        Tries of one case.
    seconds
        CPU time between two outcomes of a case after which it hangs; one that waits for something
        may do so `WAITS` times as long, since the machine may be busy.
    attempt
        Tries one case: it gets the shared folder, its chance and its number, and works in an empty
        current folder.
    prepare
        Makes the files that all cases share, in a child of its own.
    """

    name: str
    doc: str
    count: int
    each: int
    seconds: float
    attempt: Callable[[Path, Random, int], Iterator[Outcome]]
    prepare: Callable[[Path], None] = lambda shared: None


@dataclass(slots=True)
class Tally:
    """Verdicts of a kind, counted, and its failures by cause."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{self.counts[verdict]} {verdict}" for verdict in VERDICTS)
        causes = "".join(f"\n  {len(c)} x {cause}: {c[0]}" for cause, c in self.failures.items())
        return f"{self.kind} {self.counts.total()}: {counts}{causes}"

    @property
    def bad(self) -> int:
        """Tries that broke a promise."""
        return sum(self.counts[verdict] for verdict in VERDICTS[2:])

    def add(self, index: int, outcome: Outcome) -> None:
        """Count an outcome."""
        self.counts[outcome.verdict] += 1
        if outcome.verdict in VERDICTS[2:]:
            cause = f"{outcome.verdict}: {outcome.cause}"
            self.failures.setdefault(cause, []).append((index, outcome.story))


def judged(story: str, call: Callable[[], object]) -> Outcome:
    """Do something and say how it went; a typed error is a sentence of our own."""
    try:
        call()
    except WrongError as fault:
        return Outcome("wrong", story, str(fault))
    except DualmixError as fault:
        said = str(fault)
        plain = len(said) > 15 and re.sub(r"[\n\t]", "", said).isprintable()
        return Outcome("typed", story) if plain else Outcome("untyped", story, f"says {said!r}")
    except KeyboardInterrupt:
        raise
    except BaseException as fault:  # a panic of a Rust library is no Exception
        return Outcome("untyped", story, signature(fault))
    return Outcome("right", story)


def signature(fault: BaseException) -> str:
    """Return what failures of one cause have in common: the type and the last place in our code."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [f for f in frames if "/dualmix/" in f.filename] or frames[-1:]
    place = f"{ours[-1].filename.split('/dualmix/')[-1]} in {ours[-1].name}" if ours else "nowhere"
    return f"{type(fault).__name__} at {place} ({re.sub(r'[0-9]+', 'N', str(fault))[:60]!r})"


def torture(
    kind: Kind,
    shared: Path,
    keep: Path,
    *,
    count: int,
    seed: int,
    only: int | None = None,
    seconds: float = float("inf"),
    workers: int = 1,
) -> Tally:
    """Try the cases of a kind, each decided by the seed and its number alone."""
    tally, began = Tally(kind.name), time.monotonic()
    cases = range(-(-count // kind.each)) if only is None else [only]
    chunk = max(1, min(50, -(-len(cases) // workers)))
    waiting = deque(list(cases[at : at + chunk]) for at in range(0, len(cases), chunk))
    children: list[_Child] = []
    said = began
    while waiting or children:
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(f"{said - began:6.0f} s: {tally}", file=sys.stderr, flush=True)
        while waiting and len(children) < workers and time.monotonic() - began < seconds:
            children.append(_Child(kind, shared, keep, seed, waiting.popleft()))
        if not children:
            break
        select.select([child.pipe for child in children], [], [], 0.2)
        for child in list(children):
            if child.listen(tally):
                children.remove(child)
                if rest := child.left:
                    waiting.appendleft(rest)
    tally.seconds = time.monotonic() - began
    return tally


def apart(call: Callable[[], None], seconds: float = 600) -> None:
    """Do something in a child, so that this process starts no thread that a fork would lose."""
    child = os.fork()
    if not child:
        _ended(call)
    end = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    if ended[1]:
        raise RuntimeError("the shared files could not be made (see above)")


def _ended(call: Callable[[], None]) -> None:
    """Do something and end this process, whatever happens."""
    code = 1
    try:
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Child:
    """A forked process that tries some cases and tells of each before the next."""

    def __init__(self, kind: Kind, shared: Path, keep: Path, seed: int, cases: list[int]) -> None:
        self.kind, self.keep, self.left, self.at = kind, keep, cases, cases[0]
        self.work = Path(tempfile.mkdtemp(prefix="torture-"))
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            _ended(lambda: self._work(shared, seed, os.fdopen(writing, "w", buffering=1)))
        os.close(writing)
        self.pipe: IO[bytes] = os.fdopen(reading, "rb", buffering=0)
        self.text = b""
        self._heard()

    def _heard(self) -> None:
        self.since, self.used = time.monotonic(), cpu_seconds(self.pid)

    @property
    def hangs(self) -> bool:
        """Whether it has computed or waited for too long since it told something."""
        waited, limit = time.monotonic() - self.since, self.kind.seconds
        return waited > limit * WAITS or (
            waited > limit and cpu_seconds(self.pid) - self.used > limit
        )

    def _work(self, shared: Path, seed: int, tell: IO[str]) -> None:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: dies with the harness
        used = int(re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
        stacks = (self.work / "stacks").open("w")
        os.dup2(stacks.fileno(), 2)
        faulthandler.enable(stacks)
        for index in self.left:
            faulthandler.dump_traceback_later(self.kind.seconds * 0.9, file=stacks)
            chance = Random(f"{seed}/{self.kind.name}/{index}")
            scratch = self.work / str(index)
            scratch.mkdir()
            os.chdir(scratch)
            for outcome in self.kind.attempt(shared, chance, index):
                tell.write(
                    json.dumps([index, outcome.verdict, outcome.story, outcome.cause]) + "\n"
                )
                faulthandler.dump_traceback_later(self.kind.seconds * 0.9, file=stacks)
            tell.write(json.dumps([index]) + "\n")
            faulthandler.cancel_dump_traceback_later()
            os.chdir(self.work)

    def listen(self, tally: Tally) -> bool:
        """Take in what the child tells; return whether it has ended."""
        if select.select([self.pipe], [], [], 0)[0]:
            said = self.pipe.read(1 << 16)
            self._heard()
            *lines, self.text = (self.text + said).split(b"\n")
            for line in lines:
                self._told(tally, *json.loads(line))
            return not said and self._gone(tally, "")
        if self.hangs:
            return self._gone(tally, "hang")
        return False

    def _told(self, tally: Tally, index: int, *outcome: str) -> None:
        self.at = index
        if not outcome:
            shutil.rmtree(self.work / str(index), ignore_errors=True)
            self.left = self.left[1:]
            return
        self._count(tally, Outcome(*outcome))

    def _count(self, tally: Tally, outcome: Outcome) -> None:
        tally.add(self.at, outcome)
        cause = f"{outcome.verdict}: {outcome.cause}"
        if outcome.verdict in VERDICTS[2:] and len(tally.failures[cause]) <= KEPT:
            _keep(self.keep / f"{self.kind.name}-{self.at}", self.work / str(self.at), outcome)

    def _gone(self, tally: Tally, verdict: str) -> bool:
        """Reap the child and blame a case for it that did not end well."""
        os.killpg(self.pid, signal.SIGKILL) if _leads(self.pid) else os.kill(
            self.pid, signal.SIGKILL
        )
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.left and (verdict or code):
            self.at = self.left[0]
            stacks = self.work / "stacks"
            said = stacks.read_text(errors="replace") if stacks.is_file() else ""
            place = re.findall(r'File "[^"]*/dualmix/([^"]*)", line (\d+) in (\w+)', said)
            where = f"{place[0][0]} in {place[0][2]}" if place else said[-300:]
            story = f"python -m tests.torture {self.kind.name} --only {self.at}"
            told = verdict or "untyped"
            self._count(tally, Outcome(told, story, f"ended with {code} at {where}"))
            self.left = self.left[1:]
        shutil.rmtree(self.work, ignore_errors=True)
        return True


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its children that have ended used; 0 if it is gone."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


def _leads(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def _keep(folder: Path, scratch: Path, outcome: Outcome) -> None:
    if scratch.is_dir() and not folder.exists():
        shutil.copytree(scratch, folder, symlinks=True, ignore_dangling_symlinks=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "story.txt").write_text(f"{outcome.verdict}\n{outcome.cause}\n{outcome.story}\n")


def equal(one: Any, other: Any) -> bool:
    """Whether two nested states are the same to the last bit."""
    if isinstance(one, dict):
        fits = isinstance(other, dict) and one.keys() == other.keys()
        return fits and all(equal(part, other[name]) for name, part in one.items())
    if isinstance(one, list | tuple):
        fits = type(one) is type(other) and len(one) == len(other)
        return fits and all(map(equal, one, other))
    if not hasattr(one, "detach"):
        return type(one) is type(other) and repr(one) == repr(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    pieces = zip(one.flatten().split(PIECE), other.flatten().split(PIECE), strict=True)
    return all(_same_bytes(*pair) for pair in pieces)


def _same_bytes(one: Any, other: Any) -> bool:
    return bool(one.cpu().numpy().tobytes() == other.cpu().numpy().tobytes())


def digest(state: Any) -> str:
    """Return a hash of nested state: all of its arrays, and the rest as text."""
    import hashlib

    found = hashlib.sha256()

    def take(value: Any) -> None:
        if isinstance(value, dict):
            for name in sorted(value):
                found.update(f"{name}:".encode())
                take(value[name])
        elif isinstance(value, list | tuple):
            for inner in value:
                take(inner)
                found.update(b",")
        elif hasattr(value, "detach"):
            array = value.detach().cpu().contiguous()
            found.update(f"{array.dtype}{tuple(array.shape)}".encode() + array.numpy().tobytes())
        else:
            found.update(repr(value).encode())

    take(state)
    return found.hexdigest()
