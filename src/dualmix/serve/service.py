"""The service behind the endpoints: one writer that learns what the journal holds, and answers from
the last weights that belong together.

A batch is checked, then on the disk, then acknowledged, then learned. What is learned depends on
nothing but the first snapshot and the journal, in its order.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import ConfigError, DualmixError, InputError, StoreError, TrainingError
from dualmix.learn.common import MemoryLearner
from dualmix.learn.types import ImagesLike, Shape
from dualmix.runs.build import load, state_of, to_bytes
from dualmix.serve import faults
from dualmix.serve.accuracy import Accuracy
from dualmix.serve.faults import RefusalError
from dualmix.serve.ids import Ids
from dualmix.serve.journal import Journal, NoRoomError
from dualmix.serve.record import Record, parse
from dualmix.store import snapshot
from dualmix.store.files import make_folder, write_bytes

SNAPSHOT = "snapshot.safetensors"
REMEMBERED = 1000
"""Refused batches that are remembered, the latest ones."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the service takes before it refuses.

    Attributes
    ----------
    queue, queue_bytes
        Batches that are acknowledged and not yet learned, and the bytes of their rows.
    classes
        Of a head that grows.
    rows
        Of one batch: all of them are learned at once, and what does not fit into the memory of the
        machine would end the service again at every replay.
    snapshot_every
        Batches from one snapshot to the next.
    """

    queue: int = 64
    queue_bytes: int = 256 * 2**20
    classes: int = 10_000
    rows: int = 256
    snapshot_every: int = 1000


class Outcome(NamedTuple):
    """What became of a batch.

    Attributes
    ----------
    correct
        Images that were recognised before they were learned.
    refused
        Why it was not learned; none: it was.
    """

    loss: float | None = None
    correct: int | None = None
    refused: str | None = None


class Receipt(NamedTuple):
    """What is known of a batch when it is acknowledged.

    Attributes
    ----------
    done
        Its outcome, once it is learned.
    """

    number: int
    repeated: bool
    waiting: int
    done: Future[Outcome]


class Scores(NamedTuple):
    """Scores of some rows for the classes that were known after so many batches."""

    scores: NDArray[np.float32]
    labels: list[int | str]
    steps: int


class Service:
    """A learner, its journal and its writer.

    Parameters
    ----------
    start
        Makes the learner that the journal begins with; called only where there is no snapshot yet.
    folder
        Of journal and snapshot; its lock is held by whoever makes the service.
    origin
        What tells this learner from another: text that is the same at every start.
    keep
        Keep the whole journal as a history.

    Attributes
    ----------
    learned
        The number of the record that is learned next.
    fault
        What ended the writer; none: it works, or ended as it should.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        folder: Path,
        origin: str,
        *,
        limits: Limits | None = None,
        keep: bool = False,
    ) -> None:
        self.limits, self.folder, self.origin = limits or Limits(), folder, origin
        self.ids, self.accuracy = Ids(), Accuracy()
        self.refused: OrderedDict[int, str] = OrderedDict()
        self.learned = self.refusals = 0
        self.fault: BaseException | None = None
        self.snapshot_time: float | None = None
        self.snapshot_fault: str | None = None
        self._books = threading.Lock()
        self._door = threading.Lock()
        self._wake = threading.Condition(threading.Lock())
        self._jobs: deque[tuple[int, Record, Future[Outcome]]] = deque()
        self._waiting: dict[int, Future[Outcome]] = {}
        self._asked: list[Future[None]] = []
        self._pace = 0.05
        self.ready = self.leaving = self._stop = False
        make_folder(folder)
        if (folder / SNAPSHOT).exists():
            self.learner = self._resume()
        else:
            self.learner = _checked(start())
            for label, first in zip(
                self.learner.model.labels, self.learner.ages.first.tolist(), strict=True
            ):
                self.accuracy.know(label, first)
            self._write_snapshot()
        self.journal = Journal(folder, origin, self.learned, keep=keep)
        self.replay_from, self.replay_to = self.learned, self.journal.next
        self._snapshot_at = self.learned
        self.learner.read_late = False  # a refusal must be known at its own batch
        self.learner.guard.asked = True  # every batch leaves what answers need
        self.shape: Shape = self.learner.model.shape
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)

    def _resume(self) -> MemoryLearner:
        path = self.folder / SNAPSHOT
        content = path.read_bytes()
        state = snapshot.parse_state(content, path)
        served: Any = state.get("served")
        try:
            origin = served["origin"]
            self.learned, self.refusals = int(served["next"]), int(served["refusals"])
            self.ids.load_state_dict(served["ids"])
            self.accuracy.load_state_dict(served["accuracy"])
            self.refused.update((int(n), str(why)) for n, why in served["refused"])
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise StoreError(
                f"{path} is no snapshot of a service ({type(fault).__name__}: {fault}): move it "
                "away, or give another folder by --journal."
            ) from fault
        if origin != self.origin:
            raise StoreError(
                f"{self.folder} is the journal of another learner: give another folder by "
                "--journal, or serve the learner that it began with."
            )
        self.snapshot_time = path.stat().st_mtime
        return _checked(load(content))

    # What requests call, from any thread.

    def start(self) -> None:
        """Begin to replay and to learn."""
        self._thread.start()

    def observe(self, record: Record) -> Receipt:
        """Accept a batch or a pause: when this returns, it is on the disk.

        Raises
        ------
        InputError
            The learner cannot take it.
        RefusalError
            The queue or the disk is full, or the service begins or ends.
        """
        if len(record.x) > self.limits.rows:
            raise InputError(
                f"The batch has {len(record.x)} rows, and this service learns {self.limits.rows} "
                "at once (--most-rows): send smaller batches."
            )
        digest = record.digest
        with self._door:
            self.check_ready()
            if self.leaving:
                raise faults.not_ready("is leaving and takes no more batches", 5.0)
            known = self.ids.get(record.name) if record.name else None
            if known is not None:
                if known.digest != digest:
                    raise faults.repeated(record.name)
                return Receipt(known.number, True, len(self._jobs), self._known(known.number))
            self._admit(record.y)
            self._check_room(record)
            try:
                number = self.journal.append(record.to_bytes())
            except NoRoomError as fault:
                raise faults.full(fault) from fault
            except StoreError as fault:
                raise RefusalError(503, f"The journal cannot be written: {fault}.", 5.0) from fault
            done: Future[Outcome] = Future()
            with self._wake:
                self.ids.add(record.name, digest, number)
                self._waiting[number] = done
                self._jobs.append((number, record, done))
                self._wake.notify()
            return Receipt(number, False, len(self._jobs), done)

    def any_label(self) -> int | str | None:
        """Return a label that is known, or that waits to be learned; none: there is none yet."""
        with self._wake:
            known = [*self.learner.model.labels[:1], *(r.y[0] for _, r, _ in self._jobs if r.y)]
        return next(iter(known), None)

    def _known(self, number: int) -> Future[Outcome]:
        """Return the outcome of a batch that was accepted earlier."""
        with self._wake:
            if number in self._waiting:
                return self._waiting[number]
        done: Future[Outcome] = Future()
        done.set_result(Outcome(refused=self.refused.get(number)))
        return done

    def _admit(self, labels: Sequence[int | str]) -> None:
        """Raise `InputError` where labels do not fit those known and those waiting.

        A batch that waits may yet be refused; then fewer labels are known than are counted here,
        and what was admitted fits all the more."""
        model = self.learner.model
        with self._wake:
            known = dict.fromkeys([*model.labels, *(y for _, r, _ in self._jobs for y in r.y)])
        fresh = [label for label in dict.fromkeys(labels) if label not in known]
        if not fresh:
            return
        first = next(iter(known), fresh[0])
        if type(fresh[0]) is not type(first):
            kind = "text" if isinstance(first, str) else "whole numbers"
            raise InputError(f"Labels so far are {kind}, but {fresh[0]!r} is not: use one kind.")
        most = self.limits.classes if model.classes is None else model.classes
        if len(known) + len(fresh) > most:
            raise InputError(
                f"Label {fresh[-1]!r} would be class number {len(known) + len(fresh)}, but this "
                f"learner takes {most} classes."
            )

    def _check_room(self, record: Record) -> None:
        with self._wake:
            waiting = len(self._jobs)
            held = sum(job.size for _, job, _ in self._jobs)
        if waiting >= self.limits.queue or (
            waiting and held + record.size > self.limits.queue_bytes
        ):
            # An eighth of the queue is learned by then: room for whoever comes, and no idle writer.
            raise faults.crowded(waiting, max(1.0, self._pace * waiting / 8))

    def check_ready(self) -> None:
        """Raise `RefusalError` while the journal is replayed, or after the writer has died."""
        if self.fault is not None:
            raise faults.not_ready("has failed and must be started again", 10.0)
        if not self.ready:
            left = self.replay_to - self.learned
            raise faults.not_ready(f"is learning {left} batches of its journal again")

    def scores(self, x: ImagesLike) -> Scores:
        """Score rows, from the weights after the last batch that is complete."""
        self.check_ready()
        with self.learner.guard.answering(self.learner) as now:
            return Scores(now.scores(x), list(now.network.labels), now.steps)

    def snapshot(self) -> None:
        """Have a snapshot made now, and wait for it.

        Raises
        ------
        StoreError
            It cannot be written; the last one stays.
        """
        self.check_ready()
        done: Future[None] = Future()
        with self._wake:
            if self._stop:
                raise faults.not_ready("is leaving", 5.0)
            self._asked.append(done)
            self._wake.notify()
        done.result()

    def learner_bytes(self) -> bytes:
        """Return the learner as `dualmix.save` writes it."""
        self.check_ready()
        learner: Any = self.learner
        return to_bytes(learner)

    @property
    def waiting(self) -> int:
        """Batches that are acknowledged and not yet learned."""
        return len(self._jobs)

    def books(self) -> threading.Lock:
        """Return the lock under which `accuracy` is read."""
        return self._books

    def close(self) -> None:
        """Take no more batches, learn those that wait, make a snapshot and end the writer."""
        with self._door:
            self.leaving = True
        with self._wake:
            self._stop = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.journal.close()

    # What the writer does, in its own thread.

    def _work(self) -> None:
        try:
            for number, payload in self.journal.records(self.learned):
                self._learn(number, parse(payload))
                if self._stop:
                    break
            else:
                self.ready = True
                self._loop()
            self._answer(())
        except BaseException as fault:  # whoever waits must hear of it
            self.fault = fault
        finally:
            self.ready = False
            with self._wake:
                self._stop = True
                left: list[Future[Any]] = [*self._waiting.values(), *self._asked]
                self._asked.clear()
            for done in left:
                if not done.done():
                    done.set_exception(faults.not_ready("has ended", 5.0))

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not (self._jobs or self._asked or self._stop):
                    self._wake.wait()
                asked, self._asked = self._asked, []
                job = self._jobs[0] if self._jobs else None
            if asked or self.learned - self._snapshot_at >= self.limits.snapshot_every:
                self._answer(asked)
            if job is None:
                if self._stop:
                    return
                continue
            number, record, done = job
            began = time.monotonic()
            outcome = self._learn(number, record)
            self._pace += 0.1 * (time.monotonic() - began - self._pace)
            with self._wake:
                self._jobs.popleft()
                del self._waiting[number]
            done.set_result(outcome)

    def _learn(self, number: int, record: Record) -> Outcome:
        """Learn a record; the same whether it came just now or is replayed.

        Raises
        ------
        DualmixError
            The method failed in a way that is no refusal. The record stays in the journal.
        """
        try:
            outcome = self._step(record)
        except Exception as fault:
            raise DualmixError(
                f"Record {number} of the journal in {self.folder} could not be learned "
                f"({type(fault).__name__}: {fault}). It is kept, with all after it: mend what "
                "failed and give the same command again."
            ) from fault
        with self._books:
            if outcome.refused is not None:
                self.refusals += 1
                self.refused[number] = outcome.refused
                while len(self.refused) > REMEMBERED:
                    self.refused.popitem(last=False)
            self.learned = number + 1
        if not self.ready:
            self.ids.add(record.name, record.digest, number)
        return outcome

    def _step(self, record: Record) -> Outcome:
        learner = self.learner
        try:
            if record.kind == "pause":
                learner.consolidate()
                return Outcome()
            said: Sequence[Any] = [None] * len(record.y)
            if learner.model.labels:
                said = learner.guard.answers(learner).predict(record.x).tolist()
            labels: Any = list(record.y)
            loss = float(learner.observe(record.x, labels))  # type: ignore[attr-defined]
        except (TrainingError, InputError) as fault:
            return Outcome(refused=str(fault))
        with self._books:
            batch = learner.ages.steps - 1
            right = self.accuracy.note(record.y, said, batch, record.time)
        return Outcome(loss, right)

    def _answer(self, asked: Sequence[Future[None]]) -> None:
        try:
            self._snapshot()
        except BaseException as fault:  # whoever waits must hear of it
            for done in asked:
                done.set_exception(fault)
            if not isinstance(fault, DualmixError):
                raise
            return
        for done in asked:
            done.set_result(None)

    def _snapshot(self) -> None:
        self._snapshot_at = self.learned  # a full disk is not asked again at every batch
        try:
            self._write_snapshot()
            with self._door:
                self.journal.forget(self.learned)
        except StoreError as fault:
            self.snapshot_fault = str(fault)
            raise
        self.snapshot_fault = None

    def _write_snapshot(self) -> None:
        with self._wake:
            ids = self.ids.state_dict(self.learned)
        learner: Any = self.learner
        state = {
            **state_of(learner),
            "served": {
                "origin": self.origin,
                "next": self.learned,
                "refusals": self.refusals,
                "ids": ids,
                "accuracy": self.accuracy.state_dict(),
                "refused": [[number, why] for number, why in self.refused.items()],
            },
        }
        write_bytes(self.folder / SNAPSHOT, snapshot.state_bytes(state), follow=False)
        self.snapshot_time = time.time()


def _checked(learner: Any) -> MemoryLearner:
    """Return a learner if it can be served."""
    if not isinstance(learner, MemoryLearner) or type(learner).predict is not MemoryLearner.predict:
        raise ConfigError(
            f"{type(learner).__name__} has a `predict` of its own, which waits for batches: define "
            "`scorer` instead, and it can be served."
        )
    if not hasattr(learner, "observe"):
        raise ConfigError(f"{type(learner).__name__} cannot observe.")
    return learner
