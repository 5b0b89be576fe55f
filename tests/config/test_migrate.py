"""Renamed and dropped settings: stored configurations follow, keys stay, and what is unknown is
said.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import dualmix
from dualmix.config import migrate as module
from dualmix.config.compose import compose, flatten, lookup, walk
from dualmix.config.fields import Config
from dualmix.config.migrate import (
    CHANGES,
    Change,
    Dropped,
    Renamed,
    RenamedMethod,
    first_names,
    migrate,
    migrate_label,
)
from dualmix.errors import ConfigError, StoreError
from dualmix.registry import get_method, presets
from dualmix.store import snapshot

HISTORY: tuple[Change, ...] = (
    Renamed("method.rehearsed", "method.memory_batch"),
    Renamed("order", "stream"),
    Renamed("stream.size", "stream.batch"),
    Dropped("method.inertia", 0.0),
    Renamed("bypass", "method.bypass"),
    Dropped("precision.loss", "float32"),
    Renamed("method.reservoir", "method.reservoir", values=(("paper", "exact"), ("code", "ref"))),
    Renamed("method.smoothing", "method.lr", kinds=("finetune",)),
    RenamedMethod("replay", "er"),
)
"""A history in which settings of today had other names: each kind of change once, and a chain."""
OLD = {
    "method": {
        "kind": "replay",
        "rehearsed": 7,
        "reservoir": "code",
        "inertia": 0.0,
        "smoothing": "is another method's",
        "memory": 50,
    },
    "order": {"size": 5, "tasks": 5},
    "precision": {"loss": "float32"},
    "seed": 3,
}
NEW = {
    "method": {"kind": "er", "memory_batch": 7, "reservoir": "ref", "memory": 50},
    "stream": {"batch": 5, "tasks": 5},
    "seed": 3,
}


def without(plain: dict[str, Any], name: str) -> dict[str, Any]:
    return {**plain, "method": {k: v for k, v in plain["method"].items() if k != name}}


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES", HISTORY)


@pytest.mark.usefixtures("history")
def test_an_old_record_is_read_under_the_names_of_today() -> None:
    given = json.loads(json.dumps(without(OLD, "smoothing")))
    assert migrate(given) == NEW
    assert given == without(OLD, "smoothing"), "what is given is not changed"
    assert migrate(NEW) == NEW, "a record of today stays"
    assert migrate(OLD)["method"]["smoothing"] == "is another method's"
    assert migrate({"method": {"kind": "finetune", "smoothing": 0.3}}) == {
        "method": {"kind": "finetune", "lr": 0.3}
    }
    assert first_names(NEW) == {
        "method": {"kind": "replay", "rehearsed": 7, "reservoir": "code", "memory": 50},
        "order": {"size": 5, "tasks": 5},
        "seed": 3,
    }


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("form", ["json", "yaml", "run"])
def test_a_saved_file_of_old_names_is_a_base(tmp_path: Path, form: str) -> None:
    old = without(OLD, "smoothing")
    path = tmp_path / "config.json" if form == "run" else tmp_path / f"mine.{form}"
    saved = {"config": old, "label": "replay+dualmix", "key": "k"} if form == "run" else old
    path.write_text(yaml.safe_dump(saved) if form == "yaml" else json.dumps(saved))
    composed = compose(str(tmp_path if form == "run" else path))
    for dotted, value in flatten(without(NEW, "kind")):
        assert lookup(composed.config, dotted) == value
        assert composed.origins[dotted] == f"file {path.name}"
    assert composed.config.method.kind == "er"
    assert composed.label == ("er+dualmix" if form == "run" else "er")


@pytest.mark.usefixtures("history")
def test_a_key_is_made_of_the_first_names(tmp_path: Path) -> None:
    """The key that version 1 gave, worked out here from what it hashed: the names of then, no
    defaults.
    """
    then = {
        "kind": "replay",
        "method": {"rehearsed": 7, "reservoir": "code", "memory": 50},
        "order": {"size": 5, "tasks": 5},
        "order_seed": 3,
        "run_seed": 3,
        "data": "f" * 64,
        "results_version": 1,
    }
    text = json.dumps(then, sort_keys=True, separators=(",", ":"))
    path = tmp_path / "new.json"
    path.write_text(json.dumps(NEW))
    config = compose(str(path)).config
    assert config.key("f" * 64) == hashlib.sha256(text.encode()).hexdigest()


def test_keys_of_today() -> None:
    """A method whose values are all defaults keeps its empty group in what is hashed."""
    text = json.dumps(
        {
            "kind": "finetune",
            "method": {},
            "stream": {"tasks": 20},
            "order_seed": 0,
            "run_seed": 0,
            "data": "f",
            "results_version": 1,
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    config = compose("finetune", {"data.name": "cifar100"}).config
    assert config.key("f") == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.usefixtures("history")
def test_a_dropped_setting_with_another_value_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: {kind: er, inertia: 0.9}")
    with pytest.raises(ConfigError, match=r"mine\.yaml: .* method\.inertia is gone .* 0\.9"):
        compose(str(path))
    kept = migrate({"method": {"kind": "replay", "inertia": 0.9}}, keep_dropped=True)
    assert kept == {"method": {"kind": "er", "inertia": 0.9}}


@pytest.mark.usefixtures("history")
def test_two_names_of_one_setting_are_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"two names .* give only method\.memory_batch"):
        migrate({"method": {"kind": "er", "rehearsed": 3, "memory_batch": 4}})
    with pytest.raises(ConfigError, match="do not go together"):
        migrate({"method": 3, "bypass": 4})


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("method.rehearsed", "it is now method.memory_batch"),
        ("order.size", "it is now stream.batch"),
        ("method.inertia", "it is gone and is always 0.0"),
        ("method.memroy", "did you mean method.memory?"),
    ],
)
def test_a_flag_of_an_old_name_says_what_became_of_it(flag: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose("er", {flag: "3"})
    assert says in str(caught.value)


@pytest.mark.usefixtures("history")
def test_labels_follow_their_method() -> None:
    assert [migrate_label(name) for name in ("replay", "replay+dualmix", "replays", "mine")] == [
        "er",
        "er+dualmix",
        "replays",
        "mine",
    ]


def test_a_saved_learner_of_old_names_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = dualmix.create("er", shape=(1, 8, 8), memory=20, memory_batch=7)
    recipe = dict(learner.recipe)
    recipe["kind"] = "replay"
    recipe["method"] = {**recipe["method"], "inertia": 0.0}
    recipe["method"]["rehearsed"] = recipe["method"].pop("memory_batch")
    path = tmp_path / "old.safetensors"
    snapshot.write(path, {"recipe": recipe, "learner": learner.state_dict()})
    with pytest.raises(dualmix.DualmixError):
        dualmix.load(path)
    monkeypatch.setattr(module, "CHANGES", HISTORY)
    assert dualmix.load(path).recipe == learner.recipe
    recipe["method"]["inertia"] = 0.9
    snapshot.write(path, {"recipe": recipe, "learner": learner.state_dict()})
    with pytest.raises((ConfigError, StoreError), match=r"method\.inertia is gone"):
        dualmix.load(path)


def test_the_table_fits_the_settings_there_are() -> None:
    """What was given up is no name of today, and what it became is one, possibly by later
    changes.
    """
    kinds = {preset.kind for preset in presets().values()}
    config: Any = Config
    paths = {path for kind in kinds for path, _ in walk(config[get_method(kind)])}
    groups = {path.rsplit(".", depth)[0] for path in paths for depth in range(1, 4)}
    for number, change in enumerate(CHANGES):
        later = CHANGES[number + 1 :]
        if isinstance(change, RenamedMethod):
            assert change.old not in kinds and change.new in kinds
        elif isinstance(change, Dropped):
            assert change.path not in paths or change.kinds
        else:
            given_up = {getattr(one, "old", None) or getattr(one, "path", "") for one in later}
            assert change.old == change.new or change.old not in paths | groups or change.kinds
            assert change.new in paths | groups or given_up, change
