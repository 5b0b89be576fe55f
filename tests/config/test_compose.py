"""Configuration: what is layered on what, where each value came from, and every fault at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from dualmix.config.compose import compose, lookup, walk
from dualmix.errors import ConfigError, naming_flags


def fault_of(base: str, flags: dict[str, Any] | None = None) -> str:
    """Return the sentence at the command line; in Python it is the same without dashes."""
    with pytest.raises(ConfigError) as caught, naming_flags():
        compose(base, flags)
    with pytest.raises(ConfigError) as in_python:
        compose(base, flags)
    assert str(in_python.value) == re.sub(r"(?<![^\s(])--(?=[a-z])", "", str(caught.value))
    return str(caught.value)


def test_a_preset_lies_over_the_defaults_and_a_flag_over_both() -> None:
    plain = compose("iid-offline", {"data.name": "cifar100"})
    assert plain.label == "iid-offline"
    assert (plain.config.stream.epochs, plain.origins["stream.epochs"]) == (
        70,
        "preset iid-offline",
    )
    assert (plain.config.stream.batch, plain.origins["stream.batch"]) == (128, "preset iid-offline")
    method: Any = plain.config.method
    assert (method.lr, plain.origins["method.lr"]) == (0.1, "default")
    over = compose("iid-offline", {"stream.epochs": "50", "method.weight_decay": "0"})
    assert (over.config.stream.epochs, over.origins["stream.epochs"]) == (50, "flag")
    method = over.config.method
    assert (method.weight_decay, over.origins["method.weight_decay"]) == (0.0, "flag")
    assert over.origins["stream.batch"] == "preset iid-offline"


def test_every_setting_has_an_origin_and_a_sentence() -> None:
    composed = compose("er", {"seed": 3})
    walked = list(walk(type(composed.config)))
    assert set(composed.origins) == {path for path, _ in walked}
    for path, info in walked:
        assert info.description, path
        assert isinstance(info.json_schema_extra, dict)
        assert info.json_schema_extra["source"] in ("paper", "reference", "inferred", "ours")
        lookup(composed.config, path)


def test_tasks_come_from_the_data_unless_given() -> None:
    assert compose("er").config.stream.tasks == 5
    assert compose("er").origins["stream.tasks"] == "default for digits"
    assert compose("er", {"data.name": "cifar100"}).config.stream.tasks == 20
    given = compose("er", {"data.name": "cifar100", "stream.tasks": 10})
    assert (given.config.stream.tasks, given.origins["stream.tasks"]) == (10, "flag")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_is_a_base(tmp_path: Path, form: str) -> None:
    plain = {
        "method": {"kind": "er", "memory": 50},
        "stream": {"batch": 7, "class_order": [1, 0, 2]},
        "seed": 4,
    }
    path = tmp_path / f"mine.{form}"
    path.write_text(yaml.safe_dump(plain) if form == "yaml" else json.dumps(plain))
    composed = compose(str(path), {"seed": "5"})
    assert composed.config.method.memory == 50  # type: ignore[attr-defined]
    assert composed.config.stream.class_order == (1, 0, 2)
    assert composed.config.seed == 5
    assert composed.origins["stream.batch"] == f"file mine.{form}"
    assert composed.origins["seed"] == "flag"
    assert composed.origins["method.lr"] == "default"
    assert composed.config.method.reservoir == "exact", (
        "a file says all that it wants; the preset is not in it"
    )  # type: ignore[attr-defined]


def test_a_record_comes_back_the_same(tmp_path: Path) -> None:
    flags = {
        "model.mean": [0.1],
        "model.std": [0.2],
        "stream.class_order": [2, 0, 1],
        "order_seed": 2,
        "data.root": "x",
    }
    first = compose("er", flags)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(first.config.record()))
    assert compose(str(path)).config == first.config
    (tmp_path / "run").mkdir()
    saved = {"key": "k", "label": "er", "config": first.config.record(), "origins": {}}
    (tmp_path / "run" / "config.json").write_text(json.dumps(saved))
    again = compose(str(tmp_path / "run"), {"seed": 2})
    assert again.config.seed == 2
    assert again.config.stream == first.config.stream
    assert again.origins["model.mean"] == "file config.json"


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("data.size", "none", None),
        ("data.size", "None", None),
        ("order_seed", "null", None),
        ("order_seed", "12", 12),
        ("stream.class_order", "[3,1,0,2]", (3, 1, 0, 2)),
        ("stream.class_order", "[3, 1]", (3, 1)),
        ("stream.class-order", "fixed", "fixed"),
        ("save-every", "9", 9),
        ("method.memory-batch", "3", 3),
        ("method.lr", "1e-3", 0.001),
        ("device", "cuda:1", "cuda:1"),
    ],
)
def test_text_of_flags(path: str, text: str, value: Any) -> None:
    clean = path.replace("-", "_")
    composed = compose("er", {path: text})
    assert lookup(composed.config, clean) == value
    assert composed.origins[clean] == "flag"


def test_lists_of_two_settings_that_belong_together() -> None:
    model = compose("er", {"model.mean": "[0.5]", "model.std": "[0.25]"}).config.model
    assert (model.mean, model.std) == ((0.5,), (0.25,))
    assert "std" in fault_of("er", {"model.mean": "[0.5]"})
    assert "std" in fault_of("er", {"model.mean": "[0.5]", "model.std": "[0]"})


@pytest.mark.parametrize(
    ("path", "given", "words"),
    [
        ("method.memory", "-1", ["--method.memory", "-1", "0"]),
        ("seed", "abc", ["--seed", "abc", "integer"]),
        ("seed", "-3", ["--seed", "-3"]),
        ("seed", "1.5", ["--seed", "1.5"]),
        ("stream.batch", "0", ["--stream.batch", "1"]),
        ("stream.tasks", "0", ["--stream.tasks"]),
        ("stream.incomplete", "kept", ["--stream.incomplete", "'keep'", "'drop'"]),
        ("stream.class_order", "[1,1]", ["--stream.class_order", "once"]),
        ("stream.class_order", "[-1,1]", ["--stream.class_order", "once"]),
        ("stream.class_order", "[]", ["--stream.class_order", "once"]),
        ("stream.class_order", "[a", ["--stream.class_order"]),
        ("stream.class_order", "sorted", ["--stream.class_order", "'shuffled'"]),
        ("method.lr", "nan", ["--method.lr"]),
        ("method.lr", "inf", ["--method.lr"]),
        ("method.lr", "0", ["--method.lr", "0"]),
        ("data.name", "cifra100", ["--data.name", "cifar100"]),
        ("data.name", "arrays", ["--data.path"]),
        ("device", "gpu", ["--device", "gpu"]),
        ("threads", "none", ["--threads"]),
        ("model.width", "", ["--model.width"]),
        (
            "method.mix.pairs",
            "0",
            ["--method.mix.pairs", "'new', 'fewer' or 'all' (given: '0')"],
        ),
    ],
)
def test_a_bad_value_is_named_with_its_flag(path: str, given: str, words: list[str]) -> None:
    said = fault_of("er", {path: given})
    assert all(word in said for word in words), said
    assert said.count("\n") == 0
    assert "pydantic" not in said


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("method.memroy", "--method.memory"),
        ("stream.bacth", "--stream.batch"),
        ("data.nmae", "--data.name"),
        ("sead", "--seed"),
        ("memory", "--method.memory"),
        ("save-evry", "--save_every"),
        ("method.memory.size", "--method.memory"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    said = fault_of("er", {wrong: "3"})
    assert f"--{wrong}" in said
    assert f"did you mean {right}" in said


def test_a_method_answers_for_its_own_settings_only() -> None:
    assert "--method.memory: no such setting" in fault_of("finetune", {"method.memory": "3"})


def test_unknown_method_and_all_other_faults_at_once() -> None:
    said = fault_of(
        "erx", {"seed": "abc", "stream.batch": "0", "stream.tsaks": "3", "data.name": "cifra100"}
    )
    words = (
        "erx",
        "did you mean er?",
        "--seed",
        "--stream.batch",
        "--stream.tsaks",
        "--stream.tasks",
        "cifar100",
    )
    assert all(word in said for word in words), said
    assert said.startswith("5 faults")
    assert len(said.splitlines()) == 6


def test_faults_of_the_command_line_are_listed_with_the_rest() -> None:
    with pytest.raises(ConfigError) as caught, naming_flags():
        compose("er", {"method.memory": "-1"}, ["--seed: needs a value"])
    assert "--seed: needs a value" in str(caught.value)
    assert "--method.memory" in str(caught.value)


def test_faults_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: {kind: er, memroy: 3, lr: -1}\nstraem: {batch: 3}\nseed: abc\n")
    said = fault_of(str(path), {"stream.batch": "0"})
    words = (
        "method.memroy",
        "method.memory",
        "method.lr",
        "straem.batch",
        "stream.batch",
        "seed",
        "abc",
    )
    assert all(word in said for word in words), said
    assert said.startswith("5 faults")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00\xff\xfe\x80",
        b"just text",
        b"[1, 2]",
        b"{",
        b"a: [",
        b"seed: 3",
        b"method: er",
        b"method: {memory: 3}",
        b"method: [kind]",
        b"config: 3",
        b"- {method: {kind: er}}",
        b"method: {kind: er}\nwhen: 2021-99-99",
        b"!!python/object/apply:os.system ['touch ran']",
        b"method: {kind: er, a: &a {b: *a}}",
        b"[" * 5000,
    ],
)
@pytest.mark.slow
def test_a_garbage_file_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_bytes(garbage)
    assert "mine.yaml" in fault_of(str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_file_of_an_unknown_method(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: {kind: finetun}")
    assert "finetune" in fault_of(str(path))


def test_a_configuration_is_frozen() -> None:
    config = compose("er").config
    with pytest.raises(ValidationError):
        config.seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.method.memory = 3  # type: ignore[attr-defined]
