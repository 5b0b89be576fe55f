"""DER++: filed logits and both draws by hand, with a head that grows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dualmix
from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Reservoir
from dualmix.learn.types import Batch, Placement
from dualmix.methods import DERpp
from dualmix.methods.derpp import WithLogits, logit_mse
from dualmix.registry import split_name

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE, LR = (1, 8, 8), 0.1


def batch(seed: int, labels: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8), np.array(labels)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 2**32)
)
@settings(deadline=None)
def test_deviation_counts_the_columns_that_there_were(
    known: list[int], grown: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits, told = (
        rng.normal(size=(len(known), max(known) + grown)),
        rng.normal(size=(len(known), max(known))),
    )
    squares = [
        (logits[row, c] - told[row, c]) ** 2
        for row, count in enumerate(known)
        for c in range(count)
    ]
    got = logit_mse(torch.tensor(logits), torch.tensor(told), torch.tensor(known))
    assert got.item() == pytest.approx(sum(squares) / len(squares))


@pytest.mark.parametrize("classes", [None, 6], ids=["growing", "fixed"])
@pytest.mark.parametrize("replay", [1.0, 0.5])
def test_steps_by_hand(classes: int | None, replay: float) -> None:
    """The first two batches are filed with the logits of their own forward pass; the third step
    recalls them.
    """
    learner = dualmix.create(
        "der++",
        SHAPE,
        classes=classes,
        memory=9,
        memory_batch=4,
        alpha=0.7,
        beta=0.2,
        lr=LR,
        mix={"replay": replay},
    )
    filed: list[torch.Tensor] = []
    for seed, labels in enumerate(([7, 8, 7], [9, 8, 9])):
        x, y = batch(seed, labels)
        before = copy.deepcopy(learner.model).train()
        before.admit(y)
        filed += list(before(torch.from_numpy(x).float() / 255).detach())
        learner.observe(x, y)
    width = 6 if classes else 3
    told = torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in filed])
    torch.testing.assert_close(learner.memory.columns["logits"][:6], told, rtol=1e-4, atol=1e-5)
    known = [6] * 6 if classes else [2, 2, 2, 3, 3, 3]
    assert learner.memory.columns["known"][:6].tolist() == known

    hand = copy.deepcopy(learner.model).train()
    x, y = batch(5, [10, 7])
    hand.admit(y)
    chance = copy.deepcopy(learner.rng)
    rehearsed, recalled = (
        chance[name].choice(6, size=4, replace=False) for name in ("retrieve", "recall")
    )
    images = learner.memory.x.permute(0, 3, 1, 2).float() / 255
    z = [
        hand(images_)
        for images_ in (torch.from_numpy(x).float() / 255, images[rehearsed], images[recalled])
    ]
    loss = (torch.logsumexp(z[0], 1) - z[0][[0, 1], [3, 0]]).mean()
    columns = learner.memory.y[rehearsed]
    loss = loss + 0.2 * replay * (torch.logsumexp(z[1], 1) - z[1][torch.arange(4), columns]).mean()
    squares = [
        (z[2][i, c] - told[slot, c]) ** 2
        for i, slot in enumerate(recalled)
        for c in range(known[slot])
    ]
    loss = loss + 0.7 * replay * torch.stack(squares).mean()
    weights = list(hand.parameters())
    with torch.no_grad():
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.sub_(LR * slope)
    assert learner.observe(x, y).item() == pytest.approx(loss.item(), rel=1e-4)
    for (name, got), want in zip(
        learner.model.state_dict().items(), hand.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            got, want, rtol=1e-3, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_a_wider_value_pads_the_column() -> None:
    memory = Memory(3, SHAPE)
    raw, y = torch.zeros(2, 8, 8, 1, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    memory.write(Placement(np.array([0, 1]), {"note": torch.tensor([[1.0], [2.0]])}), raw, y)
    memory.write(
        Placement(np.array([2, 0]), {"note": torch.tensor([[3.0, 4.0], [5.0, 6.0]])}), raw, y
    )
    assert memory.columns["note"].tolist() == [[5.0, 6.0], [2.0, 0.0], [3.0, 4.0]]
    again = Memory(3, SHAPE)
    again.load_state_dict(copy.deepcopy(memory.state_dict()))
    assert again.columns["note"].tolist() == memory.columns["note"].tolist()


def test_logits_are_those_of_the_first_iteration() -> None:
    learner = dualmix.create("der++", SHAPE, classes=2, memory=4, iterations=2, lr=1.0)
    x, y = batch(0, [0, 1, 1])
    with torch.no_grad():
        want = copy.deepcopy(learner.model).train()(torch.from_numpy(x).float() / 255)
    learner.observe(x, y)
    torch.testing.assert_close(learner.memory.columns["logits"][:3], want, rtol=1e-4, atol=1e-5)


def test_no_logits_are_no_silent_zeros() -> None:
    new = Batch(torch.zeros(1, *SHAPE), torch.zeros(1))
    no_model: Any = None
    with pytest.raises(ValueError, match="no logits"):
        WithLogits(Reservoir())(Memory(2, SHAPE), new, no_model, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"mix\.stream is 0, but der\+\+ files the logits"):
        compose("der++", {"method.mix.stream": 0})


def test_weights_of_nothing_are_no_pass() -> None:
    assert set(dualmix.create("der++", SHAPE, alpha=0.0).mixes) == set()
    assert set(dualmix.create("der++", SHAPE).mixes) == {"recall"}
    assert (DERpp().alpha, DERpp().beta) == (0.3, 0.5)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("der++", ("der++", [])),
        ("der+++dualmix", ("der++", ["dualmix"])),
        ("der+++da+enmix", ("der++", ["da", "enmix"])),
        ("er", ("er", [])),
        ("er+da", ("er", ["da"])),
        ("er-ace+da", ("er-ace", ["da"])),
        ("er+", ("er", [""])),
        ("er++da", ("er", ["", "da"])),
        ("der", ("der", [])),
        ("nothing+da", ("nothing", ["da"])),
    ],
)
def test_a_name_may_hold_a_plus(name: str, parts: tuple[str, list[str]]) -> None:
    assert split_name(name) == parts


def test_additions_follow_from_the_parts() -> None:
    assert compose("der+++dualmix").config.method.mix == compose("er+dualmix").config.method.mix
    assert list(dualmix.create("der+++dualmix", SHAPE, memory=5).mixes) == [
        "recall",
        "view",
        "enmix",
        "adpmix",
    ]
    with pytest.raises(ConfigError, match="can be added"):
        dualmix.create("er+", SHAPE)
