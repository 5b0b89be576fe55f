"""Experience replay with an asymmetric cross-entropy.

L. Caccia et al., 2022, "New Insights on Reducing Abrupt Representation Change in Online Continual
Learning", ICLR, arXiv:2104.05025."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.learn.arithmetic import TORCH, Arithmetic
from dualmix.learn.lazy import torch
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Learner
from dualmix.methods.rehearsal import Rehearsal
from dualmix.registry import register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


SCALE = 10.0
"""What the cosines of the authors' head are multiplied by."""


def asymmetric_ce(logits: Tensor, columns: Tensor, seen: int, by: Arithmetic = TORCH) -> Tensor:
    """Return the cross-entropy over the columns C of the batch's own classes and of classes never
    seen: the mean of -log(exp(z_y) / sum over c in C of exp(z_c)).

    Old classes that are not in the batch take no part in the softmax, so a new batch does not push
    them down. Rehearsed batches have the plain cross-entropy: hence asymmetric.

    Parameters
    ----------
    logits, columns
        (n, K) logits and (n,) head columns.
    seen
        Head columns below this number belong to classes seen so far.
    by
        Whose arithmetic it is.

    Examples
    --------
    >>> logits = torch.tensor([[9.0, 1.0, 1.0, 9.0]])
    >>> float(asymmetric_ce(logits, torch.tensor([1]), seen=4))
    0.0
    >>> round(float(asymmetric_ce(logits[:, :3], torch.tensor([1]), seen=2)), 4)
    0.6931
    """
    rivals = torch.arange(logits.shape[1], device=logits.device) >= seen
    rivals[columns] = True
    return by.cross_entropy(logits.masked_fill(~rivals, -torch.inf), columns)


@register("er-ace", cite="Caccia et al., 2022, arXiv:2104.05025")
class ERACE(Rehearsal):
    """ER-ACE: experience replay in which a new batch competes only among its own classes and those
    never seen.

    The authors' code has a cosine head of scale 10 (``head cosine``); here the head is linear as
    all other methods have it, so that their rows can be compared.
    """

    head: Literal["linear", "cosine"] = setting(
        "linear",
        f"linear: the head of all methods; cosine: {SCALE:g} times the cosine of features and "
        "class weights, without a bias, as in the code of ER-ACE's authors",
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Experience replay with a loss of its own for the new batch."""
        model.cosine = SCALE if self.head == "cosine" else 0.0

        def loss(logits: Tensor, columns: Tensor) -> Tensor:
            return asymmetric_ce(logits, columns, len(model.labels), model.arithmetic)

        return self.replay(
            model, rng, self.reservoir_update(), Uniform(self.memory_batch), stream_loss=loss
        )
