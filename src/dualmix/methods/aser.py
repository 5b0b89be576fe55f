"""Adversarial Shapley value experience replay.

D. Shim et al., 2021, "Online Class-Incremental Continual Learning with Adversarial Shapley Value",
AAAI, arXiv:2009.00093. Values are those of a k-nearest-neighbour classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import CHUNK, fused_bn
from dualmix.learn.replay import Forward
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Batch, Learner, Placement, Slots
from dualmix.methods.rehearsal import FORWARD, Host
from dualmix.registry import register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@dataclass(frozen=True)
class ShapleyRetrieve:
    """Rehearse rows with a high adversarial Shapley value: worth much to the memory and little to
    the new batch.

    Until more rows have come than the memory holds the draw is uniform.

    Parameters
    ----------
    count
        Slots to return: the top of the candidates, or all of them where there are fewer.
    per_class
        Candidates per class, and rows per class that stand for the memory.
    k
        Neighbours of the classifier.
    variant
        ``asvm``: mean value to the memory minus mean value to the new batch; ``asv``: greatest
        value to a row of the memory minus least value to a new row; ``neg_sv``: minus the total
        value to the new batch.
    """

    count: int
    per_class: int
    k: int
    variant: Literal["asvm", "asv", "neg_sv"] = "asvm"

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return filled slots, the best first."""
        if memory.seen <= memory.capacity:
            return Uniform(self.count)(memory, new, model, rng)
        columns = memory.y[: len(memory)].numpy()
        candidates = balanced(columns, np.arange(len(memory)), self.per_class, rng)
        others = np.setdiff1d(np.arange(len(memory)), candidates)
        stand = (
            others[:0]
            if self.variant == "neg_sv"
            else balanced(columns, others, self.per_class, rng)
        )
        old, features = seen_once(model, memory, np.append(candidates, stand), new)
        pool, judges, fresh = features.split([len(candidates), len(stand), len(new)])
        own, theirs = old.y.split([len(candidates), len(stand)])
        adversarial = knn_shapley(pool, own, fresh, new.y, self.k)
        if self.variant == "neg_sv":
            return candidates[best_first(-adversarial.sum(0))[: self.count]]
        cooperative = (
            knn_shapley(pool, own, judges, theirs, self.k)
            if len(stand)
            else torch.zeros_like(adversarial)
        )
        greatest, mean = (
            cooperative.amax(0) - adversarial.amin(0),
            cooperative.mean(0) - adversarial.mean(0),
        )
        return candidates[best_first(greatest if self.variant == "asv" else mean)[: self.count]]


@dataclass(frozen=True)
class ShapleyUpdate:
    """Replace rows of a full memory by new ones that are worth more to it.

    Rows of the memory, as many of each class, judge the value of others and of the new rows; so do
    new rows of classes that are rare in the memory: with a share below u, drawn from [0, 1 / head
    columns) for each batch. New rows among the best replace rows of the memory that are not. Rows
    that fill the memory do not compete. At most half of the memory judges: where all of it did, as
    in the reference code, a small memory would never take a new row.

    Parameters
    ----------
    per_class
        Judges per class, and candidates for each head column.
    k
        Neighbours of the classifier.
    """

    per_class: int
    k: int

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped."""
        slots = np.full(len(new), -1)
        free = min(memory.capacity - len(memory), len(new))
        slots[:free] = np.arange(len(memory), len(memory) + free)
        if free < len(new) and len(memory):
            slots[free:] = self.replaced(memory, Batch(new.x[free:], new.y[free:]), model, rng)
        return Placement(slots)

    def replaced(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return the slot of the memory that each new row takes, or -1."""
        columns, head = memory.y[: len(memory)].numpy(), len(model.weight)
        rare = memory.counts(head)[new.y.cpu().numpy()] / memory.capacity < rng.uniform(0, 1 / head)
        judges = balanced(columns, np.arange(len(memory)), self.per_class, rng)
        if len(judges) > len(memory) // 2:
            judges = rng.permutation(judges)[: len(memory) // 2]
        others = rng.permutation(np.setdiff1d(np.arange(len(memory)), judges))[
            : self.per_class * head
        ]
        old, features = seen_once(model, memory, np.append(judges, others), new)
        seats = np.append(np.arange(len(judges)), len(old) + np.flatnonzero(rare))
        labels = torch.cat([old.y, new.y])
        pool = slice(len(judges), None)
        sitting = torch.from_numpy(seats).to(labels.device)
        worth = knn_shapley(
            features[pool], labels[pool], features[sitting], labels[sitting], self.k
        ).sum(0)
        ranked = best_first(worth)
        kept, dropped = ranked[: len(others)], ranked[len(others) :]
        rows, places = (
            kept[kept >= len(others)] - len(others),
            others[dropped[dropped < len(others)]],
        )
        slots = np.full(len(new), -1)
        slots[rows] = places
        return slots


def knn_shapley(pool: Tensor, own: Tensor, judges: Tensor, theirs: Tensor, k: int) -> Tensor:
    """Return what each row of a pool is worth to each judge: exact Shapley values of
    k-nearest-neighbour voting.

    The utility of a set of rows to a judge is the share, in k, of its k rows nearest to the judge
    that have the judge's label. With rows sorted by distance and match m_i, s_i = s_{i+1} + (m_i -
    m_{i+1}) / k * min(k, i) / i, and s_N = m_N / N where N is at least k (R. Jia et al., 2019,
    "Efficient Task-Specific Data Valuation for Nearest Neighbor Algorithms", VLDB,
    arXiv:1908.08619).

    Parameters
    ----------
    pool, judges
        (N, D) and (M, D) features.
    own, theirs
        Their labels.
    k
        Neighbours.

    Returns
    -------
    Tensor
        (M, N) values.
    """
    far = torch.cdist(judges, pool, compute_mode="donot_use_mm_for_euclid_dist")
    order = torch.argsort(far, dim=1, stable=True)
    match = (own[order] == theirs[:, None]).to(pool.dtype)
    place = torch.arange(1, len(pool) + 1, device=pool.device, dtype=pool.dtype)
    steps = (
        -match.diff(dim=1, append=torch.zeros_like(match[:, :1])) * place.clamp(max=k) / (k * place)
    )
    values = steps.flip(1).cumsum(1).flip(1)
    return torch.empty_like(values).scatter_(1, order, values)


def balanced(
    columns: NDArray[np.int64], slots: Slots, count: int, rng: np.random.Generator
) -> Slots:
    """Draw at most `count` of the given slots from each class."""
    slots = rng.permutation(slots)
    slots = slots[np.argsort(columns[slots], kind="stable")]
    classes = columns[slots]
    return slots[np.arange(len(slots)) - np.searchsorted(classes, classes) < count]


def seen_once(model: Classifier, memory: Memory, slots: Slots, new: Batch) -> tuple[Batch, Tensor]:
    """Return rows of the memory, and the features of these and then of the new rows, each image
    seen once.
    """
    old = memory[slots]
    images = torch.cat([old.x, new.x])
    with fused_bn(model):
        return old, torch.cat([model.embed(part) for part in images.split(CHUNK)])


def best_first(worth: Tensor) -> Slots:
    """Return the order from the greatest value to the least."""
    return np.argsort(-worth.cpu().numpy(), kind="stable")


@register(
    "aser",
    paper="Tables 1 and 2, ASER",
    cite="Shim et al., 2021, arXiv:2009.00093",
    values={"method.bn": "ref"},
    source="reference",
)
class ASER(Host):
    """ASER: rehearse and keep rows by what they are worth to a nearest-neighbour classifier.

    The preset's ``bn`` is the reference code's; runs filed before it was a setting have ``once``.
    """

    n_smp_cls: int = setting(
        2,
        "rows drawn per class, as candidates and as judges (2: CIFAR-100, 3: Mini-ImageNet)",
        source="reference",
        ge=1,
    )
    k: int = setting(3, "neighbours", source="reference", ge=1)
    variant: Literal["asvm", "asv", "neg_sv"] = setting(
        ShapleyRetrieve.variant,
        "asvm: mean value to the memory minus mean to the new batch; asv: greatest minus least; "
        "neg_sv: minus the sum",
        source="reference",
    )
    forward: Forward = setting("pooled", FORWARD, source="reference")
    bn: Literal["once", "ref"] = setting(
        "once",
        "ref: as the reference code, the new and the rehearsed batch each move batch-norm's "
        "statistics in a pass of their own before the joint one (three passes per step, of which "
        "one gives the gradient); once: the joint pass alone does",
    )

    @model_validator(mode="after")
    def _passes_before_a_joint_one(self) -> ASER:
        if self.bn == "ref" and self.forward not in ("joint", "pooled"):
            raise ValueError(
                f"bn ref means passes before a joint one, but forward is {self.forward}: give bn "
                "once, or forward joint or pooled"
            )
        return self

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Update and retrieval by Shapley values."""
        update = ShapleyUpdate(self.n_smp_cls, self.k)
        retrieve = ShapleyRetrieve(self.memory_batch, self.n_smp_cls, self.k, self.variant)
        return self.replay(model, rng, update, retrieve, ahead=self.bn == "ref")
