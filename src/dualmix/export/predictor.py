"""The predictor of a learner as one torch module: batch-norm folded into the convolutions, what
scores the classes as constants.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dualmix.errors import ConfigError
from dualmix.learn.backbones import ReducedResNet18
from dualmix.learn.common import MemoryLearner
from dualmix.learn.modes import replica
from dualmix.rng import generator

ROWS = 200
"""Rows on which what was exported is held against the learner."""


class Predictor(nn.Module):
    """Scores and probabilities for each class, for images in [0, 1] or for vectors."""

    def __init__(self, learner: MemoryLearner) -> None:
        super().__init__()
        if not learner.model.labels:
            raise ConfigError("The learner has learned nothing yet: there is nothing to export.")
        twin = copy.copy(learner.model)
        backbone = copy.deepcopy(learner.model.backbone)
        if isinstance(backbone, ReducedResNet18):
            backbone.engine = "torch"  # what is traced must be torch's operations
        twin._modules = {**learner.model._modules, "backbone": backbone}
        twin.engine, twin.precision = "torch", "float32"
        network = replica(twin)
        self._score = [learner.scorer(network)]  # in a list, so that it is no part of the module
        self._known = len(learner.model.labels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and their softmax."""
        scores = self._score[0](x)[:, : self._known].float()
        return scores, scores.softmax(1)


def about(learner: Any) -> dict[str, Any]:
    """Return what a user of the predictor must know, as plain values."""
    shape = list(learner.model.shape)
    images = len(shape) == 3
    return {
        "classes": list(learner.model.labels),
        "input": {
            "name": "x",
            "shape": ["n", *shape],
            "type": "float32",
            "range": [0.0, 1.0] if images else None,
            "layout": "NCHW, pixels divided by 255" if images else "rows of numbers",
        },
        "outputs": ["scores", "probabilities"],
        "method": learner.recipe["kind"],
        "batches": learner.ages.steps,
    }


def sample(learner: Any, rows: int = ROWS) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Return rows to compare on, as the learner takes them, and their head columns: what the memory
    holds, else rows drawn at random, which have no label.
    """
    memory, shape = learner.memory, learner.model.shape
    if held := len(memory):
        picked = np.linspace(0, held - 1, min(rows, held)).round().astype(np.int64)
        x, y = memory.x[picked].cpu(), memory.y[picked].numpy()
        return (x.permute(0, 3, 1, 2) if x.ndim == 4 else x.float()).contiguous().numpy(), y
    rng = generator(0, "export")
    if len(shape) == 3:
        return rng.integers(0, 256, (rows, *shape), dtype=np.uint8), None
    return rng.normal(size=(rows, *shape)).astype(np.float32), None


def as_input(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows as the predictor takes them."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    scaled = tensor.float().div(255) if tensor.dtype == torch.uint8 else tensor.float()
    return scaled.numpy()
