"""Gradient-based sample selection, against gradients taken one sample at a time."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dualmix
from dualmix.config.compose import compose
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Batch, Placement
from dualmix.methods import GSS
from dualmix.methods.gss import GSSUpdate, closest, draw, each_gradient, gradient
from dualmix.rng import Rng
from tests.kit import raw_rows, warm_network

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE = (1, 8, 8)


def batch(model: Classifier, count: int, seed: int, low: int = 0, high: int = 4) -> Batch:
    raw, y = raw_rows(count, seed, low, high)
    return Batch(model.pixels(raw), y)


def filled(count: int, capacity: int, scores: np.ndarray | None = None, high: int = 4) -> Memory:
    memory = Memory(capacity, SHAPE)
    notes = {
        "score": torch.linspace(-0.5, 0.9, count)
        if scores is None
        else torch.tensor(scores).float()
    }
    memory.write(Placement(np.arange(count), notes), *raw_rows(count, 50, high=high))
    return memory


def slow_gradient(model: Classifier, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Return the gradient of a mean loss, by autograd on a copy in evaluation mode."""
    model = copy.deepcopy(model).eval()
    z = model(x)
    (torch.logsumexp(z, 1) - z[torch.arange(len(y)), y]).mean().backward()
    return np.concatenate([p.grad.reshape(-1).double().numpy() for p in model.parameters()])


def slow_cosines(
    model: Classifier, gradients: list[np.ndarray], known: list[np.ndarray]
) -> np.ndarray:
    return np.array([max(g @ k / np.sqrt((g @ g) * (k @ k)) for k in known) for g in gradients])


class Scripted:
    """A generator whose first random numbers break ties and whose second ones are all `chance`."""

    def __init__(self, order: list[int], chance: float, waits: np.ndarray | None = None) -> None:
        self.order, self.chance, self.waits, self.calls = order, chance, waits, 0

    def permutation(self, count: int) -> np.ndarray:
        assert sorted(self.order) == list(range(count))
        return np.array(self.order)

    def exponential(self, size: int) -> np.ndarray:
        return np.ones(size) if self.waits is None else self.waits

    def random(self, size: int) -> np.ndarray:
        self.calls += 1
        return np.arange(size) / size if self.calls == 1 else np.full(size, self.chance)


def test_gradients_are_those_of_a_loop_over_samples() -> None:
    model = warm_network()
    before = copy.deepcopy(model.state_dict())
    new = batch(model, 6, 3)
    got = each_gradient(model, new).numpy()
    want = np.stack([slow_gradient(model, new.x[i : i + 1], new.y[i : i + 1]) for i in range(6)])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(gradient(model, new).numpy(), want.mean(0), rtol=1e-3, atol=1e-6)
    assert model.training and all(
        torch.equal(before[name], now) for name, now in model.state_dict().items()
    )
    assert all(weight.grad is None for weight in model.parameters())


def test_closest_is_the_greatest_cosine() -> None:
    got = closest(
        torch.tensor([[3.0, 0.0], [0.0, 0.0], [-1.0, -1.0]]), torch.tensor([[1.0, 1.0], [0.0, 5.0]])
    )
    assert got.tolist() == pytest.approx([0.5**0.5, 0.0, -(0.5**0.5)])


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.booleans(),
)
@settings(deadline=None, max_examples=8)
def test_parts_are_disjoint_and_no_larger_than_the_memory(
    held: int, part: int, parts: int, seed: int, spare: int, shuffled: bool
) -> None:
    model, memory = warm_network(), filled(held, held + spare)
    order = np.random.default_rng(seed).permutation(held) if shuffled else np.arange(held)
    known = [*GSSUpdate(part, parts).directions(memory, model, Scripted(order.tolist(), 0.0))]
    size = min(part, held)
    count = min(parts, held // size)
    assert len(known) == count >= 1
    for row, start in zip(known, range(0, count * size, size), strict=True):
        old = memory[order[start : start + size]]
        np.testing.assert_allclose(
            row.numpy(), slow_gradient(model, old.x, old.y), rtol=1e-2, atol=1e-5
        )


def test_the_first_rows_score_a_tenth() -> None:
    model = warm_network()
    placed = GSSUpdate()(Memory(3, SHAPE), batch(model, 5, 3), model, np.random.default_rng(0))
    assert placed.slots.tolist() == [0, 1, 2, -1, -1]
    assert placed.columns["score"].tolist() == pytest.approx([0.1] * 5)


def test_while_there_is_room_rows_are_appended_with_their_cosines() -> None:
    model, memory = warm_network(), filled(13, 16)
    new = batch(model, 5, 3)
    placed = GSSUpdate(4, 2)(memory, new, model, Scripted(list(range(12, -1, -1)), 0.0))
    assert placed.slots.tolist() == [13, 14, 15, -1, -1]
    parts = [memory[np.array(part)] for part in ([12, 11, 10, 9], [8, 7, 6, 5])]
    known = [slow_gradient(model, part.x, part.y) for part in parts]
    own = [slow_gradient(model, new.x[i : i + 1], new.y[i : i + 1]) for i in range(5)]
    np.testing.assert_allclose(
        placed.columns["score"].numpy(), slow_cosines(model, own, known), rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_a_full_memory_takes_rows_only_when_the_batch_points_away() -> None:
    """The gate, the candidates and every replacement, by hand, over many batches."""
    model, memory = warm_network(), filled(12, 12, high=2)
    order = [3, 7, 0, 11, 5, 2, 9, 1, 10, 4, 8, 6]
    parts = [memory[np.array(order[start : start + 4])] for start in (0, 4)]
    known = [slow_gradient(model, part.x, part.y) for part in parts]
    kept = memory.columns["score"].numpy().astype(float)
    weights = (kept - kept.min()) / (kept.max() - kept.min() + 0.01)
    opened, replaced = 0, 0
    for seed, chance in itertools.product(range(8), (0.3, 0.5, 0.7)):
        new = batch(model, 5, seed, low=2 if seed % 2 else 0, high=4 if seed % 2 else 2)
        waits = np.random.default_rng(seed).exponential(size=12)
        placed = GSSUpdate(4, 2)(memory, new, model, Scripted(order, chance, waits))
        alike = slow_cosines(model, [slow_gradient(model, new.x, new.y)], known)[0]
        assert abs(alike) > 1e-3
        if alike > 0:
            assert placed.slots.tolist() == [-1] * 5 and not placed.columns
            continue
        opened += 1
        own = slow_cosines(
            model,
            [slow_gradient(model, new.x[i : i + 1], new.y[i : i + 1]) for i in range(5)],
            known,
        )
        drawn = sorted(range(12), key=lambda slot: -weights[slot] / waits[slot])[:5]
        keep, replace = (own + 1) / 2, (kept[drawn] + 1) / 2
        want = [
            slot if chance < r / (k + r) else -1
            for slot, k, r in zip(drawn, keep, replace, strict=True)
        ]
        assert placed.slots.tolist() == want
        np.testing.assert_allclose(placed.columns["score"].numpy(), own, rtol=1e-3, atol=1e-5)
        replaced += sum(slot >= 0 for slot in want)
    assert 0 < opened < 24 and 0 < replaced < 5 * opened


@pytest.mark.parametrize(
    ("low", "looked_at"), [(0, 2), (2, 4)], ids=["points along", "points away"]
)
def test_no_gradient_is_taken_after_the_batch_is_settled(
    monkeypatch: pytest.MonkeyPatch, low: int, looked_at: int
) -> None:
    """The new batch's own gradient and that of one part, where it already says no; else that of
    every part.
    """
    sizes: list[int] = []

    def counted(model: Classifier, batch: Batch) -> torch.Tensor:
        sizes.append(len(batch))
        return gradient(model, batch)

    monkeypatch.setattr("dualmix.methods.gss.gradient", counted)
    model, memory = warm_network(), filled(12, 12, high=2)
    new = batch(model, 5, 0, low=low, high=low + 2)
    order = list(range(12))
    known = [
        slow_gradient(model, memory[part].x, memory[part].y) for part in np.split(np.arange(12), 3)
    ]
    whole = slow_gradient(model, new.x, new.y)
    away = [bool(whole @ part < 0) for part in known]
    placed = GSSUpdate(4, 3)(memory, new, model, Scripted(order, 0.5))
    assert sizes == [5] + [4] * (looked_at - 1) and away == ([True] * 3 if low else [False] * 3)
    assert bool(placed.columns) == all(away)


@pytest.mark.parametrize("scores", [[0.3] * 3, [0.1, 0.9, 0.1]], ids=["all alike", "two alike"])
def test_scores_without_weight_do_not_stop_it(scores: list[float]) -> None:
    """More rows than slots, and fewer positive weights than rows."""
    model = warm_network()
    memory = filled(3, 3, np.array(scores), high=2)
    for seed in range(6):
        placed = GSSUpdate(3, 1)(
            memory, batch(model, 5, seed, 2, 4), model, np.random.default_rng(seed)
        )
        assert placed.slots.shape == (5,) and placed.slots[3:].tolist() == [-1, -1]
        used = placed.slots[placed.slots >= 0]
        assert len(set(used.tolist())) == len(used) and (used < 3).all()


def test_draws_follow_the_weights_one_after_the_other() -> None:
    weights, rng = np.array([0.5, 0.0, 1.0, 2.5]), np.random.default_rng(4)
    counts: dict[tuple[int, ...], int] = dict.fromkeys(itertools.permutations([0, 2, 3], 2), 0)
    for _ in range(4000):
        counts[tuple(draw(weights, 2, rng).tolist())] += 1
    total = weights.sum()
    chances = [weights[a] / total * weights[b] / (total - weights[a]) for a, b in counts]
    assert stats.chisquare(list(counts.values()), 4000 * np.array(chances)).pvalue > 1e-3


def test_places_without_weight_come_last_and_evenly() -> None:
    rng = np.random.default_rng(5)
    last = np.zeros(4)
    for _ in range(2000):
        drawn = draw(np.array([0.0, 1.0, 0.0, 0.0]), 2, rng)
        assert drawn[0] == 1
        last[drawn[1]] += 1
    assert last[1] == 0 and stats.chisquare(last[[0, 2, 3]]).pvalue > 1e-3


@pytest.mark.slow
def test_scores_are_filed_and_inherited() -> None:
    learner = dualmix.create("gss", SHAPE, classes=4, memory=6, seed=2)
    for seed in range(12):
        raw, y = raw_rows(4, seed)
        learner.observe(raw.permute(0, 3, 1, 2), y)
    scores = learner.memory.columns["score"]
    assert (
        scores.shape == (6,) and scores.dtype == torch.float32 and (scores.abs() <= 1 + 1e-5).all()
    )


def test_settings_reach_the_policy() -> None:
    learner = GSS(memory=7, memory_batch=3, part=4, parts=5).build(warm_network(), Rng(0))
    assert isinstance(learner, Replay)
    assert (learner.retrieve, learner.update) == (Uniform(3), GSSUpdate(4, 5))
    assert "reservoir" not in GSS.model_fields
    assert compose("gss+dualmix").config.method.mix == compose("er+dualmix").config.method.mix
    assert set(dualmix.create("gss+enmix", SHAPE, memory=5).mixes) == {"enmix"}


def test_nothing_is_kept_without_a_memory() -> None:
    model: Any = warm_network()
    placed = GSSUpdate()(Memory(0, SHAPE), batch(model, 3, 0), model, np.random.default_rng(0))
    assert placed.slots.tolist() == [-1] * 3
