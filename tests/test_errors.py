"""A sentence names settings as its reader does: flags in a terminal, arguments in Python."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import dualmix
from dualmix.errors import ConfigError, DataError, naming_arguments, naming_flags, worded

SENTENCE = "--model.width: give --model.width 8 (--seed too), not 'a --b', as `run --x` does."


def test_python_names_paths_and_a_terminal_flags() -> None:
    assert worded(SENTENCE) == (
        "model.width: give model.width 8 (seed too), not 'a b', as `run --x` does."
    )
    with naming_flags():
        assert str(ConfigError(SENTENCE)) == SENTENCE
        with naming_flags():
            pass
        assert worded(SENTENCE) == SENTENCE
    assert "--model" not in str(ConfigError(SENTENCE))


def test_arguments_have_no_group_and_only_in_their_thread() -> None:
    other: list[str] = []
    with naming_arguments():
        assert worded("give --model.name mlp, --method.lr 1") == "give model mlp, lr 1"
        thread = threading.Thread(target=lambda: other.append(worded("--model.width")))
        thread.start()
        thread.join()
    assert other == ["model.width"] == [worded("--model.width")]


def test_a_sentence_stays_as_it_was_made() -> None:
    with naming_flags():
        fault = DataError("give --data.size")
    assert str(fault) == str(DataError(*fault.args)).replace("data", "--data")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "native"}, "give engine torch, or model reduced-resnet18"),
        ({"model": "resnet18"}, "give model mlp"),
        ({"mean": (1.0, 2.0), "std": (1.0, 2.0)}, "^mean has 2 numbers"),
        ({"mix": {"alhpa": 1}}, r"mix\.alhpa: no such setting; did you mean mix\.alpha\?$"),
        ({"momentum": 0.5, "optimiser": "adam"}, r": momentum: momentum is for sgd"),
        ({"model": {"widht": 3}}, r"widht: no such setting; did you mean width\?$"),
    ],
)
def test_create_names_its_arguments(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dualmix.create("er+dualmix", (12,), **settings)


def test_train_names_its_values(tmp_path) -> None:
    data = dualmix.from_arrays(np.eye(8), np.arange(8) // 4)
    with pytest.raises(ConfigError) as caught:
        dualmix.train("er", tmp_path, {"method.memory": -1, "stream.taks": 1}, images=data)
    assert "  method.memory: " in str(caught.value) and "--" not in str(caught.value)
