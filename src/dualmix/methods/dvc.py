"""Dual view consistency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.methods.augmenting import Augmenting
from dualmix.methods.common import Sampling
from dualmix.registry import register
from dualmix.settings import Range, value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner, Retrieve
    from dualmix.rng import Rng


@register(
    "dvc",
    paper="Table 1, DVC",
    values={
        "method.reservoir": "ref",
        "method.per_sample": False,
        "method.jitter_p": 1.0,
        "method.bn": "ref",
    },
    source="reference",
)
class DVC(Sampling, Augmenting):
    """DVC: two views of new and rehearsed images that must agree; rehearsed is what the step would
    disturb most.
    """

    consistency: float = value(
        4.0,
        "weight of the agreement of both views with the joint head (CIFAR-10: 2)",
        source="reference",
        ge=0,
        tune=Range(0.5, 8.0, log=True),
    )
    entropy: float = value(
        1.0,
        "weight of the spread of a batch's mean prediction",
        source="reference",
        ge=0,
        tune=Range(0.1, 4.0, log=True),
    )
    joint: int = value(128, "hidden units of the joint head", source="reference", ge=1)
    retrieval: Literal["mgi", "uniform"] = value(
        "mgi", "rehearse rows whose gradient would grow most, or a uniform draw", source="reference"
    )
    candidates: int = value(50, "rows among which mgi chooses", source="reference", ge=1)
    bn: Literal["eval", "ref"] = value(
        "eval",
        "mgi looks at candidates in evaluation mode, or in training mode as the reference code, which moves batch-norm",
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, retrieval by gradient increase, a joint head on the logits."""
        from dualmix.learn.heads import JointHead
        from dualmix.learn.learners.dvc import DVC as Loop  # noqa: N811
        from dualmix.learn.memory import Memory
        from dualmix.learn.policies.mgi import GradientIncrease
        from dualmix.learn.policies.uniform import Uniform

        g = self.transform()
        retrieve: Retrieve = Uniform(self.memory_batch)
        if self.retrieval == "mgi":
            views = g if self.bn == "ref" else None
            retrieve = GradientIncrease(self.memory_batch, self.candidates, self.lr, views)
        return Loop(
            model,
            Memory(self.memory, model.shape, model.device),
            self.reservoir_update(),
            retrieve,
            g,
            JointHead(self.joint, seed=model.seed, device=model.device),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            consistency=self.consistency,
            entropy=self.entropy,
            iterations=self.iterations,
        )
