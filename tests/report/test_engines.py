"""Which engine made which cells."""

from __future__ import annotations

from pathlib import Path

from dualmix.report.collect import collect
from dualmix.report.engines import engine_sentence
from dualmix.store.store import Store

from .makers import made


def sentence(root: Path) -> str:
    return engine_sentence([None, *collect(Store(root)).groups])


def test_nothing_is_said_of_torch_and_one_sentence_of_the_native_engine(tmp_path: Path) -> None:
    made(tmp_path / "torch", "er", 0, {"method.memory": 1000})
    assert sentence(tmp_path / "torch") == ""
    made(tmp_path / "native", "er", 0, {"method.memory": 1000, "model.engine": "native"})
    assert sentence(tmp_path / "native") == " All on the native engine."


def test_the_engine_with_fewer_runs_is_named_by_column(tmp_path: Path) -> None:
    native = {"model.engine": "native"}
    for seed in range(2):
        made(tmp_path, "finetune", seed)
        made(tmp_path, "er", seed, {"method.memory": 1000})
    made(tmp_path, "er", 2, {"method.memory": 1000, **native})
    made(tmp_path, "mir", 0, {"method.memory": 1000, **native})
    made(tmp_path, "mir", 0, {"method.memory": 2000, **native})
    few = "er (seed 2), mir; M = 2,000: mir."
    assert sentence(tmp_path) == f" On the native engine, the rest on torch: M = 1,000: {few}"
    for seed in range(4):
        made(tmp_path, "scr", seed, {"method.memory": 2000, **native})
    few = "finetune; M = 1,000: er (seeds 0, 1)."
    assert sentence(tmp_path) == f" On torch, the rest on the native engine: {few}"
    made(tmp_path, "er", 0, {"method.memory": 5000}, data="tiny_imagenet")
    said = sentence(tmp_path)
    assert "CIFAR-100, M = 1,000: er (seeds 0, 1)" in said, "the images, where there are several"
    assert "Tiny-ImageNet, M = 5,000: er" in said
