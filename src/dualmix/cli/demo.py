"""The demonstration: methods over seeds on the embedded digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualmix.sweeps.sweep import Job

SEEDS = 5
REFERENCE = "er"
ROWS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("finetune", {}),
    (REFERENCE, {"method.memory": 20}),
    (REFERENCE, {"method.memory": 200}),
    ("er+dualmix", {"method.memory": 20}),
)
"""What is compared: presets and the settings of each, as `dualmix run` takes them."""
TITLE = """\
Handwritten digits: 5 tasks of 2 classes, each image seen once. finetune keeps
nothing, er rehearses images from a memory, DualMix augments and mixes them."""
NEXT = """\
146 steps of small digits show what a memory is worth; what DualMix gains is
within the noise here. On 5,000 steps of CIFAR-100 it is 10 points (README.md).

Next:
  dualmix run er+dualmix --method.memory 200   any setting is a flag
  dualmix table                                all that you ran
  dualmix show er er+dualmix                   two runs side by side
  dualmix explain er+dualmix                   every value, and who chose it
  dualmix run er+dualmix --data.name folder --data.path DIR --data.size 32"""


def jobs(seeds: int, values: Mapping[str, Any]) -> list[Job]:
    """Return the runs, with settings for all of them; seeds vary slowest, so that all rows fill up
    together.
    """
    return [
        Job(preset, {**own, **values, "seed": seed})
        for seed in range(seeds)
        for preset, own in ROWS
    ]
