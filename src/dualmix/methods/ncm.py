"""Nearest class mean (NCM).

As a read-out of features in class-incremental learning: Rebuffi et al., 2017, "iCaRL: Incremental
Classifier and Representation Learning", CVPR, arXiv:1611.07725, there over a memory; here over all
rows of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dualmix.learn.lazy import torch
from dualmix.learn.statistics import Scorer, StatisticsLearner, Sums
from dualmix.learn.types import Learner
from dualmix.registry import Method, register

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


class NCMLearner(StatisticsLearner):
    """Means m_c of all rows of each class; the answer is the class with the least |f - m_c|^2."""

    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return sums and counts with a batch."""
        ones = torch.ones(len(y), dtype=torch.float64, device=features.device)
        return {
            "features": self.by_class(sums["features"]).index_add(0, y, features),
            "counts": self.by_class(sums["counts"]).index_add(0, y, ones),
        }

    def solved(self, sums: Sums) -> Scorer:
        """Score by the negative squared distance from the mean."""
        means = sums["features"] / sums["counts"].clamp(min=1)[:, None]
        own = means.square().sum(1)

        def score(features: Tensor) -> Tensor:
            return 2 * features @ means.T - own - features.square().sum(1, keepdim=True)

        return score


@register("ncm", cite="Rebuffi et al., 2017, arXiv:1611.07725")
class NCM(Method):
    """Nearest class mean: the mean feature of each class over all rows seen; no gradients, no
    memory.
    """

    trains: ClassVar[bool] = False

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Sums over nothing."""
        start = torch.zeros(len(model.weight), model.features, dtype=torch.float64)
        return NCMLearner(model, rng, {"features": start, "counts": start.new_zeros(len(start))})
