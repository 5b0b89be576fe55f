"""The controls of DualMix: nothing mixed, plain views in place of mixes, views of the new batch,
batches learned through an augmentation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from dualmix.config.fields import Model
from dualmix.learn.augment import Shift, identity, transform
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.mixing import beta
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.types import Batch
from dualmix.methods import ER, Mixing
from dualmix.methods.dualmix import AdpMix, EnMix, NewView, Unmixed
from dualmix.runs.build import build

SHAPE = (1, 8, 8)
AGES = ClassAges()


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def batch(rows: int, first: int) -> Batch:
    x = torch.arange(rows, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, *SHAPE)
    return Batch((first + x) / 100, torch.arange(rows) % 2 + first // 50 * 2)


@pytest.fixture
def model() -> Classifier:
    return Classifier(SHAPE, classes=4, width=1)


def test_an_alpha_of_zero_is_the_limit_of_small_ones() -> None:
    drawn = beta(0, 4000, rng(), "pair")
    assert set(drawn.tolist()) == {0.0, 1.0} and 0.47 < float(drawn.mean()) < 0.53
    near = beta(1e-3, 4000, rng(), "pair")
    assert float(((near < 0.01) | (near > 0.99)).float().mean()) > 0.99
    assert len(set(beta(0, 10, rng(1), "batch").tolist())) == 1


def test_nothing_is_mixed_at_alpha_zero(model: Classifier) -> None:
    """Every image is one of the originals and its label is hard."""
    new, old = batch(6, 50), batch(6, 0)
    for mix, images in (
        (EnMix(identity, alpha=0.0), old.x),
        (AdpMix(identity, alpha=0.0), torch.cat([new.x, old.x])),
    ):
        made = mix(new, old, model, AGES, rng())
        assert all((image == images).flatten(1).all(1).any() for image in made.x)
        assert set(made.y.unique().tolist()) == {0.0, 1.0}


def test_alpha_of_one_mix_alone() -> None:
    both = Mixing(enmix=1, adpmix=1, alpha=0.4).build()
    assert (both["enmix"].alpha, both["adpmix"].alpha) == (0.4, 0.4)
    first = Mixing(enmix=1, adpmix=1, enmix_alpha=0).build()
    assert (first["enmix"].alpha, first["adpmix"].alpha) == (0, 0.2)
    second = Mixing(enmix=1, adpmix=1, adpmix_alpha=0).build()
    assert (second["enmix"].alpha, second["adpmix"].alpha) == (0.2, 0)


def test_unmixed_are_as_many_plain_views_with_the_same_weight(model: Classifier) -> None:
    mixes = Mixing(enmix=0.2, adpmix=0.3, mixed=False, augment="identity").build()
    new, old = batch(7, 50), batch(3, 0)
    sizes = {"enmix": 3, "adpmix": 7}
    for name, weight in (("enmix", 0.2), ("adpmix", 0.3)):
        made = mixes[name](new, old, model, AGES, rng())
        assert mixes[name].weight == weight and isinstance(mixes[name], Unmixed)
        assert len(made) == sizes[name]
        for image, label in zip(made.x, made.y, strict=True):
            (row,) = [i for i in range(3) if torch.equal(image, old.x[i])]
            assert int(label) == int(old.y[row])
        rows = {float(image.mean()) for image in made.x}
        assert len(rows) == 3, "each old image before any twice"


def test_views_of_the_new_batch(model: Classifier) -> None:
    mixes = Mixing(new_view=0.25, augment="flip").build()
    new, old = batch(4, 50), batch(3, 0)
    made = mixes["new view"](new, old, model, AGES, rng(3))
    assert isinstance(mixes["new view"], NewView) and mixes["new view"].weight == 0.25
    assert torch.equal(made.x, transform("flip")(new.x, rng(3))) and torch.equal(made.y, new.y)


def test_a_shift_moves_the_image_and_fills_with_black() -> None:
    x = torch.arange(1, 26, dtype=torch.float32).view(1, 1, 5, 5).repeat(50, 1, 1, 1)
    moved = Shift(most=2)(x, rng())
    seen = set()
    for image in moved[:, 0].numpy():
        wide = np.zeros((9, 9), np.float32)
        wide[2:7, 2:7] = x[0, 0].numpy()
        at = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if (wide[i : i + 5, j : j + 5] == image).all()
        ]
        assert len(at) == 1
        seen |= set(at)
    assert len(seen) > 15
    one = Shift(most=2, per_sample=False)(x, rng())
    assert all(torch.equal(one[0], image) for image in one)


def seen_by(name: str, monkeypatch: pytest.MonkeyPatch, **values: Any) -> tuple[Replay, list[Any]]:
    made = build(
        ER(memory=8, memory_batch=3, train_augment=name, **values),
        SHAPE,
        seed=2,
        model=Model(width=1),
    )
    assert isinstance(made, Replay)
    passes: list[torch.Tensor] = []
    forward = Classifier.forward

    def watched(self: Classifier, x: torch.Tensor, groups: Any = None) -> torch.Tensor:
        passes.append(x.clone())
        return forward(self, x, groups)

    monkeypatch.setattr(Classifier, "forward", watched)
    x = rng().integers(0, 256, (4, *SHAPE), dtype=np.uint8)
    for _ in range(2):
        made.observe(x, [0, 1, 0, 1])
    return made, passes


def test_batches_are_learned_through_the_augmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of the second step's batches are flips of originals, some flipped; the memory keeps what
    came.
    """
    made, passes = seen_by("flip", monkeypatch)
    x = torch.from_numpy(rng().integers(0, 256, (4, *SHAPE), dtype=np.uint8)).float() / 255
    assert [len(one) for one in passes] == [4, 4, 3]
    flipped = 0
    for one in passes:
        for image in one:
            plain = any(torch.equal(image, other) for other in x)
            assert plain or any(torch.equal(image.flip(-1), other) for other in x)
            flipped += not plain
    assert 0 < flipped < 11
    kept = made.memory[np.arange(len(made.memory))].x
    assert all(any(torch.equal(image, other) for other in x) for image in kept)


def test_each_pass_over_a_batch_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    _, passes = seen_by("shift-flip", monkeypatch, iterations=3)
    assert len(passes) == 3 + 6
    assert not torch.equal(passes[0], passes[1])


def test_an_unknown_augmentation_is_refused() -> None:
    with pytest.raises(ValidationError, match="no augmentation 'flop'"):
        ER(train_augment="flop")
