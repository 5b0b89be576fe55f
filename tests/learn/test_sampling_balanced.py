"""Class-balancing reservoir sampling, against the textbook's loop, and its properties."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dualmix
from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Balanced
from dualmix.learn.types import Batch
from dualmix.methods import ER, MIR

SHAPE = (1, 1, 1)
CLASSES = 5


def model(columns: int = CLASSES) -> Any:
    return SimpleNamespace(weight=torch.zeros(columns, 1))


def offer(memory: Memory, columns: list[int], rng: Any, head: int = CLASSES) -> np.ndarray:
    """Offer rows whose pixel is their number in the stream."""
    numbers = torch.arange(memory.seen, memory.seen + len(columns)).to(torch.uint8)
    y = torch.tensor(columns)
    placed = Balanced()(memory, Batch(torch.zeros(len(columns), *SHAPE), y), model(head), rng)
    memory.write(placed, numbers.view(-1, 1, 1, 1), y)
    return placed.slots


class Textbook:
    """The rule of the paper's algorithm, one row at a time, on a list of (number, class)."""

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.capacity, self.rng = capacity, rng
        self.stored: list[tuple[int, int]] = []
        self.full: set[int] = set()
        self.came: dict[int, int] = {}

    def sizes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for _, label in self.stored:
            found[label] = found.get(label, 0) + 1
        return found

    def add(self, number: int, label: int) -> None:
        self.came[label] = self.came.get(label, 0) + 1
        if len(self.stored) < self.capacity:
            self.stored.append((number, label))
            return
        sizes = self.sizes()
        largest = {c for c, size in sizes.items() if size == max(sizes.values())}
        self.full |= largest
        if label not in self.full:
            places = [place for place, (_, c) in enumerate(self.stored) if c in largest]
        elif self.rng.random() < sizes.get(label, 0) / self.came[label]:
            places = [place for place, (_, c) in enumerate(self.stored) if c == label]
        else:
            return
        self.stored[self.rng.choice(np.array(places))] = (number, label)


STREAMS = st.lists(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=7), min_size=1, max_size=12
)


@given(STREAMS, st.integers(1, 9), st.integers(0, 2**32), st.booleans())
@settings(deadline=None)
def test_it_is_the_textbook_rule(
    batches: list[list[int]], capacity: int, seed: int, growing: bool
) -> None:
    """Whatever the batches; with a head that grows, and resumed from a saved state after each of
    them.
    """
    memory, rng = Memory(capacity, SHAPE), np.random.default_rng(seed)
    book = Textbook(capacity, np.random.default_rng(seed))
    number, head = 0, 1 if growing else CLASSES
    for batch in batches:
        head = max(head, max(batch) + 1)
        offer(memory, batch, rng, head)
        for label in batch:
            book.add(number, label)
            number += 1
        kept = [(int(x), int(c)) for x, c in zip(memory.x.flatten(), memory.y, strict=True)][
            : len(memory)
        ]
        assert kept == book.stored
        again = Memory(capacity, SHAPE)
        again.load_state_dict(memory.state_dict())
        memory = again


@given(STREAMS, st.integers(1, 9), st.integers(0, 2**32))
@settings(deadline=None)
@pytest.mark.slow
def test_only_the_largest_class_loses_a_row_to_another(
    batches: list[list[int]], capacity: int, seed: int
) -> None:
    memory, rng = Memory(capacity, SHAPE), np.random.default_rng(seed)
    for column in (column for batch in batches for column in batch):
        full, before = len(memory) == capacity, memory.counts(CLASSES)
        offer(memory, [column], rng)
        lost = np.flatnonzero(memory.counts(CLASSES) < before)
        assert full or not len(lost)
        assert all(before[loser] == before.max() for loser in lost)
        assert len(memory) <= capacity


def test_a_rare_class_is_kept_whole() -> None:
    """Five rows of a class among a thousand of another: all stay."""
    rng = np.random.default_rng(0)
    memory = Memory(20, SHAPE)
    for step in range(200):
        offer(memory, [0, 0, 0, 0, 0] if step % 40 else [0, 0, 1, 0, 0], rng)
    assert memory.counts(2).tolist() == [15, 5]


@pytest.mark.slow
def test_each_row_of_a_full_class_is_equally_likely_to_stay() -> None:
    counts = np.zeros(40)
    for seed in range(600):
        memory, rng = Memory(8, SHAPE), np.random.default_rng(seed)
        for _ in range(8):
            offer(memory, [0] * 5, rng)
        counts[memory.x.flatten().numpy()] += 1
    spread = 600 * 0.2 * 0.8 * 40 / 39
    assert 1e-3 < stats.chi2.sf(((counts - 120) ** 2).sum() / spread, 39) < 1 - 1e-3


def test_a_memory_of_nothing_keeps_nothing() -> None:
    memory = Memory(0, SHAPE)
    assert offer(memory, [0, 1], np.random.default_rng(0)).tolist() == [-1, -1]


@pytest.mark.parametrize("method", [ER, MIR])
def test_every_host_with_a_reservoir_can_have_it(method: Any) -> None:
    learner = dualmix.build(method(memory=6, reservoir="balanced"), (1, 8, 8))
    assert learner.update == Balanced()
    x = np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype=np.uint8)
    for label in range(4):
        learner.observe(x, [label] * 4)
    assert sorted(learner.memory.counts(4).tolist()) == [1, 1, 2, 2]
