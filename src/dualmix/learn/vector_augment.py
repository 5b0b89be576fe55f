"""Augmentations of vectors: noise and dropout, drawn for each number.

They are relative to the mean and the deviation of each number: over all rows that were learned so
far where the network counts them, as an MLP does, so that a batch of one row has views too; else
over the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dualmix.learn.lazy import torch
from dualmix.learn.types import Transform

if TYPE_CHECKING:
    from torch import Tensor

STRENGTH = 0.1
NAMES = ("noise", "dropout")
Spread = Callable[["Tensor"], tuple["Tensor", "Tensor"]]
"""What returns mean and deviation of each number, asked with a batch."""


def of_batch(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each number over the batch."""
    return x.mean(0), x.std(0, correction=0)


@dataclass(frozen=True, slots=True)
class Noise:
    """Add normal noise whose deviation is `strength` times that of each number, so that it fits
    vectors of any range, wherever their zero is.
    """

    strength: float = STRENGTH
    spread: Spread = field(default=of_batch, repr=False)

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return noisy vectors."""
        drawn = torch.from_numpy(rng.standard_normal(tuple(x.shape), np.float32)).to(x.device)
        return x + self.strength * self.spread(x)[1] * drawn


@dataclass(frozen=True, slots=True)
class Dropout:
    """Set each number to its mean with probability `p`: zero would be far outside of vectors that
    do not lie around it.
    """

    p: float = STRENGTH
    spread: Spread = field(default=of_batch, repr=False)

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return vectors with means."""
        kept = torch.from_numpy(rng.random(tuple(x.shape), np.float32) >= self.p).to(x.device)
        return torch.where(kept, x, self.spread(x)[0])


@dataclass(frozen=True, slots=True)
class NoiseAndDropout:
    """Both, each of its usual strength: what the standard augmentation is for vectors."""

    spread: Spread = field(default=of_batch, repr=False)

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return noisy vectors with means."""
        return Dropout(spread=self.spread)(Noise(spread=self.spread)(x, rng), rng)


def is_name(name: str) -> bool:
    """Whether a name is one of these: noise or dropout, or with a strength as in noise-0.2.

    Raises
    ------
    ValueError
        The strength is no number that can be meant.
    """
    kind, _, strength = name.partition("-")
    if kind not in NAMES:
        return False
    if strength or name != kind:
        _strength(kind, strength)
    return True


def vector_transform(name: str, spread: Spread = of_batch) -> Transform | None:
    """Return an augmentation of vectors by name, or nothing if the name is one of images only.

    Parameters
    ----------
    spread
        What knows the mean and the deviation of each number.

    Examples
    --------
    >>> vector_transform("noise-0.2")
    Noise(strength=0.2)
    """
    if name == "standard":
        return NoiseAndDropout(spread)
    if not is_name(name):
        return None
    kind, _, strength = name.partition("-")
    given = _strength(kind, strength) if strength else STRENGTH
    return Noise(given, spread) if kind == "noise" else Dropout(given, spread)


def _strength(kind: str, text: str) -> float:
    try:
        strength = float(text)
    except ValueError:
        strength = -1.0
    most = 1.0 if kind == "dropout" else 100.0
    if not 0 < strength < most:
        raise ValueError(f"the strength of {kind} is a number between 0 and {most:g}, not {text}")
    return strength
