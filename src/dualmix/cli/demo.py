"""The demonstration: methods over seeds on the embedded digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from dualmix.cli.comparison import comparison
from dualmix.sweeps.sweep import Entry, Job

ROWS: Mapping[str, Mapping[str, Any]] = {
    "finetune": {"method.lr": 0.03},
    "er": {"method.lr": 0.03, "method.memory": 200},
    "er+dualmix": {"method.lr": 0.03, "method.memory": 200, "method.mix.augment": "crop-0.5"},
}
"""What is compared: presets and the settings of each. Digits are not mirrored: that changes what
they are.
"""


def jobs(seeds: int, values: Mapping[str, Any]) -> list[Job]:
    """Return the runs, with settings for all of them; seeds vary slowest, so that all rows fill up
    together.
    """
    return [
        Job(preset, {**own, **values, "seed": seed})
        for seed in range(seeds)
        for preset, own in ROWS.items()
    ]


def table(runs: Sequence[Entry]) -> RenderableType:
    """Return the rows side by side, of runs that are done."""
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in ROWS}
    for run in runs:
        scores[run.job.preset].append(run.folder.read_json("scores.json"))
    rows = [
        (name, [s["average_accuracy"] for s in found], [s["forgetting"] for s in found])
        for name, found in scores.items()
    ]
    return comparison(
        "Handwritten digits, 5 tasks of 2 classes, each image seen once, memory of 200", rows
    )
