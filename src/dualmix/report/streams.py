"""Configurations of a store, side by side where they learned from the same stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualmix.paper.numbers import DATA
from dualmix.report.words import STREAM
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content, Group


@dataclass(frozen=True, slots=True)
class Stream:
    """Configurations that learned from the same images for the same number of tasks.

    Attributes
    ----------
    title
        The data set, what it is one of where the store has two of that name, and the length.
    plain
        As their presets say, in the order of the paper's tables.
    changed
        With other settings of the method, the network or the stream.
    """

    title: str
    content: Content
    first: int | None
    plain: tuple[Group, ...]
    changed: tuple[Group, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """All configurations."""
        return self.plain + self.changed

    @property
    def memory(self) -> int | None:
        """The memory that all have who have one; none where they differ."""
        sizes = {group.memory for group in self.groups} - {None}
        return sizes.pop() if len(sizes) == 1 else None


def streams(collection: Collection) -> list[Stream]:
    """Return the streams of a store: data of one's own come first, then whole streams of the
    paper's data, then shortened ones.
    """
    alike: dict[tuple[Content, int | None], list[Group]] = {}
    for group in collection.groups:
        alike.setdefault((group.content, group.first), []).append(group)
    titles = content_titles(collection)
    result = [
        Stream(
            titles[content] + (f", first {first} tasks" if first else ""),
            collection.contents(groups)[0],
            first,
            tuple(group for group in groups if not other_settings(group)),
            tuple(group for group in groups if other_settings(group)),
        )
        for (content, first), groups in alike.items()
    ]
    return sorted(
        result,
        key=lambda s: (
            s.content.name in DATA,
            s.first is not None,
            -(s.first or 0),
            -len(s.groups),
        ),
    )


def other_settings(group: Group) -> tuple[tuple[str, Any], ...]:
    """Return in what a group differs from its preset but for the length of the stream."""
    return tuple((path, value) for path, value in group.changed if path != STREAM)


def content_titles(collection: Collection) -> dict[Content, str]:
    """Return a title for each of the images, with the name of their file or the begin of their
    digest where the store has several of one title.
    """
    paths = {run.content: run.settings.get("data.path") for run in collection.runs}
    names = [content.title for content in paths]
    titles = {}
    for content, path in paths.items():
        title = content.title
        if names.count(title) > 1:
            files = [p and Path(str(p)).name for c, p in paths.items() if c.title == title]
            mine = path and Path(str(path)).name
            title += f" ({mine if mine and files.count(mine) == 1 else content.fingerprint[:6]})"
        plain = "".join(c if c.isprintable() else "?" for c in title)  # some turn the line around
        titles[content] = plain + (" (subset)" if content.subset else "")
    return titles


def mean_curve(group: Group, score: str) -> list[metrics.Interval | None]:
    """Return a score after each task in per cent, averaged over the runs that have it."""
    rows = [run.scores.get(score) for run in group.runs]
    columns = np.array(rows, dtype=float).T
    return [
        metrics.interval(100 * column[np.isfinite(column)]) if np.isfinite(column).any() else None
        for column in columns
    ]
