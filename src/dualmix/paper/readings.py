"""Readings of what the paper leaves open, and how far each is from its Table 3 at a memory of 1000.

``docs/reading-of-the-paper.md`` lists the open choices; `studies.calibrate` trains the readings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualmix.paper.numbers import ABLATION_ACCURACY, ABLATION_FORGETTING

TERMS = {
    "er": ("stream", "replay"),
    "er+da": ("stream", "replay", "view"),
    "er+enmix": ("stream", "replay", "enmix"),
    "er+adpmix": ("stream", "replay", "view", "adpmix"),
    "er+dualmix": ("stream", "replay", "view", "enmix", "adpmix"),
}
"""Rows of Table 3 and the terms of each one's loss in the base reading."""
BASE = {
    row: {
        **{f"mix.{term}": float(term in terms) for term in TERMS["er+dualmix"]},
        "mix.adpmix_augment": "both",
        "mix.each": "pair",
        "mix.old": "all",
        "mix.pairs": "new",
        "forward": "separate",
    }
    for row, terms in TERMS.items()
}
"""The base reading, spelt out: it stays what it is when the package's defaults change."""
MEMORY_TERMS = ("replay", "view", "enmix")
FULL_STREAM = {"method.memory": 1000}


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the paper.

    Attributes
    ----------
    choice
        Number of the open choice in the list of ``docs/reading-of-the-paper.md``.
    rows
        What it changes, by row of Table 3 and setting of the method; rows left out are those of the
        reading it is on.
    on
        The reading that it changes: the base, or the weights that were chosen.
    """

    name: str
    choice: str
    doc: str
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    on: str = "base"


def reading_settings(reading: Reading, row: str) -> dict[str, Any]:
    """Return all that a reading says about a row of Table 3."""
    below = next(one for one in WEIGHTS if one.name == reading.on)
    return {**BASE[row], **below.rows.get(row, {}), **reading.rows.get(row, {})}


def _weights(row: str, weight: Mapping[str, float]) -> dict[str, Any]:
    return {f"mix.{term}": share for term, share in weight.items() if term in TERMS[row]}


def _chosen(row: str, terms: Sequence[str]) -> dict[str, Any]:
    """Return the chosen weights for these terms: one rehearsed batch in +da, else one mean; other
    terms have none.
    """
    share = 1 / (len(terms) - 1 if row == "er+da" else len(terms))
    weights = dict.fromkeys(TERMS["er+dualmix"], 0.0) | dict.fromkeys(terms, share)
    return {
        f"mix.{term}": 1.0 if (row, term) == ("er+da", "stream") else w
        for term, w in weights.items()
    }


def _without(rows: Iterable[str], *dropped: str) -> dict[str, dict[str, Any]]:
    return {row: _chosen(row, [term for term in TERMS[row] if term not in dropped]) for row in rows}


def _all(rows: Iterable[str], **values: Any) -> dict[str, dict[str, Any]]:
    return {row: {path.replace("__", "."): given for path, given in values.items()} for row in rows}


MIXED = tuple(TERMS)[1:]
SOFT = ("er+enmix", "er+adpmix", "er+dualmix")
ACROSS = ("er+adpmix", "er+dualmix")
WEIGHTS = (
    Reading(
        "base",
        "-",
        "sum of mean losses; originals, plain view (not beside EnMix alone), augmented AdpMix",
    ),
    Reading(
        "one-batch",
        "1",
        "originals and views are one rehearsed batch in +da; one mean over all images in the "
        "others (the presets)",
        {row: _chosen(row, TERMS[row]) for row in MIXED},
    ),
    Reading(
        "one-mean",
        "1",
        "one mean over all images of a step",
        {row: _weights(row, dict.fromkeys(TERMS[row], 1 / len(TERMS[row]))) for row in MIXED},
    ),
    Reading(
        "split",
        "1",
        "the terms share the weight of ER's two equally, so that the learning rate keeps its "
        "meaning",
        {row: _weights(row, dict.fromkeys(TERMS[row], 2 / len(TERMS[row]))) for row in MIXED},
    ),
    Reading(
        "memory-mean",
        "1",
        "the memory's terms are averaged: together they weigh as much as the new batch",
        {
            row: _weights(
                row,
                dict.fromkeys(MEMORY_TERMS, 1 / sum(term in MEMORY_TERMS for term in TERMS[row])),
            )
            for row in MIXED
        },
    ),
    Reading(
        "rest-mean",
        "1",
        "everything but the new batch is averaged: together it weighs as much as the new batch",
        {
            row: _weights(row, dict.fromkeys(TERMS[row][1:], 1 / len(TERMS[row][1:])))
            for row in MIXED
        },
    ),
)
"""Choice 1, which comes first: the others are tried on top of what it gave."""
CHOSEN = "one-batch"
READINGS = (
    *WEIGHTS,
    Reading(
        "replaced", "2", "views and EnMix replace the originals", _without(MIXED, "replay"), CHOSEN
    ),
    Reading("no-view", "3", "no plain view beside AdpMix", _without(ACROSS, "view"), CHOSEN),
    Reading(
        "view",
        "3",
        "a plain view beside EnMix alone too",
        {"er+enmix": _chosen("er+enmix", (*TERMS["er+enmix"], "view"))},
        CHOSEN,
    ),
    Reading(
        "bare",
        "2, 3",
        "EnMix replaces originals and plain view: stream, EnMix, AdpMix",
        {
            **_without(["er+da", "er+enmix", "er+adpmix"], "replay"),
            **_without(["er+dualmix"], "replay", "view"),
        },
        CHOSEN,
    ),
    Reading(
        "raw", "4", "AdpMix on original images", _all(ACROSS, mix__adpmix_augment="neither"), CHOSEN
    ),
    Reading(
        "raw-new",
        "4",
        "AdpMix augments the old image only",
        _all(ACROSS, mix__adpmix_augment="old"),
        CHOSEN,
    ),
    Reading("batch-ratio", "5", "one mixing ratio a batch", _all(SOFT, mix__each="batch"), CHOSEN),
    Reading(
        "old-batch",
        "10",
        "AdpMix leaves out classes of the new batch",
        _all(ACROSS, mix__old="batch"),
        CHOSEN,
    ),
    Reading(
        "old-task",
        "10",
        "AdpMix leaves out classes of the current task",
        _all(ACROSS, mix__old="task"),
        CHOSEN,
    ),
    Reading(
        "fewer",
        "10, 11",
        "AdpMix pairs only as many as there are images of earlier tasks",
        _all(ACROSS, mix__old="task", mix__pairs="fewer"),
        CHOSEN,
    ),
    Reading(
        "crossed",
        "11",
        "AdpMix pairs every old with every new image",
        _all(ACROSS, mix__pairs="all"),
        CHOSEN,
    ),
    Reading(
        "joint",
        "15",
        "one forward pass over all images of a step",
        _all(TERMS, forward="joint"),
        CHOSEN,
    ),
    Reading(
        "still", "15", "batch-norm ignores mixed batches", _all(MIXED, forward="still"), CHOSEN
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the finished runs of a row gave, in per cent, by seed."""

    accuracy: Mapping[int, float]
    forgetting: Mapping[int, float]
    anytime: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a reading is from the paper's Table 3.

    Attributes
    ----------
    points
        Root mean square distance over rows, accuracies and forgettings, in points: for the whole
        stream only.
    gains
        The same for what each row gains over ER, as factors: 0.10 means 10 % off. It also fits a
        shortened stream.
    anytime
        The same for the anytime accuracy, which the paper does not give, against its gain in
        accuracy.
    seeds
        Seeds that all rows have.
    missing
        Rows without a finished run.
    """

    reading: str
    points: float
    gains: float
    anytime: float
    seeds: tuple[int, ...]
    missing: tuple[str, ...]
    rows: Mapping[str, Measured]

    @property
    def rank(self) -> tuple[int, bool, float]:
        """What readings are sorted by: those with more rows first, as few rows are easily near;
        then by the gains.
        """
        return len(self.missing) - len(self.rows), math.isnan(self.gains), self.gains

    def mean(self, row: str) -> tuple[float, float] | None:
        """Return a row's accuracy and forgetting over the seeds that all rows have."""
        measured = self.rows.get(row)
        if measured is None or not measured.accuracy or not self.seeds:
            return None
        return _mean(measured.accuracy, self.seeds), _mean(measured.forgetting, self.seeds)


def deviation(reading: str, rows: Mapping[str, Measured]) -> Deviation:
    """Compare a reading's rows with Table 3 over the seeds that all of them have."""
    finished = [set(measured.accuracy) for measured in rows.values() if measured.accuracy]
    seeds = sorted(set.intersection(*finished)) if finished else []
    missing = tuple(row for row, measured in rows.items() if not measured.accuracy)
    means = {
        row: tuple(
            _mean(column, seeds) if seeds else math.nan
            for column in (measured.accuracy, measured.forgetting, measured.anytime)
        )
        for row, measured in rows.items()
        if row not in missing
    }
    paper = {row: (ABLATION_ACCURACY[row][0][0], ABLATION_FORGETTING[row][0][0]) for row in means}
    points = [
        ours - theirs for row in means for ours, theirs in zip(means[row], paper[row], strict=False)
    ]
    gains, anytime = [], []
    for row in means:
        if row != "er" and "er" in means:
            gains += [
                _gain(means[row][i], means["er"][i]) - _gain(paper[row][i], paper["er"][i])
                for i in (0, 1)
            ]
            anytime.append(
                _gain(means[row][2], means["er"][2]) - _gain(paper[row][0], paper["er"][0])
            )
    return Deviation(
        reading,
        _rms(points),
        math.expm1(_rms(gains)),
        math.expm1(_rms(anytime)),
        tuple(seeds),
        missing,
        rows,
    )


def _mean(column: Mapping[int, float], seeds: Sequence[int]) -> float:
    return float(np.mean([column[seed] for seed in seeds]))


def _gain(value: float, base: float) -> float:
    return math.log(value / base) if value > 0 and base > 0 else math.nan


def _rms(numbers: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(numbers)))) if numbers else math.nan
