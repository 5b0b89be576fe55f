"""Feature covariances of the classes (FeCAM).

D. Goswami et al., 2023, "FeCAM: Exploiting the Heterogeneity of Class Distributions in
Exemplar-Free Continual Learning", NeurIPS, arXiv:2309.14062."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import field_validator

from dualmix.learn.lazy import torch
from dualmix.learn.statistics import Scorer, StatisticsLearner, Sums, scattered
from dualmix.learn.types import Learner, State
from dualmix.registry import Method, register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@dataclass(frozen=True, slots=True)
class Measure:
    """A squared Mahalanobis distance from zero.

    Parameters
    ----------
    matrix
        The covariance's Cholesky factor L, since ``|L^-1 x|^2`` needs no inverse, which would take
        thrice as long; or the pseudo-inverse of one that has no factor.
    inverse
        Which of them it is.
    """

    matrix: Tensor
    inverse: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return the distance of each row."""
        if self.inverse:
            return (x @ self.matrix * x).sum(1)
        solved: Tensor = torch.linalg.solve_triangular(self.matrix, x.T, upper=False)
        return solved.square().sum(0)


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
        start = torch.zeros(len(model.weight), model.features, dtype=torch.float64)
        super().__init__(model, rng, {"means": start, "counts": start.new_zeros(len(start))})
        self.tukey, self.shrink = tukey, shrink
        self._measures: dict[str, tuple[Tensor, Measure]] = {}

    def mapped(self, features: Tensor) -> Tensor:
        """Return features to the power `tukey` (the paper's section 3.3; its features are not
        negative).
        """
        return features.sign() * features.abs().pow(self.tukey)

    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return means, counts and the scatters of the batch's classes with a batch."""
        counts, means, rows = scattered(
            self.by_class(sums["counts"]), self.by_class(sums["means"]), features, y
        )
        fresh = {
            _scatter(column): torch.addmm(
                sums.get(_scatter(column), means.new_zeros(())), part.T, part
            )
            for column, part in rows
        }
        return {**sums, "means": means, "counts": counts, **fresh}

    def solved(self, sums: Sums) -> Scorer:
        """Score by the negative squared Mahalanobis distance, with shrunk and normalised
        covariances (the paper's Eqs. 7 to 9); a class without rows is infinitely far.

        A covariance is factored again only when the rows of its class have changed."""
        means = sums["means"]
        measures = {}
        for column, count in enumerate(sums["counts"].tolist()):
            name = _scatter(column)
            if count:
                known = self._measures.get(name)
                if known is None or known[0] is not sums[name]:
                    known = sums[name], self._measure(sums[name] / max(count - 1, 1))
                measures[name] = known
        self._measures = measures

        def score(features: Tensor) -> Tensor:
            far = features.new_full((len(features), len(means)), -torch.inf)
            for column, mean in enumerate(means):
                if (known := measures.get(_scatter(column))) is not None:
                    far[:, column] = -known[1](features - mean)
            return far

        return score

    def state_dict(self) -> State:
        """Return what every learner returns, and the sums, with the scatters of all classes as
        one.
        """
        state = super().state_dict()
        means = self.sums["means"]
        empty = means.new_zeros(means.shape[1], means.shape[1])
        scatters = [self.sums.get(_scatter(column), empty) for column in range(len(means))]
        whole = torch.stack(scatters) if scatters else empty[None][:0]
        return {
            **state,
            "sums": {"means": means, "counts": self.sums["counts"], "scatter": whole},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        for column, scatter in enumerate(self.sums.pop("scatter")):
            if self.sums["counts"][column]:
                self.sums[_scatter(column)] = scatter

    def _measure(self, covariance: Tensor) -> Measure:
        """Return the distance by a covariance."""
        length = len(covariance)
        variances = covariance.diagonal()
        within = float(variances.mean()) or 1.0
        between = (covariance.sum() - variances.sum()) / max(length * (length - 1), 1)
        shrunk = covariance + self.shrink[1] * between
        shrunk.diagonal().copy_(variances + self.shrink[0] * within)
        deviations = shrunk.diagonal().sqrt()
        normal = shrunk / deviations[:, None] / deviations
        factor, singular = torch.linalg.cholesky_ex(normal)
        if singular:
            return Measure(torch.linalg.pinv(normal, hermitian=True), inverse=True)
        return Measure(factor)


def _scatter(column: int) -> str:
    return f"scatter.{column}"


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
