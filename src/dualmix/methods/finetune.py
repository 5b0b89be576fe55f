"""The bounds: finetuning, and all classes at once. Both are plain SGD and have no paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.learn.memory import Memory
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Learner
from dualmix.methods.common import Descent
from dualmix.registry import Preset, add_preset, register

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@register("finetune", paper="Table 1, Finetune")
class Finetune(Descent):
    """Learn each batch and keep nothing: the lower bound."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Experience replay with a memory of nothing."""
        nothing = Memory(0, model.shape, model.device)
        return Replay(
            model,
            nothing,
            Reservoir(),
            Uniform(1),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
        )


_OFFLINE = {
    "stream.tasks": 1,
    "stream.epochs": 70,
    "stream.batch": 128,
    "stream.incomplete": "drop",
    "method.weight_decay": 1e-4,
}
add_preset(
    Preset(
        "iid-offline",
        "finetune",
        "All classes at once, 70 epochs: the upper bound "
        "(variant: --stream.epochs 50 --method.weight_decay 0).",
        "Table 1, iid offline",
        _OFFLINE,
        {**dict.fromkeys(_OFFLINE, "inferred"), "stream.incomplete": "reference"},
    )
)
add_preset(
    Preset(
        "iid-online",
        "finetune",
        "All classes at once, one pass in batches of 10: what an online learner could reach "
        "without forgetting.",
        "-",
        {"stream.tasks": 1},
    )
)
