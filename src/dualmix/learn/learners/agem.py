"""A-GEM: a step may not raise the loss on what is remembered, to first order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.learn.class_ages import Sightings
from dualmix.learn.learners.parts import answer, descend, load_parts, parts_state, receive
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch, ImagesLike, Labels, LabelsLike, Retrieve, State, Update
from dualmix.rng import Rng


class AGEM:
    """Averaged gradient episodic memory: the memory bends the step of a new batch and gives no
    direction of its own.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which give the reference gradient in it.
    acts
        ``after-pause``: from the second task on, that is after the first pause of the stream;
        ``always``: from the moment the memory holds anything.
    iterations
        Steps a stream batch, each with a newly retrieved old batch.
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
        acts: Literal["after-pause", "always"] = "after-pause",
        iterations: int = 1,
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = (
            model,
            memory,
            update,
            retrieve,
            rng,
        )
        self.lr, self.weight_decay, self.acts, self.iterations = lr, weight_decay, acts, iterations
        self.seen = Sightings()
        self.hits = torch.zeros((), dtype=torch.int64)

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Step along the new batch's gradient, bent where it would hurt the memory; return the new
        batch's loss.
        """
        raw, columns, new = receive(self, x, y)
        self.model.train()
        for iteration in range(self.iterations):
            loss, hits = self._slope(new)
            if iteration == 0:
                self.hits = hits
            if len(self.memory) and (self.acts == "always" or self.seen.border):
                self._bend(new)
            descend(self.model.parameters(), self.lr, self.weight_decay)
        self.memory.write(
            self.update(self.memory, new, self.model, self.rng["update"]), raw, columns
        )
        return loss

    def _slope(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Leave the gradient of a batch's mean cross-entropy in the network; return the loss and
        the hits.
        """
        self.model.zero_grad()
        logits = self.model(batch.x)
        loss = F.cross_entropy(logits, batch.y)
        loss.backward()
        return loss.detach(), (logits.argmax(1) == batch.y).sum()

    def _bend(self, new: Batch) -> None:
        """Project the gradient in place by that of a rehearsed batch."""
        parameters = list(self.model.parameters())
        gradient = [p.grad for p in parameters if p.grad is not None]
        self._slope(self.memory[self.retrieve(self.memory, new, self.model, self.rng["retrieve"])])
        reference = [p.grad for p in parameters if p.grad is not None]
        for parameter, bent in zip(parameters, project(gradient, reference), strict=True):
            parameter.grad = bent

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far."""
        return answer(self.model, x, self.model)

    def consolidate(self) -> None:
        """Take note of a pause: from the first one on the memory is heard."""
        self.seen.pause()

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages and the state of chance."""
        return parts_state(self)

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        load_parts(self, state)


def project(gradient: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
    """Return the vector nearest to g that makes no obtuse angle with r: g - min(<g, r>, 0) / <r, r>
    r.

    Both are given in pieces, one a parameter; the angle is that of the whole vectors.
    """
    pairs = list(zip(gradient, reference, strict=True))
    along = torch.stack([(g * r).sum() for g, r in pairs]).sum()
    square = torch.stack([r.square().sum() for r in reference]).sum()
    share = along.clamp_max(0) / square.clamp_min(torch.finfo(square.dtype).tiny)
    return [g - share * r for g, r in pairs]
