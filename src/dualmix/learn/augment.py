"""Image augmentations on batches in [0, 1]: chance is drawn on the host for each image, pixels move
on the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dualmix import engine as native
from dualmix.errors import ConfigError
from dualmix.learn.arithmetic import TORCH, Arithmetic, Engine, arithmetic
from dualmix.learn.lazy import torch
from dualmix.learn.types import Transform
from dualmix.learn.vector_augment import Spread, is_name, of_batch, vector_transform

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("standard", "identity", "flip", "jitter", "grey", "crop", "shift", "shift-flip")
GREY = (0.299, 0.587, 0.114)
TRIES = 10


@dataclass(frozen=True, slots=True)
class Crop:
    """Cut out a random box and resize it to the whole image (bilinear).

    Parameters
    ----------
    scale
        Range [a, b] of the box's share of the area; the strength of the crop is (1 - a) + (1 - b).
    ratio
        Range of the box's width over its height, drawn evenly in the logarithm.
    per_sample
        A box for each image, or one for the whole batch.
    engine
        Whose arithmetic resizes.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    per_sample: bool = True
    engine: Engine = "torch"

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the crops."""
        boxes = self.boxes(len(x), tuple(x.shape[-2:]), rng)
        return arithmetic(self.engine).crop(x, boxes)

    def boxes(
        self, count: int, size: tuple[int, ...], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw (top, left, height, width) for each image.

        Area and ratio are drawn until the box fits, ten times at most; then the largest box of an
        allowed ratio is taken from the middle."""
        drawn = count if self.per_sample else 1
        height, width = size
        area = rng.uniform(*self.scale, (drawn, TRIES)) * height * width
        ratio = np.exp(
            rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), (drawn, TRIES))
        )
        w, h = (
            np.rint(np.sqrt(area * ratio)).astype(int),
            np.rint(np.sqrt(area / ratio)).astype(int),
        )
        place = rng.random((drawn, 2))
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        first, rows = fits.argmax(1), np.arange(drawn)
        w, h = w[rows, first], h[rows, first]
        boxes = np.stack(
            [place[:, 0] * (height - h + 1), place[:, 1] * (width - w + 1), h, w], 1
        ).astype(np.int64)
        boxes[~fits.any(1)] = _middle(height, width, self.ratio)
        return np.broadcast_to(boxes, (count, 4))


def _middle(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


@dataclass(frozen=True, slots=True)
class Flip:
    """Mirror left and right with probability `p`."""

    p: float = 0.5
    per_sample: bool = True

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images, some mirrored."""
        return _where(_coins(self.p, x, rng, self.per_sample), x.flip(-1), x)


@dataclass(frozen=True, slots=True)
class Shift:
    """Move the image by up to `most` pixels each way, black where nothing was: a crop of the image
    with a border, the usual augmentation of CIFAR (He et al., 2016, arXiv:1512.03385).
    """

    most: int = 4
    per_sample: bool = True

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images, each moved."""
        size = (len(x) if self.per_sample else 1, 2)
        drawn = rng.integers(0, 2 * self.most + 1, size)
        moved = torch.from_numpy(np.broadcast_to(drawn, (len(x), 2)).copy()).to(x.device)
        height, width = x.shape[-2:]
        rows = torch.arange(height, device=x.device) + moved[:, :1]
        columns = torch.arange(width, device=x.device) + moved[:, 1:]
        wide = torch.nn.functional.pad(x, [self.most] * 4).permute(0, 2, 3, 1)
        image = torch.arange(len(x), device=x.device)[:, None, None]
        return wide[image, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Greyscale:
    """Replace colours by their grey with probability `p`; images of one channel stay."""

    p: float = 0.2
    per_sample: bool = True
    engine: Engine = "torch"

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images, some without colour."""
        coins = _coins(self.p, x, rng, self.per_sample)
        return _where(coins, grey(x, arithmetic(self.engine)).expand_as(x), x)


@dataclass(frozen=True, slots=True)
class ColourJitter:
    """Change brightness, contrast, saturation and hue by random amounts in random order, with
    probability `p`.

    It is that of torchvision. The reference code has an old kornia's, which differs: brightness is
    added, contrast scales without the mean, saturation is that of HSV, and the order is drawn once
    per batch.

    Parameters
    ----------
    brightness, contrast, saturation
        A factor from [1 - v, 1 + v].
    hue
        A turn of the colour circle from [-v, v].
    per_sample
        Amounts and order for each image, or one for the whole batch.
    engine
        Whose arithmetic it is.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    p: float = 0.8
    per_sample: bool = True
    engine: Engine = "torch"

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images, some with other colours, clipped to [0, 1] after every change."""
        drawn = len(x) if self.per_sample else 1
        spread = np.array([self.brightness, self.contrast, self.saturation, self.hue])
        amount = rng.uniform(-spread, spread, (drawn, 4)) + np.array([1, 1, 1, 0])
        order = rng.permuted(np.tile(np.arange(4), (drawn, 1)), axis=1)
        coins = _coins(self.p, x, rng, self.per_sample)
        amount, order = np.broadcast_to(amount, (len(x), 4)), np.broadcast_to(order, (len(x), 4))
        amount, order = amount.astype(np.float32), np.where(coins[:, None], order, -1)
        if self.engine == "native":
            return native.jitter(x, amount, order, GREY)
        return jitter(x, amount, order)


def jitter(x: Tensor, amount: NDArray[np.float32], order: NDArray[np.int64]) -> Tensor:
    """Change each image's brightness (0), contrast (1), saturation (2) and hue (3) by its amounts
    in its order.

    Parameters
    ----------
    amount
        (n, 4): three factors and a turn.
    order
        (n, 4): which change comes first, second, third, fourth; -1 for none.
    """
    x = x.clone(memory_format=torch.preserve_format)
    for place in range(4):
        for change, apply in enumerate(CHANGES):
            rows = np.flatnonzero(order[:, place] == change)
            if len(rows):
                index = torch.from_numpy(rows).to(x.device)
                by = torch.from_numpy(amount[rows, change]).to(x.device).view(-1, 1, 1, 1)
                x[index] = apply(x[index], by)
    return x


def brighten(x: Tensor, by: Tensor) -> Tensor:
    """Scale all pixels."""
    return (x * by).clamp_(0, 1)


def contrast(x: Tensor, by: Tensor) -> Tensor:
    """Scale the distance of all pixels from the image's mean grey."""
    return _from(grey(x).mean((1, 2, 3), keepdim=True), x, by)


def saturate(x: Tensor, by: Tensor) -> Tensor:
    """Scale the distance of each pixel from its own grey."""
    return _from(grey(x), x, by)


def turn_hue(x: Tensor, by: Tensor) -> Tensor:
    """Turn each pixel around the colour circle by a share of it; value and saturation stay."""
    if x.shape[1] != 3:
        return x
    red, green, blue = x.unbind(1)
    top, low = x.amax(1), x.amin(1)
    spread = top - low
    safe = torch.where(spread == 0, 1, spread)
    hue = torch.where(top == red, (green - blue) / safe, 4 + (red - green) / safe)
    hue = torch.where((top == green) & (top != red), 2 + (blue - red) / safe, hue)
    sixths = hue + 6 * by.view(-1, 1, 1)
    parts = []
    for offset in (5, 3, 1):
        k = (offset + sixths) % 6
        parts.append(top - spread * torch.minimum(k, 4 - k).clamp_(0, 1))
    return torch.stack(parts, 1).clamp_(0, 1)


CHANGES = (brighten, contrast, saturate, turn_hue)


def grey(x: Tensor, by: Arithmetic = TORCH) -> Tensor:
    """Return the luma of colour images (n, 1, H, W); other images as they are."""
    return by.grey(x, GREY) if x.shape[1] == 3 else x


@dataclass(frozen=True, slots=True)
class Chain:
    """One transform after another."""

    parts: tuple[Transform, ...]

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the images after all parts."""
        for part in self.parts:
            x = part(x, rng)
        return x


def identity(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Return the images as they are."""
    return x


def standard(*, per_sample: bool = True, jitter_p: float = 0.8, engine: Engine = "torch") -> Chain:
    """Return the "normal DA" of the DualMix paper (Fan et al., 2023, arXiv:2303.07864): crop, flip,
    colour jitter, greyscale.
    """
    return Chain(
        (
            Crop(per_sample=per_sample, engine=engine),
            Flip(per_sample=per_sample),
            ColourJitter(p=jitter_p, per_sample=per_sample, engine=engine),
            Greyscale(per_sample=per_sample, engine=engine),
        )
    )


def transform(
    name: str,
    *,
    per_sample: bool = True,
    jitter_p: float = 0.8,
    engine: Engine = "torch",
    vectors: bool = False,
    spread: Spread = of_batch,
) -> Transform:
    """Return an augmentation by name: standard, identity, flip, jitter, grey, crop, shift,
    shift-flip, or crop-S with a strength S; for vectors standard, identity, noise or dropout (see
    `vector_augment`).

    Examples
    --------
    >>> transform("crop-1.3").scale
    (0.2, 0.5)
    """
    check_name(name)
    if vectors and name != "identity":
        of_vectors = vector_transform(name, spread)
        if of_vectors is None:
            raise ConfigError(
                f"The augmentation {name} is for images, but the learner is for vectors: give "
                "standard, noise, dropout or identity."
            )
        return of_vectors
    if is_name(name):
        raise ConfigError(f"The augmentation {name} is for vectors: give one for images.")
    if name.startswith("crop-"):
        scale = crop_range(name.removeprefix("crop-"))
        return Crop(scale=scale, per_sample=per_sample, engine=engine)
    parts: dict[str, Transform] = {
        "standard": standard(per_sample=per_sample, jitter_p=jitter_p, engine=engine),
        "identity": identity,
        "flip": Flip(per_sample=per_sample),
        "jitter": ColourJitter(p=jitter_p, per_sample=per_sample, engine=engine),
        "grey": Greyscale(per_sample=per_sample, engine=engine),
        "crop": Crop(per_sample=per_sample, engine=engine),
        "shift": Shift(per_sample=per_sample),
        "shift-flip": Chain((Shift(per_sample=per_sample), Flip(per_sample=per_sample))),
    }
    return parts[name]


def check_name(name: str) -> None:
    """Raise ValueError unless a name is in `NAMES`, crop-S with a strength S as in crop-0.8, or one
    for vectors.
    """
    if name.startswith("crop-"):
        crop_range(name.removeprefix("crop-"))
    elif name not in NAMES and not is_name(name):
        raise ValueError(
            f"there is no augmentation {name!r}: choose {', '.join(NAMES)} or crop-S, e.g. "
            "crop-0.8; for vectors standard, identity, noise or dropout"
        )


def crop_range(strength: float | str) -> tuple[float, float]:
    """Return the range [a, b] of a crop's scale whose strength (1 - a) + (1 - b) is given.

    Up to 0.8 the range is [1 - strength, 1]; beyond it a stays 0.2 and b falls, so that 1.3 is
    [0.2, 0.5].

    Examples
    --------
    >>> crop_range(1.3)
    (0.2, 0.5)
    """
    try:
        wanted = float(strength)
    except ValueError:
        wanted = 0.0
    if not 0 < wanted < 1.6:
        raise ValueError(f"the strength of a crop is a number between 0 and 1.6, not {strength}")
    return (round(1 - wanted, 12), 1.0) if wanted <= 0.8 else (0.2, round(1.8 - wanted, 12))


def _coins(p: float, x: Tensor, rng: np.random.Generator, per_sample: bool) -> NDArray[np.bool_]:
    return np.broadcast_to(rng.random(len(x) if per_sample else 1) < p, len(x))


def _where(coins: NDArray[np.bool_], yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(torch.from_numpy(coins.copy()).to(no.device).view(-1, 1, 1, 1), yes, no)


def _from(base: Tensor, x: Tensor, by: Tensor) -> Tensor:
    return (base + (x - base) * by).clamp_(0, 1)
