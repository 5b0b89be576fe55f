"""Maximal gradient increase (DVC): rehearse the rows whose loss gradient would grow most by the
step to come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier, ahead, glance
from dualmix.learn.types import Batch, Slots, Transform


@dataclass(frozen=True, slots=True)
class GradientIncrease:
    """Draw candidates uniformly and take those whose gradient grows most in a virtual step on the
    gradient in place.

    Parameters
    ----------
    count, candidates
        How many rows to return, out of how many; fewer while the memory holds fewer.
    lr
        Learning rate of the virtual step.
    views
        None: candidates are looked at in evaluation mode and leave no trace. An augmentation: as
        the reference code does, in training mode beside an augmented view of each, and batch-norm's
        statistics take them in once. That code then learns from these views; here the step draws
        its own, as the choice hangs on them by batch-norm only.
    """

    count: int
    candidates: int
    lr: float
    views: Transform | None = None

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return distinct filled slots."""
        slots = rng.choice(len(memory), size=min(self.candidates, len(memory)), replace=False)
        old = memory[slots]
        if self.views is None:
            with glance(model):
                growth = self._growth(model, old.x, old.y)
        else:
            with torch.no_grad():
                growth = self._growth(model, torch.cat([old.x, self.views(old.x, rng)]), old.y)
        best = growth.argsort(descending=True, stable=True)[: self.count]
        chosen: Slots = slots[best.cpu().numpy()]
        return chosen

    def _growth(self, model: Classifier, x: Tensor, y: Tensor) -> Tensor:
        now = gradient_sizes(model, x, y)
        with ahead(model, self.lr):
            return gradient_sizes(model, x, y) - now


def gradient_sizes(model: Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Return the L1 norm of each row's cross-entropy gradient by the head's weights, for the first
    ``len(y)`` rows.

    That gradient is the outer product of softmax - onehot and the features, and |softmax -
    onehot|_1 = 2 (1 - p_y)."""
    features = model.embed(x)[: len(y)]
    chances = F.linear(features, model.weight, model.bias).softmax(1)
    return 2 * (1 - chances.gather(1, y[:, None]).squeeze(1)) * features.abs().sum(1)
