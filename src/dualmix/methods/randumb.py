"""Random features and streaming LDA (RanDumb), the control for every learned representation.

A. Prabhu et al., 2024, "RanDumb: Random Representations Outperform Online Continually Learned
Representations", NeurIPS, arXiv:2402.08823. Random Fourier features: Rahimi and Recht, 2007,
NeurIPS."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dualmix.learn.lazy import torch
from dualmix.learn.statistics import Discriminant
from dualmix.learn.types import Learner
from dualmix.registry import Method, register
from dualmix.rng import generator
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


class RanDumbLearner(Discriminant):
    """SLDA on cosines of random projections, which stand for a Gaussian kernel.

    Rows are scaled to the length sqrt(d) first, so that one bandwidth serves vectors of any range.

    Parameters
    ----------
    frequencies, phases
        (d, m) and (m,), random.
    """

    def __init__(
        self, model: Classifier, rng: Rng, frequencies: Tensor, phases: Tensor, shrinkage: float
    ) -> None:
        super().__init__(model, rng, len(phases), shrinkage)
        self.frequencies, self.phases = frequencies, phases

    def mapped(self, features: Tensor) -> Tensor:
        """Return random Fourier features."""
        unit = torch.nn.functional.normalize(features, dim=1) * features.shape[1] ** 0.5
        turned: Tensor = unit @ self.frequencies.to(features.device)
        turned = turned + self.phases.to(features.device)
        scaled: Tensor = turned.cos() * (2 / len(self.phases)) ** 0.5
        return scaled


@register("randumb", cite="Prabhu et al., 2024, arXiv:2402.08823")
class RanDumb(Method):
    """RanDumb: random Fourier features of the input and streaming LDA; nothing is learned but
    statistics.
    """

    length: int = setting(1000, "random features (the paper: 25000)", ge=2, le=32_768)
    bandwidth: float = setting(
        1.0, "of the kernel exp(-bandwidth |x - y|^2 / 2d), rows scaled to the length sqrt(d)", gt=0
    )
    shrinkage: float = setting(1e-4, "share of the identity in the covariance", gt=0, le=1)
    trains: ClassVar[bool] = False

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Draw the features; sums over nothing."""
        draw = generator(model.seed, "fourier")
        scale = np.sqrt(self.bandwidth / model.features)
        frequencies = draw.normal(scale=scale, size=(model.features, self.length))
        phases = draw.uniform(0, 2 * np.pi, self.length)
        return RanDumbLearner(
            model, rng, torch.from_numpy(frequencies), torch.from_numpy(phases), self.shrinkage
        )
