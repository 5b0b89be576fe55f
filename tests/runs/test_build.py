"""Recipes: a learner by name, and the same learner again from a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dualmix
from dualmix.config.fields import Model
from dualmix.errors import ConfigError, InputError, StoreError
from dualmix.registry import get_method, presets
from dualmix.store import snapshot

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE = (1, 8, 8)


def batches(count: int, seed: int = 0, text: bool = False) -> list[tuple[Any, Any]]:
    chance = np.random.default_rng(seed)
    made = []
    for number in range(count):
        y = chance.integers(0, 2 + number, 6)
        labels = np.array([f"class {c}" for c in y]) if text else y * 7 - 3
        made.append((chance.integers(0, 256, (6, *SHAPE)).astype(np.uint8), labels))
    return made


def content(learner: Any, path: Path) -> bytes:
    dualmix.save(learner, path)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["er", "finetune"])
@pytest.mark.parametrize("classes", [None, 12])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.slow
def test_a_loaded_learner_goes_on_with_the_same_bytes(
    tmp_path: Path, name: str, classes: int | None, text: bool
) -> None:
    settings = {"memory": 9, "memory_batch": 4} if name == "er" else {}
    stream = batches(6, text=text)
    whole = dualmix.create(name, SHAPE, classes=classes, seed=3, lr=0.05, **settings)
    cut = dualmix.create(name, SHAPE, classes=classes, seed=3, lr=0.05, **settings)
    for x, y in stream[:3]:
        whole.observe(x, y)
        cut.observe(x, y)
    dualmix.save(cut, tmp_path / "half")
    loaded = dualmix.load(tmp_path / "half")
    assert loaded.recipe == whole.recipe
    assert content(loaded, tmp_path / "again") == (tmp_path / "half").read_bytes()
    for x, y in stream[3:]:
        assert torch.equal(loaded.observe(x, y), whole.observe(x, y))
        assert torch.equal(loaded.hits, whole.hits)
    assert content(loaded, tmp_path / "1") == content(whole, tmp_path / "2")
    x, _ = batches(1, seed=9)[0]
    assert loaded.predict(x).tolist() == whole.predict(x).tolist()


def test_an_untrained_learner_can_be_saved(tmp_path: Path) -> None:
    learner = dualmix.create("er", SHAPE, memory=5)
    dualmix.save(learner, tmp_path / "new")
    loaded = dualmix.load(tmp_path / "new")
    with pytest.raises(InputError, match="learned"):
        loaded.predict(np.zeros((1, *SHAPE), dtype=np.uint8))
    x, y = batches(1)[0]
    assert torch.equal(loaded.observe(x, y), learner.observe(x, y))


def test_the_seed_decides(tmp_path: Path) -> None:
    made = [
        content(dualmix.create("er", SHAPE, classes=3, memory=5, seed=s), tmp_path / "s")
        for s in (1, 1, 2)
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_all_that_made_the_learner_is_in_the_file(tmp_path: Path) -> None:
    model = Model(width=2, mean=(0.5,), std=(0.25,))
    learner = dualmix.build(dualmix.ER(memory=4, lr=0.3), SHAPE, classes=5, seed=8, model=model)
    dualmix.save(learner, tmp_path / "l")
    loaded: Any = dualmix.load(tmp_path / "l")
    assert loaded.recipe == {
        "kind": "er",
        "method": {**dualmix.ER(memory=4, lr=0.3).model_dump()},
        "shape": [1, 8, 8],
        "classes": 5,
        "seed": 8,
        "model": model.model_dump(mode="json"),
    }
    assert loaded.memory.capacity == 4
    assert loaded.lr == 0.3
    assert loaded.model.weight.shape[0] == 5


def test_create_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"memroy.*did you mean memory\?"):
        dualmix.create("er", SHAPE, memroy=3)
    with pytest.raises(ConfigError, match=r"(?s)memroy.*memory.*lrr.*lr"):
        dualmix.create("er", SHAPE, memroy=3, lrr=1)
    with pytest.raises(ConfigError, match=r"'finetun'.*finetune"):
        dualmix.create("finetun", SHAPE)
    with pytest.raises(ConfigError, match="no method 'zebra'"):
        dualmix.create("zebra", SHAPE)
    with pytest.raises(ConfigError, match="create 'finetune' with its settings"):
        dualmix.create("iid-offline", SHAPE)
    with pytest.raises(ConfigError, match="does not fit: make it smaller"):
        dualmix.create("er", SHAPE, memory=10**14)
    with pytest.raises(ConfigError, match="no device 'foo'"):
        dualmix.create("er", SHAPE, device="foo")
    with pytest.raises(ConfigError, match="side of a shape"):
        dualmix.create("er", (3, 8.5, 8))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not 'a'"):
        dualmix.create("er", SHAPE, seed="a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"memory": -1}, {"lr": 0}, {"lr": float("nan")}, {"forward": "both"}]
)
def test_create_refuses_bad_values(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        dualmix.create("er", SHAPE, **settings)


def test_create_lists_all_bad_values() -> None:
    with pytest.raises(ConfigError, match=r"(?s)lr.*memory|memory.*lr"):
        dualmix.create("er", SHAPE, memory=-1, lr=-2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CUDA"):
        dualmix.create("er", SHAPE, device="cuda")
    dualmix.save(dualmix.create("er", SHAPE, memory=1), tmp_path / "l")
    with pytest.raises(ConfigError, match="CUDA"):
        dualmix.load(tmp_path / "l", device="cuda:0")


def test_files_that_are_no_learner(tmp_path: Path) -> None:
    path = tmp_path / "l"
    dualmix.save(dualmix.create("er", SHAPE, memory=2, classes=2), path)
    good = snapshot.read(path)
    wrong = [
        {},
        {"recipe": good["recipe"]},
        {"learner": good["learner"]},
        {**good, "recipe": {**good["recipe"], "shape": [3, 8, 8]}},
        {**good, "recipe": {**good["recipe"], "method": {"memory": -1}}},
        {**good, "recipe": {**good["recipe"], "model": {"widht": 3}}},
        {**good, "recipe": {k: v for k, v in good["recipe"].items() if k != "seed"}},
        {**good, "recipe": 3},
    ]
    for state in wrong:
        snapshot.write(path, state)
        with pytest.raises(StoreError, match="not a saved learner"):
            dualmix.load(path)
    snapshot.write(path, {**good, "recipe": {**good["recipe"], "kind": "zebra"}})
    with pytest.raises(ConfigError, match="zebra"):
        dualmix.load(path)
    path.write_bytes(b"junk")
    with pytest.raises(StoreError):
        dualmix.load(path)
    with pytest.raises(StoreError):
        dualmix.load(tmp_path / "none")


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    learner = dualmix.create("er", SHAPE, memory=2)
    for path in (tmp_path / "plain" / "l", tmp_path / "none" / "l", Path("/proc/l")):
        with pytest.raises(StoreError, match="cannot be written"):
            dualmix.save(learner, path)


def test_additions_join_a_method_by_a_plus() -> None:
    learner = dualmix.create(
        "er+dualmix", shape=(1, 8, 8), memory=5, mix={"alpha": 0.4, "view": 0.0}
    )
    assert set(learner.mixes) == {"enmix", "adpmix"}
    assert learner.mixes["enmix"].alpha == 0.4
    same = dualmix.create(
        "er+dualmix", shape=(1, 8, 8), memory=5, mix=dualmix.Mixing(alpha=0.4, view=0.0)
    )
    assert same.recipe == learner.recipe
    with pytest.raises(ConfigError, match=r"dualmx.*dualmix"):
        dualmix.create("er+dualmx", shape=(1, 8, 8))
    with pytest.raises(ConfigError, match="finetune"):
        dualmix.create("finetune+da", shape=(1, 8, 8))


def trained(name: str, text: bool = False, **settings: Any) -> Any:
    kind = get_method(name)
    known = {k: v for k, v in {"lr": 0.05, **settings}.items() if k in kind.model_fields}
    method = kind(**known)
    learner = dualmix.build(method, SHAPE, seed=3, model=Model(width=1))
    for x, y in batches(4, text=text):
        learner.observe(x, y)
    learner.consolidate()
    return learner


@pytest.mark.parametrize("name", sorted({preset.kind for preset in presets().values()}))
@pytest.mark.slow
def test_every_method_is_sound_by_its_own_rules(tmp_path: Path, name: str) -> None:
    for text in (False, True):
        dualmix.save(trained(name, text, memory=9), tmp_path / "l")
        loaded = dualmix.load(tmp_path / "l")
        assert content(loaded, tmp_path / "again") == (tmp_path / "l").read_bytes()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where every leaf of a state is, and every group."""
    yield path
    listed = enumerate(value if isinstance(value, list) else ())
    parts = value.items() if isinstance(value, dict) else listed
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(state: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a state with something else at a place."""
    if not path:
        return new
    made = dict(state) if isinstance(state, dict) else list(state)
    made[path[0]] = changed(state[path[0]], path[1:], new)
    return made


def forgeries(value: Any) -> list[Any]:
    """Return what may stand in a value's place in no saved learner."""
    other: list[Any] = [None, {}, [], "x", -1, 1.5, 10**19, True, [[]], {"a": 1}]
    if isinstance(value, torch.Tensor):
        other += [torch.zeros(0), torch.zeros(3, 3, 3), value[None], torch.zeros(0, 10**12)]
        other += [value.double() if value.is_floating_point() else value.float()]
        if value.is_floating_point() and value.numel():
            other += [torch.full_like(value, np.nan), torch.full_like(value, np.inf)]
        if value.dtype == torch.int64 and value.numel():
            other += [value - 10**6, value + 10**6]
    return other


@pytest.mark.parametrize(
    "name",
    [
        "dvc",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("er", "scr", "gdumb", "der++")),
    ],
)
@pytest.mark.slow
def test_no_forged_learner_is_used(tmp_path: Path, name: str) -> None:
    """The checksum is that of the forgery: what it holds is told apart by the recipe alone."""
    path = tmp_path / "l"
    dualmix.save(trained(name, memory=9), path)
    good = snapshot.read(path)
    learner = good["learner"]
    chance = np.random.default_rng(0)
    every = [(at, new) for at in places(learner) for new in forgeries(lookup(learner, at))]
    refused = accepted = 0
    for number in chance.permutation(len(every))[:120]:
        at, new = every[number]
        snapshot.write(path, {**good, "learner": changed(learner, at, new)})
        try:
            loaded = dualmix.load(path)
        except StoreError as fault:
            assert "\n" not in str(fault)
            refused += 1
            continue
        accepted += 1
        x, y = batches(1)[0]
        loaded.observe(x, y)
        assert np.isin(loaded.predict(x), loaded.model.labels).all(), at
        assert harmless(at, lookup(learner, at), new), (at, new)
    assert refused > 20 * accepted


def lookup(state: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        state = state[name]
    return state


def harmless(at: tuple[Any, ...], old: Any, new: Any) -> bool:
    """Whether a learner can be in such a state: an empty record that was empty or may be, a label
    of another name, a count that may be.
    """
    free = {"generators", "notes", "marks", "tally"}
    return (
        (isinstance(old, type(new)) and old == new)
        or (new == {} and bool(free & set(at)))
        or (at[0] in ("labels", "tally") or at[-1] in ("state", "uinteger", "has_uint32"))
        or (str(at[-1]).endswith("num_batches_tracked") and int(new) > 0)
        or (at[0] == "memory" and bool(free & set(at)))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1, 10**6, 10**6]},
        {"shape": [1, 8]},
        {"shape": [True, 8, 8]},
        {"shape": "188"},
        {"classes": 10**9},
        {"classes": -1},
        {"classes": 1.5},
        {"seed": -1},
        {"seed": "a"},
        {"method": {"memory": 10**15}},
        {"method": {"memory": 1e3}},
        {"method": {"lr": float(10**30), "memory": 9, "nothing": 1}},
        {"method": []},
        {"model": {"width": 512}},
        {"model": {"mean": [0.0, 0.0], "std": [1.0, 1.0]}},
        {"model": None},
        {"shape": [1, 3, 3]},
        {"shape": [1, 4000, 4000]},
        {"method": {"memory": 9, "iterations": 2**31}},
    ],
)
def test_no_forged_recipe_is_made(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "l"
    dualmix.save(trained("er", memory=9), path)
    good = snapshot.read(path)
    snapshot.write(path, {**good, "recipe": {**good["recipe"], **change}})
    with pytest.raises(StoreError, match="not a saved learner"):
        dualmix.load(path)


@pytest.mark.parametrize(
    "tally", [7, {"a": 7}, {"a": torch.ones(1)}, {"a": torch.tensor(1.0).double()}, {"a": None}]
)
def test_no_forged_tally_is_taken(tmp_path: Path, tally: Any) -> None:
    path = tmp_path / "l"
    dualmix.save(trained("er", memory=9), path)
    good = snapshot.read(path)
    snapshot.write(path, {**good, "learner": {**good["learner"], "tally": tally}})
    with pytest.raises(StoreError, match="tally"):
        dualmix.load(path)


def test_a_recipe_says_no_size_that_its_weights_have_not(tmp_path: Path) -> None:
    path = tmp_path / "l"
    dualmix.save(trained("scr", memory=9, projection=4), path)
    good = snapshot.read(path)
    for length in (5, 10**9):
        method = {**good["recipe"]["method"], "projection": length}
        snapshot.write(path, {**good, "recipe": {**good["recipe"], "method": method}})
        with pytest.raises(StoreError, match="not a saved learner"):
            dualmix.load(path)


def test_no_damaged_learner_is_used(tmp_path: Path) -> None:
    path = tmp_path / "l"
    dualmix.save(trained("er", memory=3), path)
    good = path.read_bytes()
    chance = np.random.default_rng(1)
    for at in chance.integers(0, len(good), 60):
        damaged = bytearray(good)
        damaged[at] ^= 1 << int(chance.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            dualmix.load(path)


def test_four_threads_save_to_one_path(tmp_path: Path) -> None:
    learner, faults = trained("er", memory=9), []

    def save() -> None:
        try:
            for _ in range(5):
                dualmix.save(learner, tmp_path / "l")
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and [p.name for p in tmp_path.iterdir()] == ["l"]
    assert dualmix.load(tmp_path / "l").recipe == learner.recipe


@pytest.mark.parametrize(
    "given",
    [
        {"shape": None},
        {"shape": 8},
        {"shape": "188"},
        {"shape": (1, 8)},
        {"shape": (True, 8, 8)},
        {"shape": (2**63, 8, 8)},
        {"shape": (1, 10**7, 10**7)},
        {"shape": (1, 0, 8)},
        {"shape": iter((1, 8, 8))},
        {"classes": [1, 2]},
        {"classes": {}},
        {"classes": "3"},
        {"classes": 3j},
        {"classes": True},
        {"classes": np.float32(3)},
        {"classes": 2**31},
        {"seed": 1.0},
        {"seed": False},
        {"seed": -1},
        {"device": "mps"},
        {"device": "meta"},
        {"device": None},
        {"device": 0},
        {"device": b"cpu"},
        {"device": ["cpu"]},
        {"device": "cuda:99"},
        {"name": None},
        {"name": b"er"},
        {"name": 3},
        {"name": "er+da", "mix": "3"},
        {"name": "er+da", "mix": None},
        {"name": "er+da", "mix": [1]},
    ],
)
def test_what_no_learner_can_be_made_from(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as fault:
        dualmix.create(**{"name": "er", "shape": SHAPE, "memory": 3, **given})
    assert "\n" not in str(fault.value) and str(fault.value).endswith(".")


@pytest.mark.parametrize("shape", [[1, 8, 8], np.array([1, 8, 8]), (np.int64(1), 8, np.uint8(8))])
def test_numbers_of_numpy_and_lists_are_made_plain(tmp_path: Path, shape: Any) -> None:
    made = dualmix.create(
        "er",
        shape,
        memory=3,
        classes=np.int64(20),
        seed=np.uint8(3),
        device=torch.device("cpu"),
    )
    plain = dualmix.create("er", SHAPE, memory=3, classes=20, seed=3)
    for x, y in batches(2):
        made.observe(x, y)
        plain.observe(x, y)
    assert content(made, tmp_path / "1") == content(plain, tmp_path / "2")
    assert made.recipe["shape"] == [1, 8, 8]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "mps"}, "no device 'mps' for dualmix: give cpu"),
        ({"classes": ["cat", "dog"]}, "how many there will be, not which: give 2"),
        ({"classes": np.array(3)}, "^Classes must be a whole number"),
        ({"mean": [0.5]}, "^Method 'er' cannot be made: mean and std need"),
    ],
)
def test_a_wrong_argument_is_named_and_said_how_to_mend(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dualmix.create("er", (3, 8, 8), **options)


def test_a_preset_with_settings_of_its_method_can_be_created() -> None:
    wanted = presets()["scr-100"].values["method.memory_batch"]
    assert dualmix.create("scr-100", SHAPE).recipe["method"]["memory_batch"] == wanted == 100


def test_a_backbone_is_not_exchanged() -> None:
    learner: Any = dualmix.create("er", (3, 8, 8), width=2)
    backbone = learner.model.backbone
    with pytest.raises(ConfigError, match="make the learner with backbone="):
        learner.model.backbone = torch.nn.Identity()
    assert learner.model.backbone is backbone
