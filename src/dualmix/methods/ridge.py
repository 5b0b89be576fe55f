"""Ridge regression by recursive least squares, with a random projection as an option.

With the projection: M. McDonnell et al., 2023, "RanPAC: Random Projections and Pre-trained Models
for Continual Learning", NeurIPS, arXiv:2307.02251. The recursion for class-incremental learning:
H. Zhuang et al., 2022, "ACIL: Analytic Class-Incremental Learning with Absolute Memorization and
Privacy Protection", NeurIPS, arXiv:2205.14922."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dualmix.learn.lazy import torch
from dualmix.learn.statistics import LEAST_SHARE, Scorer, StatisticsLearner, Sums
from dualmix.learn.types import Learner
from dualmix.registry import Method, register
from dualmix.rng import generator
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


class RidgeLearner(StatisticsLearner):
    """The weights W that minimise ``|X W - Y|^2 + penalty |W|^2`` over all rows, labels as columns
    of zeros and ones.

    A batch (X, Y) takes the inverse P of ``X'X + penalty`` and W to those of all rows so far, by
    the Woodbury identity: ``P -= P X' (1 + X P X')^-1 X P`` and ``W += P X' (Y - X W)``.

    Parameters
    ----------
    projection
        (d, m) random weights in front of a ReLU; none: the features themselves. A 1 is added to
        each row in either case.
    """

    def __init__(
        self, model: Classifier, rng: Rng, penalty: float, projection: Tensor | None
    ) -> None:
        length = 1 + (model.features if projection is None else projection.shape[1])
        inverse = torch.eye(length, dtype=torch.float64) / penalty
        weights = torch.zeros(len(model.weight), length, dtype=torch.float64)
        super().__init__(model, rng, {"inverse": inverse, "weights": weights})
        self.penalty, self.projection = penalty, projection

    def mapped(self, features: Tensor) -> Tensor:
        """Return projected rows with a 1 at their end."""
        if self.projection is not None:
            features = (features @ self.projection.to(features.device)).relu()
        return torch.nn.functional.pad(features, (0, 1), value=1.0)

    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return inverse and weights with a batch.

        The first one raises a penalty that is too small beside its rows: what the recursion takes
        off the inverse would be lost in rounding.
        """
        inverse, weights = sums["inverse"], self.by_class(sums["weights"])
        if not weights.any():
            least = LEAST_SHARE * float(features.square().sum(1).mean())
            inverse = inverse * (self.penalty / max(self.penalty, least))
        reach = features @ inverse
        inner = torch.eye(len(y), dtype=features.dtype, device=features.device)
        gain = torch.linalg.solve(inner + reach @ features.T, reach)
        wanted = torch.nn.functional.one_hot(y, len(weights)).double()
        inverse = inverse - reach.T @ gain
        inverse = (inverse + inverse.T) / 2
        missed = wanted - features @ weights.T
        return {"inverse": inverse, "weights": weights + missed.T @ (features @ inverse)}

    def solved(self, sums: Sums) -> Scorer:
        """Score by the regression's output."""
        weights = sums["weights"]
        return lambda features: features @ weights.T


@register("ridge", cite="McDonnell et al., 2023, arXiv:2307.02251")
class Ridge(Method):
    """Ridge regression on features, solved recursively; with `projection` on random features
    (RanPAC); no gradients, no memory.
    """

    penalty: float = setting(1.0, "weight of the squared weights", gt=0)
    projection: int = setting(
        0,
        "length of the random projection in front of a ReLU (RanPAC: 10000); 0: none",
        ge=0,
        le=65_536,
    )
    trains: ClassVar[bool] = False

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """No rows yet: W = 0."""
        projection = None
        if self.projection:
            drawn = generator(model.seed, "projection").normal(
                size=(model.features, self.projection)
            )
            projection = torch.from_numpy(np.asarray(drawn))
        return RidgeLearner(model, rng, self.penalty, projection)
