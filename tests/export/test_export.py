"""What leaves the house answers as the learner does."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import dualmix
from dualmix.errors import ConfigError, DualmixError
from dualmix.export import export as exporting
from dualmix.export.export import export
from dualmix.export.predictor import Predictor, as_input
from tests.kit import SHAPE, batch


def learned(name: str = "er", shape: tuple[int, ...] = SHAPE, **more: Any) -> Any:
    learner = dualmix.create(name, shape, seed=1, **more)
    for seed in range(8):
        x, y = batch(10, seed)
        learner.observe(x if len(shape) == 3 else x.reshape(10, -1)[:, : shape[0]] / 255.0, y)
    return learner


def names(text: bool) -> Any:
    learner = dualmix.create("er", SHAPE, memory=30, width=1, lr=0.1)
    for seed in range(4):
        x, y = batch(10, seed)
        learner.observe(x, [f"class {n}" for n in y] if text else y)
    return learner


@pytest.mark.parametrize(
    ("name", "shape", "more"),
    [
        ("er", SHAPE, {"memory": 30, "width": 1}),
        ("er", SHAPE, {"memory": 30, "width": 1, "classes": 9}),
        ("er", (16,), {"memory": 30, "hidden": 8}),
        ("slda", (16,), {}),
        ("ncm", (16,), {}),
        ("ridge", (16,), {}),
        ("scr", SHAPE, {"memory": 30, "width": 1}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_torchscript_answers_as_the_learner(
    name: str, shape: tuple[int, ...], more: dict[str, Any], tmp_path: Path
) -> None:
    learner = learned(name, shape, **more)
    made = export(learner, tmp_path / "m.pt", "torchscript")
    assert made.bytes == (tmp_path / "m.pt").stat().st_size and made.equal == 1
    extra = {"dualmix.json": ""}
    module = torch.jit.load(str(tmp_path / "m.pt"), _extra_files=extra)
    x = batch(7, 99)[0] if len(shape) == 3 else np.float32(batch(7, 99)[0].reshape(7, -1)[:, :16])
    scores, shares = module(torch.from_numpy(as_input(x)))
    want = learner.scores(x)
    assert scores.shape == want.shape
    np.testing.assert_allclose(scores.numpy(), want, atol=1e-5 * max(1, np.abs(want).max()))
    np.testing.assert_allclose(shares.numpy(), learner.predict_proba(x), atol=1e-5)
    about = json.loads(extra["dualmix.json"])
    assert about["classes"] == learner.classes_.tolist()
    assert about["input"]["shape"] == ["n", *shape]


def test_batch_norm_is_folded(tmp_path: Path) -> None:
    module = Predictor(names(text=False))
    assert not list(module.parameters()) and not list(module.modules())[1:]
    x = torch.from_numpy(as_input(batch(3, 5)[0]))
    with torch.no_grad():
        traced = torch.jit.trace(module, (x,), check_trace=False)
    assert "batch_norm" not in str(traced.inlined_graph)


test_batch_norm_is_folded = pytest.mark.filterwarnings("ignore")(test_batch_norm_is_folded)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx_answers_as_the_learner_and_knows_its_classes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX EXTRA MISSING")
    learner = names(text=True)
    export(learner, tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    known = session.get_modelmeta().custom_metadata_map
    assert json.loads(known["classes"]) == learner.classes_.tolist()
    assert json.loads(known["dualmix"])["input"]["range"] == [0.0, 1.0]
    for rows in (1, 13):
        x = batch(rows, 77)[0]
        scores, shares = session.run(None, {"x": as_input(x)})
        np.testing.assert_allclose(scores, learner.scores(x), atol=1e-5)
        np.testing.assert_allclose(shares, learner.predict_proba(x), atol=1e-5)
    graph = {
        node.op_type for node in pytest.importorskip("onnx").load(tmp_path / "m.onnx").graph.node
    }
    assert "Conv" in graph and "BatchNormalization" not in graph


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_eight_bits_are_measured_on_rows_that_were_not_calibrated_with(
    dualmix_: Any, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX EXTRA MISSING")
    learner = learned("er", (16,), memory=60, hidden=8)
    dualmix.save(learner, tmp_path / "l.safetensors")
    words = ("export-model", tmp_path / "l.safetensors", "--to", "onnx", "--quantize")
    code, out, _ = dualmix_(*words, "--agreement", "1")
    assert code == 0 and "on the 30 rows of the memory" in out and "95 % interval" in out
    held = learner.memory.x.numpy()
    calibrated = np.linspace(0, 59, 30).round().astype(int)
    rest = np.delete(held, calibrated, axis=0)
    was = exporting.runner((tmp_path / "l.onnx").read_bytes())(rest).argmax(1)
    same = 100 * np.mean(was == learner.scores(rest).argmax(1))
    assert f"{same:.1f} % of labels as in 32 bits" in out
    others = iter([np.zeros(30), np.repeat([0, 1], [29, 1])])  # one of 30 labels changes
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(exporting, "_eight_bits", lambda content, *_: content)
        inner.setattr(exporting, "_labels", lambda *_: next(others))
        with pytest.raises(DualmixError, match=r"96\.7 % of the labels.*allow it by agreement"):
            exporting._quantized((tmp_path / "l.onnx").read_bytes(), learner, exporting.AGREEMENT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx_of_class_means(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX EXTRA MISSING")
    assert export(learned("ncm", (16,)), tmp_path / "m.onnx", "onnx").equal == 1


def test_a_predictor_that_cannot_be_run_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(x: object) -> None:
        raise ValueError("two rows only")

    monkeypatch.setattr(exporting, "_torchscript", lambda *_: (b"", fails))
    with pytest.raises(DualmixError, match=r"two rows only.*nothing was written"):
        export(names(text=False), tmp_path / "m.pt", "torchscript")


def test_what_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = names(text=False)

    def shifted(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return learner.scores(np.uint8(x * 255 + 0.5)) + 0.001

    monkeypatch.setattr(exporting, "_torchscript", lambda *_: (b"", shifted))
    with pytest.raises(DualmixError, match="nothing was written"):
        export(learner, tmp_path / "m.pt", "torchscript")
    assert not (tmp_path / "m.pt").exists()


def test_what_cannot_be_exported_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="learned nothing"):
        export(dualmix.create("er", SHAPE, memory=5, width=1), tmp_path / "m", "torchscript")
    with pytest.raises(ConfigError, match="onnx only"):
        export(names(text=False), tmp_path / "m", "torchscript", quantize=True)


@pytest.mark.filterwarnings("ignore")
def test_the_command_says_what_it_wrote(dualmix_: Any, tmp_path: Path) -> None:
    dualmix.save(names(text=False), tmp_path / "l.safetensors")
    code, out, _ = dualmix_("export-model", tmp_path / "l.safetensors", "--to", "torchscript")
    assert code == 0 and "100.0 % of labels equal" in out
    assert torch.jit.load(io.BytesIO((tmp_path / "l.pt").read_bytes())) is not None
