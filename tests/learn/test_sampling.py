"""Reservoir and uniform draws: against the textbook rule, and as distributions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Batch

SHAPE = (1, 1, 1)
NO_MODEL: Any = None


class Recorder:
    """A generator that writes down each draw and its bound."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.draws: list[tuple[int, int]] = []

    def integers(self, low: int, high: np.ndarray) -> np.ndarray:
        assert low == 0
        drawn = self.rng.integers(low, high)
        self.draws += list(zip(np.asarray(high).tolist(), drawn.tolist(), strict=True))
        return drawn


def offer(memory: Memory, rows: int, policy: Reservoir, rng: Any) -> np.ndarray:
    """Offer rows whose column is their number in the stream."""
    columns = torch.arange(memory.seen, memory.seen + rows)
    new = Batch(torch.zeros(rows, *SHAPE), columns)
    placement = policy(memory, new, NO_MODEL, rng)
    assert placement.slots.shape == (rows,)
    memory.write(placement, torch.zeros(rows, 1, 1, 1, dtype=torch.uint8), columns)
    return placement.slots


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 2**32)
)
@settings(deadline=None)
def test_exact_is_the_textbook_rule(batches: list[int], capacity: int, seed: int) -> None:
    memory, recorder = Memory(capacity, SHAPE), Recorder(seed)
    for rows in batches:
        offer(memory, rows, Reservoir("exact"), recorder)
    kept: list[int] = []
    draws = iter(recorder.draws)
    for number in range(sum(batches)):
        if len(kept) < capacity:
            kept.append(number)
            continue
        bound, drawn = next(draws)
        assert bound == number + 1
        if drawn < capacity:
            kept[drawn] = number
    assert next(draws, None) is None
    assert memory.y[: len(memory)].tolist() == kept


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 2**32)
)
@settings(deadline=None)
def test_ref_draws_for_the_whole_batch_from_the_rows_before_it(
    batches: list[int], capacity: int, seed: int
) -> None:
    memory, recorder = Memory(capacity, SHAPE), Recorder(seed)
    kept: list[int] = []
    seen = 0
    for rows in batches:
        recorder.draws.clear()
        offer(memory, rows, Reservoir("ref"), recorder)
        numbers = list(range(seen, seen + rows))
        while numbers and len(kept) < capacity:
            kept.append(numbers.pop(0))
            seen += 1
        assert [bound for bound, _ in recorder.draws] == [seen] * len(numbers)
        for number, (_, drawn) in zip(numbers, recorder.draws, strict=True):
            if drawn < capacity:
                kept[drawn] = number
        seen += len(numbers)
        assert memory.y[: len(memory)].tolist() == kept


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("fill", "rows"), [([5, 5], 5), ([4, 4], 6)], ids=["at the border", "across it"]
)
def test_ref_keeps_the_first_rows_after_filling_in_full(
    fill: list[int], rows: int, seed: int
) -> None:
    """Every row of the batch that ends or follows the filling is written."""
    memory, rng = Memory(10, SHAPE), np.random.default_rng(seed)
    for count in fill:
        assert (offer(memory, count, Reservoir("ref"), rng) >= 0).all()
    slots = offer(memory, rows, Reservoir("ref"), rng)
    assert ((slots >= 0) & (slots < 10)).all()


def test_exact_drops_some_rows_right_after_filling() -> None:
    dropped = 0
    for seed in range(200):
        memory, rng = Memory(10, SHAPE), np.random.default_rng(seed)
        offer(memory, 10, Reservoir("exact"), rng)
        dropped += int((offer(memory, 5, Reservoir("exact"), rng) < 0).sum())
    expected = 200 * sum(1 - 10 / n for n in range(11, 16))
    assert abs(dropped - expected) < 4 * np.sqrt(expected)


def inclusion_statistic(rule: Any, capacity: int, total: int, batch: int, streams: int) -> float:
    """Return the p-value that every row of a stream is equally likely to be kept."""
    counts = np.zeros(total)
    for seed in range(streams):
        memory, rng = Memory(capacity, SHAPE), np.random.default_rng([seed, capacity])
        while memory.seen < total:
            offer(memory, min(batch, total - memory.seen), Reservoir(rule), rng)
        assert len(memory) == capacity
        counts[memory.y.numpy()] += 1
    share = capacity / total
    spread = streams * share * (1 - share) * total / (total - 1)
    return float(stats.chi2.sf(((counts - streams * share) ** 2).sum() / spread, total - 1))


@pytest.mark.slow
def test_exact_keeps_every_row_with_equal_probability() -> None:
    assert 1e-3 < inclusion_statistic("exact", 10, 100, 7, 1000) < 1 - 1e-3


@pytest.mark.slow
def test_ref_is_too_eager_to_be_uniform() -> None:
    assert inclusion_statistic("ref", 10, 100, 7, 1000) < 1e-4


@pytest.mark.slow
def test_exact_does_not_depend_on_how_the_stream_is_cut() -> None:
    """The number of rows written is a sum of independent events, whatever the batches."""
    expected = 10 + sum(10 / n for n in range(11, 61))
    for batch in (1, 7, 60):
        written = 0
        for seed in range(150):
            memory, rng = Memory(10, SHAPE), np.random.default_rng([seed, batch])
            while memory.seen < 60:
                written += int(
                    (
                        offer(memory, min(batch, 60 - memory.seen), Reservoir("exact"), rng) >= 0
                    ).sum()
                )
        assert abs(written / 150 - expected) < 4 * np.sqrt(expected / 150)


@pytest.mark.parametrize("rule", ["exact", "ref"])
def test_a_memory_of_nothing_keeps_nothing(rule: Any) -> None:
    memory = Memory(0, SHAPE)
    for _ in range(3):
        assert offer(memory, 4, Reservoir(rule), np.random.default_rng(0)).tolist() == [-1] * 4
    assert memory.seen == 12


def filled(count: int, capacity: int = 50) -> Memory:
    memory = Memory(capacity, SHAPE)
    offer(memory, count, Reservoir("exact"), np.random.default_rng(0))
    return memory


@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 2**32))
@settings(deadline=None)
def test_uniform_draws_distinct_filled_slots(rows: int, count: int, seed: int) -> None:
    slots = Uniform(count)(
        filled(rows), Batch(torch.zeros(1), torch.zeros(1)), NO_MODEL, np.random.default_rng(seed)
    )
    assert len(slots) == len(set(slots.tolist())) == min(count, rows)
    assert slots.dtype == np.int64 and slots.min() >= 0 and slots.max() < rows


def test_uniform_is_uniform_over_slots_and_pairs() -> None:
    memory, rng = filled(12), np.random.default_rng(5)
    singles, pairs = np.zeros(12), Counter()
    for _ in range(6000):
        slots = Uniform(4)(memory, Batch(torch.zeros(1), torch.zeros(1)), NO_MODEL, rng)
        singles[slots] += 1
        pairs.update([tuple(slots[:2].tolist())])
    spread = 6000 * (1 / 3) * (2 / 3) * 12 / 11
    assert 1e-3 < stats.chi2.sf(((singles - 2000) ** 2).sum() / spread, 11) < 1 - 1e-3
    assert len(pairs) == 132 and all(a != b for a, b in pairs)
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3


def test_uniform_leaves_the_memory_alone() -> None:
    memory = filled(9)
    before = memory.y.clone()
    draws = [
        Uniform(3)(
            memory, Batch(torch.zeros(1), torch.zeros(1)), NO_MODEL, np.random.default_rng(s)
        )
        for s in range(5)
    ]
    assert torch.equal(memory.y, before) and (len(memory), memory.seen) == (9, 9)
    assert any((a != b).any() for a, b in pairwise(draws))
