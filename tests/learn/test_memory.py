"""The memory moves rows exactly as it is told, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.errors import ConfigError
from dualmix.learn.memory import Memory
from dualmix.learn.types import Placement

SHAPE = (2, 3, 4)


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (count, 3, 4, 2), dtype=np.uint8)
    )


def place(*slots: int, **columns: torch.Tensor) -> Placement:
    return Placement(np.array(slots, dtype=np.int64), columns)


def test_rows_are_kept_byte_for_byte() -> None:
    memory, raw = Memory(300, SHAPE), rows(256)
    raw.view(256, -1)[:, 0] = torch.arange(256)
    memory.write(place(*range(256)), raw, torch.arange(256))
    assert memory.x.dtype == torch.uint8
    assert torch.equal(memory.x[:256], raw)
    batch = memory[np.arange(256)]
    assert batch.x.shape == (256, *SHAPE) and batch.x.dtype == torch.float32
    assert torch.equal((batch.x * 255).round().to(torch.uint8).permute(0, 2, 3, 1), raw)
    assert torch.equal(batch.x, raw.permute(0, 3, 1, 2).float() / 255)
    assert batch.y.tolist() == list(range(256))


def test_what_is_kept_is_a_copy() -> None:
    memory, raw, columns = Memory(2, SHAPE), rows(2), torch.tensor([1, 2])
    kept = raw.clone()
    memory.write(place(0, 1), raw, columns)
    raw.zero_(), columns.zero_()
    assert torch.equal(memory.x, kept) and memory.y.tolist() == [1, 2]
    memory[np.array([0])].x.zero_()
    assert torch.equal(memory.x, kept)


def test_gathering_follows_the_order_asked_for() -> None:
    memory, raw = Memory(5, SHAPE), rows(4)
    memory.write(place(0, 1, 2, 3), raw, torch.tensor([5, 6, 7, 8]))
    batch = memory[np.array([2, 0, 2])]
    assert batch.y.tolist() == [7, 5, 7] and len(batch) == 3
    assert torch.equal(batch.x[0], batch.x[2])


def test_where_two_rows_share_a_slot_the_later_stays() -> None:
    memory, raw = Memory(3, SHAPE), rows(5)
    memory.write(place(0, 1, 0, 1, 0), raw, torch.tensor([1, 2, 3, 4, 5]))
    assert len(memory) == 2 and memory.y[:2].tolist() == [5, 4]
    assert torch.equal(memory.x[:2], raw[[4, 3]])


def test_dropped_rows_are_seen_but_not_kept() -> None:
    memory = Memory(3, SHAPE)
    memory.write(place(-1, 0, -1), rows(3), torch.tensor([1, 2, 3]))
    assert (memory.seen, len(memory), memory.y[:1].tolist()) == (3, 1, [2])
    memory.write(place(-1, -1), rows(2), torch.tensor([4, 5]))
    assert (memory.seen, len(memory)) == (5, 1)


@pytest.mark.parametrize("slots", [(1,), (0, 2), (3,), (0, 1, 2, 3)])
def test_gaps_and_overruns_are_bugs(slots: tuple[int, ...]) -> None:
    memory = Memory(3, SHAPE)
    with pytest.raises(IndexError, match="leave a gap or exceed the capacity 3"):
        memory.write(place(*slots), rows(len(slots)), torch.zeros(len(slots), dtype=torch.int64))
    assert len(memory) == 0 and not memory.x.any()


def test_columns_are_filed_beside_their_rows() -> None:
    memory = Memory(3, SHAPE)
    score = torch.tensor([0.1, 0.2, 0.3])
    logits = torch.arange(6.0).view(3, 2)
    memory.write(place(0, -1, 1, score=score, logits=logits), rows(3), torch.tensor([1, 2, 3]))
    assert memory.columns["score"].tolist() == pytest.approx([0.1, 0.3, 0.0])
    assert memory.columns["logits"].tolist() == [[0, 1], [4, 5], [0, 0]]
    memory.write(place(1, 2, score=torch.tensor([9.0, 8.0])), rows(2), torch.tensor([4, 5]))
    assert memory.columns["score"].tolist() == pytest.approx([0.1, 9.0, 8.0])
    assert memory.columns["logits"].shape == (3, 2)


def test_a_memory_of_nothing() -> None:
    memory = Memory(0, SHAPE)
    memory.write(place(-1, -1), rows(2), torch.tensor([1, 2]))
    assert (len(memory), memory.capacity, memory.seen) == (0, 0, 2)
    assert len(memory[np.zeros(0, dtype=np.int64)]) == 0
    with pytest.raises(IndexError):
        memory.write(place(0), rows(1), torch.tensor([1]))


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory is -1"):
        Memory(-1, SHAPE)


def test_counts_by_class() -> None:
    memory = Memory(6, SHAPE)
    memory.write(place(0, 1, 2, 3), rows(4), torch.tensor([2, 0, 2, 2]))
    assert memory.counts(5).tolist() == [1, 0, 3, 0, 0]


@given(
    st.lists(st.lists(st.integers(-1, 5), min_size=1, max_size=6), max_size=8), st.integers(1, 6)
)
@settings(deadline=None)
def test_writing_equals_a_plain_table(batches: list[list[int]], capacity: int) -> None:
    memory, plain, seen = Memory(capacity, SHAPE), {}, 0
    for number, wanted in enumerate(batches):
        slots, filled = [], set(plain)
        for slot in wanted:
            slots.append(min(slot, len(filled), capacity - 1))
            filled.update({slots[-1]} - {-1})
        raw = rows(len(slots), number)
        columns = torch.arange(seen, seen + len(slots))
        memory.write(place(*slots), raw, columns)
        for slot, row in zip(slots, range(len(slots)), strict=True):
            if slot >= 0:
                plain[slot] = (int(columns[row]), raw[row].tolist())
        seen += len(slots)
        assert (len(memory), memory.seen) == (len(plain), seen)
        for slot, (column, image) in plain.items():
            assert int(memory.y[slot]) == column and memory.x[slot].tolist() == image


@pytest.mark.parametrize("filled", [0, 2, 4])
def test_state_goes_round(filled: int) -> None:
    memory = Memory(4, SHAPE)
    memory.write(
        place(
            *range(filled),
            -1,
            score=torch.arange(filled + 1.0),
            many=torch.ones(filled + 1, 2, dtype=torch.int64),
        ),
        rows(filled + 1),
        torch.arange(filled + 1),
    )
    state = memory.state_dict()
    assert len(state["x"]) == len(state["y"]) == filled and state["seen"] == filled + 1
    other = Memory(4, SHAPE)
    other.write(place(0, 1, 2, 3, stale=torch.ones(4)), rows(4, 7), torch.tensor([7, 7, 7, 7]))
    other.load_state_dict(state)
    assert (len(other), other.seen) == (filled, filled + 1)
    assert torch.equal(other.x[:filled], memory.x[:filled]) and torch.equal(
        other.y[:filled], memory.y[:filled]
    )
    assert set(other.columns) == set(memory.columns)
    for name, note in memory.columns.items():
        assert (
            torch.equal(other.columns[name][:filled], note[:filled])
            and other.columns[name].dtype == note.dtype
        )
    for table in (memory, other):
        table.write(place(filled % 4, score=torch.tensor([5.0])), rows(1, 3), torch.tensor([9]))
    assert torch.equal(other.x[: len(other)], memory.x[: len(memory)]) and other.seen == memory.seen
