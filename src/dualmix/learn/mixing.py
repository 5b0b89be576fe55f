"""Mixing of batches: ratios, partners, soft labels and the norms of the head's rows.

mixup: Zhang et al., 2018, "mixup: Beyond Empirical Risk Minimization", ICLR, arXiv:1710.09412."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dualmix.learn.lazy import F, torch

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier


def blend(a: Tensor, b: Tensor, mu: Tensor) -> Tensor:
    """Return mu * a + (1 - mu) * b, a ratio for each row."""
    mu = mu.view(-1, *[1] * (a.dim() - 1))
    return mu * a + (1 - mu) * b


def beta(
    alpha: float, count: int, rng: np.random.Generator, each: Literal["pair", "batch"]
) -> Tensor:
    """Draw mixing ratios from Beta(alpha, alpha): one for each pair, or one for the whole batch.

    An alpha of 0 is the limit: a ratio is 0 or 1, each as often, and nothing is mixed."""
    size = count if each == "pair" else 1
    drawn = rng.beta(alpha, alpha, size) if alpha else rng.integers(0, 2, size).astype(float)
    return torch.from_numpy(np.broadcast_to(drawn, count).astype(np.float32))


def derangement(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw an order in which no row stays in its place; one row alone has to."""
    order = rng.permutation(count)
    while count > 1 and (order == np.arange(count)).any():
        order = rng.permutation(count)
    return order


def head_norms(model: Classifier) -> Tensor:
    """Return the L2 norm of each head column's weights, ||w||, without the bias."""
    return model.arithmetic.row_norms(model.weight)


def one_hot(columns: Tensor, model: Classifier) -> Tensor:
    """Return soft labels over all head columns that put everything on one."""
    return F.one_hot(columns, len(model.weight)).float()
