"""Settings that methods share: the descent of a loss, a memory, a reservoir, an augmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from dualmix.learn.arithmetic import Engine
from dualmix.learn.augment import check_name, transform
from dualmix.learn.memory import Memory
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
        "shift (4 pixels each way), shift-flip or crop-STRENGTH; the colour jitter is "
        "torchvision's, the reference code's old kornia differs (additive brightness, contrast "
        "without the mean, HSV saturation, one order per batch)",
        paper="crop, flip, colour jitter, greyscale",
        source="paper",
    )

    @field_validator("augment")
    @classmethod
    def _known(cls, name: str) -> str:
        check_name(name)
        return name

    def transform(self, engine: Engine = "torch") -> Transform:
        """Return the augmentation g in an engine's arithmetic."""
        return transform(self.augment, engine=engine)


class Descent(Method):
    """What every method that descends a loss has in common."""

    lr: float = setting(
        0.1,
        "learning rate of plain SGD",
        paper="0.1",
        source="paper",
        gt=0,
        tune=Range(0.003, 0.3, log=True),
    )
    weight_decay: float = setting(
        0.0, "L2 penalty on all weights", paper="-", source="reference", ge=0
    )


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

    def empty_memory(self, model: Classifier) -> Memory:
        """Return a memory for the network's images, with nothing in it."""
        return Memory(self.memory, model.shape, model.device)


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
