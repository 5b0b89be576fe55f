"""Streaming linear discriminant analysis (SLDA).

T. Hayes and C. Kanan, 2020, "Lifelong Machine Learning with Deep Streaming Linear Discriminant
Analysis", CVPR Workshops, arXiv:1909.01520.

The covariance within classes is that of all rows at once: the paper's update of single rows weighs
a row by the count of all rows, not of its class, which is nearly the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dualmix.learn.statistics import Discriminant
from dualmix.learn.types import Learner
from dualmix.registry import Method, register
from dualmix.settings import setting

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@register("slda", cite="Hayes and Kanan, 2020, arXiv:1909.01520")
class SLDA(Method):
    """Streaming linear discriminant analysis: class means and one shared covariance; no gradients,
    no memory.
    """

    shrinkage: float = setting(
        1e-4, "share of the identity in the covariance", source="reference", gt=0, le=1
    )
    trains: ClassVar[bool] = False

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Sums over nothing."""
        return Discriminant(model, rng, model.features, self.shrinkage)
