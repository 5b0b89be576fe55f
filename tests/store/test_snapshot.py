"""Snapshots: what goes in comes out, and no damage ever gives a wrong state."""

from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

import dualmix
from dualmix.errors import StoreError
from dualmix.store import snapshot

NAMES = st.one_of(
    st.text(max_size=6), st.sampled_from(["", "/", "a", "a/b", "b", "0", "tensor:", "__metadata__"])
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["tensor:", "tensor:/a", "tensor:/0", "text:", "text:tensor:/a", "null", "\x00", '"', "\\"]
    ),
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(
        st.sampled_from(
            [torch.uint8, torch.int64, torch.float32, torch.int32, torch.float64, torch.bool]
        )
    )
    seed = draw(st.integers(0, 2**16))
    filled = torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(seed))
    made = filled.to(dtype) / 7 if dtype.is_floating_point else filled.to(dtype)
    return made.transpose(0, 1) if len(shape) > 1 and draw(st.booleans()) else made


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**130), 2**130),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    tensors(),
)
STATES = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=4,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return (
            isinstance(b, Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and torch.equal(a, b)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) and repr(a) == repr(b)


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(state={"a/b": torch.tensor([1]), "a": {"b": torch.tensor([2])}})
@example(state={"a": [torch.tensor([1])], "a/0": torch.tensor([2]), "a/0'": torch.tensor([3])})
@example(
    state={
        "a": "tensor:/b",
        "b": torch.arange(3),
        "c": "text:x",
        "d": -0.0,
        "e": 1,
        "f": 1.0,
        "g": True,
    }
)
@given(state=STATES)
def test_round_trip(tmp_path: Path, state: dict[str, Any]) -> None:
    path = tmp_path / "s.safetensors"
    snapshot.write(path, state)
    assert same(state, snapshot.read(path))
    first = path.read_bytes()
    snapshot.write(path, snapshot.read(path))
    assert path.read_bytes() == first


def test_equal_states_give_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    x, y = torch.arange(4), torch.ones(2)
    snapshot.write(tmp_path / "1", {"x": x, "y": y, "n": {"a": 1, "b": 2}})
    snapshot.write(tmp_path / "2", {"n": {"b": 2, "a": 1}, "y": y.clone(), "x": x.clone()})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_a_view_is_saved_as_what_it_shows(tmp_path: Path) -> None:
    table = torch.arange(1000, dtype=torch.uint8)
    snapshot.write(tmp_path / "s", {"x": table[3:7], "t": torch.arange(6).reshape(2, 3).T})
    read = snapshot.read(tmp_path / "s")
    assert read["x"].tolist() == [3, 4, 5, 6]
    assert read["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (tmp_path / "s").stat().st_size < 1000


@pytest.mark.parametrize(
    "bad", [object(), {1, 2}, b"bytes", float("nan"), float("inf"), {1: 2}, 1j]
)
def test_what_cannot_be_held_is_refused_and_the_old_file_stays(tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "s"
    snapshot.write(path, {"a": 1})
    with pytest.raises((TypeError, ValueError)):
        snapshot.write(path, {"a": {"b": [bad]}})
    assert snapshot.read(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "s"
    state = {
        "key": "0f" * 8,
        "step": 2**100 + 1,
        "weights": torch.linspace(-1, 1, 12).reshape(3, 4),
        "memory": {"x": torch.arange(24, dtype=torch.uint8), "y": torch.arange(6)},
        "none": torch.zeros(0, 3),
        "rng": [True, None, 0.5, "tensor:/weights"],
    }
    snapshot.write(path, state)
    return path, path.read_bytes()


def test_cut_short_anywhere(whole: tuple[Path, bytes]) -> None:
    path, content = whole
    cuts = {0, 1, 7, 8, 9, len(content) // 2, len(content) - 1, *range(0, len(content), 5)}
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        with pytest.raises(StoreError, match=str(path)):
            snapshot.read(path)


def test_every_byte_with_one_bit_flipped(whole: tuple[Path, bytes]) -> None:
    path, content = whole
    chance = random.Random(1)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            snapshot.read(path)


def test_bytes_added_or_swapped(whole: tuple[Path, bytes]) -> None:
    path, content = whole
    for damaged in (
        content + b"\0",
        b"\0" + content,
        content[:-8] + content[-4:] + content[-8:-4],
        content * 2,
    ):
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            snapshot.read(path)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "s"
    foreign = [
        save({"x": torch.ones(2)}),
        save({"x": torch.ones(2)}, {"format": "pt"}),
        save({"x": torch.ones(2)}, {"dualmix": "{}"}),
        save({"x": torch.ones(2)}, {"dualmix": "[]"}),
        save({"x": torch.ones(2)}, {"dualmix": "3"}),
        save({"x": torch.ones(2)}, {"dualmix": json.dumps({"sha256": "", "state": "{}"})}),
        save({"x": torch.ones(2)}, {"dualmix": json.dumps({"sha256": 1, "state": None})}),
        b"",
        b"hello",
        b"\xff" * 100,
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
    ]
    for content in foreign:
        path.write_bytes(content)
        with pytest.raises(StoreError):
            snapshot.read(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(StoreError, match=path.name):
            snapshot.read(path)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def test_a_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"x": torch.ones(2), "evil": _Evil()}, tmp_path / "t")
    (tmp_path / "p").write_bytes(pickle.dumps({"evil": _Evil()}))
    for name in ("t", "p"):
        with pytest.raises(StoreError):
            snapshot.read(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_no_part_of_the_package_reads_pickles() -> None:
    source = Path(dualmix.__file__).parent
    forbidden = re.compile(
        r"(import|from) (pickle|joblib|shelve|marshal)\b|torch\.(load|save)\(|allow_pickle=True"
    )
    found = [
        p.name for p in source.rglob("*.py") if forbidden.search(p.read_text(encoding="utf-8"))
    ]
    assert not found


def test_a_panic_for_want_of_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def serialise(*given: Any) -> bytes:
        raise panic("PyObject pointer is null")

    monkeypatch.setattr(snapshot, "serialise", serialise)
    with pytest.raises(StoreError, match="A state of 12 bytes does not fit into the memory"):
        snapshot.state_bytes({"x": torch.zeros(3)})
