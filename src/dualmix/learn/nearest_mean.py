"""Nearest class mean: a read-out from what the memory holds instead of a trained head.

As a trick for any rehearsal: Mai et al., 2022, "Online Continual Learning in Image Classification:
An Empirical Survey", Neurocomputing, arXiv:2101.10423."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from dualmix.learn.arithmetic import Arithmetic
from dualmix.learn.lazy import F, torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import replica
from dualmix.rng import generator

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

ROWS = 256


def class_means(model: Classifier, memory: Memory) -> Tensor:
    """Return for each class the direction of the mean of its stored images' unit features.

    A class without a stored image gets a direction drawn for its column: features are not negative,
    so that it is hardly ever the nearest one while another class has a mean."""
    classes = len(model.labels)
    sums = torch.zeros(classes, model.backbone.features, device=model.device)
    model = model if model._fused else replica(model)
    with torch.no_grad():
        for start in range(0, len(memory), ROWS):
            old = memory[np.arange(start, min(start + ROWS, len(memory)))]
            sums += feature_sums(model.embed(old.x), old.y, classes, model.arithmetic)
    for column in np.flatnonzero(memory.counts(classes) == 0):
        drawn = generator(model.seed, "mean", int(column)).normal(size=sums.shape[1])
        sums[column] = torch.from_numpy(drawn.astype(np.float32))
    return model.arithmetic.unit(sums)


def feature_sums(features: Tensor, y: Tensor, classes: int, by: Arithmetic) -> Tensor:
    """Return for each class the sum of its rows' unit features."""
    return by.matmul(F.one_hot(y, classes).float().T, by.unit(features))


def nearest(model: Classifier, means: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a score of images for each class that is highest where the unit features are nearest
    to the mean.

    For unit vectors ``|f - m|^2 = 2 - 2 f m``, and the length of f does not change which f m is the
    greatest."""
    return lambda x: model.arithmetic.matmul(model.embed(x), means.T)


def nearest_later(model: Classifier, memory: Memory) -> Callable[[Tensor], Tensor]:
    """Return the same, with means that are taken when they are first asked for, and once: `model`
    and `memory` are copies that nothing changes.
    """
    taken: list[Tensor] = []
    taking = Lock()

    def score(x: Tensor) -> Tensor:
        with taking:
            if not taken:
                taken.append(class_means(model, memory))
        return model.arithmetic.matmul(model.embed(x), taken[0].T)

    return score
