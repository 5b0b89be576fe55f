"""Must show 4: ONNX in onnxruntime against the learner on real images: labels, scores, sizes, and
the time per image of both, measured in turns.

    python -m studies.serve_export --data cifar100 --root FOLDER
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dualmix
from dualmix.errors import DualmixError
from dualmix.export.export import export, runner
from dualmix.export.predictor import as_input
from studies.serving import images


def main() -> None:
    """Run the study and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--root")
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--width", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x, y = images(given.data, given.root)
    learner: Any = dualmix.create("er", x.shape[1:], memory=500, width=given.width, lr=0.05)
    for start in range(0, 10 * given.batches, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    rows = x[np.random.default_rng(0).permutation(10 * given.batches)[: given.rows]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dualmix.save(learner, folder / "learner.safetensors")
        export(learner, folder / "learner.onnx", "onnx")
        export(learner, folder / "learner.pt", "torchscript")
        try:
            print(export(learner, folder / "small.onnx", "onnx", quantize=True))
        except DualmixError as fault:
            print(fault)
        for path in sorted(folder.iterdir()):
            print(f"{path.name}: {path.stat().st_size:,} bytes")
        _compare(learner, rows, folder)


def _compare(learner: Any, rows: Any, folder: Path) -> None:
    run, want = runner((folder / "learner.onnx").read_bytes()), learner.scores(rows)
    scaled = as_input(rows)
    said = np.concatenate([run(scaled[i : i + 50]) for i in range(0, len(scaled), 50)])
    print(
        f"{len(rows)} images: labels equal {bool((said.argmax(1) == want.argmax(1)).all())}, "
        f"largest difference of a score {np.abs(said - want).max():.2g} (scores up to "
        f"{np.abs(want).max():.2g})"
    )
    learner.guard.asked = True  # as in a service: weights are prepared once, not for each answer
    learner.scores(rows[:1])
    times: dict[str, list[float]] = {"learner": [], "onnxruntime": []}
    for i in range(200):
        one = rows[i % len(rows)][None]
        began = time.perf_counter()
        learner.scores(one)
        middle = time.perf_counter()
        run(as_input(one))
        times["learner"].append(middle - began)
        times["onnxruntime"].append(time.perf_counter() - middle)
    low = {name: 1000 * float(np.median(seconds)) for name, seconds in times.items()}
    print(f"one image, medians in turns: {low} ms; ratio {low['learner'] / low['onnxruntime']:.1f}")


if __name__ == "__main__":
    main()
