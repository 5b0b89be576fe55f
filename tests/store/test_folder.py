"""The store: which settings make which run, how a run is found, what its folder guards against."""

from __future__ import annotations

import io
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
from dualmix.runs.filing import place, record
from dualmix.runs.status import standings
from dualmix.store.arrays import arrays_bytes, parse_arrays
from dualmix.store.folder import Folder
from dualmix.store.lock import Lock
from dualmix.store.store import Store

DATA = "d" * 64
OTHER = {
    "method.lr": 0.06,
    "method.weight_decay": 0.1,
    "method.momentum": 0.9,
    "method.optimiser": "adam",
    "method.memory": 77,
    "method.stored": "float16",
    "method.train_augment": "flip",
    "method.mkd.weight": 1.0,
    "method.mkd.rate": 0.02,
    "method.ema.rate": 0.02,
    "method.mkd.temperature": 2.0,
    "method.mkd.augment": "flip",
    "method.mkd.answers": "teacher",
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
    "method.mix.mixed": False,
    "method.mix.new_view": 0.5,
    "method.mix.enmix_alpha": 0.5,
    "method.mix.adpmix_alpha": 0.5,
    "method.mix.shared_view": True,
    "stream.tasks": 2,
    "stream.first": 1,
    "stream.batch": 9,
    "stream.epochs": 2,
    "stream.class_order": "fixed",
    "stream.incomplete": "drop",
    "stream.validation": 0.1,
    "stream.held_out": 0.1,
    "model.name": "resnet18",
    "model.weights_sha256": "0" * 64,
    "model.frozen": True,
    "model.hidden": 7,
    "model.statistics": "unbiased",
    "model.width": 7,
    "model.head": "growing",
    "model.precision": "bfloat16",
    "model.engine": "torch",
    "seed": 1,
    "order_seed": 1,
    "run_seed": 1,
    "device": "cuda",
    "threads": 2,
}
SAME = {
    "save_every": 9,
    "log_every": 3,
    "probes.on": True,
    "probes.draws": 4,
    "probes.rows": 7,
    "probes.past": 8,
    "probes.operators": ["flip"],
    "probes.linear": True,
    "probes.answers": True,
}
DECODING = {"data.size": 16, "data.held_out": 0.4, "data.split_seed": 1}
PLACES = ("data.name", "data.root", "data.path", "data.fit", "data.skip", "model.weights")
"""Say where files are and how they are read; what they are read as is in a digest."""


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
    assert place(Store("x"), renamed, DATA).key == place(Store("x"), base, DATA).key
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


@pytest.mark.slow
def test_the_key_is_the_same_in_every_process() -> None:
    script = (
        "import sys; from dualmix.config.compose import compose\n"
        "er = compose('er', {'method.lr': 0.3, 'stream.class_order': [2, 1, 0]})\n"
        "made = [er, compose('iid-offline')]\n"
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
    first = place(store, composed, DATA)
    assert first.path.parent == tmp_path
    assert first.path.name == f"er-digits-s0-{first.key[:12]}"
    assert not first.path.exists()
    first.path.mkdir()
    renamed = tmp_path / f"my favourite-{first.key[:12]}"
    first.path.rename(renamed)
    assert place(store, composed, DATA).path == renamed
    assert place(store, compose("er", {"seed": 1}), DATA).path != renamed


def file_run(store: Store, composed: Composed) -> Folder:
    folder = place(store, composed, DATA)
    with folder.locked():
        folder.begin(
            record(composed, folder.key),
            {"tasks": []},
            {"train_0": np.arange(3)},
            lambda: {"data": {"name": "none"}},
        )
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
    (folder.path / "sums.json").unlink()
    good = arrays_bytes({"counts": np.arange(300).reshape(3, 10, 10)})
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
    good = arrays_bytes({"counts": counts})
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


def test_arrays_are_filed_small_and_whole(tmp_path: Path) -> None:
    for top, dtype in ((255, np.uint8), (256, np.uint16), (2**32, np.uint64)):
        arrays = {"x": np.array([0, top]), "none": np.zeros((0, 3), dtype=np.int64)}
        with np.load(io.BytesIO(arrays_bytes(arrays))) as read:
            assert read["x"].tolist() == [0, top]
            assert read["x"].dtype == dtype
            assert read["none"].shape == (0, 3)
        again = parse_arrays(arrays_bytes(arrays), tmp_path)
        assert again["x"].tolist() == [0, top] and again["x"].dtype == np.int64


def test_equal_arrays_give_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    first = arrays_bytes({"x": np.arange(9)})
    later = time.localtime(time.time() + 10**8)
    monkeypatch.setattr(time, "localtime", lambda *_: later)
    assert arrays_bytes({"x": np.arange(9)}) == first


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


@pytest.mark.parametrize(
    "label",
    ["../evil", "/etc", "a/b", "..", ".hidden", "a\\b", "a\nb", "\x1b[2J", "\ud800", "", "-rf"],
)
def test_no_label_leads_out_of_the_store(tmp_path: Path, label: str) -> None:
    base = compose("er")
    with pytest.raises(StoreError, match="cannot name a run's folder"):
        file_run(Store(tmp_path / "store"), Composed(label, base.config, base.origins))
    assert not list(tmp_path.iterdir())


def test_a_long_label_is_cut_and_kept_apart(tmp_path: Path) -> None:
    base, store = compose("er"), Store(tmp_path)
    runs = [
        file_run(store, Composed(label, config, base.origins))
        for label, config in (
            ("ä" * 400, base.config),
            ("ä" * 399 + "b", compose("er", {"seed": 1}).config),
        )
    ]
    assert len({run.path for run in runs}) == 2
    assert all(len(run.path.name.encode()) < 200 for run in runs)
    assert Folder.open(runs[0].path).config()["label"] == "ä" * 400


def finished(store: Store, composed: Composed) -> Folder:
    folder = file_run(store, composed)
    with folder.locked():
        folder.finish(
            {"a": 1},
            np.ones((1, 2, 2), dtype=np.int64),
            {"average_accuracy": 0.5},
            {"train_seconds": 1.0},
            [{"task": 0}],
        )
    return folder


SUMMED = (
    "config.json", "plan.json", "plan.npz", "facts.json", "learner.safetensors", "confusion.npz",
    "probes.json", "times.json", "scores.json",
)  # fmt: skip


@pytest.mark.parametrize("name", SUMMED)
def test_no_file_of_a_finished_run_is_believed_once_it_changed(tmp_path: Path, name: str) -> None:
    folder = finished(Store(tmp_path), compose("er"))
    assert folder.check() and set(folder.sums()["files"]) == set(SUMMED)  # type: ignore[index]
    path = folder.path / name
    good = path.read_bytes()
    for content in (good[:-1], good + b"\n", bytes([good[0] ^ 1]) + good[1:], b""):
        path.write_bytes(content)
        for ask in (folder.check, lambda: folder.read(name)):
            with pytest.raises(StoreError, match=f"{name} is not as the run wrote it"):
                ask()
    path.unlink()
    with pytest.raises(StoreError, match=name):
        folder.check()
    path.write_bytes(good)
    assert folder.check() and folder.read(name) == good


def test_what_was_added_to_a_finished_run_is_not_its_result(tmp_path: Path) -> None:
    folder = finished(Store(tmp_path), compose("er"))
    for name in ("probes.json", "times.json"):
        sums = json.loads((folder.path / "sums.json").read_text())
        del sums["files"][name]
        (folder.path / "sums.json").write_text(json.dumps(sums))
        with pytest.raises(StoreError, match="is not as the run wrote it"):
            folder.read_json(name)
    for garbage in ("{", "[]", "{}", '{"files": [], "before": {}}'):
        (folder.path / "sums.json").write_text(garbage)
        with pytest.raises(StoreError, match=r"sums\.json"):
            folder.read_json("scores.json")
    (folder.path / "sums.json").unlink()
    assert folder.read_json("scores.json") and not folder.check(), "as before there were sums"


def test_a_run_that_goes_on_mends_what_was_asked_and_keeps_its_history(tmp_path: Path) -> None:
    store, composed = Store(tmp_path), compose("er")
    folder = file_run(store, composed)
    good = {name: (folder.path / name).read_bytes() for name in SUMMED[:3]}
    for count, name in enumerate(good):
        for content in (b"", good[name][:-5], good[name].replace(b"1", b"2"), b"\0" + good[name]):
            (folder.path / name).write_bytes(content)
            file_run(store, composed)
            assert {name: (folder.path / name).read_bytes() for name in good} == good
        sessions = folder.read_json("facts.json")["sessions"]
        assert len(sessions) == 1 + 4 * (count + 1), "the facts were whole"
    facts = json.loads((folder.path / "facts.json").read_text())
    (folder.path / "facts.json").write_text(json.dumps({**facts, "data": {"name": "forged"}}))
    file_run(store, composed)
    assert folder.read_json("facts.json")["data"] == {"name": "none"}


def test_a_death_between_sums_and_facts_loses_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, composed = Store(tmp_path), compose("er")
    folder = file_run(store, composed)
    real = Folder._write

    def die(self: Folder, name: str, content: bytes) -> None:
        if name == "facts.json":
            raise KeyboardInterrupt
        real(self, name, content)

    monkeypatch.setattr(Folder, "_write", die)
    with pytest.raises(KeyboardInterrupt):
        file_run(store, composed)
    monkeypatch.undo()
    assert len(folder.read_json("facts.json")["sessions"]) == 1
    file_run(store, composed)
    assert len(folder.read_json("facts.json")["sessions"]) == 2


@pytest.mark.slow
def test_clearing_takes_only_what_is_the_runs_and_can_die_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("mine")
    real, deaths = Path.unlink, 0
    for fatal in range(1, 30):
        folder = finished(Store(tmp_path / str(fatal)), compose("er"))
        (folder.path / "notes.md").write_text("mine")
        (folder.path / "link").symlink_to(elsewhere)
        (folder.path / "tensorboard").symlink_to(elsewhere)
        (folder.path / "wandb").mkdir()
        (folder.path / "wandb" / "old").write_text("x")
        (folder.path / "snapshot-backup.safetensors").write_text("mine")
        calls = iter(range(1, 100))

        def unlink(self: Path, missing_ok: bool = False, calls: Any = calls) -> None:
            if next(calls) == fatal:  # noqa: B023
                raise KeyboardInterrupt
            real(self, missing_ok)

        with folder.locked():
            monkeypatch.setattr(Path, "unlink", unlink)
            try:
                folder.clear(("tensorboard", "wandb"))
            except KeyboardInterrupt:
                deaths += 1
                assert not folder.done
            monkeypatch.undo()
        with folder.locked():
            left = {path.name for path in folder.path.iterdir()}
        kept = {"notes.md", "link", "tensorboard", "snapshot-backup.safetensors"}
        assert left == {*kept, "lock", "holder.json"} | ({"wandb"} & left)
        assert fatal <= deaths or "wandb" not in left
        assert (elsewhere / "precious").read_text() == "mine"
    assert 10 < deaths < 29


def test_a_run_that_lost_a_file_is_listed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "er-0", "k" * 64)
    folder.path.mkdir()
    folder.begin({"key": folder.key, "label": "er", "config": {}}, {"tasks": []}, {}, dict)
    (folder.path / "config.json").unlink()
    (found,) = standings(Store(tmp_path), now=0)
    assert (found.name, found.state) == ("er-0", "stopped")
    (folder.path / "plan.json").unlink()
    (found,) = standings(Store(tmp_path), now=0)
    assert found.state == "failed" and "plan.json" in found.fault


def test_a_stray_snapshot_blocks_nothing(tmp_path: Path) -> None:
    folder = file_run(Store(tmp_path), compose("er"))
    (folder.path / "snapshot-backup.safetensors").write_text("junk")
    (folder.path / "snapshot-000000007.safetensors").mkdir()
    assert folder.latest() == (None, [])
    folder.drop_after(0)
    assert (folder.path / "snapshot-backup.safetensors").exists()


def garbage_neighbours(store: Path) -> None:
    """Put runs of every bad kind into a store."""
    deep = "[" * 100_000
    for number, content in enumerate(("", "{", "[]", '{"key": 1}', deep, '{"a":' * 100_000)):
        (store / f"bad-{number}").mkdir(parents=True)
        (store / f"bad-{number}" / "config.json").write_text(content)
        for name in ("plan.json", "scores.json", "times.json", "sums.json", "log.jsonl"):
            (store / f"bad-{number}" / name).write_text(content)
    (store / "bad-bytes").mkdir()
    (store / "bad-bytes" / "config.json").write_bytes(b"\xff\xfe\x00")
    (store / "bad-pipe").mkdir()
    os.mkfifo(store / "bad-pipe" / "config.json")
    os.mkfifo(store / "bad-pipe" / "scores.json")
    (store / "bad-folder" / "config.json").mkdir(parents=True)
    (store / "bad-folder" / "plan.json").mkdir()
    (store / "bad-loop").symlink_to(store / "bad-loop")


@pytest.mark.timeout(600)
def test_a_bad_neighbour_stops_nobody(tmp_path: Path) -> None:
    good = finished(Store(tmp_path), compose("er"))
    (good.path / "sums.json").unlink()
    (good.path / "scores.json").write_text(
        json.dumps({"average_accuracy": 0.5, "average_accuracy_by_task": [0.5]})
    )
    garbage_neighbours(tmp_path)
    store = Store(tmp_path)
    told = {one.name: one for one in standings(store, now=0.0)}
    assert told[good.path.name].state == "done"
    assert {one.state for name, one in told.items() if name.startswith("bad-")} <= {
        "failed",
        "waiting",
    }
    assert all("\n" not in one.fault for one in told.values())
    assert store.find("er").path == good.path
    for path in store.paths():
        if path != good.path:
            with pytest.raises(StoreError):
                store.open(path)


@pytest.mark.slow
def test_a_garbage_note_of_the_holder_is_still_one_sentence(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run", "k")
    with folder.locked():
        for garbage in ("[]", "{", '{"pid": "\\u001b[2J"}', "[" * 100_000):
            (folder.path / "holder.json").write_text(garbage)
            with pytest.raises(BusyError, match="left alone") as caught, folder.locked():
                raise AssertionError
            assert "\x1b" not in str(caught.value)


def test_folders_that_cannot_be_used_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for store in (Store(tmp_path / "file"), Store(tmp_path / "file" / "deeper"), Store("x" * 5000)):
        with pytest.raises(StoreError) as caught:
            file_run(store, compose("er"))
        assert "\n" not in str(caught.value)
    (tmp_path / "run" / "plan.json").mkdir(parents=True)
    with pytest.raises(StoreError, match="is a folder"):
        Folder(tmp_path / "run", "k").begin({}, {}, {}, dict)


def test_a_lock_needs_no_room_for_its_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk a service must be able to start again: its journal is all there."""

    def full(*_: object, **__: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr("dualmix.store.lock.write_bytes", full)
    with Lock(tmp_path).hold():
        assert Lock(tmp_path).taken
        with pytest.raises(BusyError), Lock(tmp_path).hold():
            pass
    assert not Lock(tmp_path).taken
