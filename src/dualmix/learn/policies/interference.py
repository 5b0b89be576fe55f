"""Maximally interfered retrieval: rehearse what the new batch is about to make worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier, ahead, glance
from dualmix.learn.types import Batch, Slots


@dataclass(frozen=True, slots=True)
class Interference:
    """Rehearse the candidates whose loss would grow most by a step on the new batch alone (spec
    4.3).

    Parameters
    ----------
    count
        Slots to return: the top of the candidates, or all of them while there are fewer.
    candidates
        Slots drawn uniformly and compared.
    lr
        Length of the virtual step, theta' = theta - lr * gradient of the new batch's loss as it is
        weighed in the step.
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
        slopes = slope(new, model)
        with glance(model) if self.bn == "eval" else torch.no_grad():
            with ahead(model, self.lr, slopes):
                then = _losses(model, old)
            return then - _losses(model, old)


def slope(new: Batch, model: Classifier) -> Sequence[Tensor]:
    """Return the gradient of the new batch's loss: the one in place, or where no pass was made yet
    a fresh one.

    A fresh one (with one joint forward pass, or where the new batch has weight 0) leaves the
    network as it was."""
    weights = list(model.parameters())
    found = [weight.grad for weight in weights if weight.grad is not None]
    if len(found) == len(weights):
        return found
    with ahead(model, 0.0):
        return torch.autograd.grad(new.loss(model(new.x), new.y), weights)


def _losses(model: Classifier, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch.x), batch.y, reduction="none")
