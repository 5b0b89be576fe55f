"""Named generators: independent, repeatable and exactly resumable."""

from __future__ import annotations

import json
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.rng import Rng, generator

NAMES = (
    "init",
    "head",
    "classes",
    "samples",
    "update",
    "retrieve",
    "mix",
    "a",
    "b",
    "ab",
    "ba",
    "",
    "é",
)


def drawn(g: np.random.Generator, count: int = 4) -> tuple[int, ...]:
    return tuple(g.integers(0, 2**63, count).tolist())


def test_a_name_and_seed_decide_the_numbers() -> None:
    assert drawn(Rng(5)["mix"]) == drawn(Rng(5)["mix"]) == drawn(generator(5, "mix"))


def test_names_seeds_and_numbers_never_share_a_stream() -> None:
    streams = [drawn(generator(seed, name)) for seed in (0, 1, 97, 98, 2**31) for name in NAMES]
    streams += [
        drawn(generator(0, name, *more))
        for name in NAMES
        if len(name) > 3
        for more in ((0,), (1,), (0, 0), (1, 0), (0, 1), (256,))
    ]
    assert len(set(streams)) == len(streams)


def test_draws_are_the_same_on_every_machine() -> None:
    """PCG64 seeded from a SeedSequence is stable by numpy's promise; a change of the key would
    change all results.
    """
    words = [7, *b"update", 0]
    assert drawn(generator(7, "update")) == drawn(
        np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
    )


@given(st.lists(st.sampled_from(["update", "retrieve", "mix"]), max_size=30))
@settings(deadline=None)
def test_streams_do_not_disturb_each_other(order: list[str]) -> None:
    rng, alone = Rng(1), {name: generator(1, name) for name in ("update", "retrieve", "mix")}
    for name in order:
        assert rng[name].random() == alone[name].random()


@given(st.integers(0, 40), st.integers(0, 2**40))
@settings(deadline=None)
def test_state_goes_through_json(before: int, seed: int) -> None:
    rng = Rng(seed)
    rng["update"].random(before)
    rng["retrieve"].integers(0, 10, before, dtype=np.int32)
    state = json.loads(json.dumps(rng.state_dict()))
    expected = [
        rng[name].integers(0, 100, 9, dtype=np.int32).tolist()
        for name in ("update", "retrieve", "new")
    ]
    other = Rng(99)
    other["stale"].random()
    other.load_state_dict(state)
    assert other.seed == seed
    assert set(other.state_dict()["generators"]) == {"update", "retrieve"}
    assert [
        other[n].integers(0, 100, 9, dtype=np.int32).tolist() for n in ("update", "retrieve", "new")
    ] == expected


def test_a_state_is_a_copy() -> None:
    rng = Rng(0)
    rng["mix"].random()
    state = rng.state_dict()
    saved = json.dumps(state)
    rng["mix"].random(10)
    assert json.dumps(state) == saved


def test_global_generators_stay_where_they_are() -> None:
    before = repr(np.random.get_state()), random.getstate()  # noqa: NPY002
    Rng(3)["mix"].random(100)
    assert (repr(np.random.get_state()), random.getstate()) == before  # noqa: NPY002
