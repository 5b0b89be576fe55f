"""Augmentations against hand formulas, torch's own resize, colorsys and (where it is installed)
kornia.
"""

from __future__ import annotations

import colorsys
import math
import random
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from dualmix.learn.arithmetic import TORCH
from dualmix.learn.augment import (
    CHANGES,
    NAMES,
    Chain,
    ColourJitter,
    Crop,
    Flip,
    Greyscale,
    brighten,
    contrast,
    grey,
    identity,
    jitter,
    saturate,
    standard,
    transform,
    turn_hue,
)

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
EVERY = {name: transform(name) for name in (*NAMES, "crop-1.3")}
RANDOM = {name: g for name, g in EVERY.items() if name != "identity"}
NOTHING = ColourJitter(brightness=0, contrast=0, saturation=0, hue=0, p=1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def images(
    count: int, channels: int = 3, height: int = 12, width: int = 12, seed: int = 0
) -> Tensor:
    """Images as the memory hands them out: channels first, laid out channels last."""
    return (
        torch.from_numpy(rng(seed).random((count, height, width, channels)))
        .float()
        .permute(0, 3, 1, 2)
    )


def alike(image: Tensor, count: int) -> Tensor:
    return image[None].repeat(count, 1, 1, 1).contiguous(memory_format=torch.channels_last)


def by(*amounts: float) -> Tensor:
    return torch.tensor(amounts).view(-1, 1, 1, 1)


def likely(hits: int, tries: int, p: float) -> bool:
    return stats.binomtest(hits, tries, p).pvalue > 0.001


# All of them


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("name", EVERY)
def test_images_stay_images(name: str, channels: int) -> None:
    x = images(8, channels, 9, 13)
    before = x.clone()
    found = EVERY[name](x, rng())
    assert found.shape == x.shape
    assert found.dtype == torch.float32
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(x, before), "what goes in stays as it was"
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", EVERY)
def test_images_of_only_black_and_white_stay_within_the_range(name: str) -> None:
    x = (images(40) > 0.5).float()
    found = EVERY[name](x, rng())
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("name", EVERY)
def test_images_laid_out_channels_first_give_the_same(name: str) -> None:
    x = images(6)
    torch.testing.assert_close(EVERY[name](x.contiguous(), rng()), EVERY[name](x, rng()))


def global_chance() -> tuple[Any, ...]:
    ours = np.random.get_state()[1].tolist()  # noqa: NPY002
    return random.getstate(), ours, torch.get_rng_state().tolist()


@pytest.mark.parametrize("name", RANDOM)
def test_chance_comes_from_the_generator_alone(name: str) -> None:
    x, before = images(8), global_chance()
    first = EVERY[name](x, rng(5))
    assert global_chance() == before
    random.random()
    np.random.random()  # noqa: NPY002
    torch.rand(1)
    assert torch.equal(EVERY[name](x, rng(5)), first)
    assert not torch.equal(EVERY[name](x, rng(6)), first)


@pytest.mark.parametrize("name", RANDOM)
def test_every_image_has_chance_of_its_own(name: str) -> None:
    found = transform(name, jitter_p=0.8)(alike(images(1)[0], 30), rng())
    assert len({tuple(image.flatten().tolist()) for image in found}) >= 2


@pytest.mark.parametrize("name", RANDOM)
def test_one_draw_serves_the_batch_where_told_to(name: str) -> None:
    x, g = alike(images(1)[0], 30), transform(name, per_sample=False)
    drawn = [g(x, rng(seed)) for seed in range(20)]
    for found in drawn:
        torch.testing.assert_close(found, found[:1].expand_as(found))
    assert len({tuple(found[0].flatten().tolist()) for found in drawn}) >= 2


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("per_sample", [True, False])
def test_an_image_does_not_depend_on_its_neighbours(name: str, per_sample: bool) -> None:
    x = images(6)
    g = transform(name, per_sample=per_sample)
    other = x.clone()
    other[1:] = 1 - other[1:]
    torch.testing.assert_close(g(x, rng(3))[0], g(other, rng(3))[0])


def test_amounts_of_two_images_are_independent() -> None:
    x = alike(torch.full((3, 4, 4), 0.5), 2)
    g, chance = ColourJitter(contrast=0, saturation=0, hue=0, p=1), rng(1)
    drawn = np.array([g(x, chance)[:, 0, 0, 0].tolist() for _ in range(400)])
    assert abs(stats.pearsonr(drawn[:, 0], drawn[:, 1]).statistic) < 0.15


# Crop


@quick
@given(
    st.integers(4, 40),
    st.integers(4, 40),
    st.sampled_from([(0.2, 1.0), (0.2, 0.5), (0.9, 1.0), (0.05, 0.1)]),
    st.integers(0, 10**6),
)
def test_boxes_are_inside_and_as_large_as_stated(
    height: int, width: int, scale: tuple[float, float], seed: int
) -> None:
    boxes = Crop(scale=scale).boxes(50, (height, width), rng(seed))
    top, left, h, w = boxes.T
    assert (boxes >= 0).all()
    assert (h >= 1).all()
    assert (w >= 1).all()
    assert (top + h <= height).all()
    assert (left + w <= width).all()
    middle = (top == (height - h) // 2) & (left == (width - w) // 2)
    fits = ((h - 0.5) * (w - 0.5) <= scale[1] * height * width) & (
        (h + 0.5) * (w + 0.5) >= scale[0] * height * width
    )
    shape = ((w + 0.5) / (h - 0.5) >= 3 / 4) & ((w - 0.5) / (h + 0.5) <= 4 / 3)
    assert shape.all()
    assert (fits | middle).all()
    assert fits.mean() > 0.9 or not 0.5 < height / width < 2 or scale == (0.9, 1.0)


def test_boxes_follow_the_law_of_scale_and_ratio() -> None:
    size = 1000
    _, _, h, w = Crop(scale=(0.1, 0.5)).boxes(2000, (size, size), rng(2)).T
    assert stats.kstest(h * w / size**2, stats.uniform(0.1, 0.4).cdf).pvalue > 0.01
    turn = math.log(4 / 3)
    assert stats.kstest(np.log(w / h), stats.uniform(-turn, 2 * turn).cdf).pvalue > 0.01


def test_boxes_are_placed_evenly() -> None:
    boxes = Crop(scale=(0.25, 0.25), ratio=(1, 1)).boxes(3000, (8, 8), rng(3))
    assert (boxes[:, 2:] == 4).all()
    for side in (0, 1):
        found = Counter(boxes[:, side].tolist())
        assert sorted(found) == [0, 1, 2, 3, 4]
        assert stats.chisquare([found[at] for at in range(5)]).pvalue > 0.01
    assert abs(stats.pearsonr(boxes[:, 0], boxes[:, 1]).statistic) < 0.1


def test_one_box_serves_the_batch_where_told_to() -> None:
    boxes = Crop(per_sample=False).boxes(5, (16, 16), rng())
    assert boxes.shape == (5, 4)
    assert (boxes == boxes[0]).all()
    assert len({tuple(box) for box in Crop().boxes(5, (16, 16), rng())}) == 5


@pytest.mark.parametrize(
    ("size", "box"),
    [((8, 40), (0, 14, 8, 11)), ((40, 8), (14, 0, 11, 8)), ((16, 16), (0, 0, 16, 16))],
)
def test_a_box_that_never_fits_is_taken_from_the_middle(
    size: tuple[int, int], box: tuple[int, ...]
) -> None:
    g = Crop(scale=(1.5, 2.0))
    assert (g.boxes(20, size, rng()) == np.array(box)).all()


def test_a_box_may_fit_at_any_of_ten_tries() -> None:
    """At 99 % of the area nearly half of the single draws are too long; ten tries leave few boxes
    in the middle.
    """
    boxes = Crop(scale=(0.9, 0.99)).boxes(500, (64, 64), rng(1))
    assert (boxes[:, 2:].prod(1) == 64 * 64).mean() < 0.25
    assert (boxes[:, 2:].prod(1) < 64 * 64).any()


def test_nothing_is_cut_off_where_all_is_wanted() -> None:
    x = images(6, height=11, width=11)
    assert torch.equal(Crop(scale=(1, 1), ratio=(1, 1))(x, rng()), x)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (9, 14)])
def test_crop_is_the_bilinear_resize_of_torch(height: int, width: int) -> None:
    chance = rng(4)
    x = images(60, 3, height, width)
    h, w = chance.integers(1, height + 1, 60), chance.integers(1, width + 1, 60)
    boxes = np.stack(
        [chance.integers(0, height - h + 1), chance.integers(0, width - w + 1), h, w], 1
    )
    found = TORCH.crop(x, boxes)
    for image, (top, left, tall, wide), result in zip(x, boxes, found, strict=True):
        cut = image[None, :, top : top + tall, left : left + wide]
        expected = F.interpolate(cut, (height, width), mode="bilinear", align_corners=False)[0]
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)


def test_crop_uses_the_boxes_it_draws() -> None:
    x = images(7)
    g = Crop(scale=(0.2, 0.5))
    assert torch.equal(g(x, rng(8)), TORCH.crop(x, g.boxes(7, (12, 12), rng(8))))


# Flip, grey


def test_flip_mirrors_left_and_right() -> None:
    x = images(3, height=4, width=5)
    found = Flip(p=1)(x, rng())
    assert torch.equal(found, x[..., [4, 3, 2, 1, 0]])
    assert torch.equal(Flip(p=1)(found, rng()), x)
    assert torch.equal(Flip(p=0)(x, rng()), x)


@pytest.mark.parametrize(
    ("g", "p"), [(Flip(), 0.5), (Flip(p=0.1), 0.1), (Greyscale(), 0.2), (ColourJitter(), 0.8)]
)
@pytest.mark.parametrize("per_sample", [True, False])
def test_probability(g: Any, p: float, per_sample: bool) -> None:
    g = type(g)(p=p, per_sample=per_sample)
    assert type(g)().p == {Flip: 0.5, Greyscale: 0.2, ColourJitter: 0.8}[type(g)]
    image, chance, tries = images(1, height=2, width=2)[0], rng(9), 1000
    x = alike(image, tries if per_sample else 1)
    batches = [g(x, chance) for _ in range(1 if per_sample else tries)]
    changed = sum(int((batch != image).any((1, 2, 3)).sum()) for batch in batches)
    assert likely(changed, tries, p)


def test_grey_by_hand() -> None:
    x = torch.tensor([0.2, 0.4, 0.9]).view(1, 3, 1, 1)
    luma = 0.299 * 0.2 + 0.587 * 0.4 + 0.114 * 0.9
    torch.testing.assert_close(grey(x), torch.full((1, 1, 1, 1), luma))
    torch.testing.assert_close(Greyscale(p=1)(x, rng()), torch.full((1, 3, 1, 1), luma))
    assert torch.equal(Greyscale(p=0)(x, rng()), x)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_without_colours_have_no_grey_or_hue(channels: int) -> None:
    x = images(2, channels)
    assert torch.equal(grey(x), x)
    assert torch.equal(Greyscale(p=1)(x, rng()), x)
    assert torch.equal(turn_hue(x, by(0.1, 0.2)), x)
    torch.testing.assert_close(saturate(x, by(0.3, 2.0)), x)


# Colours


def test_brightness_by_hand() -> None:
    x = torch.tensor([[0.2, 0.5, 0.9], [0.2, 0.5, 0.9]]).view(2, 3, 1, 1)
    expected = torch.tensor([[0.1, 0.25, 0.45], [0.28, 0.7, 1.0]]).view(2, 3, 1, 1)
    torch.testing.assert_close(brighten(x, by(0.5, 1.4)), expected)


def test_contrast_by_hand() -> None:
    """Grey pixels 0.2 and 0.6 in the first image, 0.1 and 0.9 in the second: means 0.4, 0.5."""
    x = torch.tensor([[0.2, 0.6], [0.1, 0.9]])[:, None, None].repeat(1, 3, 1, 1)
    expected = torch.tensor([[0.3, 0.5], [0.0, 1.0]])[:, None, None].repeat(1, 3, 1, 1)
    torch.testing.assert_close(contrast(x, by(0.5, 1.4)), expected)


def test_contrast_starts_from_the_mean_of_the_luma() -> None:
    x = images(1)
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    torch.testing.assert_close(contrast(x, by(0.0)), (x * weights).sum(1).mean().expand_as(x))


def test_contrast_of_one_channel_starts_from_its_mean() -> None:
    x = images(2, 1)
    mean = x.mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(contrast(x, by(0.7, 0.3)), mean + (x - mean) * by(0.7, 0.3))


def test_saturation_by_hand() -> None:
    x = torch.tensor([0.2, 0.4, 0.9]).view(1, 3, 1, 1)
    luma = 0.299 * 0.2 + 0.587 * 0.4 + 0.114 * 0.9
    for factor in (0.0, 0.6, 1.0, 1.4):
        expected = [min(max(luma + factor * (c - luma), 0), 1) for c in (0.2, 0.4, 0.9)]
        torch.testing.assert_close(saturate(x, by(factor)).flatten(), torch.tensor(expected))


def test_hue_is_that_of_colorsys_pixel_by_pixel() -> None:
    x = images(4, height=8, width=8)
    x[0, :, 0] = torch.tensor([[0.0, 1.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.3]])
    x[1, :, 0, 0] = torch.tensor([0.5, 0.5, 0.1])
    x[1, :, 0, 1] = torch.tensor([0.1, 0.5, 0.5])
    x[1, :, 0, 2] = torch.tensor([0.5, 0.1, 0.5])
    turns = (0.1, -0.1, 0.5, -0.37)
    found = turn_hue(x, by(*turns))
    for image, turn, result in zip(x, turns, found, strict=True):
        for pixel, turned in zip(
            image.flatten(1).T.tolist(), result.flatten(1).T.tolist(), strict=True
        ):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            assert turned == pytest.approx(
                colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), abs=2e-6
            )


def test_pure_colours_turn_into_each_other() -> None:
    colours = torch.eye(3).view(3, 3, 1, 1)
    torch.testing.assert_close(
        turn_hue(colours, by(*[1 / 3] * 3)), colours[[1, 2, 0]], atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        turn_hue(colours, by(*[-1 / 3] * 3)), colours[[2, 0, 1]], atol=1e-6, rtol=0
    )
    torch.testing.assert_close(turn_hue(colours, by(1.0, -1.0, 0.0)), colours, atol=1e-6, rtol=0)


def test_jitter_goes_in_the_given_order() -> None:
    x = images(24)
    orders = np.array(list(permutations(range(4))))
    amount = np.tile(np.array([1.3, 0.7, 1.4, 0.1], dtype=np.float32), (24, 1))
    found = jitter(x, amount, orders)
    for image, order, result in zip(x, orders, found, strict=True):
        expected = image[None]
        for change in order:
            expected = CHANGES[change](expected, by(float(amount[0, change])))
        torch.testing.assert_close(result, expected[0])
    first = alike(x[0], 24)
    assert not torch.allclose(jitter(first, amount, orders)[0], jitter(first, amount, orders)[-1])


def test_jitter_takes_each_images_own_amounts() -> None:
    x = alike(torch.full((3, 2, 2), 0.5), 3)
    amount = np.array([[0.5, 1, 1, 0], [1.5, 1, 1, 0], [0.1, 1, 1, 0]], dtype=np.float32)
    order = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [-1, -1, -1, -1]])
    torch.testing.assert_close(
        jitter(x, amount, order)[:, 0, 0, 0], torch.tensor([0.25, 0.75, 0.5])
    )


def test_changes_are_numbered_as_stated() -> None:
    assert (brighten, contrast, saturate, turn_hue) == CHANGES


def drawn_by(
    monkeypatch: pytest.MonkeyPatch, g: ColourJitter, count: int, seed: int
) -> tuple[Any, Any]:
    kept: list[Any] = []
    monkeypatch.setattr(
        "dualmix.learn.augment.jitter", lambda x, amount, order: kept.extend((amount, order))
    )
    g(torch.zeros(count, 3, 1, 1), rng(seed))
    return kept[0], kept[1]


def test_amounts_and_orders_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    g = ColourJitter(brightness=0.4, contrast=0.3, saturation=0.2, hue=0.1, p=1)
    amount, order = drawn_by(monkeypatch, g, 4800, 7)
    found = Counter(tuple(row) for row in order.tolist())
    assert len(found) == 24
    assert stats.chisquare(list(found.values())).pvalue > 0.01
    for column, (centre, spread) in enumerate(((1, 0.4), (1, 0.3), (1, 0.2), (0, 0.1))):
        law = stats.uniform(centre - spread, 2 * spread)
        assert stats.kstest(amount[:, column].astype(float), law.cdf).pvalue > 0.01
    assert np.abs(np.corrcoef(amount.T) - np.eye(4)).max() < 0.06


def test_one_order_and_amount_serve_the_batch_where_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    amount, order = drawn_by(monkeypatch, ColourJitter(p=1, per_sample=False), 5, 1)
    assert amount.shape == order.shape == (5, 4)
    assert (amount == amount[0]).all()
    assert (order == order[0]).all()


def test_jitter_without_amounts_changes_nothing() -> None:
    x = images(5)
    torch.testing.assert_close(NOTHING(x, rng()), x, atol=1e-6, rtol=0)
    assert torch.equal(ColourJitter(p=0)(x, rng()), x)


def test_jitter_has_the_amounts_of_the_reference() -> None:
    g = ColourJitter()
    assert (g.brightness, g.contrast, g.saturation, g.hue, g.p) == (0.4, 0.4, 0.4, 0.1, 0.8)


# Together


def test_a_chain_goes_through_its_parts_in_order() -> None:
    def add(x: Tensor, chance: Any) -> Tensor:
        return x + float(chance.random())

    def double(x: Tensor, chance: Any) -> Tensor:
        return 2 * x

    drawn = rng(3).random()
    assert float(Chain((add, double))(torch.zeros(1), rng(3))) == pytest.approx(2 * drawn)
    assert float(Chain((double, add))(torch.zeros(1), rng(3))) == pytest.approx(drawn)


@pytest.mark.parametrize("per_sample", [True, False])
def test_standard_is_crop_flip_jitter_grey(per_sample: bool) -> None:
    assert standard(per_sample=per_sample, jitter_p=0.3).parts == (
        Crop((0.2, 1.0), (3 / 4, 4 / 3), per_sample),
        Flip(0.5, per_sample),
        ColourJitter(0.4, 0.4, 0.4, 0.1, 0.3, per_sample),
        Greyscale(0.2, per_sample),
    )
    assert standard() == standard(per_sample=True, jitter_p=0.8)


@pytest.mark.parametrize("options", [{}, {"per_sample": False, "jitter_p": 1.0}])
def test_names(options: dict[str, Any]) -> None:
    per_sample, p = options.get("per_sample", True), options.get("jitter_p", 0.8)
    assert transform("standard", **options) == standard(per_sample=per_sample, jitter_p=p)
    assert transform("identity", **options) is identity
    assert transform("flip", **options) == Flip(per_sample=per_sample)
    assert transform("jitter", **options) == ColourJitter(p=p, per_sample=per_sample)
    assert transform("grey", **options) == Greyscale(per_sample=per_sample)
    assert transform("crop", **options) == Crop(per_sample=per_sample)
    assert transform("crop-0.8", **options) == Crop(per_sample=per_sample)
    assert transform("crop-0.3", **options) == Crop(scale=(0.7, 1.0), per_sample=per_sample)
    assert transform("crop-1.3", **options) == Crop(scale=(0.2, 0.5), per_sample=per_sample)
    with pytest.raises(ValueError, match="no augmentation 'blur'"):
        transform("blur", **options)


def test_identity_returns_what_it_was_given() -> None:
    x, chance = images(2), rng()
    assert identity(x, chance) is x
    assert chance.bit_generator.state == rng().bit_generator.state


# Kornia


@pytest.fixture(scope="module")
def kornia() -> Any:
    return pytest.importorskip(
        "kornia", reason="KORNIA MISSING: pip install kornia to compare with it"
    )


AMOUNTS = (0.6, 0.8, 1.0, 1.25, 1.4)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (brighten, "adjust_brightness_accumulative"),
        (contrast, "adjust_contrast_with_mean_subtraction"),
        (saturate, "adjust_saturation_with_gray_subtraction"),
    ],
)
def test_factors_agree_with_kornia(kornia: Any, ours: Any, theirs: str) -> None:
    x = images(5, height=16, width=16)
    expected = getattr(kornia.enhance, theirs)(x, torch.tensor(AMOUNTS))
    torch.testing.assert_close(ours(x, by(*AMOUNTS)), expected, atol=2e-6, rtol=0)


def test_brightness_and_contrast_of_one_channel_agree_with_kornia(kornia: Any) -> None:
    x = images(5, 1)
    for ours, theirs in (
        (brighten, "adjust_brightness_accumulative"),
        (contrast, "adjust_contrast_with_mean_subtraction"),
    ):
        expected = getattr(kornia.enhance, theirs)(x, torch.tensor(AMOUNTS))
        torch.testing.assert_close(ours(x, by(*AMOUNTS)), expected, atol=2e-6, rtol=0)


def test_hue_agrees_with_kornia(kornia: Any) -> None:
    x, turns = images(5, height=16, width=16), (-0.1, -0.03, 0.0, 0.05, 0.1)
    expected = kornia.enhance.adjust_hue(x, 2 * math.pi * torch.tensor(turns))
    torch.testing.assert_close(turn_hue(x, by(*turns)), expected, atol=1e-4, rtol=0)


def test_grey_agrees_with_kornia(kornia: Any) -> None:
    x = images(5)
    torch.testing.assert_close(grey(x), kornia.color.rgb_to_grayscale(x), atol=1e-6, rtol=0)


def test_flip_agrees_with_kornia(kornia: Any) -> None:
    x = images(2)
    torch.testing.assert_close(Flip(p=1)(x, rng()), kornia.geometry.transform.hflip(x))


def test_crop_agrees_with_kornia(kornia: Any) -> None:
    x = images(20, height=32, width=32)
    boxes = Crop().boxes(20, (32, 32), rng(2))
    for image, (top, left, h, w), found in zip(x, boxes, TORCH.crop(x, boxes), strict=True):
        cut = image[None, :, top : top + h, left : left + w]
        expected = kornia.geometry.transform.resize(
            cut, (32, 32), interpolation="bilinear", align_corners=False
        )[0]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
