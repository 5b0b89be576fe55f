"""Learners without gradients: sums over the features of a network that stays as it is, from which
answers are solved exactly. The order of the stream does not matter to them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualmix.errors import TrainingError
from dualmix.learn.common import MemoryLearner, take_in
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import eval_mode
from dualmix.learn.sampling import Reservoir
from dualmix.learn.types import ImagesLike, LabelsLike, State
from dualmix.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

LEAST_SHARE = 1e-12
"""Of the mean variance, in a covariance, or of the mean square, in a penalty: rounding could make a
matrix of large numbers singular.
"""
Sums = dict[str, "Tensor"]
Scorer = Callable[["Tensor"], "Tensor"]


class StatisticsLearner(MemoryLearner):
    """Keeps sums over features in float64 and no image; a method says which sums, and how they
    score classes.

    Parameters
    ----------
    sums
        The sums over nothing; where the first axis is the classes it may be empty.

    Attributes
    ----------
    sums
        Tensors are replaced, never changed, so that answers and a batch that is taken back can keep
        earlier ones.
    """

    def __init__(self, model: Classifier, rng: Rng, sums: Mapping[str, Tensor]) -> None:
        super().__init__(model, Memory(0, model.shape, model.device), Reservoir(), rng, lr=0.0)
        self.sums: Sums = {name: start.to(model.device) for name, start in sums.items()}

    @abstractmethod
    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return the sums with a batch of features (n, d) in float64 and their head columns."""

    @abstractmethod
    def solved(self, sums: Sums) -> Scorer:
        """Return what scores features for each class, from sums that nothing changes."""

    def by_class(self, sums: Tensor) -> Tensor:
        """Return sums whose first axis is the classes with zeros for those that have come since."""
        fresh = len(self.model.weight) - len(sums)
        return sums if not fresh else torch.cat([sums, sums.new_zeros(fresh, *sums.shape[1:])])

    def mapped(self, features: Tensor) -> Tensor:
        """Return features as the sums take them."""
        return features

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Add a batch to the sums; return the share of it that was not recognised before.

        Raises
        ------
        TrainingError
            The sums would not be finite, or cannot be solved; the learner is as it was.
        """
        known = len(self.model.labels)
        arrival = take_in(self, x, y)
        columns = arrival.batch.y
        with eval_mode(self.model):
            features = self.mapped(self.model.embed(arrival.batch.x).double())
            self.hits = torch.zeros((), dtype=torch.int64)
            with _solvable():
                if known:
                    said = self.solved(self.sums)(features)[:, :known].argmax(1)
                    self.hits = (said == columns).sum().cpu()
                sums = self.added(self.sums, features, columns)
            if not all(map(_finite, _changed(sums, self.sums))):
                raise TrainingError(
                    "The sums with this batch are not finite, and the learner is as it was before "
                    "it: scale the rows."
                )
            self.sums = sums
        return 1 - self.hits.float() / len(columns)

    def scorer(self, network: Classifier) -> Scorer:
        """Return what scores the classes, from the sums as they are now."""
        with _solvable():
            score = self.solved(self.sums)
        return lambda x: score(self.mapped(network.embed(x).double())).float()

    def state_dict(self) -> State:
        """Return what every learner returns, and the sums."""
        return {**super().state_dict(), "sums": dict(self.sums)}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        self.sums = {name: part.to(self.model.device) for name, part in state["sums"].items()}


def _changed(sums: Sums, before: Sums) -> Iterator[Tensor]:
    """Yield the sums that a batch has replaced: of many classes it changes a few."""
    return (part for name, part in sums.items() if part is not before.get(name))


def _finite(part: Tensor) -> bool:
    """Whether all numbers are finite. One that is not makes their sum so, which is quick to tell;
    only a sum that overflows has to be looked into.
    """
    return bool(part.sum().isfinite()) or bool(part.isfinite().all())


@contextmanager
def _solvable() -> Iterator[None]:
    """Make one sentence of sums that linear algebra cannot solve."""
    try:
        yield
    except torch.linalg.LinAlgError as fault:  # type: ignore[attr-defined]
        raise TrainingError(
            "The features are too large, or too much alike, to be told apart in float64: scale the "
            "rows, or give the method more shrinkage or a higher penalty."
        ) from fault


def scattered(
    counts: Tensor, means: Tensor, features: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, list[tuple[int, Tensor]]]:
    """Return the counts and means of the classes with a batch, and by class the rows whose outer
    products the batch adds to the scatter within that class.

    Two groups of rows join by their own scatter and by the shift of their means (Chan et al.,
    1983), so that the sum is that of all rows at once up to rounding."""
    counts, means = counts.clone(), means.clone()
    rows = []
    for column in y.unique().tolist():
        own = features[y == column]
        mean, before, n = own.mean(0), float(counts[column]), len(own)
        shift = (mean - means[column]) * (before * n / (before + n)) ** 0.5
        rows.append((column, torch.cat([own - mean, shift[None]])))
        means[column] += (mean - means[column]) * (n / (before + n))
        counts[column] += n
    return counts, means, rows


class Discriminant(StatisticsLearner):
    """Linear discriminant analysis: class means and one covariance, which all classes share.

    Parameters
    ----------
    shrinkage
        Share of the identity in the covariance.
    """

    def __init__(self, model: Classifier, rng: Rng, length: int, shrinkage: float) -> None:
        start = torch.zeros(len(model.weight), length, dtype=torch.float64)
        sums = {
            "means": start,
            "counts": start.new_zeros(len(start)),
            "scatter": start.new_zeros(length, length),
        }
        super().__init__(model, rng, sums)
        self.shrinkage = shrinkage

    def added(self, sums: Sums, features: Tensor, y: Tensor) -> Sums:
        """Return means, counts and scatter with a batch."""
        counts, means, rows = scattered(
            self.by_class(sums["counts"]), self.by_class(sums["means"]), features, y
        )
        joined = torch.cat([part for _, part in rows])
        return {
            "means": means,
            "counts": counts,
            "scatter": torch.addmm(sums["scatter"], joined.T, joined),
        }

    def solved(self, sums: Sums) -> Scorer:
        """Score by w x + b with w = P m and b = -m P m / 2, where P is the inverse of the shrunk
        covariance (Hayes and Kanan, 2020, arXiv:1909.01520, section 3).

        Rows and means m are taken from the mean of all rows, which adds the same to all scores of a
        row: vectors far from zero would lose their digits.
        """
        counts, means = sums["counts"], sums["means"]
        covariance = sums["scatter"] * ((1 - self.shrinkage) / counts.sum().clamp(min=1))
        least = LEAST_SHARE * covariance.diagonal().mean()
        covariance.diagonal().add_(self.shrinkage + least)
        centre = counts @ means / counts.sum().clamp(min=1)
        apart = means - centre
        weights = torch.cholesky_solve(apart.T, torch.linalg.cholesky(covariance))
        bias = -(apart * weights.T).sum(1) / 2
        return lambda features: (features - centre) @ weights + bias
