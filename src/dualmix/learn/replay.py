"""Rehearsal: learn a new batch beside batches from the memory. Without a memory it is plain
finetuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from dualmix.learn.common import MemoryLearner, gradient_of, take_in
from dualmix.learn.lazy import torch
from dualmix.learn.losses import Softmax, cross_entropy
from dualmix.learn.memory import Memory
from dualmix.learn.modes import eval_mode, frozen_bn
from dualmix.learn.nearest_mean import class_means, nearest, nearest_later
from dualmix.learn.types import (
    Batch,
    ImagesLike,
    LabelsLike,
    Loss,
    Mix,
    Retrieve,
    State,
    Transform,
    Update,
    is_blind,
)
from dualmix.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

Forward = Literal["separate", "joint", "pooled", "still"]

AT_ONCE = 20
"""Images whose passes share a call of the native engine: each call transforms all weights, and all
maps of a call are kept until its backward pass."""


@dataclass(frozen=True, slots=True)
class Tricks:
    """Tricks that any rehearsal may use (Mai et al., 2022, "Online Continual Learning in Image
    Classification: An Empirical Survey", Neurocomputing, arXiv:2101.10423); all off by default.

    Parameters
    ----------
    softmax
        Which columns share a softmax, ``all``, ``labels`` or ``separated``: see
        `losses.cross_entropy`.
    readout
        ``linear``: answers by the head; ``ncm``: by the nearest class mean of the memory's
        features.
    review, review_batch
        In each pause one pass over the memory in batches of `review_batch`, gradients times
        `review`; 0: none.
    augment
        What the new and the rehearsed batch are learned through, drawn anew in each step; rules,
        mixes and the memory have the images as they came.
    """

    softmax: Softmax = "all"
    readout: Literal["linear", "ncm"] = "linear"
    review: float = 0.0
    review_batch: int = 10
    augment: Transform | None = None


class Replay(MemoryLearner):
    """Experience replay: the loss of a step is a sum of mean losses, of the new batch, of a
    rehearsed one and of mixed ones.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it.
    mixes
        Named makers of further batches out of the new and the rehearsed one; each draws from a
        generator of its own.
    stream, replay
        Weights of the new batch and of the rehearsed one; a batch of weight 0 takes no part at all.
        A new batch of weight 0 is only asked for `hits`, in evaluation mode.
    iterations
        Steps per stream batch, each with a newly retrieved old batch.
    forward
        ``separate``: one forward pass per batch, so batch-norm sees each alone; ``joint``: one pass
        over all of them; ``pooled``: joint, and all rows share one mean, in which weights are
        relative; ``still``: separate, and batch-norm neither uses nor keeps the statistics of mixed
        batches.
    ahead
        Of a joint pass: the new and the rehearsed batch, each when it comes, first have a pass of
        their own in training mode, of which only batch-norm's running statistics remain.
    stream_loss
        The new batch's own loss; none: the loss of all others.
    tricks
        Labels trick, separated softmax, nearest-class-mean read-out and review; they touch no
        retrieval and no update.
    """

    def __init__(
        self,
        model: Classifier,
        memory: Memory,
        update: Update,
        retrieve: Retrieve,
        rng: Rng,
        *,
        lr: float,
        weight_decay: float = 0.0,
        mixes: Mapping[str, Mix] | None = None,
        stream: float = 1.0,
        replay: float = 1.0,
        iterations: int = 1,
        forward: Forward = "separate",
        ahead: bool = False,
        stream_loss: Loss | None = None,
        tricks: Tricks | None = None,
    ) -> None:
        super().__init__(model, memory, update, rng, lr=lr, weight_decay=weight_decay)
        self.retrieve, self.iterations = retrieve, iterations
        self.forward, self.ahead = forward, ahead
        self.mixes = {name: mix for name, mix in (mixes or {}).items() if mix.weight}
        self.stream, self.replay, self.stream_loss = stream, replay, stream_loss or self._plain
        self.tricks = tricks or Tricks()
        self.means: Tensor | None = None
        self.tally: dict[str, Tensor] = {}

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch, then forget it except for what the memory keeps."""
        arrival = take_in(self, x, y)
        new = replace(arrival.batch, loss=self.stream_loss, weight=self.stream)
        self.means = None
        if not self.model.training:
            self.model.train()
        logits = None if self.stream else self._asked(new)
        for _ in range(self.iterations):
            self.model.zero_grad()
            passes = self._passes()
            passes.learn(self._view(new, "view of new"), self.stream)
            old = self._retrieved(new, passes)
            if old is not None:
                passes.learn(self._view(old, "view of old"), self.replay)
                for name, mix in self.mixes.items():
                    if not is_blind(mix):
                        passes.catch_up()
                    mixed = mix(new, old, self.model, self.ages, self.rng[name])
                    if mixed is not None:
                        passes.learn(mixed, mix.weight, mixed=True)
                        self._count(mixed)
            loss = passes.finish()
            self.step(loss)
            logits = passes.logits[0] if logits is None else logits
        assert logits is not None
        self.hits = (logits.argmax(1) == new.y).sum()
        self.write(arrival, replace(new, logits=logits))
        return loss

    def _asked(self, new: Batch) -> Tensor:
        with eval_mode(self.model):
            scores: Tensor = self.model(new.x)
        return scores

    def _view(self, batch: Batch, chance: str) -> Batch:
        if self.tricks.augment is None:
            return batch
        return replace(batch, x=self.tricks.augment(batch.x, self.rng[chance]))

    def _retrieved(self, new: Batch, passes: Passes) -> Batch | None:
        if not len(self.memory):
            return None
        if not is_blind(self.retrieve):
            passes.catch_up()
            new = replace(new, gradient=passes.gradient())
        slots = self.retrieve(self.memory, new, self.model, self.rng["retrieve"])
        return self.memory[slots] if len(slots) else None

    def _count(self, mixed: Batch) -> None:
        for name, count in mixed.counters.items():
            self.tally[name] = self.tally.get(name, 0) + count

    def _passes(self) -> Passes:
        if self.forward in ("separate", "still"):
            return SeparatePasses(self.model, self._loss, still=self.forward == "still")
        pooled = self.forward == "pooled"
        return JointPass(self.model, self._loss, pooled=pooled, ahead=self.ahead)

    def _loss(self, batch: Batch, logits: Tensor) -> Tensor:
        return (batch.loss or self._plain)(logits, batch.y)

    def _plain(self, logits: Tensor, y: Tensor) -> Tensor:
        old, known = self.ages.known_before_task, len(self.model.labels)
        by = self.model.arithmetic
        return cross_entropy(logits, y, self.tricks.softmax, old=old, known=known, by=by)

    def scorer(self, network: Classifier) -> Callable[[Tensor], Tensor]:
        """Return what scores the classes: the head, or the nearest class mean."""
        if self.tricks.readout == "linear":
            return super().scorer(network)
        if self.means is None:
            if self.guard.asked:
                return nearest_later(network, self.memory.copy())
            self.means = class_means(network, self.memory)
        return nearest(network, self.means)

    def consolidate(self) -> None:
        """Take note of a pause, and review the memory if asked to."""
        super().consolidate()
        if self.tricks.review:
            self.means = None
            self.review(
                lambda old: self._plain(self.model(old.x), old.y),
                self.tricks.review_batch,
                self.tricks.review,
            )

    def state_dict(self) -> State:
        """Return what every learner returns, and the tally of the mixes."""
        return {**super().state_dict(), "tally": dict(self.tally)}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        self.means = None
        self.tally = {name: count.to(self.model.device) for name, count in state["tally"].items()}


class SeparatePasses:
    """A forward and a backward pass for each batch: batch-norm sees each batch alone.

    Passes wait until a rule must see what they leave, or the step ends. The native engine makes
    those that wait in calls of up to `AT_ONCE` images.

    Parameters
    ----------
    loss
        A batch's mean loss, from the batch and its logits.
    still
        Batch-norm is frozen for mixed batches.

    Attributes
    ----------
    logits
        What the network said of each batch, in the order in which they came; none for a batch of
        weight 0.
    """

    def __init__(
        self, model: Classifier, loss: Callable[[Batch, Tensor], Tensor], *, still: bool = False
    ) -> None:
        self.model, self.loss, self.still = model, loss, still
        self.logits: list[Tensor | None] = []
        self.total = torch.zeros((), device=model.device)
        self.waiting: list[_Waiting] = []

    def learn(self, batch: Batch, weight: float, *, mixed: bool = False) -> None:
        """Take note of a batch, whose loss will be learned times its weight."""
        if weight:
            place, frozen = len(self.logits), mixed and self.still
            self.waiting.append(_Waiting(batch, weight, place, frozen))
        self.logits.append(None)

    def catch_up(self) -> None:
        """Make the passes that wait: add the gradients of their losses to the network."""
        for frozen, run in groupby(self.waiting, lambda one: one.frozen):
            batches = list(run)
            with frozen_bn(self.model) if frozen else nullcontext():
                for call in self._calls(batches):
                    self._pass(call)
        self.waiting.clear()

    def _calls(self, batches: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
        """Yield the batches that share a call: on torch each by itself."""
        most = AT_ONCE if self.model.engine == "native" else 0
        call: list[_Waiting] = []
        for one in batches:
            if call and sum(len(other.batch) for other in call) + len(one.batch) > most:
                yield call
                call = []
            call.append(one)
        yield call

    def _pass(self, batches: Sequence[_Waiting]) -> None:
        x = [one.batch.x for one in batches]
        sizes = [len(part) for part in x]
        logits = self.model(torch.cat(x) if len(x) > 1 else x[0], sizes).split(sizes)
        losses = [
            one.weight * self.loss(one.batch, said)
            for one, said in zip(batches, logits, strict=True)
        ]
        torch.autograd.backward(losses)
        for one, said, loss in zip(batches, logits, losses, strict=True):
            self.total = self.total + loss.detach()
            self.logits[one.place] = said.detach()

    def gradient(self) -> Sequence[Tensor] | None:
        """Return the gradient so far, a tensor per parameter, or nothing before the first pass."""
        return gradient_of(self.model) or None

    def finish(self) -> Tensor:
        """Make the passes that are left; return the sum of all losses."""
        self.catch_up()
        return self.total


class _Waiting(NamedTuple):
    """A batch whose pass has not been made yet.

    Attributes
    ----------
    place
        Where its logits go.
    frozen
        Batch-norm is frozen.
    """

    batch: Batch
    weight: float
    place: int
    frozen: bool


class JointPass:
    """One forward and one backward pass over all batches of a step: batch-norm sees them together.

    Parameters
    ----------
    loss
        A batch's mean loss, from the batch and its logits.
    pooled
        One mean over all rows, in which weights are relative, instead of a sum of means.
    ahead
        As in `Replay`.

    Attributes
    ----------
    logits
        As in `SeparatePasses`, filled by `finish`.
    """

    def __init__(
        self,
        model: Classifier,
        loss: Callable[[Batch, Tensor], Tensor],
        *,
        pooled: bool = False,
        ahead: bool = False,
    ) -> None:
        self.model, self.loss, self.pooled, self.ahead = model, loss, pooled, ahead
        self.batches: list[tuple[Batch, float]] = []
        self.logits: list[Tensor | None] = []

    def learn(self, batch: Batch, weight: float, *, mixed: bool = False) -> None:
        """Take note of a batch; the pass is made when all have come."""
        self.batches.append((batch, weight))
        if self.ahead and weight and not mixed:
            with torch.no_grad():
                self.model.embed(batch.x)

    def catch_up(self) -> None:
        """Do nothing: the pass needs all batches."""

    def gradient(self) -> Sequence[Tensor] | None:
        """Return nothing: there is no gradient before the pass."""
        return None

    def finish(self) -> Tensor:
        """Make the pass; return its loss."""
        taking_part = [(batch, weight) for batch, weight in self.batches if weight]
        if not taking_part:
            self.logits = [None for _ in self.batches]
            return torch.zeros((), device=self.model.device)
        sizes = [len(batch) for batch, _ in taking_part]
        weights = [weight for _, weight in taking_part]
        if self.pooled:
            heavy = [weight * size for weight, size in zip(weights, sizes, strict=True)]
            weights = [share / sum(heavy) for share in heavy]
        logits = self.model(torch.cat([batch.x for batch, _ in taking_part])).split(sizes)
        losses = [
            weight * self.loss(batch, said)
            for weight, (batch, _), said in zip(weights, taking_part, logits, strict=True)
        ]
        loss = torch.stack(losses).sum()
        loss.backward()
        said = iter(logits)
        self.logits = [next(said).detach() if weight else None for _, weight in self.batches]
        return loss.detach()


Passes = SeparatePasses | JointPass
