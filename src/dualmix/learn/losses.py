"""Cross-entropy over all columns of the head, or over some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.learn.arithmetic import TORCH, Arithmetic
from dualmix.learn.lazy import F, torch

if TYPE_CHECKING:
    from torch import Tensor

Softmax = Literal["all", "labels", "separated"]
ABSENT = -1e9
"""The logit of a column that takes no part: its probability is 0 and so is its gradient."""


def cross_entropy(
    logits: Tensor,
    y: Tensor,
    softmax: Softmax = "all",
    *,
    old: int = 0,
    known: int = 0,
    by: Arithmetic = TORCH,
) -> Tensor:
    """Return the mean cross-entropy of head columns (n,) or soft rows (n, K).

    The loss of a soft row is the sum of its labels' losses times their shares.

    Parameters
    ----------
    softmax
        ``all``: over all columns. ``labels``: over the columns that have a share above 0 in the
        batch's labels (labels trick: Mai et al., 2022, arXiv:2101.10423). ``separated``: one
        softmax over the `old` first columns and one over those from there to `known`; a label
        counts in the softmax of its own group, columns not yet `known` in none (separated softmax:
        Ahn et al., 2021, "SS-IL: Separated Softmax for Incremental Learning", ICCV,
        arXiv:2003.13947).
    by
        Whose arithmetic it is.
    """
    if softmax == "labels":
        logits = logits.masked_fill(~_present(y, logits.shape[1]), ABSENT)
    elif softmax == "separated" and by is not TORCH:
        rows = F.one_hot(y, logits.shape[1]).float() if y.ndim == 1 else y
        ends = [(first, last) for first, last in ((0, old), (old, known)) if first < last]
        parts = [by.cross_entropy(logits[:, a:b], rows[:, a:b]) for a, b in ends]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]
    elif softmax == "separated":
        chances = torch.cat(
            [logits[:, :old].log_softmax(1), logits[:, old:known].log_softmax(1)], 1
        )
        return F.nll_loss(chances, y) if y.ndim == 1 else -(y[:, :known] * chances).sum(1).mean()
    return by.cross_entropy(logits, y)


def _present(y: Tensor, columns: int) -> Tensor:
    if y.ndim == 2:
        return (y > 0).any(0)
    return torch.zeros(columns, dtype=torch.bool, device=y.device).index_fill(0, y, True)
