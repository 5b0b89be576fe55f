"""Calibration from runs in the store: which reading of the paper's open choices they are, and how
near its Table 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualmix.config.compose import compose, flatten
from dualmix.paper.numbers import DATA
from dualmix.paper.readings import (
    FULL_STREAM,
    READINGS,
    TERMS,
    Deviation,
    Measured,
    Reading,
    deviation,
    reading_settings,
)
from dualmix.runs.records import Collection, Content, Group


@dataclass(frozen=True, slots=True)
class Calibration:
    """The readings that were run on one stream, those with most rows and nearest to the paper
    first.

    Attributes
    ----------
    first
        Tasks after which the stream ended; none: it was whole, and the paper's numbers are for the
        same thing.
    """

    content: Content
    memory: int
    first: int | None
    rows: tuple[tuple[Reading, Deviation], ...]


def calibrations(collection: Collection) -> list[Calibration]:
    """Return every stream of the store on which a reading has a row beside ER's."""
    methods = {_frozen(group): group.label for group in collection.groups if group.label in TERMS}
    presets = {
        row: dict(
            flatten({"method": compose(row, {"data.name": DATA[0]}).config.record()["method"]})
        )
        for row in TERMS
    }
    wanted = {
        (reading.name, row): _plain(row, {**presets[row], **_paths(reading_settings(reading, row))})
        for reading in READINGS
        for row in TERMS
    }
    if not set(wanted.values()) & methods.keys():
        return []
    streams: dict[tuple[Content, int, int | None], dict[tuple[str, str], Group]] = {}
    for group in collection.groups:
        other = {path for path, _ in group.changed if not path.startswith("method.")} - {
            "stream.first"
        }
        first = dict(group.changed).get("stream.first")
        comparable = first is not None or group.memory == FULL_STREAM["method.memory"]
        if (
            group.label in TERMS
            and not other
            and group.content.name == DATA[0]
            and group.memory
            and comparable
        ):
            streams.setdefault((group.content, group.memory, first), {})[_frozen(group)] = group
    result = []
    for (content, memory, first), groups in streams.items():
        rows = []
        for reading in READINGS:
            here = {row: groups[at] for row in TERMS if (at := wanted[reading.name, row]) in groups}
            if here.keys() & (reading.rows.keys() - {"er"} or set(TERMS) - {"er"}) and "er" in here:
                rows.append(
                    (
                        reading,
                        deviation(reading.name, {row: _scores(g) for row, g in here.items()}),
                    )
                )
        rows = [(reading, off) for reading, off in rows if not math.isnan(off.gains)]
        if rows:
            rows.sort(key=lambda pair: pair[1].rank)
            result.append(Calibration(content, memory, first, tuple(rows)))
    return sorted(result, key=lambda one: (one.content.name, one.first or 0, one.memory))


def _scores(group: Group) -> Measured:
    names = ("average_accuracy", "forgetting", "anytime_accuracy")
    return Measured(*(group.values(score) for score in names))


def _frozen(group: Group) -> tuple[str, str]:
    return _plain(
        group.label, {p: v for p, v in group.runs[0].settings.items() if p.startswith("method.")}
    )


def _paths(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"method.{path}": value for path, value in changes.items()}


def _plain(row: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return what two runs of the same method share, the memory aside."""
    return row, repr(
        sorted((path, value) for path, value in settings.items() if path != "method.memory")
    )
