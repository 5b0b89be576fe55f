"""Feature covariances of the classes (FeCAM).

D. Goswami et al., 2023, "FeCAM: Exploiting the Heterogeneity of Class Distributions in
Exemplar-Free Continual Learning", NeurIPS, arXiv:2309.14062."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import field_validator

from dualmix.learn.lazy import torch
from dualmix.learn.statistics import Scorer, StatisticsLearner, Sums, scattered
from dualmix.learn.types import Learner
from dualmix.registry import Method, register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


class FeCAMLearner(StatisticsLearner):
    """A mean and a covariance for each class, d^2 numbers per class.

    Parameters
    ----------
    tukey
        Power to which features are raised, with their sign kept; 1: none.
    shrink
        Weights of the mean variance on the diagonal and of the mean covariance off it.
    """

    def __init__(
        self, model: Classifier, rng: Rng, tukey: float, shrink: tuple[float, float]
    ) -> None:
        length = model.features
        start = torch.zeros(len(model.weight), length, dtype=torch.float64)
        sums = {
            "means": start,
            "counts": start.new_zeros(len(start)),
            "scatter": start.new_zeros(len(start), length, length),
        }
        super().__init__(model, rng, sums)
        self.tukey, self.shrink = tukey, shrink

    def mapped(self, features: Tensor) -> Tensor:
        """Return features to the power `tukey` (the paper's section 3.3; its features are not
        negative).
        """
        return features.sign() * features.abs().pow(self.tukey)

    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return means, counts and scatters with a batch."""
        counts, means, rows = scattered(
            self.by_class(sums["counts"]), self.by_class(sums["means"]), features, y
        )
        scatter = self.by_class(sums["scatter"]).clone()
        for column, part in rows:
            scatter[column] += part.T @ part
        return {"means": means, "counts": counts, "scatter": scatter}

    def solved(self, sums: Sums) -> Scorer:
        """Score by the negative squared Mahalanobis distance, with shrunk and normalised
        covariances (the paper's Eqs. 7 to 9).
        """
        means, length = sums["means"], sums["means"].shape[1]
        covariance = sums["scatter"] / (sums["counts"] - 1).clamp(min=1)[:, None, None]
        variances = covariance.diagonal(dim1=1, dim2=2)
        within = variances.mean(1)
        off = length * (length - 1)
        between = (covariance.sum((1, 2)) - variances.sum(1)) / max(off, 1)
        identity = torch.eye(length, dtype=torch.float64, device=means.device)
        shrunk = (
            covariance
            + self.shrink[0] * torch.where(within > 0, within, 1.0)[:, None, None] * identity
            + self.shrink[1] * between[:, None, None] * (1 - identity)
        )
        deviations = shrunk.diagonal(dim1=1, dim2=2).sqrt()
        normal = shrunk / deviations[:, :, None] / deviations[:, None, :]
        inverse = torch.linalg.pinv(normal, hermitian=True)

        def score(features: Tensor) -> Tensor:
            apart = features[:, None] - means
            return -torch.einsum("nkd,kde,nke->nk", apart, inverse, apart)

        return score


@register("fecam", cite="Goswami et al., 2023, arXiv:2309.14062")
class FeCAM(Method):
    """FeCAM: the nearest class by a Mahalanobis distance of its own; no gradients, no memory."""

    tukey: float = setting(
        0.5, "power to which features are raised, signs kept; 1: none", source="reference", gt=0
    )
    shrink: tuple[float, float] = setting(
        (1.0, 1.0),
        "weights of the mean variance and of the mean covariance in each covariance",
        source="reference",
    )
    trains: ClassVar[bool] = False

    @field_validator("shrink")
    @classmethod
    def _not_negative(cls, weights: tuple[float, float]) -> tuple[float, float]:
        if min(weights) < 0:
            raise ValueError("weights of a covariance are 0 or above")
        return weights

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Sums over nothing."""
        return FeCAMLearner(model, rng, self.tukey, self.shrink)
