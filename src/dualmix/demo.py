"""The demonstration: methods over seeds on the embedded digits, one process a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dualmix.errors import DualmixError
from dualmix.show import comparison

ROWS = {
    "finetune": ("--method.lr", "0.03"),
    "er": ("--method.lr", "0.03", "--method.memory", "200"),
    "er+dualmix": ("--method.lr", "0.03", "--method.memory", "200", "--method.mix.augment", "crop-0.5"),
}
"""What is compared: presets and the flags each is run with. Digits are not mirrored: that changes what they are."""


def demo(store: Path | str, seeds: int, console: Console) -> RenderableType:
    """Train every row over seeds, as many at a time as there are cores, and return the table."""
    scores: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
    with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        line = bar.add_task("training", total=seeds * len(ROWS))
        jobs = {pool.submit(_train, name, seed, store): name for seed in range(seeds) for name in ROWS}
        for job in as_completed(jobs):
            try:
                result = job.result()
            except DualmixError:
                pool.shutdown(cancel_futures=True)
                raise
            scores[jobs[job]].append(result["scores"])
            bar.update(line, advance=1)
            accuracy = 100 * result["scores"]["average_accuracy"]
            console.print(f"{Path(result['run']).name}: average accuracy {accuracy:.1f} %")
    rows = [
        (name, [s["average_accuracy"] for s in found], [s["forgetting"] for s in found])
        for name, found in scores.items()
    ]
    return comparison("Handwritten digits, 5 tasks of 2 classes, each image seen once, memory of 200", rows)


def _train(name: str, seed: int, store: Path | str) -> dict[str, Any]:
    words = [
        sys.executable,
        "-m",
        "dualmix",
        "run",
        name,
        *ROWS[name],
        "--seed",
        str(seed),
        "--store",
        str(store),
        "--json",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise DualmixError(ended.stderr.strip().removeprefix("dualmix: ") or f"{name} stopped ({ended.returncode}).")
    result: dict[str, Any] = json.loads(ended.stdout)
    return result
