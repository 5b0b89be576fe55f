"""Maximally interfered retrieval.

R. Aljundi et al., 2019, "Online Continual Learning with Maximally Interfered Retrieval", NeurIPS,
arXiv:1908.04742."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import model_validator

from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import eval_mode, virtual_step
from dualmix.learn.types import Batch, Learner, Slots
from dualmix.methods.rehearsal import Rehearsal
from dualmix.registry import register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@dataclass(frozen=True)
class MIRRetrieve:
    """Rehearse the candidates whose loss would grow most by a step on the new batch alone: the
    score of the paper's ER-MIR, s(x) = l(f_theta'(x), y) - l(f_theta(x), y).

    Parameters
    ----------
    count
        Slots to return: the top of the candidates, or all of them while there are fewer.
    candidates
        Slots drawn uniformly and compared.
    lr
        Length of the virtual step, theta' = theta - lr * gradient of the new batch's loss, whatever
        weight that loss has in the real step.
    bn
        ``ref``: batch-norm sees the candidates as a training batch, whose statistics the network
        also keeps, as in the reference code; ``eval``: batch-norm uses its running statistics and
        leaves them alone.
    """

    count: int
    candidates: int
    lr: float
    bn: Literal["ref", "eval"] = "ref"

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return the most interfered slots, the worst first."""
        drawn = rng.choice(len(memory), size=min(self.candidates, len(memory)), replace=False)
        worse = self.interference(memory[drawn], new, model).cpu().numpy()
        return drawn[np.argsort(-worse, kind="stable")[: self.count]]

    def interference(self, old: Batch, new: Batch, model: Classifier) -> Tensor:
        """Return by how much each old row's loss would grow."""
        gradient: Sequence[Tensor]
        if new.gradient is None:
            gradient, lr = fresh_gradient(new, model), self.lr
        else:
            # It is the gradient of weight * loss, along which lr / weight is a step of length lr.
            gradient, lr = new.gradient, self.lr / new.weight
        with eval_mode(model) if self.bn == "eval" else torch.no_grad():
            with virtual_step(model, lr, gradient):
                then = _losses(model, old)
            return then - _losses(model, old)


def fresh_gradient(new: Batch, model: Classifier) -> tuple[Tensor, ...]:
    """Return the gradient of the new batch's loss by a pass of its own, which leaves the network as
    it was.

    It is needed where the batch's pass has not come yet (one joint pass per step) or never comes
    (weight 0)."""
    with virtual_step(model):
        loss = (new.loss or model.arithmetic.cross_entropy)(model(new.x), new.y)
        return torch.autograd.grad(loss, list(model.parameters()))


def _losses(model: Classifier, batch: Batch) -> Tensor:
    return model.arithmetic.cross_entropy(model(batch.x), batch.y, "none")


@register(
    "mir",
    paper="Tables 1 and 2, MIR",
    cite="Aljundi et al., 2019, arXiv:1908.04742",
    values={"method.reservoir": "ref"},
    source="reference",
)
class MIR(Rehearsal):
    """Maximally interfered retrieval: rehearse what the new batch is about to make worse."""

    subsample: int = setting(
        50,
        "rows of the memory that are compared, of which the worst are rehearsed",
        source="reference",
        ge=1,
    )
    bn: Literal["ref", "eval"] = setting(
        MIRRetrieve.bn,
        "ref: batch-norm also keeps the compared rows' statistics, as the reference code; eval: it "
        "leaves no trace",
        source="reference",
    )

    @model_validator(mode="after")
    def _enough_to_choose_from(self) -> MIR:
        if self.subsample < self.memory_batch:
            raise ValueError(
                f"subsample is {self.subsample}, fewer than the {self.memory_batch} images of "
                "memory_batch that are chosen from it"
            )
        return self

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, retrieval by a virtual step."""
        retrieve = MIRRetrieve(self.memory_batch, self.subsample, self.lr, self.bn)
        return self.replay(model, rng, self.reservoir_update(), retrieve)
