"""Losses beyond plain cross-entropy: which columns share a softmax, supervised contrast, and
agreement of two views.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Softmax = Literal["all", "labels", "separated"]
ABSENT = -1e9
"""The logit of a column that takes no part: its probability is 0 and so is its gradient."""

LEAST = 2.0**-52
"""The least share of a class in a logarithm."""


def cross_entropy(
    logits: Tensor, y: Tensor, softmax: Softmax = "all", *, old: int = 0, known: int = 0
) -> Tensor:
    """Return the mean cross-entropy of head columns (n,) or soft rows (n, K), over one of three
    kinds of softmax.

    ``all``: over all columns. ``labels`` (labels trick): over the columns that have a share in the
    batch's labels. ``separated`` (separated softmax): one over the `old` first columns and one over
    those from there to `known`; a label counts in the softmax of its own group, and columns not yet
    `known` in none. The loss of a soft row is the sum of its labels' losses times their shares,
    whichever the softmax. Under ``labels`` every label with a share above 0 in any row of the batch
    takes part."""
    if softmax == "labels":
        logits = logits.masked_fill(~_present(y, logits.shape[1]), ABSENT)
    elif softmax == "separated":
        chances = torch.cat(
            [logits[:, :old].log_softmax(1), logits[:, old:known].log_softmax(1)], 1
        )
        return F.nll_loss(chances, y) if y.ndim == 1 else -(y[:, :known] * chances).sum(1).mean()
    return F.cross_entropy(logits, y)


def _present(y: Tensor, columns: int) -> Tensor:
    if y.ndim == 2:
        return (y > 0).any(0)
    return torch.zeros(columns, dtype=torch.bool, device=y.device).index_fill(0, y, True)


def contrast(views: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss with every view as an anchor.

    For an anchor i with positives P(i), the other views of its class, the mean over i of
    ``-1/|P(i)| sum_p log(exp(z_i z_p / t) / sum_{a != i} exp(z_i z_a / t))``.

    Parameters
    ----------
    views
        (n, v, d) unit vectors, v >= 2 views of each of n images.
    y
        (n,) head columns.
    temperature
        What similarities are divided by.
    """
    z = views.flatten(0, 1)
    labels = y.repeat_interleave(views.shape[1])
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    positive = (labels[:, None] == labels) & ~itself
    chance = F.log_softmax((z @ z.T / temperature).masked_fill(itself, -torch.inf), 1)
    return -(torch.where(positive, chance, 0).sum(1) / positive.sum(1)).mean()


def concentration(*chances: Tensor) -> Tensor:
    """Return the mean, over several (n, K) tables of probabilities, of sum p log p for the batch's
    mean p.

    It is least where the batch as a whole names all classes alike. Shares below the machine's least
    are raised to it."""
    means = [chance.mean(0).clamp_min(LEAST) for chance in chances]
    return torch.stack([(p * p.log()).sum() for p in means]).mean()


def disagreement(joint: Tensor, *views: Tensor) -> Tensor:
    """Return the mean absolute difference between the joint probabilities (n, K) and those of each
    view.
    """
    return torch.stack([(joint - view).abs().mean() for view in views]).mean()


def among_themselves(logits: Tensor, columns: Tensor, seen: int) -> Tensor:
    """Cross-entropy over the columns of the batch's own classes and of classes never seen (spec
    4.8).

    Old classes that are not in the batch take no part in the softmax, so a new batch does not push
    them down.

    Parameters
    ----------
    logits, columns
        (n, K) logits and (n,) head columns.
    seen
        Head columns below this number belong to classes seen so far.

    Examples
    --------
    >>> logits = torch.tensor([[9.0, 1.0, 1.0, 9.0]])
    >>> float(among_themselves(logits, torch.tensor([1]), seen=4))
    0.0
    >>> round(float(among_themselves(logits[:, :3], torch.tensor([1]), seen=2)), 4)
    0.6931
    """
    rivals = torch.arange(logits.shape[1], device=logits.device) >= seen
    rivals[columns] = True
    return F.cross_entropy(logits.masked_fill(~rivals, -torch.inf), columns)


def deviation(logits: Tensor, told: Tensor, known: Tensor) -> Tensor:
    """Return the mean squared difference to earlier logits, over the columns that there were at the
    time.

    Parameters
    ----------
    logits, told
        (n, K) logits now and (n, L) logits then, with L at most K.
    known
        (n,) how many columns each row of `told` has; what lies behind them is padding.

    Examples
    --------
    >>> then = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    >>> float(deviation(torch.zeros(2, 3), then, torch.tensor([1, 2])))
    2.0
    """
    there = torch.arange(told.shape[1], device=told.device) < known[:, None]
    return ((logits[:, : told.shape[1]] - told).square() * there).sum() / there.sum()
