"""Supervised contrastive replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.methods.augmenting import Augmenting
from dualmix.methods.common import Sampling
from dualmix.registry import Preset, add_preset, register
from dualmix.settings import Range, value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("scr", paper="Table 1, SCR", values={"method.reservoir": "ref"}, source="reference")
class SCR(Sampling, Augmenting):
    """SCR: two views of new and rehearsed images by supervised contrast, answers by the nearest
    class mean.
    """

    memory: int = value(
        1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=1
    )
    temperature: float = value(
        0.1,
        "what similarities are divided by (the reference's command line: 0.07)",
        source="reference",
        gt=0,
        tune=Range(0.05, 0.5, log=True),
    )
    projection: int = value(
        128, "length of the vectors that are compared", source="reference", ge=1
    )
    review: float = value(
        0.0,
        "in each pause one pass over the memory with gradients times this; 0: none (SCR's own tables: 0.1)",
        source="inferred",
        ge=0,
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval, a projector on the features."""
        from dualmix.learn.heads import Projector
        from dualmix.learn.learners.scr import SCR as Loop  # noqa: N811
        from dualmix.learn.memory import Memory
        from dualmix.learn.policies.uniform import Uniform

        return Loop(
            model,
            Memory(self.memory, model.shape, model.device),
            self.reservoir_update(),
            Uniform(self.memory_batch),
            self.transform(),
            Projector(
                model.backbone.features, self.projection, seed=model.seed, device=model.device
            ),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            temperature=self.temperature,
            memory_batch=self.memory_batch,
            review=self.review,
            iterations=self.iterations,
        )


_OWN_TABLES = {"method.reservoir": "ref", "method.memory_batch": 100, "method.review": 0.1}
add_preset(
    Preset(
        "scr-100",
        "scr",
        "SCR as in its own tables: 100 rehearsed images a step and a review of the memory in each pause.",
        "-",
        _OWN_TABLES,
        dict.fromkeys(_OWN_TABLES, "reference"),
    )
)
