"""The package's methods as frozen settings, and the named rows made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dualmix.registry import Method, Preset, add_preset, register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.model import Classifier
    from dualmix.rng import Rng
    from dualmix.types import Learner, Retrieve, Update


class Descent(Method):
    """What every method that descends a loss has in common."""

    lr: float = value(0.1, "learning rate of plain SGD", paper="0.1", source="paper", gt=0)
    weight_decay: float = value(0.0, "L2 penalty on all weights", paper="-", source="reference", ge=0)


class Rehearsal(Descent):
    """What every method with a memory has in common."""

    memory: int = value(1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=0)
    memory_batch: int = value(10, "images rehearsed beside a stream batch", paper="10", source="paper", ge=1)
    reservoir: Literal["exact", "ref"] = value(
        "exact",
        "exact: textbook reservoir sampling; ref: the reference code's, slightly too eager",
        paper="reservoir sampling",
        source="ours",
    )
    iterations: int = value(1, "steps a stream batch", paper="1 (online)", source="reference", ge=1)
    forward: Literal["separate", "joint"] = value(
        "separate",
        "one forward pass for each source of images, or one over all (batch-norm sees the difference)",
        source="reference",
    )

    def replay(self, model: Classifier, rng: Rng, update: Update, retrieve: Retrieve) -> Learner:
        """Make a rehearsal learner around two policies."""
        from dualmix.learners.replay import Replay
        from dualmix.memory import Memory

        return Replay(
            model,
            Memory(self.memory, model.shape, model.device),
            update,
            retrieve,
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            iterations=self.iterations,
            forward=self.forward,
        )


@register("er", paper="Tables 1-3, ER", values={"method.reservoir": "ref"})
class ER(Rehearsal):
    """Experience replay: each new batch beside a uniform draw from a reservoir."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        from dualmix.policies.reservoir import Reservoir
        from dualmix.policies.uniform import Uniform

        return self.replay(model, rng, Reservoir(self.reservoir), Uniform(self.memory_batch))


@register("finetune", paper="Table 1, Finetune")
class Finetune(Descent):
    """Learn each batch and keep nothing: the lower bound."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Experience replay with a memory of nothing."""
        return ER(lr=self.lr, weight_decay=self.weight_decay, memory=0).build(model, rng)


add_preset(
    Preset(
        "iid-offline",
        "finetune",
        "All classes at once, 70 epochs: the upper bound (variant: --stream.epochs 50 --method.weight_decay 0).",
        "Table 1, iid offline",
        {"stream.tasks": 1, "stream.epochs": 70, "stream.batch": 128, "method.weight_decay": 1e-4},
    )
)
add_preset(
    Preset(
        "iid-online",
        "finetune",
        "All classes at once, one pass in batches of 10: what an online learner could reach without forgetting.",
        "-",
        {"stream.tasks": 1},
    )
)
