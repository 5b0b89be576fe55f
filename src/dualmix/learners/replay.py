"""Rehearsal: learn a new batch beside a batch from the memory. Without a memory it is plain finetuning."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.errors import InputError
from dualmix.inputs import as_labels, as_pixels
from dualmix.memory import Memory
from dualmix.model import Classifier, glance
from dualmix.rng import Rng
from dualmix.types import Batch, ImagesLike, Labels, LabelsLike, Retrieve, State, Update

CHUNK = 256


class Replay:
    """Experience replay: the loss of a step is the mean cross-entropy of the new batch plus that of an old one.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it.
    iterations
        Steps a stream batch, each with a newly retrieved old batch.
    forward
        ``separate``: one forward pass a source, so batch-norm sees each alone; ``joint``: one pass over both.
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
        iterations: int = 1,
        forward: Literal["separate", "joint"] = "separate",
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = model, memory, update, retrieve, rng
        self.lr, self.weight_decay, self.iterations, self.forward = lr, weight_decay, iterations, forward
        self.hits = torch.zeros((), dtype=torch.int64)
        self._optimizer: torch.optim.SGD | None = None
        self._optimized: Tensor | None = None

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch, then forget it except for what the memory keeps."""
        raw = as_pixels(x, self.model.shape)
        columns = self.model.admit(as_labels(y, len(raw)))
        new = Batch(self.model.pixels(raw), columns.to(self.model.device))
        self.model.train()
        for iteration in range(self.iterations):
            loss, logits = self._joint_step(new) if self.forward == "joint" else self._step(new)
            if iteration == 0:
                self.hits = (logits.argmax(1) == new.y).sum()
        self.memory.write(self.update(self.memory, new, self.model, self.rng["update"]), raw, columns)
        return loss

    def _step(self, new: Batch) -> tuple[Tensor, Tensor]:
        """Descend the sum of the batches' mean losses, one forward and backward pass each."""
        self.optimizer.zero_grad()
        logits = self.model(new.x)
        loss = F.cross_entropy(logits, new.y)
        loss.backward()
        total = loss.detach()
        for old in self._rehearsed(new):
            loss = F.cross_entropy(self.model(old.x), old.y)
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return total, logits.detach()

    def _joint_step(self, new: Batch) -> tuple[Tensor, Tensor]:
        """Descend the same loss by one pass over all batches: batch-norm sees them together."""
        self.optimizer.zero_grad()
        batches = [new, *self._rehearsed(new)]
        logits = self.model(torch.cat([b.x for b in batches])).split([len(b) for b in batches])
        loss = torch.stack([F.cross_entropy(z, b.y) for z, b in zip(logits, batches, strict=True)]).sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), logits[0].detach()

    def _rehearsed(self, new: Batch) -> list[Batch]:
        if not len(self.memory):
            return []
        slots = self.retrieve(self.memory, new, self.model, self.rng["retrieve"])
        return [self.memory[slots]] if len(slots) else []

    @property
    def optimizer(self) -> torch.optim.SGD:
        """Plain SGD, which has no state: made anew whenever the head has grown."""
        if self._optimizer is None or self._optimized is not self.model.weight:
            self._optimized = self.model.weight
            self._optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        return self._optimizer

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
        """Rehearsal needs no pause."""

    def state_dict(self) -> State:
        """Return weights, labels, memory and the state of chance."""
        return {
            "labels": list(self.model.labels),
            "model": dict(self.model.state_dict()),
            "memory": self.memory.state_dict(),
            "rng": self.rng.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.model.restore(state["labels"], state["model"])
        self.memory.load_state_dict(state["memory"])
        self.rng.load_state_dict(state["rng"])
