"""Maximally interfered retrieval: rehearse what the new batch is about to make worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from dualmix.memory import Memory
from dualmix.model import Classifier, glance
from dualmix.types import Batch, Slots


@dataclass(frozen=True, slots=True)
class Interference:
    """Rehearse the candidates whose loss would grow most by a step on the new batch alone (spec 4.3).

    Parameters
    ----------
    count
        Slots to return: the top of the candidates, or all of them while there are fewer.
    candidates
        Slots drawn uniformly and compared.
    lr
        Length of the virtual step, theta' = theta - lr * gradient of the new batch's loss.
    bn
        ``ref``: batch-norm sees the candidates as a training batch, whose statistics the network also keeps, as in the
        reference code; ``eval``: batch-norm uses its running statistics and leaves them alone.
    """

    count: int
    candidates: int
    lr: float
    bn: Literal["ref", "eval"] = "ref"

    def __call__(self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator) -> Slots:
        """Return the most interfered slots, the worst first."""
        drawn = rng.choice(len(memory), size=min(self.candidates, len(memory)), replace=False)
        worse = self.interference(memory[drawn], new, model).cpu().numpy()
        return drawn[np.argsort(-worse, kind="stable")[: self.count]]

    def interference(self, old: Batch, new: Batch, model: Classifier) -> Tensor:
        """Return by how much each old row's loss would grow."""
        steps = zip(model.named_parameters(), slope(new, model), strict=True)
        ahead = {name: weight.detach().sub(step, alpha=self.lr) for (name, weight), step in steps}
        if self.bn == "eval":
            with glance(model):
                return _losses(functional_call(model, ahead, (old.x,)), old) - _losses(model(old.x), old)
        with torch.no_grad():
            then = functional_call(model, {**ahead, **_copied_buffers(model)}, (old.x,))
            return _losses(then, old) - _losses(model(old.x), old)


def slope(new: Batch, model: Classifier) -> Sequence[Tensor]:
    """Return the gradient of the new batch's loss: the one in place, or where no pass was made yet a fresh one.

    A fresh one (with one joint forward pass, or where the new batch has weight 0) leaves the network as it was.
    """
    weights = list(model.parameters())
    found = [weight.grad for weight in weights if weight.grad is not None]
    if len(found) == len(weights):
        return found
    logits = functional_call(model, _copied_buffers(model), (new.x,))
    return torch.autograd.grad(new.loss(logits, new.y), weights)


def _copied_buffers(model: Classifier) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def _losses(logits: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(logits, batch.y, reduction="none")
