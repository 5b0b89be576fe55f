"""Gradient-based sample selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.methods.common import Host
from dualmix.registry import register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register("gss", paper="Tables 1 and 2, GSS")
class GSS(Host):
    """Gradient-based sample selection: keep rows whose gradients point in different directions."""

    part: int = value(
        10,
        "rows of the memory that make one gradient to compare with (gss_batch_size)",
        source="reference",
        ge=1,
    )
    parts: int = value(10, "gradients to compare with (gss_mem_strength)", source="reference", ge=1)

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Update by gradient diversity, uniform retrieval."""
        from dualmix.learn.policies.gradients import Gradients
        from dualmix.learn.policies.uniform import Uniform

        return self.replay(model, rng, Gradients(self.part, self.parts), Uniform(self.memory_batch))
