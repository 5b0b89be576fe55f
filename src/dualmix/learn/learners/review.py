"""Whole passes over the memory, and the review of it in a pause of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from dualmix.learn.learners.parts import Parts, descend
from dualmix.learn.memory import Memory
from dualmix.learn.types import Batch


def shuffled(memory: Memory, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield batches of `size` rows, no row twice; what is left over is dropped unless it is all
    there is.
    """
    order = rng.permutation(len(memory))
    whole = len(order) // size * size
    for start in range(0, whole or len(order), size):
        yield memory[order[start : start + size]]


class Descending(Parts, Protocol):
    """A learner that takes plain steps."""

    lr: float
    weight_decay: float


def review(
    learner: Descending,
    network: nn.Module,
    loss: Callable[[Batch], Tensor],
    size: int,
    share: float,
) -> None:
    """Take a step for each batch of `size` rows of one pass over the memory, with its gradient
    times `share`.
    """
    network.train()
    for old in shuffled(learner.memory, size, learner.rng["review"]):
        network.zero_grad()
        (share * loss(old)).backward()
        descend(network.parameters(), learner.lr, learner.weight_decay)
