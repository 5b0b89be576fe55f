"""Export: the predictor as a file of ONNX or TorchScript, held against the learner before it is
kept.
"""

from __future__ import annotations

import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from dualmix.errors import ConfigError, DualmixError
from dualmix.export.predictor import Predictor, about, as_input, sample
from dualmix.runs.extras import extra
from dualmix.store.files import write_bytes

Kind = Literal["onnx", "torchscript"]
TOLERANCE = 1e-5
"""By how much a score may differ, relative to the largest score."""
AGREEMENT = 0.99
"""The share of labels that 8 bits must leave as they are: then accuracy changes by a point at most.
"""
CALIBRATION = 200
"""Rows, at most, from which the ranges of 8 bits are taken."""
ABOUT = "dualmix.json"

Run = Callable[[NDArray[np.float32]], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Quantized:
    """How near a predictor of 8 bits is to the one of 32, on rows that it was not calibrated with.

    Attributes
    ----------
    equal, low, high
        The share of equal labels, and the bounds of its 95 % interval (Wilson).
    before, after
        Accuracy on these rows by 32 and by 8 bits. The learner has rehearsed them.
    """

    rows: int
    equal: float
    low: float
    high: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and how near it is to the learner.

    Attributes
    ----------
    rows
        Rows of the memory, or drawn, that it was compared on.
    difference
        The largest difference of a score.
    equal
        The share of equal labels.
    quantized
        What 8 bits changed; none: they were not asked for.
    """

    bytes: int
    rows: int
    difference: float
    equal: float
    quantized: Quantized | None = None


def export(
    learner: Any, to: Path, kind: Kind, *, quantize: bool = False, agreement: float = AGREEMENT
) -> Exported:
    """Write a learner's predictor.

    Parameters
    ----------
    quantize
        Weights and activations of 8 bits (ONNX only), calibrated on at most one half of the
        memory's rows and measured on all others.
    agreement
        The share of labels that quantisation must leave as they are.

    Raises
    ------
    DualmixError
        What was made does not answer as the learner does, or quantisation changes too many labels;
        nothing is written.
    """
    if quantize and kind != "onnx":
        raise ConfigError("--quantize is for --to onnx only.")
    module = Predictor(learner).eval()
    x, _ = sample(learner)
    content, run = (_onnx if kind == "onnx" else _torchscript)(module, learner, x)
    parts = [part for part in (x[:1], x[1:]) if len(part)]  # batches of two sizes
    with _runnable():
        said = np.concatenate([run(as_input(part)) for part in parts])
    want = learner.scores(x)
    difference = float(np.abs(said - want).max())
    equal = float((said.argmax(1) == want.argmax(1)).mean())
    if difference > TOLERANCE * max(1.0, float(np.abs(want).max())):
        raise DualmixError(
            f"The exported predictor differs from the learner by {difference:g} in a score, which "
            "rounding does not explain: nothing was written. Is its precision bfloat16?"
        )
    quantized = None
    if quantize:
        content, quantized = _quantized(content, learner, agreement)
    write_bytes(to, content)
    return Exported(len(content), len(x), difference, equal, quantized)


def _onnx(module: Predictor, learner: Any, x: NDArray[Any]) -> tuple[bytes, Run]:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        extra(package, "onnx", "`dualmix export-model --to onnx`")
    example = torch.from_numpy(as_input(np.concatenate([x[:1], x[:1]])))
    with _quietly(), torch.no_grad(), _convertible():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            input_names=["x"],
            output_names=["scores", "probabilities"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    described(model, learner)
    content: bytes = model.SerializeToString()
    return content, runner(content)


def described(model: Any, learner: Any) -> None:
    """Write what a user must know into an ONNX model's metadata."""
    onnx = extra("onnx", "onnx", "`dualmix export-model --to onnx`")
    known = about(learner)
    onnx.helper.set_model_props(
        model, {"dualmix": json.dumps(known), "classes": json.dumps(known["classes"])}
    )


def runner(content: bytes) -> Run:
    """Return what runs an ONNX model by onnxruntime in one thread; it returns the scores."""
    runtime = extra("onnxruntime", "onnx", "Running ONNX")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(x: NDArray[np.float32]) -> NDArray[Any]:
        scores: NDArray[Any] = session.run(["scores"], {"x": x})[0]
        return scores

    return run


def _torchscript(module: Predictor, learner: Any, x: NDArray[Any]) -> tuple[bytes, Run]:
    example = torch.from_numpy(as_input(np.concatenate([x[:1], x[:1]])))
    with _quietly(), torch.no_grad():
        traced = torch.jit.trace(module, (example,), check_trace=False)
        held = io.BytesIO()
        torch.jit.save(traced, held, _extra_files={ABOUT: json.dumps(about(learner))})
        loaded = torch.jit.load(io.BytesIO(held.getvalue()))

    def run(x: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad():
            scores: NDArray[Any] = loaded(torch.from_numpy(x))[0].numpy()
        return scores

    return held.getvalue(), run


def _quantized(content: bytes, learner: Any, agreement: float) -> tuple[bytes, Quantized]:
    """Return an ONNX model of 8 bits, and how near it is to the one it is made from."""
    x, y = sample(learner, len(learner.memory))
    if y is None or len(y) < 40:
        raise ConfigError(
            "--quantize is measured on rows of the memory, and this learner holds fewer than 40: "
            "leave it out."
        )
    picked = np.zeros(len(x), bool)
    picked[np.linspace(0, len(x) - 1, min(CALIBRATION, len(x) // 2)).round().astype(np.int64)] = (
        True
    )
    small = _eight_bits(content, learner, as_input(x[picked]))
    rest, truth = as_input(x[~picked]), y[~picked]
    was, now = (_labels(runner(model), rest) for model in (content, small))
    same = int((was == now).sum())
    bounds = binomtest(same, len(rest)).proportion_ci(method="wilson")
    before, after = (float((labels == truth).mean()) for labels in (was, now))
    told = Quantized(len(rest), same / len(rest), bounds.low, bounds.high, before, after)
    if told.equal < agreement:
        raise DualmixError(
            f"8 bits leave {100 * told.equal:.1f} % of the labels of {told.rows} stored rows as "
            f"they were (accuracy {100 * before:.1f} to {100 * after:.1f} %), fewer than "
            f"{100 * agreement:g} %: nothing was written. Leave --quantize out, or allow it by "
            "--agreement."
        )
    return small, told


def _eight_bits(content: bytes, learner: Any, calibration: NDArray[np.float32]) -> bytes:
    """Return an ONNX model with weights and activations of 8 bits."""
    quantization = extra("onnxruntime.quantization", "onnx", "`--quantize`")
    shapes = extra("onnxruntime.quantization.shape_inference", "onnx", "`--quantize`")
    onnx = extra("onnx", "onnx", "`--quantize`")
    rows = _Rows([calibration[i : i + 10] for i in range(0, len(calibration), 10)])
    quantization.CalibrationDataReader.register(_Rows)
    with tempfile.TemporaryDirectory() as folder, _quietly():
        before, clean, after = (str(Path(folder) / f"{name}.onnx") for name in "abc")
        Path(before).write_bytes(content)
        shapes.quant_pre_process(before, clean)
        quantization.quantize_static(clean, after, rows, per_channel=True)
        model = onnx.load(after)
    described(model, learner)
    small: bytes = model.SerializeToString()
    return small


def _labels(run: Run, x: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the column of the highest score of each row."""
    parts = [run(x[i : i + 50]).argmax(1) for i in range(0, len(x), 50)]
    return np.concatenate(parts)


@contextmanager
def _runnable() -> Iterator[None]:
    try:
        yield
    except Exception as fault:  # what runs a model raises whatever it likes
        said = str(fault).strip().splitlines() or [type(fault).__name__]
        raise DualmixError(
            f"The exported predictor cannot be run ({said[0][:200]}): nothing was written. Does "
            "its network fix the number of rows?"
        ) from fault


@contextmanager
def _convertible() -> Iterator[None]:
    try:
        yield
    except torch.onnx.errors.OnnxExporterError as fault:
        raise DualmixError(
            "ONNX has no form for an operation by which this method answers: give --to torchscript."
        ) from fault


class _Rows:
    """Hands calibration batches to onnxruntime one by one."""

    def __init__(self, batches: Sequence[NDArray[np.float32]]) -> None:
        self._left = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """Return the next batch by the input's name; none: that was all."""
        batch = next(self._left, None)
        return None if batch is None else {"x": batch}


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what exporters say about themselves from the user."""
    kept = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(kept)
