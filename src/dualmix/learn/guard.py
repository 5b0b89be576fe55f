"""What makes a learner safe: calls that change it come one after the other, predictions beside them
use the last weights that belong together, and a batch whose loss is not finite is taken back.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dualmix.errors import TrainingError
from dualmix.learn.answers import Answers
from dualmix.learn.lazy import torch
from dualmix.learn.undo import Undo

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.common import MemoryLearner

PATIENCE = 0.02
"""Seconds between two looks at what a batch in the making has left to predict from."""

AT_ONCE = 2
"""Predictions of one learner that compute at the same time. Each of torch's operations gives up
Python's lock and then stands in line for it: with many more a batch beside them would take minutes,
and they would be no sooner done.
"""

C = TypeVar("C", bound=Callable[..., Any])


class Guard:
    """A learner's lock, and what belongs to it.

    Attributes
    ----------
    lock
        Held by every call that changes the learner or reads all of it.
    asked
        A prediction has met a batch in the making: from then on every change leaves what the next
        one needs, so that no other waits.
    copies
        A `state_dict` is in the making, which copies what those of its base classes return.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._seats = threading.BoundedSemaphore(AT_ONCE)
        self.asked = self.copies = False
        self._answers: Answers | None = None
        self._owner: int | None = None
        self._queue: list[None] = []
        self._steps = 0
        self._unread: deque[tuple[Undo, Callable[[], bool], int]] = deque()
        self._sound: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        return Guard()

    def __reduce__(self) -> tuple[type[Guard], tuple[()]]:
        return Guard, ()

    @property
    def inside(self) -> bool:
        """Whether this thread is in a call that changes the learner."""
        return self._owner == threading.get_ident()

    @contextmanager
    def answering(self, learner: MemoryLearner) -> Iterator[Answers]:
        """Answer from what `answers` returns, a few threads at a time."""
        if self.inside:
            yield self.answers(learner)
            return
        with self._seats:
            yield self.answers(learner)

    @contextmanager
    def changing(self, learner: MemoryLearner, *, weights: bool) -> Iterator[None]:
        """Change the learner; what raises before the first step, or with `weights` at any step,
        leaves it as it was.
        """
        with self._turn():
            self._read(learner, unread=1)
            undo, self._steps = Undo(learner, weights=weights), 0
            self._owner = threading.get_ident()
            try:
                yield
                self._changed(learner)
            except BaseException:
                if not self._steps or weights:
                    undo.back()
                else:
                    self._answers = None
                raise
            finally:
                self._owner = learner.memory.journal = None
            if self._sound is not None:
                undo.seal()
                self._unread.append((undo, _on_host(self._sound), learner.ages.steps))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock; predictions leave it alone as soon as a change is waiting for it, since
        Python's locks are not fair.
        """
        self._queue.append(None)
        try:
            self.lock.acquire()
        finally:
            self._queue.pop()
        try:
            yield
        finally:
            self.lock.release()

    def clean(self, learner: MemoryLearner) -> bool:
        """Whether what the change in the making has done so far can be taken back."""
        return not self._steps or learner.iterations > 1

    def _changed(self, learner: MemoryLearner) -> None:
        """Take note of a change that is complete; one assignment, so that no prediction sees less
        than all of it.
        """
        self._answers = learner.answers() if self.asked else None

    @contextmanager
    def replacing(self, learner: MemoryLearner) -> Iterator[None]:
        """Replace the whole state."""
        with self._turn():
            self._unread.clear()
            self._sound = None
            self._owner = threading.get_ident()
            try:
                yield
                self._changed(learner)
            except BaseException:
                self._answers = None
                raise
            finally:
                self._owner = None

    @contextmanager
    def reading(self, learner: MemoryLearner) -> Iterator[None]:
        """Read the whole state."""
        with self.lock:
            if not self.inside:
                self._read(learner)
            yield

    def answers(self, learner: MemoryLearner) -> Answers:
        """Return what the learner predicts from: its weights now, or, while another thread changes
        them, as they were before.
        """
        if self.inside:
            return learner.answers()
        while True:
            held, busy = self._answers, self._owner is not None or bool(self._queue)
            if held is not None and (busy or self.asked):
                return held
            if self.lock.acquire(timeout=PATIENCE):
                try:
                    self._read(learner)
                    self._answers = learner.answers()
                    return self._answers
                finally:
                    self.lock.release()
            self.asked |= busy

    def sound(self, learner: MemoryLearner, loss: Tensor | None, length: Tensor) -> Tensor | None:
        """Demand that a loss and the length of a step are finite, before the step is taken.

        Returns
        -------
        Tensor or None
            Where it is read late, whether this step and those before it were sound: the step must
            be one of zeros if not. None: it is.
        """
        finite = length.isfinite() if loss is None else length.isfinite() & loss.isfinite()
        if learner.read_late:
            self._sound = finite if self._sound is None else self._sound & finite
        elif not bool(finite):
            raise _diverged(learner, learner.ages.steps, loss)
        self._steps += 1
        return self._sound

    def _read(self, learner: MemoryLearner, unread: int = 0) -> None:
        """Look whether earlier steps were sound, all but the latest `unread`; if not, go back to
        before the first that was not.
        """
        while len(self._unread) > unread:
            _, sound, step = self._unread[0]
            if not sound():
                for undo, _, _ in reversed(self._unread):
                    undo.back()
                self._unread.clear()
                self._sound = self._answers = None
                raise _diverged(learner, step, None)
            self._unread.popleft()


def _on_host(sound: Tensor) -> Callable[[], bool]:
    """Return a look at a flag that waits for its own step only, not for what came after it."""
    if sound.device.type != "cuda":
        return lambda: bool(sound)
    copied = torch.empty((), dtype=torch.bool, pin_memory=True)
    copied.copy_(sound, non_blocking=True)
    event = torch.cuda.Event()
    event.record()

    def look() -> bool:
        event.synchronize()
        return bool(copied)

    return look


def _diverged(
    learner: MemoryLearner, step: int, loss: Tensor | None, *, kept: bool = True
) -> TrainingError:
    said = "a loss or gradient that is not finite"
    if loss is not None and not bool(loss.isfinite()):
        said = f"a loss of {float(loss):g}"
    after = "is as it was before that batch" if kept else "has learned a part of that batch"
    return TrainingError(
        f"Training diverged at step {step} with {said}, and the learner {after}: use a smaller "
        f"learning rate than {learner.lr:g}, or smaller weights of the losses."
    )


def observing(call: C) -> C:
    """Guard an `observe`."""

    @wraps(call)
    def observe(self: MemoryLearner, *given: Any, **named: Any) -> Any:
        if self.guard.inside:
            return call(self, *given, **named)
        with self.guard.changing(self, weights=self.iterations > 1):
            loss = call(self, *given, **named)
            if not self.read_late and not math.isfinite(loss):
                raise _diverged(self, self.ages.steps, loss, kept=self.guard.clean(self))
            return loss

    return cast(C, observe)


def pausing(call: C) -> C:
    """Guard a `consolidate`, which may take many steps."""

    @wraps(call)
    def consolidate(self: MemoryLearner) -> None:
        with nullcontext() if self.guard.inside else self.guard.changing(self, weights=True):
            call(self)

    return cast(C, consolidate)


def replacing(call: C) -> C:
    """Guard a `load_state_dict`."""

    @wraps(call)
    def load_state_dict(self: MemoryLearner, *given: Any, **named: Any) -> None:
        with nullcontext() if self.guard.inside else self.guard.replacing(self):
            call(self, *given, **named)

    return cast(C, load_state_dict)


def reading(call: C) -> C:
    """Guard a `state_dict`, which returns copies that no later batch changes."""

    @wraps(call)
    def state_dict(self: MemoryLearner) -> Any:
        guard = self.guard
        with guard.reading(self):
            if guard.copies:
                return call(self)
            guard.copies = True
            try:
                return _copied(call(self))
            finally:
                guard.copies = False

    return cast(C, state_dict)


def waiting(call: C) -> C:
    """Guard a `predict` of a method's own: it waits for a batch in the making."""

    @wraps(call)
    def predict(self: MemoryLearner, *given: Any, **named: Any) -> Any:
        with self.guard.reading(self):
            return call(self, *given, **named)

    return cast(C, predict)


GUARDED: dict[str, Callable[[Any], Any]] = {
    "observe": observing,
    "consolidate": pausing,
    "load_state_dict": replacing,
    "state_dict": reading,
    "predict": waiting,
}
"""What a learner's method is wrapped in, by its name."""


def _copied(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {name: _copied(part) for name, part in state.items()}
    if isinstance(state, list):
        return [_copied(part) for part in state]
    return state
