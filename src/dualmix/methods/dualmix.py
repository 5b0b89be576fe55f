"""DualMix: what ``+da``, ``+enmix``, ``+adpmix`` and ``+dualmix`` add to a rehearsal method.

Y. Fan, W. Xu, H. Wang, J. Zhu, J. Wang and S. Guo, 2023, "DualMix: Unleashing the Potential of Data
Augmentation for Online Class-Incremental Learning", arXiv:2303.07864. Each mix makes one more batch
to learn: a plain augmented view (Eq. 2), EnMix (Eq. 7) or AdpMix (Eqs. 8 and 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dualmix.learn.class_ages import ClassAges
from dualmix.learn.lazy import torch
from dualmix.learn.mixing import beta, blend, derangement, head_norms, one_hot
from dualmix.learn.modes import eval_mode
from dualmix.learn.types import Batch, Mix, Transform
from dualmix.methods.common import Augmenting
from dualmix.registry import Addition, add_addition
from dualmix.settings import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

CITE = "Fan et al., 2023, arXiv:2303.07864"


class Once:
    """An augmentation that is drawn once for each batch of images: all mixes of a step get the same
    view of the rehearsed ones.
    """

    def __init__(self, g: Transform) -> None:
        self.g = g
        self.x: Tensor | None = None
        self.view: Tensor | None = None

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the view of the images of the last call, or a new one of others."""
        if x is not self.x or self.view is None:
            self.x, self.view = x, self.g(x, rng)
        return self.view


@dataclass(frozen=True)
class View:
    """Eq. 2: the old images through the augmentation, with their own labels."""

    g: Transform
    weight: float = 1.0
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return as many views as there are old images."""
        return Batch(self.g(old.x, rng), old.y)


@dataclass(frozen=True)
class NewView:
    """The new images through the augmentation, with their own labels: a control, not of the paper,
    for what AdpMix shows of the new batch without mixing.
    """

    g: Transform
    weight: float = 1.0
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return as many views as there are new images."""
        return Batch(self.g(new.x, rng), new.y)


@dataclass(frozen=True)
class Unmixed:
    """Plain views of as many rehearsed images as a mix would make, with its weight: a control, not
    of the paper, for what is in the mixing itself.

    Parameters
    ----------
    count
        One view per ``new`` image, or per ``old`` one.
    """

    g: Transform
    weight: float = 1.0
    count: Literal["new", "old"] = "old"
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return the views; where there are more new images than old ones, of some a second."""
        rows = np.resize(rng.permutation(len(old)), len(new if self.count == "new" else old))
        index = torch.from_numpy(rows).to(old.x.device)
        return Batch(self.g(old.x[index], rng), old.y[index])


@dataclass(frozen=True)
class EnMix:
    """Eq. 7: pairs of augmented old images and of their labels, mixed by the same ratio.

    The partner of an image is another one of the same views, of any class.

    Parameters
    ----------
    alpha
        Ratios come from Beta(alpha, alpha).
    each
        A ratio for each pair, or one for the batch.
    """

    g: Transform
    weight: float = 1.0
    alpha: float = 0.2
    each: Literal["pair", "batch"] = "pair"
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return the mixed batch with soft labels."""
        views = self.g(old.x, rng)
        partner = torch.from_numpy(derangement(len(old), rng)).to(old.x.device)
        mu = beta(self.alpha, len(old), rng, self.each).to(old.x.device)
        soft = one_hot(old.y, model)
        return Batch(blend(views, views[partner], mu), blend(soft, soft[partner], mu))


@dataclass(frozen=True)
class AdpMix:
    """Eqs. 8 and 9: old images mixed with new ones; the label leans to the old class where the head
    leans to the new.

    Parameters
    ----------
    g
        The augmentation of what `augment` names.
    alpha, each
        As in `EnMix`.
    kappa, tau, delta
        Of Eq. 9: see `label_ratio`.
    augment
        ``neither`` side, the ``old`` side or ``both``.
    old
        Which rehearsed rows count as old: ``all``; those whose class is not in the new ``batch``;
        those whose class is not of the current ``task``.
    pairs
        One pair for each ``new`` image, no more than there are images on the ``fewer`` side, or
        ``all`` combinations.
    ratio
        What Eq. 9 compares: the weight-row norms of the ``pair``'s classes, or the ``mean`` norms
        over the new batch's classes and over all others seen. As a study, not as the paper does:
        ``batch`` compares how many rows of the pairs have each class, ``output`` the probabilities
        that the model gives them for the old image.
    """

    g: Transform
    weight: float = 1.0
    alpha: float = 0.2
    kappa: float = 2.0
    tau: float = 0.5
    delta: float = 0.05
    each: Literal["pair", "batch"] = "pair"
    augment: Literal["neither", "old", "both"] = "both"
    old: Literal["all", "batch", "task"] = "all"
    pairs: Literal["new", "fewer", "all"] = "new"
    ratio: Literal["pair", "mean", "batch", "output"] = "pair"

    @property
    def blind(self) -> bool:
        """Whether the pass over the new and the rehearsed batch may come later: the model's output
        depends on the statistics they leave, norms of weights do not.
        """
        return self.ratio != "output"

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return the mixed batch with soft labels, or nothing while no row is old."""
        rows = np.flatnonzero(self.is_old(new.y.cpu().numpy(), old.y.cpu().numpy(), ages))
        if not len(rows):
            return None
        i, j = (
            torch.from_numpy(index).to(new.x.device) for index in self.pair(rows, len(new), rng)
        )
        mu_x = beta(self.alpha, len(i), rng, self.each).to(new.x.device)
        r = self.outweighs(new.y[j], old.y[i], old.x[i], model)
        mu_y = label_ratio(mu_x, r, kappa=self.kappa, tau=self.tau, delta=self.delta)
        old_x = old.x if self.augment == "neither" else self.g(old.x, rng)
        new_x = self.g(new.x, rng) if self.augment == "both" else new.x
        counters = {
            "adpmix pairs": torch.tensor(len(i)),
            "adpmix gate open": (r > self.kappa).sum(),
            "adpmix tilted": (mu_y > mu_x).sum(),
            "adpmix saturated": ((mu_y > mu_x) & (mu_y == 1)).sum(),
            "adpmix ratio": model.arithmetic.total(r),
        }
        x = blend(old_x[i], new_x[j], mu_x)
        y = blend(one_hot(old.y[i], model), one_hot(new.y[j], model), mu_y)
        return Batch(x, y, counters)

    def is_old(
        self, new: NDArray[np.int64], old: NDArray[np.int64], ages: ClassAges
    ) -> NDArray[np.bool_]:
        """Return which rehearsed rows count as old."""
        if self.old == "all":
            return np.ones(len(old), dtype=bool)
        if self.old == "batch":
            return ~np.isin(old, new)
        return old < ages.known_before_task

    def pair(
        self, rows: NDArray[np.int64], new: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows of the old and of the new batch that are mixed with each other."""
        if self.pairs == "all":
            return np.repeat(rows, new), np.tile(np.arange(new), len(rows))
        count = new if self.pairs == "new" else min(new, len(rows))
        return np.resize(rng.permutation(rows), count), np.resize(rng.permutation(new), count)

    def outweighs(self, new: Tensor, old: Tensor, old_x: Tensor, model: Classifier) -> Tensor:
        """Return how much each pair's new class outweighs its old one."""
        if self.ratio == "output":
            with eval_mode(model):
                p: Tensor = model(old_x).softmax(1)
            return (p.gather(1, new[:, None]) / p.gather(1, old[:, None]).clamp_min(1e-12))[:, 0]
        if self.ratio == "batch":
            rows = torch.cat([new, old]).bincount()
            return rows[new] / rows[old].clamp_min(1e-12)
        norms = head_norms(model)
        if self.ratio == "pair":
            return norms[new] / norms[old].clamp_min(1e-12)
        known = norms[: len(model.labels)]
        fresh = torch.zeros(len(known), dtype=torch.bool, device=new.device)
        fresh[new] = True
        ratio = known[fresh].mean() / known[~fresh].mean().clamp_min(1e-12)
        return ratio.nan_to_num().expand(len(new))


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
    >>> share, ratio = torch.tensor([0.6, 0.6, 0.4]), torch.tensor([3.0, 2.0, 3.0])
    >>> label_ratio(share, ratio, kappa=2.0, tau=0.5, delta=0.05)
    tensor([0.7500, 0.6000, 0.4000])
    """
    tilted = (mu_x + delta * ratio).clamp(max=1)
    return torch.where((ratio > kappa) & (mu_x > tau), tilted, mu_x)


def _weight(name: str) -> Range:
    return Range(0.1, 2.0, needs=(name,))


class Mixing(Augmenting):
    """Augmented and mixed batches beside the new and the rehearsed one; all off unless a weight is
    above 0.
    """

    view: float = setting(
        0.0,
        "weight of the plain augmented view of the rehearsed batch",
        ge=0,
        paper="ER+DA",
        tune=_weight("view"),
    )
    enmix: float = setting(
        0.0, "weight of EnMix, Eq. 7", ge=0, paper="no weights are stated", tune=_weight("enmix")
    )
    adpmix: float = setting(
        0.0,
        "weight of AdpMix, Eqs. 8-9",
        ge=0,
        paper="no weights are stated",
        tune=_weight("adpmix"),
    )
    stream: float = setting(1.0, "weight of the new batch as it came; 0: AdpMix replaces it", ge=0)
    replay: float = setting(
        1.0, "weight of the rehearsed batch as it came; 0: EnMix replaces it", ge=0
    )
    alpha: float = setting(
        EnMix.alpha,
        "mixing ratios come from Beta(alpha, alpha)",
        gt=0,
        paper="0.2",
        source="paper",
        tune=Range(0.1, 1.0, log=True, needs=("enmix", "adpmix")),
    )
    enmix_alpha: float | None = setting(
        None, "alpha of EnMix alone, 0: nothing is mixed; none: alpha", ge=0
    )
    adpmix_alpha: float | None = setting(
        None, "alpha of AdpMix alone, 0: nothing is mixed; none: alpha", ge=0
    )
    mixed: bool = setting(
        True,
        "a control where false: EnMix and AdpMix are plain views of as many rehearsed images, with "
        "the same weights",
    )
    new_view: float = setting(
        0.0,
        "weight of a plain augmented view of the new batch, a control for AdpMix without mixing",
        ge=0,
    )
    kappa: float = setting(
        AdpMix.kappa,
        "AdpMix tilts labels where ||w_new|| / ||w_old|| is above",
        paper="2.0",
        source="paper",
        ge=0,
        tune=Range(1.0, 4.0, needs=("adpmix",)),
    )
    tau: float = setting(
        AdpMix.tau,
        "AdpMix tilts labels where the old image's share is above",
        paper="0.5",
        source="paper",
        ge=0,
        le=1,
        tune=Range(0.2, 0.8, needs=("adpmix",)),
    )
    delta: float = setting(
        AdpMix.delta,
        "AdpMix tilts labels by delta times the ratio",
        paper="0.05",
        source="paper",
        ge=0,
        tune=Range(0.01, 0.2, log=True, needs=("adpmix",)),
    )
    each: Literal["pair", "batch"] = setting(
        EnMix.each, "a mixing ratio for each pair, or one per batch"
    )
    shared_view: bool = setting(
        False,
        "all mixes of a step use one augmented view of the rehearsed batch, drawn once, instead of "
        "a draw each",
        paper="the augmented memory data (Sec. 3), not whether it is drawn once",
    )
    adpmix_augment: Literal["neither", "old", "both"] = setting(
        AdpMix.augment,
        "which images of AdpMix are augmented. both: also the new images, as mixed images are none "
        "of the stream's own; the new batch itself is learned as it came, so that only memory data "
        "and mixes are augmented",
        paper="original data (Sec. 3.3); combined with standard DA (Sec. 4.3)",
    )
    old: Literal["all", "batch", "task"] = setting(
        AdpMix.old,
        "AdpMix's old rows: all rehearsed; class not in the new batch; class not of this task",
        paper="old classes (memory data)",
    )
    pairs: Literal["new", "fewer", "all"] = setting(
        AdpMix.pairs, "AdpMix pairs: one per new image, as many as the fewer side has, or all"
    )
    ratio: Literal["pair", "mean", "batch", "output"] = setting(
        AdpMix.ratio,
        "Eq. 9 compares weight norms of the pair's classes or means over all new and old; studies: "
        "batch, output",
        paper="||w_new|| / ||w_old||",
    )

    def build(self, model: Classifier | None = None) -> dict[str, Mix]:
        """Return the mixes by name, with an augmentation for what a network takes."""
        g = self.transform(model)
        g = Once(g) if self.shared_view else g
        if not self.mixed:
            return {
                "view": View(g, self.view),
                "enmix": Unmixed(g, self.enmix, "old"),
                "adpmix": Unmixed(g, self.adpmix, "new"),
                "new view": NewView(g, self.new_view),
            }
        within = self.alpha if self.enmix_alpha is None else self.enmix_alpha
        across = self.alpha if self.adpmix_alpha is None else self.adpmix_alpha
        return {
            "view": View(g, self.view),
            "enmix": EnMix(g, self.enmix, within, self.each),
            "new view": NewView(g, self.new_view),
            "adpmix": AdpMix(
                g,
                self.adpmix,
                across,
                self.kappa,
                self.tau,
                self.delta,
                self.each,
                self.adpmix_augment,
                self.old,
                self.pairs,
                self.ratio,
            ),
        }


def _one_mean(*terms: str) -> dict[str, float]:
    """Weigh the new batch, the rehearsed one and further terms alike: one mean over all images of a
    step.
    """
    return dict.fromkeys(("stream", "replay", *terms), 1 / (2 + len(terms)))


_ONE_BATCH = {"stream": 1.0, "replay": 0.5, "view": 0.5}
"""Originals and views as one rehearsed batch {x, g(x)} (Eq. 2), so that copies as views change
little (Figure 2).
"""

IN_TABLE_1 = dict.fromkeys(("gss", "mir", "aser"), "Table 1, +DualMix")
for _name, _doc, _paper, _weights in (
    ("da", "a plain augmented view of the rehearsed batch", {"er": "Table 3, +DA"}, _ONE_BATCH),
    (
        "enmix",
        "EnMix: mixed augmented views of the rehearsed batch",
        {"er": "Table 3, +EnMix"},
        _one_mean("enmix"),
    ),
    (
        "adpmix",
        "a plain view and AdpMix: old images mixed with new",
        {"er": "Table 3, +AdpMix"},
        _one_mean("view", "adpmix"),
    ),
    (
        "dualmix",
        "a plain view, EnMix and AdpMix",
        {"er": "Tables 1-3, +DualMix", **IN_TABLE_1},
        _one_mean("view", "enmix", "adpmix"),
    ),
):
    add_addition(Addition(_name, "mix", _doc, _paper, _weights, "calibrated", CITE))
