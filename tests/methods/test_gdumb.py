"""GDumb: the balance of its memory at every moment, and its training against plain torch."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.errors import ConfigError
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.types import Batch
from dualmix.methods import GDumb as Settings
from dualmix.methods.gdumb import GDumbLearner, Greedy
from dualmix.rng import Rng
from dualmix.runs.build import create
from tests.kit import SHAPE, assert_same, batch, filled, floats, images, network, stored

pytestmark = pytest.mark.usefixtures("shallow")

LR = 0.2
streams = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=25)


class Labels:
    """All that the policy asks of a network."""

    def __init__(self) -> None:
        self.labels: list[int] = []


def offer(
    memory: Memory, model: Labels, columns: list[int], first: int, rng: np.random.Generator
) -> np.ndarray:
    """Offer rows whose pixel is their number in the stream; return the slots."""
    raw = (
        (torch.arange(len(columns)) + first)
        .to(torch.uint8)
        .view(-1, 1, 1, 1)
        .expand(-1, 8, 8, 1)
        .contiguous()
    )
    y = torch.tensor(columns)
    batch = Batch(raw.permute(0, 3, 1, 2).float() / 255, y)
    placement = Greedy()(memory, batch, model, rng)  # type: ignore[arg-type]
    memory.write(placement, raw, y)
    return placement.slots


@settings(deadline=None)
@given(streams, st.integers(1, 12), st.integers(0, 9))
def test_balance_at_every_moment(stream: list[list[int]], capacity: int, seed: int) -> None:
    """Every class keeps all it was offered or its share; beyond its share a class never grows."""
    memory, model, rng = Memory(capacity, SHAPE), Labels(), np.random.default_rng(seed)
    columns: dict[int, int] = {}
    offered: Counter[int] = Counter()
    before = np.zeros(6, dtype=int)
    for rows in stream:
        mine = [columns.setdefault(label, len(columns)) for label in rows]
        model.labels = list(columns)
        slots = offer(memory, model, mine, 0, rng)
        offered.update(mine)
        counts, share = memory.counts(6), max(capacity // len(columns), 1)
        assert counts.sum() == len(memory) <= capacity
        assert all(counts[c] <= max(share, before[c]) for c in range(6))
        if capacity >= len(columns):
            assert all(counts[c] >= min(offered[c], share) for c in offered)
            if (
                len(memory) == capacity
                and all(offered[c] >= share for c in offered)
                and (slots >= 0).all()
            ):
                assert counts[list(offered)].min() >= share
        else:
            assert all(counts[c] <= 1 for c in offered if before[c] <= 1)
        before = counts


@settings(deadline=None)
@given(streams, st.integers(1, 8), st.integers(0, 9))
def test_slots_against_a_sequential_version(
    stream: list[list[int]], capacity: int, seed: int
) -> None:
    """The same rule with one table and one row at a time; which row of the largest class goes is
    the policy's draw.
    """
    memory, model, rng = Memory(capacity, SHAPE), Labels(), np.random.default_rng(seed)
    seen: list[int] = []
    table: list[tuple[int, int]] = []
    number = 0
    for rows in stream:
        seen += [label for label in dict.fromkeys(rows) if label not in seen]
        model.labels = list(seen)
        slots = offer(memory, model, [seen.index(label) for label in rows], number, rng)
        for label, slot in zip(rows, slots.tolist(), strict=True):
            owners = Counter(owner for owner, _ in table)
            if owners[label] and owners[label] >= capacity // len(seen):
                assert slot == -1
            elif len(table) < capacity:
                assert slot == len(table)
                table.append((label, number))
            else:
                assert table[slot][0] == max(seen, key=lambda label: owners[label])
                table[slot] = (label, number)
            number += 1
        assert memory.y[: len(memory)].tolist() == [seen.index(label) for label, _ in table]
        assert memory.x[: len(memory), 0, 0, 0].tolist() == [n % 256 for _, n in table]


def test_any_row_of_the_largest_class_may_go() -> None:
    gone = Counter()
    for seed in range(300):
        memory, model, rng = Memory(4, SHAPE), Labels(), np.random.default_rng(seed)
        model.labels = [0]
        offer(memory, model, [0, 0, 0, 0], 0, rng)
        model.labels = [0, 1]
        (slot,) = offer(memory, model, [1], 9, rng)
        gone[int(slot)] += 1
    assert set(gone) == {0, 1, 2, 3} and min(gone.values()) > 45


def test_the_first_of_several_largest_makes_room() -> None:
    memory, model, rng = Memory(4, SHAPE), Labels(), np.random.default_rng(0)
    model.labels = [0, 1]
    offer(memory, model, [1, 0, 1, 0], 0, rng)
    model.labels = [0, 1, 2]
    offer(memory, model, [2], 9, rng)
    assert memory.counts(3).tolist() == [1, 2, 1]


def learner(**more: Any) -> GDumbLearner:
    given = {"lr": LR, "epochs": 2, "batch": 4, **more}
    return GDumbLearner(network(), filled(10), Greedy(), Rng(0), **given)


def test_training_by_hand() -> None:
    """From the first weights, whole batches in the drawn order, gradients cut, decay not."""
    got = learner(weight_decay=0.1, clip=0.5)
    with torch.no_grad():
        got.model.weight += 1
    want = network().train()
    rng = Rng(0)["learn"]
    cut = 0
    for _ in range(2):
        order = rng.permutation(10)
        for slots in (order[:4], order[4:8]):
            x, y = stored(got.memory, slots)
            parameters = list(want.parameters())
            slopes = torch.autograd.grad(F.nll_loss(want(x).log_softmax(1), y), parameters)
            norm = float(torch.cat([g.reshape(-1) for g in slopes]).norm())
            cut += norm > 0.5
            with torch.no_grad():
                for p, g in zip(parameters, slopes, strict=True):
                    p.copy_(p - LR * (g * min(1, 0.5 / norm) + 0.1 * p))
    got.consolidate()
    assert cut
    assert_same(got.model, want)


def test_without_a_clip_gradients_are_whole() -> None:
    ends = []
    for clip in (0.0, 1e6, 0.01):
        got = learner(clip=clip)
        got.learn()
        ends.append(got.model.weight.detach().clone())
    torch.testing.assert_close(ends[0], ends[1])
    assert not torch.allclose(ends[0], ends[2], atol=1e-4)


def test_observing_learns_nothing_and_says_how_the_network_does() -> None:
    got = learner()
    got.learn()
    before = copy.deepcopy(got.model)
    x, y = batch(6, 1)
    with torch.no_grad():
        logits = copy.deepcopy(before).eval()(floats(x))
    loss = got.observe(x, y)
    assert_same(got.model, before)
    assert loss.item() == pytest.approx(
        F.cross_entropy(logits, torch.from_numpy(y)).item(), rel=1e-5
    )
    assert int(got.hits) == int((logits.argmax(1).numpy() == y).sum())
    assert not loss.requires_grad


def test_answers_are_those_of_the_last_training() -> None:
    got = learner()
    got.consolidate()
    x = images(20, 7)
    answers = got.predict(x).tolist()
    got.observe(*batch(6, 1))
    assert got.predict(x).tolist() == answers


@pytest.mark.parametrize("every", [1, 3])
def test_trains_in_every_nth_pause(every: int) -> None:
    got = learner(every=every)
    trained = []
    got.learn = lambda: trained.append(got.pauses)  # type: ignore[method-assign]
    for _ in range(6):
        got.consolidate()
    assert trained == list(range(every, 7, every))


def test_the_count_of_pauses_survives_a_resume() -> None:
    got, other = learner(every=2), learner(every=2)
    got.consolidate()
    other.load_state_dict(copy.deepcopy(got.state_dict()))
    trained = []
    other.learn = lambda: trained.append(other.pauses)  # type: ignore[method-assign]
    other.consolidate()
    assert trained == [2]


def test_a_training_starts_anew() -> None:
    """A second training differs from the first only by the order of its batches, not by the weights
    it starts from.
    """
    got = learner(epochs=1)
    got.learn()
    got.rng = Rng(0)
    first = copy.deepcopy(got.model)
    got.learn()
    assert_same(got.model, first)


def test_reset_goes_back_to_the_first_weights_for_both_heads() -> None:
    for classes in (None, 6):
        model, fresh = network(classes=classes), network(classes=classes)
        model.train()
        model(floats(images(3, 1))).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)
        model.reset()
        assert_same(model, fresh)
        assert model.labels == [0, 1, 2, 3]
        assert model.backbone.stem.weight.is_contiguous(memory_format=torch.channels_last)


def test_settings_reach_the_loop() -> None:
    method = Settings(memory=7, lr=0.2, weight_decay=0.1, epochs=3, batch=5, clip=2.0, every=4)
    got = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert isinstance(got, GDumbLearner)
    assert (got.memory.capacity, got.update, got.lr, got.weight_decay) == (7, Greedy(), 0.2, 0.1)
    assert (got.epochs, got.batch, got.clip, got.every) == (3, 5, 2.0, 4)


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory"):
        create("gdumb", SHAPE, memory=0)
