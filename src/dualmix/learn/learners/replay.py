"""Rehearsal: learn a new batch beside batches from the memory. Without a memory it is plain
finetuning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.learn.class_ages import Sightings
from dualmix.learn.learners.parts import answer, descend, load_parts, parts_state, receive
from dualmix.learn.learners.review import review
from dualmix.learn.learners.tricks import Tricks
from dualmix.learn.losses import cross_entropy
from dualmix.learn.memory import Memory
from dualmix.learn.nearest_mean import class_means, nearest
from dualmix.learn.network import Classifier, still_norms
from dualmix.learn.types import (
    Batch,
    ImagesLike,
    Labels,
    LabelsLike,
    Loss,
    Mix,
    Retrieve,
    State,
    Transform,
    Update,
)
from dualmix.rng import Rng


class Term(NamedTuple):
    """A batch whose mean loss, times a weight, is a part of a step's loss."""

    weight: float
    batch: Batch
    mixed: bool = False


class Replay:
    """Experience replay: the loss of a step is a sum of mean losses, of the new batch and of
    rehearsed ones.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it.
    mixes
        Named makers of further batches out of the new and the rehearsed one; each draws from a
        generator of its own.
    stream, replay
        Weights of the new batch and of the rehearsed one; a batch of weight 0 takes no part at all.
    iterations
        Steps a stream batch, each with a newly retrieved old batch.
    forward
        ``separate``: one forward pass a batch, so batch-norm sees each alone; ``joint``: one pass
        over all of them; ``pooled``: joint, and all rows share one mean, in which weights are
        relative; ``still``: separate, and batch-norm neither uses nor keeps the statistics of mixed
        batches.
    augment_stream
        Augments the new batch before it is learned; what the memory stores stays raw.
    stream_loss
        How logits are held against the new batch's columns; none: as against the others.
    tricks
        Labels trick, separated softmax, nearest-class-mean read-out and review; they touch no
        retrieval and no update.
    """

    recipe: State

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
        forward: Literal["separate", "joint", "pooled", "still"] = "separate",
        augment_stream: Transform | None = None,
        stream_loss: Loss | None = None,
        tricks: Tricks | None = None,
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = (
            model,
            memory,
            update,
            retrieve,
            rng,
        )
        self.lr, self.weight_decay, self.iterations, self.forward = (
            lr,
            weight_decay,
            iterations,
            forward,
        )
        self.mixes = {name: mix for name, mix in (mixes or {}).items() if mix.weight}
        self.stream, self.replay, self.augment_stream = stream, replay, augment_stream
        self.stream_loss: Loss = stream_loss or self._plain
        self.tricks = tricks or Tricks()
        self.seen = Sightings()
        self.means: Tensor | None = None
        self.tally: dict[str, Tensor] = {}
        self.hits = torch.zeros((), dtype=torch.int64)

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch, then forget it except for what the memory keeps."""
        raw, columns, batch = receive(self, x, y)
        new = replace(batch, loss=self.stream_loss)
        self.means = None
        self.model.train()
        said = None
        for iteration in range(self.iterations):
            self.model.zero_grad()
            loss, logits = (
                self._passes(new)
                if self.forward in ("separate", "still")
                else self._joint_pass(new)
            )
            descend(self.model.parameters(), self.lr, self.weight_decay)
            said = logits if iteration == 0 else said
        self.hits = torch.zeros_like(self.hits) if said is None else (said.argmax(1) == new.y).sum()
        learned = replace(new, logits=said)
        self.memory.write(
            self.update(self.memory, learned, self.model, self.rng["update"]), raw, columns
        )
        return loss

    def _terms(self, new: Batch) -> Iterator[Term]:
        """Yield the terms of the loss, the new batch first: retrieval may use its gradient, as it
        is by then.
        """
        g = self.augment_stream
        yield Term(self.stream, replace(new, x=g(new.x, self.rng["stream"])) if g else new)
        if not len(self.memory):
            return
        slots = self.retrieve(self.memory, new, self.model, self.rng["retrieve"])
        if not len(slots):
            return
        old = self.memory[slots]
        yield Term(self.replay, old)
        for name, mix in self.mixes.items():
            batch = mix(new, old, self.model, self.seen, self.rng[name])
            if batch is not None:
                for note, count in batch.notes.items():
                    self.tally[note] = self.tally.get(note, 0) + count
                yield Term(mix.weight, batch, mixed=True)

    def _passes(self, new: Batch) -> tuple[Tensor, Tensor | None]:
        """Add up gradients, one forward and backward pass a batch; return the loss and the new
        batch's logits.
        """
        total, said = torch.zeros((), device=self.model.device), None
        for place, (weight, batch, mixed) in enumerate(self._terms(new)):
            if weight:
                with still_norms(self.model, mixed and self.forward == "still"):
                    logits = self.model(batch.x)
                loss = weight * self._loss(batch, logits)
                loss.backward()
                total = total + loss.detach()
                said = logits.detach() if place == 0 else said
        return total, said

    def _joint_pass(self, new: Batch) -> tuple[Tensor, Tensor | None]:
        """Take the gradient in one pass over all batches: batch-norm sees them together."""
        terms = [term for term in self._terms(new) if term.weight]
        if not terms:
            return torch.zeros((), device=self.model.device), None
        sizes = [len(term.batch) for term in terms]
        logits = self.model(torch.cat([term.batch.x for term in terms])).split(sizes)
        weights = [term.weight for term in terms]
        if self.forward == "pooled":
            heavy = [weight * size for weight, size in zip(weights, sizes, strict=True)]
            weights = [share / sum(heavy) for share in heavy]
        parts = [
            weight * self._loss(t.batch, z)
            for weight, t, z in zip(weights, terms, logits, strict=True)
        ]
        loss = torch.stack(parts).sum()
        loss.backward()
        return loss.detach(), logits[0].detach() if self.stream else None

    def _loss(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return a batch's own loss, where it has one, else the cross-entropy over the softmax of
        the tricks.
        """
        loss = self._plain if batch.loss is F.cross_entropy else batch.loss
        return loss(logits, batch.y)

    def _plain(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(
            logits, y, self.tricks.softmax, old=self.seen.border, known=len(self.model.labels)
        )

    def _reviewed(self, old: Batch) -> Tensor:
        return self._plain(self.model(old.x), old.y)

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far, or that of the nearest class mean."""
        if self.tricks.readout == "linear":
            return answer(self.model, x, self.model)
        if self.means is None:
            self.means = class_means(self.model, self.memory)
        return answer(self.model, x, nearest(self.model, self.means))

    def consolidate(self) -> None:
        """Take note of a pause: classes known by now are old from here on. Review the memory if
        asked to.
        """
        self.seen.pause()
        if self.tricks.review:
            self.means = None
            review(self, self.model, self._reviewed, self.tricks.review_batch, self.tricks.review)

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the tally of the mixes and the state
        of chance.
        """
        return {**parts_state(self), "tally": dict(self.tally)}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        load_parts(self, state)
        self.means = None
        self.tally = {note: count.to(self.model.device) for note, count in state["tally"].items()}
