"""Data: the settings that choose a data set."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from dualmix.data.catalog import DATASETS, load_installed
from dualmix.data.source import Fit
from dualmix.errors import worded
from dualmix.settings import Settings, setting


def _names() -> str:
    return f"data set: {', '.join(DATASETS)}."


class Data(Settings):
    """Which images to learn from and how to decode them."""

    name: str = setting(
        "digits",
        _names(),
        paper="CIFAR-100, Mini-ImageNet, Tiny-ImageNet",
        source="ours",
    )
    root: Path | None = setting(
        None, "folder that holds the data; else DUALMIX_DATA, else the platform's cache folder"
    )
    path: Path | None = setting(
        None, "your own data: a folder for `folder`, a .npz file for `arrays`"
    )
    size: int | None = setting(
        None,
        "height and width to resize images to when they are decoded; native if not given",
        paper="32, 84 and 64: native",
        source="paper",
        ge=4,
        le=1024,
    )
    fit: Fit = setting(
        "squeeze",
        "how images that are not square get to --data.size: squeeze (proportions change), crop "
        "(the middle) or pad (on black)",
    )
    skip: bool = setting(
        False, "leave out files among your images that are no images, instead of stopping at them"
    )
    held_out: float = setting(
        0.2, "share of each class for testing where the data are not divided", gt=0, lt=1
    )
    split_seed: int = setting(
        0,
        "seed of the draw of test images where the data are not divided",
        source="ours",
        ge=0,
        le=2**63 - 1,
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in DATASETS:
            load_installed()
        if name in DATASETS:
            return name
        near = get_close_matches(name.lower().replace("-", "_"), DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(DATASETS)}."
        raise ValueError(f"there is no data set {name!r}: {hint}")

    @model_validator(mode="after")
    def _path_fits(self) -> Self:
        if fault := self._fault():
            raise ValueError(worded(fault))
        return self

    def _fault(self) -> str | None:
        own = DATASETS[self.name].own
        if own and self.path is None:
            what = {"folder": "the folder of your images", "arrays": "your .npz file"}
            return (
                f"the data set {self.name!r} needs --data.path with "
                f"{what.get(self.name, 'its file or folder')}."
            )
        if not own and self.path is not None:
            return (
                f"--data.path is for your own images, not for {self.name!r}: choose --data.name "
                f"folder or arrays, or use --data.root for the folder that holds {self.name}."
            )
        if self.skip and not DATASETS[self.name].mixed:
            return f"--data.skip is for --data.name folder, not for {self.name!r}."
        if self.fit != "squeeze" and self.size is None:
            return f"--data.fit {self.fit} says how images get to one size: give --data.size too."
        return None


def describe_names() -> None:
    """Write the names that are known now into the help of ``--data.name``."""
    Data.model_fields["name"].description = _names()
