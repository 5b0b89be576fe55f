"""The store: which settings make which run, how a run is found, and what its folder guards against."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualmix
from dualmix.config.compose import Composed, compose, lookup, walk
from dualmix.config.fields import canonical
from dualmix.data import load
from dualmix.errors import BusyError, StoreError
from dualmix.runs.facts import facts
from dualmix.store.folder import Folder, Store

DATA = "d" * 64
OTHER = {
    "method.lr": 0.05,
    "method.weight_decay": 0.1,
    "method.memory": 77,
    "method.memory_batch": 9,
    "method.reservoir": "exact",
    "method.iterations": 2,
    "method.forward": "joint",
    "method.softmax": "labels",
    "method.readout": "ncm",
    "method.review": 0.1,
    "method.mix.view": 0.5,
    "method.mix.enmix": 0.5,
    "method.mix.adpmix": 0.5,
    "method.mix.stream": 0.5,
    "method.mix.replay": 0.5,
    "method.mix.augment": "flip",
    "method.mix.alpha": 0.5,
    "method.mix.kappa": 1.5,
    "method.mix.tau": 0.4,
    "method.mix.delta": 0.1,
    "method.mix.each": "batch",
    "method.mix.adpmix_augment": "old",
    "method.mix.old": "task",
    "method.mix.pairs": "all",
    "method.mix.ratio": "mean",
    "stream.tasks": 2,
    "stream.first": 1,
    "stream.batch": 9,
    "stream.epochs": 2,
    "stream.class_order": "fixed",
    "stream.incomplete": "drop",
    "stream.validation": 0.1,
    "model.width": 7,
    "model.head": "growing",
    "model.precision": "bfloat16",
    "seed": 1,
    "order_seed": 1,
    "run_seed": 1,
    "device": "cuda",
    "threads": 2,
}
SAME = {
    "save_every": 9,
    "probes.on": True,
    "probes.draws": 4,
    "probes.rows": 7,
    "probes.past": 8,
    "probes.operators": ["flip"],
}
DECODING = {"data.size": 16, "data.held_out": 0.4, "data.split_seed": 1}
PLACES = ("data.name", "data.root", "data.path")


def key(base: str = "er", fingerprint: str = DATA, **more: Any) -> str:
    return compose(
        base, {name.replace("__", "."): given for name, given in more.items()}
    ).config.key(fingerprint)


def test_every_setting_that_affects_the_result_is_in_the_key() -> None:
    base = compose("er")
    keys = {"": base.config.key(DATA)}
    paths = [path for path, _ in walk(type(base.config))]
    paths = [path for path in paths if path not in ("model.mean", "model.std")]
    assert set(paths) == {*OTHER, *SAME, *DECODING, *PLACES}, (
        "a setting is new: say here whether it is in the key"
    )
    for path, given in OTHER.items():
        assert lookup(base.config, path) != given
        keys[path] = compose("er", {path: given}).config.key(DATA)
    keys["model"] = compose("er", {"model.mean": [0.5], "model.std": [0.2]}).config.key(DATA)
    keys["std"] = compose("er", {"model.mean": [0.5], "model.std": [0.3]}).config.key(DATA)
    keys["kind"] = compose("finetune").config.key(DATA)
    keys["data"] = base.config.key("e" * 64)
    assert len(set(keys.values())) == len(keys)


def test_a_list_of_classes_and_its_order_are_in_the_key() -> None:
    orders: list[Any] = ["shuffled", "fixed", [0, 1], [1, 0], [0, 1, 2]]
    assert len({key(stream__class_order=order) for order in orders}) == len(orders)


def test_what_does_not_affect_the_result_is_not_in_the_key(tmp_path: Path) -> None:
    for path, given in {**SAME, "data.root": str(tmp_path)}.items():
        assert compose("er", {"probes.on": True, path: given}).config.key(DATA) == key()
    base = compose("er")
    renamed = Composed("another label", base.config, dict.fromkeys(base.origins, "elsewhere"))
    assert Store("x").folder(renamed, DATA).key == Store("x").folder(base, DATA).key
    given = compose("er", {"method.memory": 1000, "stream.tasks": 5})
    assert given.origins != base.origins
    assert given.config.key(DATA) == base.config.key(DATA)


def test_seeds_in_the_key() -> None:
    assert key(seed=3) == key(order_seed=3, run_seed=3) == key(seed=8, order_seed=3, run_seed=3)
    assert key(seed=3, order_seed=3) == key(seed=3)
    assert len({key(seed=3), key(seed=3, order_seed=4), key(seed=3, run_seed=4), key(seed=4)}) == 4


def test_decoding_changes_the_content_and_so_the_key() -> None:
    configs = [compose("er", {path: given}).config for path, given in DECODING.items()]
    keys = {
        config.key(load(config.data).fingerprint) for config in [compose("er").config, *configs]
    }
    assert len(keys) == 4


def test_content_and_not_its_place_is_in_the_key(tmp_path: Path) -> None:
    x, y = np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4), np.repeat(np.arange(3), 4)
    changed = x.copy()
    changed[5, 1, 1] ^= 1
    found = []
    for name, pixels, labels in (
        ("a", x, y),
        ("b", x, y),
        ("c", changed, y),
        ("d", x, np.roll(y, 1)),
    ):
        np.savez(tmp_path / f"{name}.npz", x=pixels, y=labels)
        config = compose(
            "er", {"data.name": "arrays", "data.path": str(tmp_path / f"{name}.npz")}
        ).config
        found.append(config.key(load(config.data).fingerprint))
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_the_key_is_the_same_in_every_process() -> None:
    script = (
        "import sys; from dualmix.config.compose import compose\n"
        "made = [compose('er', {'method.lr': 0.3, 'stream.class_order': [2, 1, 0]}), compose('iid-offline')]\n"
        "print(*[c.config.key('d' * 64) for c in made], 'torch' in sys.modules)"
    )
    said = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env
        )
        said.append(done.stdout.split())
    here = [key(method__lr=0.3, stream__class_order=[2, 1, 0]), key("iid-offline")]
    assert said[0] == said[1] == [*here, "False"]


def test_canonical_json() -> None:
    assert canonical({"b": [1, 2.5, None], "a": {"d": "ä", "c": True}}) == (
        '{"a":{"c":true,"d":"\\u00e4"},"b":[1,2.5,null]}'
    )
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))


def test_a_folder_is_found_under_any_name_that_ends_with_its_key(tmp_path: Path) -> None:
    composed, store = compose("er"), Store(tmp_path)
    first = store.folder(composed, DATA)
    assert first.path.parent == tmp_path
    assert first.path.name == f"er-digits-s0-{first.key[:12]}"
    assert not first.path.exists()
    first.path.mkdir()
    renamed = tmp_path / f"my favourite-{first.key[:12]}"
    first.path.rename(renamed)
    assert store.folder(composed, DATA).path == renamed
    assert store.folder(compose("er", {"seed": 1}), DATA).path != renamed


def file_run(store: Store, composed: Composed) -> Folder:
    folder = store.folder(composed, DATA)
    with folder.locked():
        folder.begin(composed, {"tasks": []}, {"train_0": np.arange(3)}, {"name": "none"})
    return folder


def test_find(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = (file_run(store, compose("er", {"seed": seed})) for seed in (0, 1))
    (tmp_path / "not a run").mkdir()
    assert store.paths() == sorted([first.path, second.path])
    for name in (str(first.path), first.path.name, "s0", first.key[:12]):
        assert store.find(name).path == first.path
        assert store.find(name).key == first.key
    mixed = file_run(store, compose("er+da"))
    for age, folder in enumerate((mixed, second, first)):
        os.utime(folder.path / "config.json", ns=(10**9 * age, 10**9 * age))
    assert store.find("er").path == first.path
    assert store.matches("er") == [first.path, second.path]
    assert store.find("er+da").path == mixed.path
    with pytest.raises(StoreError, match="no run 'zebra'"):
        store.find("zebra")
    with pytest.raises(StoreError, match="no run 'er'"):
        Store(tmp_path / "nowhere").find("er")


@pytest.mark.parametrize("garbage", ["", "{", "[]", "3", "{}", '{"key": 1}', "\x00", "null"])
def test_a_garbage_record_is_a_clear_error(tmp_path: Path, garbage: str) -> None:
    folder = file_run(Store(tmp_path), compose("er"))
    (folder.path / "config.json").write_text(garbage)
    with pytest.raises(StoreError, match=r"config\.json"):
        Store(tmp_path).find("er")
    assert (folder.path / "config.json").read_text() == garbage


def test_garbage_results_are_a_clear_error(tmp_path: Path) -> None:
    folder = file_run(Store(tmp_path), compose("er"))
    (folder.path / "scores.json").write_text("{}")
    folder.write_arrays("confusion.npz", {"counts": np.arange(300).reshape(3, 10, 10)})
    good = (folder.path / "confusion.npz").read_bytes()
    for content in (b"", b"PK", b"\x00" * 50, good[:-30], good[: len(good) // 2]):
        (folder.path / "confusion.npz").write_bytes(content)
        with pytest.raises(StoreError, match=r"confusion\.npz"):
            folder.counts()
    (folder.path / "confusion.npz").unlink()
    with pytest.raises(StoreError, match=r"confusion\.npz"):
        folder.counts()
    (folder.path / "times.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match=r"times\.json"):
        folder.read_json("times.json")


def test_no_flipped_bit_gives_other_counts(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "k")
    (tmp_path / "scores.json").write_text("{}")
    counts = np.random.default_rng(0).integers(0, 90, (3, 5, 5))
    folder.write_arrays("confusion.npz", {"counts": counts})
    good = (tmp_path / "confusion.npz").read_bytes()
    refused = 0
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        (tmp_path / "confusion.npz").write_bytes(damaged)
        try:
            assert (folder.counts() == counts).all()
        except StoreError:
            refused += 1
    assert refused > len(good) / 2


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run", "k")
    with folder.locked():
        assert folder.read_json("holder.json")["pid"] == os.getpid()
        with pytest.raises(BusyError, match=f"{os.getpid()}.*left alone"), folder.locked():
            raise AssertionError
        assert (folder.path / "holder.json").exists()
    assert not (folder.path / "holder.json").exists()
    with pytest.raises(ZeroDivisionError), folder.locked():
        raise ZeroDivisionError
    with folder.locked():
        pass


def test_what_a_killed_write_left_is_swept(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run", "k")
    folder.path.mkdir()
    (folder.path / ".snapshot-000000003.safetensors.99.part").write_bytes(b"half")
    with folder.locked():
        assert {p.name for p in folder.path.iterdir()} == {"lock", "holder.json"}


def test_a_run_half_cleared_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, "k")
    for name in ("a.json", "learner.safetensors", "scores.json", "z.json"):
        (tmp_path / name).write_text("{}")
    real, removed = Path.unlink, []

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(self.name)
        real(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(KeyboardInterrupt):
        folder.clear()
    assert removed == ["scores.json"]
    assert not folder.done


def test_arrays_are_filed_small_and_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "k")
    for top, dtype in ((255, np.uint8), (256, np.uint16), (2**32, np.uint64)):
        folder.write_arrays(
            "a.npz", {"x": np.array([0, top]), "none": np.zeros((0, 3), dtype=np.int64)}
        )
        with np.load(tmp_path / "a.npz") as read:
            assert read["x"].tolist() == [0, top]
            assert read["x"].dtype == dtype
            assert read["none"].shape == (0, 3)


def test_equal_arrays_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    folder = Folder(tmp_path, "k")
    folder.write_arrays("a.npz", {"x": np.arange(9)})
    later = time.localtime(time.time() + 10**8)
    monkeypatch.setattr(time, "localtime", lambda *_: later)
    folder.write_arrays("b.npz", {"x": np.arange(9)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_begin_writes_once_and_adds_sessions(tmp_path: Path) -> None:
    store, composed = Store(tmp_path), compose("er")
    folder = file_run(store, composed)
    before = (folder.path / "config.json").stat().st_mtime_ns
    file_run(store, composed)
    assert (folder.path / "config.json").stat().st_mtime_ns == before
    assert [s["pid"] for s in folder.read_json("facts.json")["sessions"]] == [os.getpid()] * 2


def test_facts_are_plain_and_name_the_commit() -> None:
    found = json.loads(json.dumps(facts()))
    source = Path(dualmix.__file__).parent
    checkout = (source.parent.parent / ".git").exists()
    git = ["git", "-C", str(source), "rev-parse", "HEAD"]
    head = (
        subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        if checkout
        else None
    )
    assert found["commit"] == head
    assert found["python"].count(".") == 2
    assert set(found["versions"]) >= {"dualmix", "torch", "numpy", "safetensors"}
    assert all(found["versions"].values())
