"""Settings that methods share: the descent of a loss, a memory, a reservoir, an augmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationInfo, field_validator

from dualmix.learn.augment import check_name, transform
from dualmix.learn.memory import Memory
from dualmix.learn.optimisers import Optimiser
from dualmix.learn.sampling import Balanced, Reservoir
from dualmix.learn.types import Transform, Update
from dualmix.registry import Method
from dualmix.settings import Range, Settings, setting

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier


class Augmenting(Settings):
    """Which augmentation g makes views."""

    augment: str = setting(
        "standard",
        "augmentation g: standard (crop, flip, jitter, grey), identity, flip, jitter, grey, crop, "
        "shift (4 pixels each way), shift-flip or crop-STRENGTH; for vectors standard (noise and "
        "dropout), identity, noise or dropout; the colour jitter is torchvision's, the reference "
        "code's old kornia differs (additive brightness, contrast without the mean, HSV "
        "saturation, one order per batch)",
        paper="crop, flip, colour jitter, greyscale",
        source="paper",
    )

    @field_validator("augment")
    @classmethod
    def _known(cls, name: str) -> str:
        check_name(name)
        return name

    def transform(self, model: Classifier | None = None) -> Transform:
        """Return the augmentation g for what a network takes, in its engine's arithmetic; none:
        for images, in torch's.
        """
        return transform(self.augment, **suited(model))


def suited(model: Classifier | None) -> dict[str, Any]:
    """Return what `transform` must know of a network."""
    if model is None:
        return {}
    return {"engine": model.engine, "vectors": len(model.shape) == 1, "spread": model.spread}


class Descent(Method):
    """What every method that descends a loss has in common."""

    lr: float = setting(
        0.1,
        "learning rate; Adam and AdamW want a smaller one, such as 0.001",
        paper="0.1",
        source="paper",
        gt=0,
        tune=Range(0.003, 0.3, log=True),
    )
    weight_decay: float = setting(
        0.0, "L2 penalty on all weights", paper="-", source="reference", ge=0
    )
    optimiser: Literal["sgd", "adam", "adamw"] = setting(
        "sgd",
        "sgd is plain and keeps nothing; adam and adamw keep two numbers per weight, as momentum "
        "keeps one; a step that a method only tries out stays plain",
        paper="SGD",
        source="paper",
    )
    momentum: float = setting(0.0, "share of the last step that goes on, for sgd", ge=0, lt=1)

    @field_validator("momentum")
    @classmethod
    def _of_sgd(cls, momentum: float, given: ValidationInfo) -> float:
        if momentum and given.data.get("optimiser") != "sgd":
            raise ValueError("momentum is for sgd: adam and adamw have their own, so give 0")
        return momentum

    def stepper(self) -> Optimiser | None:
        """Return what takes steps with a memory of their own; none: plain SGD."""
        plain = self.optimiser == "sgd" and not self.momentum
        return None if plain else Optimiser(self.optimiser, self.momentum)


class Remembering(Descent):
    """What every method with a memory has in common."""

    memory: int = setting(
        1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=0
    )
    memory_batch: int = setting(
        10,
        "images rehearsed beside a stream batch",
        paper="10",
        source="paper",
        ge=1,
        tune=Range(5, 50, log=True, asked=True),
    )
    iterations: int = setting(
        1, "steps per stream batch", paper="1 (online)", source="reference", ge=1, le=1000
    )

    stored: Literal["float32", "float16"] = setting(
        "float32", "how the memory keeps vectors (images are kept as bytes)"
    )

    def empty_memory(self, model: Classifier) -> Memory:
        """Return a memory for the network's rows, with nothing in it."""
        return Memory(self.memory, model.shape, model.device, self.stored)


class Sampling(Remembering):
    """What every method has in common whose memory is a reservoir."""

    reservoir: Literal["exact", "ref", "balanced"] = setting(
        "exact",
        "exact: textbook reservoir sampling; ref: the reference code's, slightly too eager; "
        "balanced: by class (CBRS)",
        paper="reservoir sampling",
        source="ours",
    )

    def reservoir_update(self) -> Update:
        """Make the update that the setting `reservoir` names."""
        return Balanced() if self.reservoir == "balanced" else Reservoir(self.reservoir)
