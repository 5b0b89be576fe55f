"""The tricks inside rehearsal: each step by hand, with and without mixes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from dualmix.errors import ConfigError
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay, Tricks
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Batch
from dualmix.methods import ER
from dualmix.rng import Rng
from dualmix.runs.build import create
from tests.kit import (
    SHAPE,
    Chosen,
    assert_nearest,
    assert_same,
    filled,
    floats,
    images,
    network,
    stored,
)

LR, DECAY = 0.3, 0.05
SLOTS = [7, 2, 5]


class Halves:
    """A mix with known labels: each new image and the rehearsed one in its place, by halves."""

    weight = 0.5

    def __call__(self, new: Batch, old: Batch, model: Classifier, ages: Any, rng: Any) -> Batch:
        rows = torch.zeros(len(old), len(model.weight))
        for row in range(len(old)):
            rows[row, new.y[row]] += 0.5
            rows[row, old.y[row]] += 0.5
        return Batch((new.x[: len(old)] + old.x) / 2, rows)


def learner(classes: int | None = 6, retrieve: Any = None, **more: Any) -> Replay:
    given = {"lr": LR, **more}
    return Replay(
        network(classes), filled(12), Reservoir(), retrieve or Chosen(SLOTS), Rng(0), **given
    )


def loss_by_hand(z: torch.Tensor, rows: torch.Tensor, groups: list[list[int]]) -> torch.Tensor:
    total = torch.zeros(())
    for row, shares in zip(z, rows, strict=True):
        for label in shares.nonzero().flatten().tolist():
            (group,) = [g for g in groups if label in g]
            total = total - shares[label] * (
                row[label] - torch.log(sum(torch.exp(row[c]) for c in group))
            )
    return total / len(z)


def onehot(y: Any, columns: int) -> torch.Tensor:
    return torch.eye(columns)[torch.as_tensor(y)]


@pytest.mark.parametrize("classes", [6, None])
@pytest.mark.parametrize("forward", ["separate", "joint"])
@pytest.mark.parametrize("softmax", ["labels", "separated"])
def test_a_step_with_mixes_by_hand(softmax: Any, forward: Any, classes: int | None) -> None:
    got = learner(
        classes, forward=forward, mixes={"halves": Halves()}, tricks=Tricks(softmax=softmax)
    )
    got.ages.note(np.array([0, 1]))
    got.consolidate()
    assert got.ages.known_before_task == 2
    got.memory.y[SLOTS] = torch.tensor([0, 2, 0])
    x, y = images(4, 1), np.array([3, 3, 1, 3])
    new, (old_x, old_y) = floats(x), stored(got.memory, SLOTS)
    columns = classes or 4
    labels = [onehot(y, columns), onehot(old_y, columns)]
    labels.append((labels[0][:3] + labels[1]) / 2)
    sources = [new, old_x, (new[:3] + old_x) / 2]
    groups = (
        [[[0, 1], [2, 3]]] * 3 if softmax == "separated" else [[[1, 3]], [[0, 2]], [[0, 1, 2, 3]]]
    )
    want = copy.deepcopy(got.model).train()
    z = (
        want(torch.cat(sources)).split([4, 3, 3])
        if forward == "joint"
        else [want(s) for s in sources]
    )
    parts = [loss_by_hand(*term) for term in zip(z, labels, groups, strict=True)]
    loss = parts[0] + parts[1] + 0.5 * parts[2]
    slopes = torch.autograd.grad(loss, list(want.parameters()))
    with torch.no_grad():
        for p, g in zip(want.parameters(), slopes, strict=True):
            p.copy_(p - LR * g)
    assert got.observe(x, y).item() == pytest.approx(loss.item(), rel=1e-5)
    assert_same(got.model, want)


@pytest.mark.parametrize("softmax", ["all", "labels"])
def test_review_by_hand(softmax: Any) -> None:
    """Two whole batches of five of twelve rows, gradients times a tenth, the decay whole."""
    got = learner(weight_decay=DECAY, tricks=Tricks(softmax=softmax, review=0.1, review_batch=5))
    want = copy.deepcopy(got.model).train()
    order = Rng(0)["review"].permutation(12)
    for slots in (order[:5], order[5:10]):
        x, y = stored(got.memory, slots)
        groups = [list(range(6))] if softmax == "all" else [sorted(set(y.tolist()))]
        slopes = torch.autograd.grad(
            loss_by_hand(want(x), onehot(y, 6), groups), list(want.parameters())
        )
        with torch.no_grad():
            for p, g in zip(want.parameters(), slopes, strict=True):
                p.copy_(p - LR * (g / 10 + DECAY * p))
    got.consolidate()
    assert_same(got.model, want, atol=1e-5)


def test_without_review_a_pause_changes_no_weight() -> None:
    got = learner()
    before = copy.deepcopy(got.model)
    got.consolidate()
    assert_same(got.model, before)
    assert "review" not in got.rng.state_dict()["generators"]


@pytest.mark.parametrize("review", [0.0, 0.5])
def test_nearest_means_follow_every_step_pause_and_resume(review: float) -> None:
    got = learner(
        lr=0.01, retrieve=Uniform(4), tricks=Tricks(readout="ncm", review=review, review_batch=4)
    )
    patterns = images(4, 8) // 128 * 200
    x = patterns[np.arange(30) % 4] + images(30, 9) // 5
    got.memory.y[:] = torch.arange(12) % 4
    got.memory.x[:] = torch.from_numpy(patterns).permute(0, 2, 3, 1)[got.memory.y]
    with torch.no_grad():
        got.model.weight.zero_()

    assert_nearest(got, x)
    state = copy.deepcopy(got.state_dict())
    got.observe(patterns, [0, 1, 2, 3])
    assert_nearest(got, x)
    got.consolidate()
    assert_nearest(got, x)
    got.load_state_dict(state)
    assert_nearest(got, x)


def test_settings_reach_the_loop() -> None:
    method = ER(memory=7, memory_batch=3, softmax="separated", readout="ncm", review=0.1)
    got = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert got.tricks == Tricks("separated", "ncm", 0.1, 3)
    assert ER().build(Classifier(SHAPE, width=4), Rng(0)).tricks == Tricks("all", "linear", 0.0, 10)


def test_nearest_means_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"readout: .*needs a memory"):
        create("er", SHAPE, memory=0, readout="ncm")
