"""Split: a held-out share of every class, drawn the same way each time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dualmix.data.images import Labels

Count = Callable[[int], int]


def share(held_out: float) -> Count:
    """Count a share of a class for testing, at least one image and never the last one of the
    class.
    """
    return lambda n: min(max(1, round(held_out * n)), n - 1)


def draw(y: Labels, count: Count, seed: int) -> NDArray[np.bool_]:
    """Mark the test rows: in every class the first ``count(n)`` of a shuffle keyed by seed and
    label.

    Each class has a generator of its own, so that one class more does not disturb the others.

    Examples
    --------
    >>> draw(np.array([0, 0, 0, 0, 1, 1]), share(0.5), seed=0).sum()
    np.int64(3)
    """
    test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        test[np.random.default_rng([seed, int(label)]).permutation(rows)[: count(len(rows))]] = True
    return test


def note(held_out: float, seed: int) -> str:
    """Say how the test images were chosen."""
    return f"tests on {100 * held_out:g} % of each class, held out with split seed {seed}"
