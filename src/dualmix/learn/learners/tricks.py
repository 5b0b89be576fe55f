"""Tricks that any rehearsal may use, all off unless asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualmix.learn.losses import Softmax


@dataclass(frozen=True, slots=True)
class Tricks:
    """How logits share a softmax, how classes are read out, and what happens in a pause.

    Parameters
    ----------
    softmax
        ``all``, ``labels`` (labels trick) or ``separated`` (separated softmax): see
        `losses.cross_entropy`.
    readout
        ``linear``: by the head; ``ncm``: by the nearest class mean of the memory's features.
    review, review_batch
        In each pause one pass over the memory in batches of `review_batch`, gradients times
        `review`; 0: none.
    """

    softmax: Softmax = "all"
    readout: Literal["linear", "ncm"] = "linear"
    review: float = 0.0
    review_batch: int = 10
