"""Rehearsal: learn a new batch beside batches from the memory. Without a memory it is plain finetuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.errors import InputError
from dualmix.inputs import as_labels, as_pixels
from dualmix.memory import Memory
from dualmix.model import Classifier, glance, still_norms
from dualmix.rng import Rng
from dualmix.sightings import Sightings
from dualmix.types import Batch, ImagesLike, Labels, LabelsLike, Mix, Retrieve, State, Transform, Update

CHUNK = 256


class Term(NamedTuple):
    """A batch whose mean cross-entropy, times a weight, is a part of a step's loss."""

    weight: float
    batch: Batch
    mixed: bool = False


class Replay:
    """Experience replay: the loss of a step is a sum of mean cross-entropies, of the new batch and of rehearsed ones.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it.
    mixes
        Named makers of further batches out of the new and the rehearsed one; each draws from a generator of its own.
    stream, replay
        Weights of the new batch and of the rehearsed one; a batch of weight 0 takes no part at all.
    iterations
        Steps a stream batch, each with a newly retrieved old batch.
    forward
        ``separate``: one forward pass a batch, so batch-norm sees each alone; ``joint``: one pass over all of them;
        ``still``: separate, and batch-norm neither uses nor keeps the statistics of mixed batches.
    augment_stream
        Augments the new batch before it is learned; what the memory stores stays raw.
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
        forward: Literal["separate", "joint", "still"] = "separate",
        augment_stream: Transform | None = None,
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = model, memory, update, retrieve, rng
        self.lr, self.weight_decay, self.iterations, self.forward = lr, weight_decay, iterations, forward
        self.mixes = {name: mix for name, mix in (mixes or {}).items() if mix.weight}
        self.stream, self.replay, self.augment_stream = stream, replay, augment_stream
        self.seen = Sightings()
        self.tally: dict[str, Tensor] = {}
        self.hits = torch.zeros((), dtype=torch.int64)

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch, then forget it except for what the memory keeps."""
        raw = as_pixels(x, self.model.shape)
        columns = self.model.admit(as_labels(y, len(raw)))
        self.seen.note(columns.numpy())
        new = Batch(self.model.pixels(raw), columns.to(self.model.device))
        self.model.train()
        for iteration in range(self.iterations):
            self.model.zero_grad()
            loss, hits = self._joint_pass(new) if self.forward == "joint" else self._passes(new)
            self._descend()
            if iteration == 0:
                self.hits = hits
        self.memory.write(self.update(self.memory, new, self.model, self.rng["update"]), raw, columns)
        return loss

    def _terms(self, new: Batch) -> Iterator[Term]:
        """Yield the terms of the loss, the new batch first: retrieval may use its gradient, as it is by then."""
        g = self.augment_stream
        yield Term(self.stream, Batch(g(new.x, self.rng["stream"]), new.y) if g else new)
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

    def _passes(self, new: Batch) -> tuple[Tensor, Tensor]:
        """Add up gradients, one forward and backward pass a batch."""
        total, hits = _nothing(self.model.device)
        for place, (weight, batch, mixed) in enumerate(self._terms(new)):
            if weight:
                with still_norms(self.model, mixed and self.forward == "still"):
                    logits = self.model(batch.x)
                loss = weight * F.cross_entropy(logits, batch.y)
                loss.backward()
                total = total + loss.detach()
                hits = (logits.argmax(1) == batch.y).sum() if place == 0 else hits
        return total, hits

    def _joint_pass(self, new: Batch) -> tuple[Tensor, Tensor]:
        """Take the gradient of the same loss in one pass over all batches: batch-norm sees them together."""
        terms = [term for term in self._terms(new) if term.weight]
        if not terms:
            return _nothing(self.model.device)
        sizes = [len(term.batch) for term in terms]
        logits = self.model(torch.cat([term.batch.x for term in terms])).split(sizes)
        parts = [term.weight * F.cross_entropy(z, term.batch.y) for z, term in zip(logits, terms, strict=True)]
        loss = torch.stack(parts).sum()
        loss.backward()
        return loss.detach(), (logits[0].argmax(1) == new.y).sum() if self.stream else _nothing(loss.device)[1]

    @torch.no_grad()
    def _descend(self) -> None:
        """Take a step of plain SGD: by hand, because it is two lines and torch.optim takes seconds to load."""
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                slope = parameter.grad.add(parameter, alpha=self.weight_decay) if self.weight_decay else parameter.grad
                parameter.add_(slope, alpha=-self.lr)

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far."""
        if not self.model.labels:
            raise InputError("Nothing has been learned yet: observe a batch before predict.")
        raw = as_pixels(x, self.model.shape)
        seen = len(self.model.labels)
        with glance(self.model):
            columns = [self.model(self.model.pixels(part))[:, :seen].argmax(1) for part in raw.split(CHUNK)]
        return self.model.names(torch.cat(columns))

    def consolidate(self) -> None:
        """Take note of a pause: classes known by now are old from here on."""
        self.seen.pause()

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the tally of the mixes and the state of chance."""
        return {
            "labels": list(self.model.labels),
            "model": dict(self.model.state_dict()),
            "memory": self.memory.state_dict(),
            "seen": self.seen.state_dict(),
            "tally": dict(self.tally),
            "rng": self.rng.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.model.restore(state["labels"], state["model"])
        self.memory.load_state_dict(state["memory"])
        self.seen.load_state_dict(state["seen"])
        self.tally = {note: count.to(self.model.device) for note, count in state["tally"].items()}
        self.rng.load_state_dict(state["rng"])


def _nothing(device: torch.device) -> tuple[Tensor, Tensor]:
    """No loss and no hits: a step that has nothing to learn from."""
    return torch.zeros((), device=device), torch.zeros((), dtype=torch.int64, device=device)
