"""Data sets recommend settings: what wins over what, and whom it concerns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualmix.cli import demo
from dualmix.config.compose import compose
from dualmix.data import Decoded, load, register_dataset
from dualmix.engine.library import available
from dualmix.errors import ConfigError
from dualmix.registry import Preset, add_preset
from dualmix.runs.filing import record


@pytest.fixture
def dotted() -> None:
    """Add a data set that recommends a rate, an augmentation and a batch."""
    defaults = {"method.lr": 0.07, "method.mix.augment": "flip", "stream.batch": 4}

    @register_dataset("dotted", tasks=2, defaults=defaults)
    def _(folder: Path) -> Decoded:
        x, y = np.zeros((4, 4, 4, 1), np.uint8), np.arange(4) % 2
        return Decoded(x, y, x, y, ("even", "odd"))


def told(base: str, values: dict[str, Any] | None = None) -> tuple[Any, ...]:
    composed = compose(base, values)
    method: Any = composed.config.method
    paths = ("method.lr", "stream.batch")
    return method.lr, composed.config.stream.batch, *(composed.origins[path] for path in paths)


def test_digits_are_not_mirrored_and_learned_at_their_own_rate() -> None:
    digits: Any = compose("er+dualmix").config.method
    others: Any = compose("er+dualmix", {"data.name": "cifar100"}).config.method
    assert digits.lr < others.lr == 0.1
    assert digits.mix.augment.startswith("crop-")
    assert others.mix.augment == "standard"
    assert compose("er").origins["method.lr"] == "default for digits"
    assert compose("er").config.model.engine == ("native" if available() else "torch")
    assert compose("er", {"model.engine": "torch"}).config.model.engine == "torch"
    assert compose("er", {"model.name": "mlp"}).config.model.engine == "torch"
    assert compose("scr").config.method.augment == digits.mix.augment  # type: ignore[attr-defined]


@pytest.mark.usefixtures("dotted")
def test_a_flag_wins_over_a_preset_that_over_the_data_that_over_the_default() -> None:
    here = {"data.name": "dotted"}
    origin = "default for dotted"
    assert told("er", here) == (0.07, 4, origin, origin)
    assert told("er", {**here, "method.lr": "0.2"}) == (0.2, 4, "flag", origin)
    add_preset(Preset("slow", "er", "Slow.", values={"method.lr": 0.001}))
    assert told("slow", here) == (0.001, 4, "preset slow", origin)
    assert told("slow", {**here, "method.lr": 0.5})[0] == 0.5
    assert told("er", {"data.name": "cifar100"}) == (0.1, 10, "default", "default")


@pytest.mark.usefixtures("dotted")
def test_a_method_without_the_setting_passes_it_over() -> None:
    assert told("finetune", {"data.name": "dotted"})[0] == 0.07


@pytest.mark.usefixtures("dotted")
def test_nothing_is_recommended_to_a_file(tmp_path: Path) -> None:
    own = {"method": {"kind": "er"}, "data": {"name": "dotted"}}
    (tmp_path / "own.json").write_text(json.dumps(own))
    assert told(str(tmp_path / "own.json")) == (0.1, 10, "default", "default")
    older = compose("er", {"data.name": "dotted", "method.lr": 0.1, "stream.batch": 10})
    plain = record(older, "0" * 64)
    del plain["config"]["method"]["lr"], plain["config"]["stream"]["batch"]
    (tmp_path / "config.json").write_text(json.dumps(plain))
    again = compose(str(tmp_path / "config.json"))
    assert again.config == older.config
    assert again.config.key("f") == older.config.key("f")
    assert told(str(tmp_path / "config.json"), {"method.lr": 0.3})[0] == 0.3


def test_what_no_method_has_is_a_fault() -> None:
    @register_dataset("wrong", defaults={"method.rate": 1})
    def _(folder: Path) -> Decoded:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"wrong recommends method\.rate, which no method has"):
        compose("er", {"data.name": "wrong"})


@pytest.mark.parametrize("path", ["seed", "data.size"])
def test_data_recommend_neither_seeds_nor_other_data(path: str) -> None:
    def read(folder: Path) -> Decoded:
        raise AssertionError

    with pytest.raises(ConfigError, match=f"cannot recommend {path}"):
        register_dataset("odd", defaults={path: 4})(read)


def test_the_demo_has_the_keys_of_the_plain_commands() -> None:
    mark = load(compose("er").config.data).fingerprint
    for job in demo.jobs(2, {}):
        plain = {"seed": job.values["seed"]}
        if "method.memory" in job.values:
            plain["method.memory"] = job.values["method.memory"]
        same = compose(job.preset, plain).config.key(mark)
        assert compose(job.preset, job.values).config.key(mark) == same
