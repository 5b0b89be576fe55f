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

from dualmix.errors import ConfigError, DualmixError
from dualmix.export.predictor import Predictor, about, as_input, sample
from dualmix.runs.extras import extra
from dualmix.store.files import write_bytes

Kind = Literal["onnx", "torchscript"]
TOLERANCE = 1e-5
"""By how much a score may differ, relative to the largest score."""
MOST_LOST = 1.0
"""Points of accuracy that 8 bits may cost."""
ABOUT = "dualmix.json"

Run = Callable[[NDArray[np.float32]], NDArray[Any]]


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
    lost
        Points of accuracy on stored images that quantisation cost; none: it was not asked for.
    """

    bytes: int
    rows: int
    difference: float
    equal: float
    lost: float | None = None


def export(learner: Any, to: Path, kind: Kind, *, quantize: bool = False) -> Exported:
    """Write a learner's predictor.

    Parameters
    ----------
    quantize
        Weights and activations of 8 bits (ONNX only), calibrated on one half of the memory's images
        and measured on the other.

    Raises
    ------
    DualmixError
        What was made does not answer as the learner does, or loses more than a point of accuracy by
        quantisation; nothing is written.
    """
    if quantize and kind != "onnx":
        raise ConfigError("--quantize is for --to onnx only.")
    module = Predictor(learner).eval()
    x, y = sample(learner)
    content, run = (_onnx if kind == "onnx" else _torchscript)(module, learner, x)
    parts = [part for part in (x[:1], x[1:]) if len(part)]  # batches of two sizes
    said = np.concatenate([run(as_input(part)) for part in parts])
    want = learner.scores(x)
    difference = float(np.abs(said - want).max())
    equal = float((said.argmax(1) == want.argmax(1)).mean())
    if difference > TOLERANCE * max(1.0, float(np.abs(want).max())):
        raise DualmixError(
            f"The exported predictor differs from the learner by {difference:g} in a score, which "
            "rounding does not explain: nothing was written. Is its precision bfloat16?"
        )
    lost = None
    if quantize:
        content, lost, equal, difference = _quantized(content, learner, x, y)
    write_bytes(to, content)
    return Exported(len(content), len(x), difference, equal, lost)


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


def _quantized(
    content: bytes, learner: Any, x: NDArray[Any], y: NDArray[np.int64] | None
) -> tuple[bytes, float, float, float]:
    """Return an ONNX model of 8 bits, the points of accuracy that it lost, the share of labels that
    stayed and the largest difference of a score.
    """
    if y is None or len(y) < 20:
        raise ConfigError(
            "--quantize is measured on images of the memory, and this learner holds fewer than 20: "
            "leave it out."
        )
    quantization = extra("onnxruntime.quantization", "onnx", "`--quantize`")
    calibration, rest = as_input(x[::2]), as_input(x[1::2])

    rows = _Rows([calibration[i : i + 10] for i in range(0, len(calibration), 10)])
    quantization.CalibrationDataReader.register(_Rows)
    with tempfile.TemporaryDirectory() as folder, _quietly():
        before, clean, after = (str(Path(folder) / f"{name}.onnx") for name in "abc")
        Path(before).write_bytes(content)
        shapes = extra("onnxruntime.quantization.shape_inference", "onnx", "`--quantize`")
        shapes.quant_pre_process(before, clean)
        quantization.quantize_static(clean, after, rows, per_channel=True)
        onnx = extra("onnx", "onnx", "`--quantize`")
        model = onnx.load(after)
        described(model, learner)
        small: bytes = model.SerializeToString()
    was, now = runner(content)(rest), runner(small)(rest)
    truth = y[1::2]
    lost = 100 * float((was.argmax(1) == truth).mean() - (now.argmax(1) == truth).mean())
    if lost > MOST_LOST:
        raise DualmixError(
            f"8 bits cost {lost:.1f} points of accuracy on {len(truth)} images of the memory, more "
            f"than {MOST_LOST:g}: nothing was written. Leave --quantize out."
        )
    equal = float((was.argmax(1) == now.argmax(1)).mean())
    return small, lost, equal, float(np.abs(was - now).max())


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
