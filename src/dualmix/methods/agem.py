"""Averaged gradient episodic memory (A-GEM).

A. Chaudhry et al., 2019, "Efficient Lifelong Learning with A-GEM", ICLR, arXiv:1812.00420."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dualmix.learn.common import MemoryLearner, gradient_of, take_in
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Batch, ImagesLike, LabelsLike, Learner, Retrieve, Update
from dualmix.methods.common import Sampling
from dualmix.registry import register
from dualmix.rng import Rng
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier


class AGEMLearner(MemoryLearner):
    """A step may not raise the loss on what is remembered, to first order: the memory bends the
    step of a new batch and gives no direction of its own.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which give the reference gradient in it.
    acts
        ``after-pause``: from the second task on, that is after the first pause of the stream;
        ``always``: from the moment the memory holds anything.
    iterations
        Steps per stream batch, each with a newly retrieved old batch.
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
        acts: Literal["after-pause", "always"] = "after-pause",
        iterations: int = 1,
    ) -> None:
        super().__init__(model, memory, update, rng, lr=lr, weight_decay=weight_decay)
        self.retrieve, self.acts, self.iterations = retrieve, acts, iterations

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Step along the new batch's gradient, bent where it would hurt the memory; return the new
        batch's loss.
        """
        arrival = take_in(self, x, y)
        new = arrival.batch
        self.model.train()
        for iteration in range(self.iterations):
            loss, hits = self._backward(new)
            if iteration == 0:
                self.hits = hits
            if len(self.memory) and (self.acts == "always" or self.ages.known_before_task):
                self._bend(new)
            self.step(loss)
        self.write(arrival, new)
        return loss

    def _backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Leave the gradient of a batch's mean cross-entropy in the network; return the loss and
        the hits.
        """
        self.model.zero_grad()
        logits = self.model(batch.x)
        loss = self.model.arithmetic.cross_entropy(logits, batch.y)
        loss.backward()
        return loss.detach(), (logits.argmax(1) == batch.y).sum()

    def _bend(self, new: Batch) -> None:
        """Project the gradient in place by that of a rehearsed batch."""
        gradient = gradient_of(self.model)
        slots = self.retrieve(self.memory, new, self.model, self.rng["retrieve"])
        self._backward(self.memory[slots])
        bent = project(gradient, gradient_of(self.model))
        for parameter, part in zip(self.model.parameters(), bent, strict=True):
            parameter.grad = part


def project(gradient: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
    """Return the vector nearest to g that makes no obtuse angle with r (the paper's Eq. 11):
    g - min(<g, r>, 0) / <r, r> r.

    Both are given in pieces, one per parameter; the angle is that of the whole vectors.
    """
    pairs = list(zip(gradient, reference, strict=True))
    along = torch.stack([(g * r).sum() for g, r in pairs]).sum()
    square = torch.stack([r.square().sum() for r in reference]).sum()
    share = along.clamp_max(0) / square.clamp_min(torch.finfo(square.dtype).tiny)
    return [g - share * r for g, r in pairs]


@register(
    "agem",
    paper="Table 1, A-GEM",
    cite="Chaudhry et al., 2019, arXiv:1812.00420",
    values={"method.reservoir": "ref"},
    source="reference",
)
class AGEM(Sampling):
    """A-GEM: the new batch's gradient, projected where it would raise the loss on a batch from the
    memory.
    """

    acts: Literal["after-pause", "always"] = setting(
        "after-pause",
        "the projection acts after the first pause of the stream (from the second task on), or "
        "always",
        source="reference",
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        return AGEMLearner(
            model,
            self.empty_memory(model),
            self.reservoir_update(),
            Uniform(self.memory_batch),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            acts=self.acts,
            iterations=self.iterations,
        )
