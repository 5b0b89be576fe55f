"""Finished runs made up on disk: real files, made-up confusion counts."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dualmix.config.compose import compose
from dualmix.config.fields import RESULTS_VERSION
from dualmix.paper.grids import jobs
from dualmix.paper.readings import BASE
from dualmix.report.speed import Row, Speed, Stage
from dualmix.runs import metrics

LOG = '{"at": "2026-11-16T00:00:00+0000", "event": "begin", "step": 0}\n'


def counts(right: Sequence[Sequence[int]], images: int = 10) -> np.ndarray:
    """Return counts of one class a task: `right[i][j]` of task j's images are right after task i.

    The others are taken for task i, or if they are of task i for the first, or at the very first
    for the second."""
    tasks = len(right)
    table = np.zeros((tasks, tasks, tasks), dtype=np.int64)
    for i, row in enumerate(right):
        for j, hits in enumerate(row):
            table[i, j, j] += hits
            table[i, j, i if i != j else int(j == 0)] += images - hits
    return table


def made(
    root: Path,
    label: str,
    seed: int = 0,
    values: Mapping[str, Any] | None = None,
    *,
    table: np.ndarray | None = None,
    data: str = "cifar100",
    fingerprint: str = "",
    notes: Sequence[str] = (),
    seconds: float = 60.0,
    probes: Sequence[Mapping[str, Any]] = (),
    name: str = "",
) -> Path:
    """Write a finished run of two tasks of one class each, unless `table` has other counts; return
    its folder.
    """
    composed = compose(label, {"data.name": data, **(values or {}), "seed": seed})
    fingerprint = fingerprint or sha256(data.encode()).hexdigest()
    table = counts([[5], [2, 8]]) if table is None else table
    tasks, scores, packed = _scored(table.tobytes(), table.shape)
    key = composed.config.key(fingerprint)
    folder = root / (name or f"{label}-{data}-s{seed}-{key[:12]}")
    folder.mkdir(parents=True)
    config = {
        "key": key,
        "label": label,
        "config": composed.config.record(),
        "origins": dict(composed.origins),
    }
    facts = {
        "results_version": RESULTS_VERSION,
        "data": {
            "name": data,
            "fingerprint": fingerprint,
            "notes": list(notes),
            "classes": [],
            "shape": [3, 32, 32],
        },
        "versions": {"dualmix": "0.1.0"},
        "python": "3.11.7",
        "commit": "c0ffee",
        "host": {"processor": "abacus"},
        "sessions": [],
    }
    plan = {
        "sha256": f"{seed:064x}",
        "batch": 10,
        "tasks": [{"classes": part, "batches": 1} for part in tasks],
    }
    files = {
        "config.json": config,
        "facts.json": facts,
        "plan.json": plan,
        "scores.json": scores,
        "times.json": {
            "train_seconds": seconds,
            "evaluate_seconds": 1.0,
            "images_per_second": 1.0,
            "peak_memory_mb": 1.0,
        },
    }
    if probes:
        files["probes.json"] = list(probes)
    for file, plain in files.items():
        (folder / file).write_text(json.dumps(plain))
    (folder / "log.jsonl").write_text(LOG)
    (folder / "confusion.npz").write_bytes(packed)
    return folder


@lru_cache
def _scored(
    content: bytes, shape: tuple[int, ...]
) -> tuple[list[list[int]], dict[str, Any], bytes]:
    table = np.frombuffer(content, dtype=np.int64).reshape(shape)
    tasks = [[int(c) for c in part] for part in np.array_split(np.arange(shape[1]), shape[0])]
    packed = io.BytesIO()
    np.savez_compressed(packed, counts=table.astype(np.min_scalar_type(int(table.max()))))
    return tasks, metrics.summary(table, tasks), packed.getvalue()


def accurate(
    root: Path,
    label: str,
    accuracies: Sequence[float],
    values: Mapping[str, Any] | None = None,
    **more: Any,
) -> None:
    """Write a run a seed, with these average accuracies in per cent after two tasks (whole numbers
    of 200 images).
    """
    for seed, per_cent in enumerate(accuracies):
        table = counts([[100], [0, round(2 * per_cent)]], images=100)
        made(root, label, seed, values, table=table, **more)


def whole_paper(root: Path, seeds: int = 10) -> None:
    """Write all runs of Tables 1 to 3 with 20 tasks of 5 classes."""
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(7):
        table = np.zeros((20, 100, 100), dtype=np.int64)
        for stage in range(20):
            seen = 5 * (stage + 1)
            drawn = rng.integers(0, seen, (seen, 100))
            for row in range(seen):
                table[stage, row, :seen] = np.bincount(drawn[row], minlength=seen)
            known = np.arange(seen)
            table[stage, known, known] += 20
        tables.append(table)
    wanted = {
        (job.preset, job.values["data.name"], job.values.get("method.memory"), job.values["seed"])
        for grid in ("table1", "table3")
        for job in jobs(grid, seeds=range(seeds))
    }
    for number, (label, data, memory, seed) in enumerate(sorted(wanted, key=str)):
        values = {} if memory is None else {"method.memory": memory}
        made(root, label, seed, values, table=tables[(number + seed) % 7], data=data)


def record(
    task: int, classes: int, operators: Mapping[str, float], gate: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    """Return what probes file after a task; an operator's number is its CO, to which the other
    measures are tied.
    """
    measured = {
        name: {
            "covariance": co,
            "gap": 2 * co + 0.1 / (1 + 1000 * co),
            "gap_variance": 2 * co,
            "gap_bias": 0.1 / (1 + 1000 * co),
            "mean_variance": co / 2,
            "sample_spread": 1 / co,
        }
        for name, co in operators.items()
    }
    return {
        "task": task,
        "labels": list(range(classes)),
        "head_norms": [1.0] * classes,
        "norm_ratio": None if task == 1 else 1.0 + 0.1 * task,
        "memory_counts": [10 * (c + 1) for c in range(classes)],
        "tally": {"adpmix pairs": float(gate[0]), "adpmix gate open": float(gate[1])},
        "operators": measured,
    }


def everything(root: Path) -> None:
    """Write a store that has all figures: Table 3 with probes, augmentations, readings of the
    paper, a subset.
    """
    rng = np.random.default_rng(1)

    def learned(level: int) -> np.ndarray:
        right = [
            [min(100, level + int(rng.integers(0, 9)) + 30 * (j == i)) for j in range(i + 1)]
            for i in range(5)
        ]
        return counts(right, images=100)

    def probes(**operators: float) -> list[dict[str, Any]]:
        *before, last = (
            record(task, task, operators, (100 * task, 10 * task * task)) for task in range(1, 6)
        )
        return [*before, {**last, "answers": {"weights, head": 0.2, "weights, ncm": 0.3}}]

    rows = {"er": (10, {}), "er+da": (25, {"view": 3e-3}), "er+enmix": (30, {"enmix": 2e-3})}
    rows |= {"er+adpmix": (32, {"view": 3e-3}), "er+dualmix": (35, {"view": 3e-3, "enmix": 2e-3})}
    augmentations = {
        "identity": 1e-5,
        "flip": 8e-3,
        "jitter": 7e-3,
        "grey": 6e-3,
        "crop-0.4": 5e-3,
        "crop-0.8": 4e-3,
    }
    for seed in range(3):
        for label, (level, own) in rows.items():
            for memory in (1000, 2000):
                more = (
                    {**augmentations, "standard": 3e-3, "enmix": 2e-3}
                    if label == "er" and memory == 1000
                    else own
                )
                values = {"method.memory": memory, "probes.on": True}
                level_here = level + memory // 200
                made(
                    root,
                    label,
                    seed,
                    values,
                    table=learned(level_here),
                    probes=probes(**more),
                    seconds=60.0 * level,
                )
        made(root, "finetune", seed, table=learned(3), seconds=100)
        for name, co in augmentations.items():
            values = {"method.mix.augment": name, "probes.on": True}
            made(
                root,
                "er+da",
                seed,
                values,
                table=learned(int(30 - 2000 * co)),
                probes=probes(view=co),
            )
    for first, memory in ((None, 1000), (10, 500)):
        for label in ("er", "er+da", "er+enmix", "er+adpmix", "er+dualmix"):
            values = {"method.memory": memory, "stream.first": first}
            if first:
                made(root, label, 0, values, table=learned(rows[label][0] + 5))
            if label != "er":
                base = {f"method.{path}": given for path, given in BASE[label].items()}
                made(
                    root,
                    label,
                    0,
                    {**values, **base, "method.mix.replay": 0.0},
                    table=learned(rows[label][0]),
                )
    part = {"data": "mini_imagenet", "notes": ["subset: 100 of 500 training images a class"]}
    made(root, "er", 0, table=learned(8), **part)
    made(root, "er+dualmix", 0, table=learned(15), **part)
    made(root, "er", 0, {"method.memory": 300}, table=learned(8))


def measured() -> Speed:
    """Return what a benchmark could have measured: a reference, rows with and without a limit, and
    a scale run.
    """
    rows = (
        Row("step", "floor", 0.1, 0.01),
        Row("step", "er", 0.108, 0.01, 1.08, 1.07, 1.09, 1.12),
        Row("step", "er+dualmix", 0.27, 0.03, 2.7, 2.6, 2.8, 2.7),
        Row("step", "dvc", 0.5, 0.02, 5.0, 4.9, 5.1),
        Row("500 answers", "naive loop", 2.0, 0.01),
        Row("500 answers", "predict", 1.0, 0.01, 1.4, 1.39, 1.41, 1.45, True),
        Row("memory", "imports alone", 231.0, 0.0, unit="MB"),
        Row("memory", "1,000 images", 300.0, 0.0, 0.98, 0.97, 0.99, 1.0, unit="MB"),
    )
    stages = (Stage(500, 5, 0.0123, 310.25), Stage(1000, 10, 0.0125, 311.0))
    return Speed(rows, stages, "a processor, torch 2.13.0, one thread")
