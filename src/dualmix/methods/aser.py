"""Adversarial Shapley value experience replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.methods.common import FORWARD, Forward, Host
from dualmix.registry import register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("aser", paper="Tables 1 and 2, ASER")
class ASER(Host):
    """ASER: rehearse and keep rows by what they are worth to a nearest-neighbour classifier."""

    n_smp_cls: int = value(
        2,
        "rows drawn a class, as candidates and as judges (2: CIFAR-100, 3: Mini-ImageNet)",
        source="reference",
        ge=1,
    )
    k: int = value(3, "neighbours", source="reference", ge=1)
    variant: Literal["asvm", "asv", "neg_sv"] = value(
        "asvm",
        "asvm: mean value to the memory minus mean to the new batch; asv: greatest minus least; neg_sv: minus the sum",
        source="reference",
    )
    forward: Forward = value("pooled", FORWARD, source="reference")

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Update and retrieval by Shapley values."""
        from dualmix.learn.policies.shapley import ShapleyRetrieve, ShapleyUpdate

        update = ShapleyUpdate(self.n_smp_cls, self.k)
        return self.replay(
            model,
            rng,
            update,
            ShapleyRetrieve(self.memory_batch, self.n_smp_cls, self.k, self.variant),
        )
