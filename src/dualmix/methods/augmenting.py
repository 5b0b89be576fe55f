"""The settings of the augmentation g, for every method that has views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import field_validator

from dualmix.settings import Settings, value

if TYPE_CHECKING:
    from dualmix.learn.types import Transform


class Augmenting(Settings):
    """Which augmentation, and how it draws."""

    augment: str = value(
        "standard",
        "augmentation g: standard (crop, flip, jitter, grey), identity, flip, jitter, grey, crop or crop-STRENGTH",
        paper="crop, flip, colour jitter, greyscale",
        source="paper",
    )
    per_sample: bool = value(
        True, "g draws for each image; false: once a batch, as the code of DVC does"
    )
    jitter_p: float = value(
        0.8, "probability of the colour jitter (SCR 0.8, DVC 1)", ge=0, le=1, source="reference"
    )

    @field_validator("augment")
    @classmethod
    def _known(cls, name: str) -> str:
        from dualmix.learn.augment_names import check_name

        check_name(name)
        return name

    def transform(self) -> Transform:
        """Return the augmentation g."""
        from dualmix.learn.augment import transform

        return transform(self.augment, per_sample=self.per_sample, jitter_p=self.jitter_p)
