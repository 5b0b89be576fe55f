"""Public functions with odd arguments: one sentence, nothing untyped, nothing that waits."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dualmix
from dualmix.errors import DualmixError
from dualmix.registry import load_plugin

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
Y = [0, 1, 2, 0, 1, 2]


class Full(io.BytesIO):
    """A file on a disk that is full."""

    def write(self, content: Any) -> int:
        raise OSError(28, "No space left on device")


def learner() -> Any:
    made = dualmix.create("er", (5,), memory=3, hidden=4)
    made.observe(X, Y)
    return made


def made_of(path: str) -> Any:
    return dualmix.create("er", (5,), model={"name": "mlp", "weights": path})


CALLS: dict[str, Callable[[], Any]] = {
    "at_least nothing": lambda: learner().predict(X, at_least=None),
    "at_least text": lambda: learner().predict(X, at_least="x"),
    "at_least two": lambda: learner().predict(X, at_least=np.array([0.5, 0.6])),
    "unknown beyond 64 bits": lambda: learner().predict(X, at_least=1.0, unknown=2**70),
    "unknown no number": lambda: learner().predict(X, at_least=1.0, unknown=float("nan")),
    "no plugin": lambda: load_plugin(None),
    "a covariance too large": lambda: dualmix.create("slda", (2**28,)),
    "a gram too large": lambda: dualmix.create("ridge", (2**28,)),
    "a network that is not there yet": lambda: dualmix.create(
        "er", (5,), backbone=nn.LazyLinear(3)
    ),
    "settings without names": lambda: dualmix.create("er", (5,), model={1: 2}),
    "weights that are a pipe": lambda: made_of("pipe"),
    "weights that never end": lambda: made_of("/dev/zero"),
    "weights of no name": lambda: made_of("é\udc80"),
    "composed weights that are a pipe": lambda: dualmix.compose("er", {"model.weights": "pipe"}),
    "no configuration": lambda: dualmix.compose(None),
    "overrides in a list": lambda: dualmix.compose("er", [1]),
    "overrides by number": lambda: dualmix.compose("er", {3: 4}),
    "no stream": lambda: dualmix.evaluate(learner(), None),
    "a stream of numbers": lambda: dualmix.evaluate(learner(), [1]),
    "a stream without labels": lambda: dualmix.evaluate(learner(), [(X,)]),
    "a hold-out of one": lambda: dualmix.evaluate(learner(), [(X, Y)], holdout=(X,)),
    "a hold-out of nothing": lambda: dualmix.evaluate(learner(), [(X, Y)], holdout=(None, Y)),
    "no learner to evaluate": lambda: dualmix.evaluate(3, [(X, Y)]),
    "masked rows": lambda: dualmix.from_arrays(np.ma.masked_greater(X, 0), Y),
    "masked labels": lambda: dualmix.from_arrays(X, np.ma.masked_equal(Y, 1)),
    "a share in letters": lambda: dualmix.from_arrays(X, Y, held_out="x"),
    "a seed in letters": lambda: dualmix.from_arrays(X, Y, seed="x"),
    "no data": lambda: dualmix.load_data(None),
    "data without their path": lambda: dualmix.load_data("folder"),
    "arrays for images": lambda: dualmix.train("er", "runs", images=X),
    "no run": lambda: dualmix.train(None, "runs"),
    "no store": lambda: dualmix.train("er", None),
    "a store by number": lambda: dualmix.open_store(3),
    "load nothing": lambda: dualmix.load(None),
    "load text": lambda: dualmix.load(io.StringIO("abc")),
    "save nothing": lambda: dualmix.save(None, "x"),
    "save nowhere": lambda: dualmix.save(learner(), None),
    "save to text": lambda: dualmix.save(learner(), io.StringIO()),
    "save to a full disk": lambda: dualmix.save(learner(), Full()),
    "bytes of nothing": lambda: dualmix.to_bytes(None),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_odd_call_is_one_sentence(
    call: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(DualmixError) as fault:
        call()
    assert len(str(fault.value)) > 15 and "\n" not in str(fault.value)


def test_a_learner_is_loaded_from_whatever_holds_its_bytes() -> None:
    content = dualmix.to_bytes(learner())
    for held in (bytearray(content), memoryview(content), io.BytesIO(content)):
        assert dualmix.to_bytes(dualmix.load(held)) == content
    assert torch.is_tensor(learner().observe(X, Y))
