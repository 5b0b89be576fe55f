"""The paper's augmentations: a plain view, EnMix (Eq. 7) and AdpMix (Eqs. 8 and 9), each one more
batch to learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualmix.learn.network import glance
from dualmix.learn.types import Batch, Transform
from dualmix.rng import generator

if TYPE_CHECKING:
    from dualmix.learn.class_ages import Sightings
    from dualmix.learn.network import Classifier


def blend(a: Tensor, b: Tensor, mu: Tensor) -> Tensor:
    """Eqs. 7 and 8: mu * a + (1 - mu) * b, a ratio for each row."""
    mu = mu.view(-1, *[1] * (a.dim() - 1))
    return mu * a + (1 - mu) * b


def label_ratio(mu_x: Tensor, ratio: Tensor, *, kappa: float, tau: float, delta: float) -> Tensor:
    """Eq. 9: tilt the label towards the old class where the new one outweighs it.

    Parameters
    ----------
    mu_x
        Shares of the old images.
    ratio
        How much the new class outweighs the old one, ||w_new|| / ||w_old||.
    kappa, tau, delta
        The ratio and the share above which the label is tilted, and by how much a unit of the ratio
        tilts it.

    Examples
    --------
    >>> label_ratio(torch.tensor([0.6, 0.6, 0.4]), torch.tensor([3.0, 2.0, 3.0]), kappa=2.0,
    tau=0.5, delta=0.05) tensor([0.7500, 0.6000, 0.4000])"""
    tilted = (mu_x + delta * ratio).clamp(max=1)
    return torch.where((ratio > kappa) & (mu_x > tau), tilted, mu_x)


def beta(
    alpha: float, count: int, rng: np.random.Generator, each: Literal["pair", "batch"]
) -> Tensor:
    """Draw mixing ratios from Beta(alpha, alpha): one for each pair, or one for the whole batch."""
    drawn = rng.beta(alpha, alpha, count if each == "pair" else 1)
    return torch.from_numpy(np.broadcast_to(drawn, count).astype(np.float32))


@dataclass(frozen=True, slots=True)
class View:
    """Eq. 2: the old images through the augmentation, with their own labels."""

    g: Transform
    weight: float = 1.0

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, seen: Sightings, rng: np.random.Generator
    ) -> Batch | None:
        """Return as many views as there are old images."""
        return Batch(self.g(old.x, rng), old.y)


@dataclass(frozen=True, slots=True)
class EnMix:
    """Eq. 7: pairs of augmented old images and of their labels, mixed by the same ratio.

    Parameters
    ----------
    each
        A ratio for each pair, or one for the batch.
    partner
        ``derangement``: each image's partner is another one, of any class; ``other-class``: one of
        another class where there is one; ``permutation``: any, itself included.
    second_view
        The partner is a second, independent view instead of one of the same views.
    copies
        Mixed images for each old one.
    shared
        Take the ratios that AdpMix takes in the same step.
    from_first
        Mix from the first task on, or only after the stream's first pause.
    """

    g: Transform
    weight: float = 1.0
    alpha: float = 0.2
    each: Literal["pair", "batch"] = "pair"
    partner: Literal["derangement", "other-class", "permutation"] = "derangement"
    second_view: bool = False
    copies: int = 1
    shared: bool = False
    from_first: bool = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, seen: Sightings, rng: np.random.Generator
    ) -> Batch | None:
        """Return the mixed batch with soft labels."""
        if not (self.from_first or seen.border):
            return None
        x, y = torch.cat([old.x] * self.copies), old.y.repeat(self.copies)
        views = self.g(x, rng)
        others = self.g(x, rng) if self.second_view else views
        columns, starts = old.y.cpu().numpy(), range(0, len(x), len(old))
        rows = np.concatenate([start + partners(columns, self.partner, rng) for start in starts])
        to = torch.from_numpy(rows).to(x.device)
        mu = beta(self.alpha, len(x), _ratios(model, seen) if self.shared else rng, self.each).to(
            x.device
        )
        soft = one_hot(y, model)
        return Batch(blend(views, others[to], mu), blend(soft, soft[to], mu))


def partners(columns: NDArray[np.int64], rule: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a partner for each row: a permutation, one without fixed points, or one row of another
    class each.
    """
    count = len(columns)
    order = rng.permutation(count)
    if rule == "permutation" or count < 2:
        return order
    while (order == np.arange(count)).any():
        order = rng.permutation(count)
    if rule == "other-class":
        for row, column in enumerate(columns):
            others = np.flatnonzero(columns != column)
            if len(others):
                order[row] = rng.choice(others)
    return order


@dataclass(frozen=True, slots=True)
class AdpMix:
    """Eqs. 8 and 9: old images mixed with new ones; the label leans to the old class where the head
    leans to the new.

    Parameters
    ----------
    g
        The augmentation of what `augment` names.
    augment
        ``neither`` side, the ``old`` side or ``both``.
    old
        Which rehearsed rows count as old: ``all``; those whose class is not in the new ``batch``;
        those whose class is not ``recent``, that is first seen within `window` steps; those whose
        class is not of the current ``task``.
    pairs
        One pair for each ``new`` image, for each ``old`` one, as many as the ``fewer``, ``all``
        combinations, or a number.
    ratio
        What Eq. 9 compares: the weight-row norms of the ``pair``'s classes, or the ``mean`` norms
        over the new batch's classes and over all others seen. As a study, not as the paper does:
        ``batch`` compares how many rows of the pairs have each class, ``output`` the probabilities
        that the model gives them for the old image.
    bias
        Count the bias into the norm.
    sightings
        The label is tilted only where the new class has been seen at least this often.
    alone
        What to do while no row is old: nothing (``idle``), or take all rows (``mixup``).
    shared
        Take the ratios that EnMix takes in the same step.
    from_first
        Mix from the first task on, or only after the stream's first pause.
    """

    g: Transform
    weight: float = 1.0
    alpha: float = 0.2
    kappa: float = 2.0
    tau: float = 0.5
    delta: float = 0.05
    each: Literal["pair", "batch"] = "pair"
    augment: Literal["neither", "old", "both"] = "both"
    old: Literal["all", "batch", "recent", "task"] = "all"
    window: int = 250
    pairs: Literal["new", "old", "fewer", "all"] | int = "new"
    ratio: Literal["pair", "mean", "batch", "output"] = "pair"
    bias: bool = False
    sightings: int = 0
    alone: Literal["idle", "mixup"] = "idle"
    shared: bool = False
    from_first: bool = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, seen: Sightings, rng: np.random.Generator
    ) -> Batch | None:
        """Return the mixed batch with soft labels, or nothing while no row is old."""
        if not (self.from_first or seen.border):
            return None
        rows = np.flatnonzero(self.is_old(new.y.cpu().numpy(), old.y.cpu().numpy(), seen))
        if not len(rows) and self.alone == "mixup":
            rows = np.arange(len(old))
        if not len(rows):
            return None
        i, j = (
            torch.from_numpy(index).to(new.x.device) for index in self.pair(rows, len(new), rng)
        )
        chance = _ratios(model, seen) if self.shared else rng
        mu_x = beta(self.alpha, len(i), chance, self.each).to(new.x.device)
        r = self.outweighs(new.y[j], old.y[i], old.x[i], model, seen)
        mu_y = label_ratio(mu_x, r, kappa=self.kappa, tau=self.tau, delta=self.delta)
        old_x = old.x if self.augment == "neither" else self.g(old.x, rng)
        new_x = self.g(new.x, rng) if self.augment == "both" else new.x
        notes = {
            "adpmix pairs": torch.tensor(len(i)),
            "adpmix gate open": (r > self.kappa).sum(),
            "adpmix tilted": (mu_y > mu_x).sum(),
            "adpmix saturated": ((mu_y > mu_x) & (mu_y == 1)).sum(),
            "adpmix ratio": r.sum(),
        }
        x = blend(old_x[i], new_x[j], mu_x)
        return Batch(x, blend(one_hot(old.y[i], model), one_hot(new.y[j], model), mu_y), notes)

    def is_old(
        self, new: NDArray[np.int64], old: NDArray[np.int64], seen: Sightings
    ) -> NDArray[np.bool_]:
        """Return which rehearsed rows count as old."""
        if self.old == "all":
            return np.ones(len(old), dtype=bool)
        if self.old == "batch":
            return ~np.isin(old, new)
        young = seen.young(self.window) if self.old == "recent" else seen.current()
        return ~young[old]

    def pair(
        self, rows: NDArray[np.int64], new: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows of the old and of the new batch that are mixed with each other."""
        if self.pairs == "all":
            return np.repeat(rows, new), np.tile(np.arange(new), len(rows))
        if isinstance(self.pairs, int):
            return _shuffled(rows, self.pairs, rng), _shuffled(np.arange(new), self.pairs, rng)
        count = {"new": new, "old": len(rows), "fewer": min(new, len(rows))}[self.pairs]
        return np.resize(rng.permutation(rows), count), np.resize(rng.permutation(new), count)

    def outweighs(
        self, new: Tensor, old: Tensor, old_x: Tensor, model: Classifier, seen: Sightings
    ) -> Tensor:
        """Return how much each pair's new class outweighs its old one; 0 where the new class is not
        known enough.
        """
        if self.ratio == "output":
            with glance(model):
                p = model(old_x).softmax(1)
            r = (p.gather(1, new[:, None]) / p.gather(1, old[:, None]).clamp_min(1e-12))[:, 0]
            return self._known(new, r, seen)
        size = (
            torch.cat([new, old]).bincount()
            if self.ratio == "batch"
            else head_norms(model, bias=self.bias)
        )
        if self.ratio == "mean":
            fresh = torch.zeros(len(seen.counts), dtype=torch.bool, device=new.device)
            fresh[new] = True
            known = size[: len(fresh)]
            r = (
                (known[fresh].mean() / known[~fresh].mean().clamp_min(1e-12))
                .nan_to_num()
                .expand(len(new))
            )
        else:
            r = size[new] / size[old].clamp_min(1e-12)
        return self._known(new, r, seen)

    def _known(self, new: Tensor, r: Tensor, seen: Sightings) -> Tensor:
        if not self.sightings:
            return r
        known = torch.from_numpy(seen.counts >= self.sightings).to(new.device)
        return torch.where(known[new], r, 0)


def _shuffled(rows: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` rows in random order: each once before any comes again, in another order then."""
    return np.concatenate([rng.permutation(rows) for _ in range(-(-count // len(rows)))])[:count]


def _ratios(model: Classifier, seen: Sightings) -> np.random.Generator:
    return generator(model.seed, "ratios", seen.steps)


def head_norms(model: Classifier, *, bias: bool = False) -> Tensor:
    """Return the L2 norm of each head column's weights."""
    weight = model.weight.detach()
    rows = torch.cat([weight, model.bias.detach()[:, None]], 1) if bias else weight
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def one_hot(columns: Tensor, model: Classifier) -> Tensor:
    """Return soft labels over all head columns that put everything on one."""
    return torch.nn.functional.one_hot(columns, len(model.weight)).float()
