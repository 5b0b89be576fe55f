"""The paper's tables with ours beside them, what else was run, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dualmix.data.catalog import DATASETS
from dualmix.paper.grids import ONE_MEAN
from dualmix.paper.ladder import weighting
from dualmix.paper.numbers import (
    ABLATION_ACCURACY,
    ABLATION_FORGETTING,
    ACCURACY,
    BOUNDS,
    DATA,
    FORGETTING,
    MEMORY,
    Published,
)
from dualmix.report import commands
from dualmix.report.evidence import SourceTable, Step, ladder_steps, source_tables
from dualmix.report.matching import Matching
from dualmix.report.words import STREAM
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content, Group

Score = Literal["average_accuracy", "forgetting"]
SCORE_NAMES = {"average_accuracy": "accuracy", "forgetting": "forgetting"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: images, memory and score."""

    content: Content | None
    data: str
    memory: int
    score: Score

    @property
    def title(self) -> str:
        """The data set's name."""
        return DATASETS[self.data].title


@dataclass(frozen=True, slots=True)
class Cell:
    """One method in one column.

    Attributes
    ----------
    mark
        Where ours and the paper's intervals do not meet: "above" or "below" the paper.
    span
        Columns that it stands for: a method without memory has one cell per data set.
    """

    id: str
    label: str
    column: Column
    group: Group | None
    ours: metrics.Interval | None
    paper: Published | None
    command: str
    mark: Literal["", "above", "below"] = ""
    best: bool = False
    paper_best: bool = False
    span: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One of the paper's tables.

    Attributes
    ----------
    rule
        By which rule for all rows it was run, where not as the presets say.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: Mapping[str, Sequence[Cell]]
    bounds: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    rule: str = ""

    @property
    def number(self) -> str:
        """What the paper calls it."""
        return self.name.removesuffix(f"-{self.rule}").replace("table", "Table ")

    def filled(self) -> list[bool]:
        """Return for each column whether a run of the store stands in it, or below a bound."""
        filled = [
            any(cells[at].ours for cells in self.rows.values()) for at in range(len(self.columns))
        ]
        for cells in self.bounds.values():
            at = 0
            for cell in cells:
                if cell.ours and not any(filled[at : at + cell.span]):
                    filled[at] = True
                at += cell.span
        return filled

    def cells(self) -> list[Cell]:
        """Return all cells, row by row."""
        return [
            cell for rows in (self.bounds, self.rows) for cells in rows.values() for cell in cells
        ]


def mark(ours: metrics.Interval | None, paper: Published | None) -> Literal["", "above", "below"]:
    """Return where our interval lies if it does not meet the paper's; one or two runs have none and
    no mark.
    """
    if ours is None or paper is None or ours.shown is None:
        return ""
    if ours.mean - ours.half > paper[0] + paper[1]:
        return "above"
    return "below" if ours.mean + ours.half < paper[0] - paper[1] else ""


PARTS = "Average accuracy (higher is better) and forgetting (lower is better), in per cent."
FITTED = (
    " By the presets, whose weights were fitted to this table at M = 1,000: there agreement is "
    "in-sample."
)
ONE_RULE = (
    " By one rule for all rows, one mean over all images of a step, which was not fitted to single "
    "rows."
)


def paper_tables(collection: Collection, matching: Matching | None = None) -> list[Table]:
    """Return Tables 1 to 3, ours beside the paper's; Table 3 also by one rule for all rows."""
    matching = matching or Matching(collection)
    one_mean = [
        group
        for row in ABLATION_ACCURACY
        for memory in MEMORY
        for group in matching.groups(
            row,
            row,
            {"data.name": DATA[0], "method.memory": memory, **weighting(row, "one-mean")},
        )
    ]
    three: dict[Score, Numbers] = {
        "average_accuracy": _by_memory(ABLATION_ACCURACY, 3),
        "forgetting": _by_memory(ABLATION_FORGETTING, 3),
    }
    return [
        _table(
            "table1",
            "Average accuracy",
            "After the last task, in per cent; higher is better.",
            collection,
            {"average_accuracy": _by_memory(ACCURACY, 9)},
            DATA,
            bounds=True,
        ),
        _table(
            "table2",
            "Average forgetting",
            "After the last task, in per cent; lower is better.",
            collection,
            {"forgetting": _by_memory(FORGETTING, 9)},
            DATA,
        ),
        _table(
            "table3",
            "The parts of DualMix",
            PARTS + FITTED,
            collection,
            three,
            DATA[:1],
        ),
        replace(
            _table(
                ONE_MEAN,
                "The parts of DualMix, by one rule",
                PARTS + ONE_RULE,
                collection,
                three,
                DATA[:1],
                groups=one_mean,
            ),
            rule="one-mean",
        ),
    ]


Numbers = Mapping[str, Mapping[tuple[str, int], Published]]


def _by_memory(rows: Mapping[str, Sequence[Published]], count: int) -> Numbers:
    places = [(data, memory) for data in DATA for memory in MEMORY][:count]
    return {name: dict(zip(places, cells, strict=True)) for name, cells in rows.items()}


def _table(
    name: str,
    title: str,
    caption: str,
    collection: Collection,
    scores: Mapping[Score, Numbers],
    sets: Sequence[str],
    *,
    bounds: bool = False,
    groups: Sequence[Group] | None = None,
) -> Table:
    labels = list(next(iter(scores.values())))
    if groups is None:
        known = (*labels, *(BOUNDS if bounds else ()))
        groups = [group for group in collection.plain if group.label in known]
    blocks: list[tuple[str, Content | None]] = []
    for data in sets:
        here = [(data, content) for content in collection.contents(groups) if content.name == data]
        blocks += here or [(data, None)]
    columns = tuple(
        Column(content, data, memory, score)
        for data, content in blocks
        for memory in MEMORY
        for score in scores
    )  # fmt: skip
    rows = {
        label: [
            _cell(
                name,
                label,
                column,
                groups,
                scores[column.score][label].get((column.data, column.memory)),
            )
            for column in columns
        ]
        for label in labels
    }
    above: dict[str, list[Cell]] = {}
    if bounds:
        for label, cells in BOUNDS.items():
            above[label] = [
                replace(
                    _cell(
                        name,
                        label,
                        Column(content, data, 0, "average_accuracy"),
                        groups,
                        cells[DATA.index(data)],
                        None,
                    ),
                    span=len(MEMORY),
                )
                for data, content in blocks
            ]
    shown = [cell.group for cells in (*rows.values(), *above.values()) for cell in cells]
    told = caption + _native(shown)
    return Table(name, title, told, columns, _best(rows, columns), above)


def _native(groups: Iterable[Group | None]) -> str:
    """Return a sentence on cells with runs of the native engine, which rounds otherwise."""
    seeds = {
        f"{group.label}, {group.content.title}, M = {group.memory or 0}": [
            run.seed for run in group.runs if run.settings.get("model.engine") == "native"
        ]
        for group in groups
        if group
    }
    some = [f"{cell} (seeds {', '.join(map(str, s))})" for cell, s in seeds.items() if s]
    return f" On the native engine, the rest on torch: {'; '.join(some)}." if some else ""


def _cell(
    table: str,
    label: str,
    column: Column,
    groups: Iterable[Group],
    paper: Published | None,
    memory: int | Literal["column"] | None = "column",
) -> Cell:
    wanted = column.memory if memory == "column" else memory
    group = next(
        (
            g
            for g in groups
            if (g.label, g.memory) == (label, wanted) and g.content == column.content
        ),
        None,
    )
    ours = group.interval(column.score) if group else None
    print_ = column.content.fingerprint[:6] if column.content else "none"
    at = (
        f"{table}-{label}-{column.data}-{print_}-{wanted or 0}-{SCORE_NAMES[column.score]}".replace(
            "+", "_"
        )
    )
    command = commands.cell_command(table, label, column.data, wanted, group)
    return Cell(at, label, column, group, ours, paper, command, mark(ours, paper))


def _best(rows: Mapping[str, Sequence[Cell]], columns: Sequence[Column]) -> dict[str, list[Cell]]:
    """Mark the best of each column, ours and the paper's apart; a row alone is not the best of
    anything.
    """
    result = {label: list(cells) for label, cells in rows.items()}
    for number, column in enumerate(columns):
        sign = -1 if column.score == "forgetting" else 1
        ours = {label: one for label, c in result.items() if (one := c[number].ours)}
        paper = {label: sign * c[number].paper[0] for label, c in result.items() if c[number].paper}  # type: ignore[index]
        first = best_of(ours, sign)
        for label, cells in result.items():
            cells[number] = replace(
                cells[number],
                best=label == first,
                paper_best=len(paper) > 1 and paper.get(label) == max(paper.values()),
            )
    return result


def best_of(rows: Mapping[str, metrics.Interval], sign: int) -> str | None:
    """Return the name of the best, or none where no row can be called so.

    A single seed is the best of nothing. Another row stands in its way if it has another number of
    seeds and the two intervals meet, or one of them has none.

    Parameters
    ----------
    sign
        1 where higher is better, -1 where lower is.
    """
    if len(rows) < 2:
        return None
    name = max(rows, key=lambda label: sign * rows[label].mean)
    best = rows[name]
    clear = all(
        other.n == best.n or abs(best.mean - other.mean) > best.half + other.half
        for label, other in rows.items()
        if label != name
    )
    return name if best.n > 1 and clear else None


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A method with DualMix against the same without, on the seeds that both have.

    Attributes
    ----------
    changed
        Settings in which both differ from their presets.
    difference
        With minus without, in points.
    p
        Of the paired t test, two-sided; none for fewer than two seeds or where all differences are
        equal.
    holm
        The same after Holm's correction for all paired_tests of the same score.
    """

    base: str
    label: str
    content: Content
    memory: int | None
    changed: tuple[tuple[str, Any], ...]
    score: Score
    difference: metrics.Interval
    seeds: tuple[int, ...]
    p: float | None
    holm: float | None = None
    command: str = ""


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of Student's paired t test.

    Examples
    --------
    >>> f"{paired_p([1.0, 2.0, 3.0]):.4f}"
    '0.0742'
    """
    from scipy.special import stdtr

    mean = metrics.interval(differences)
    if mean.n < 2 or mean.std == 0:
        return None
    t = mean.mean / (mean.std / math.sqrt(mean.n))
    return float(2 * stdtr(mean.n - 1, -abs(t)))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p values after Holm's (1979) step-down correction for their number.

    Examples
    --------
    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    result: list[float | None] = [None] * len(values)
    worst = 0.0
    for place, (p, i) in enumerate(known):
        worst = max(worst, min(1.0, (len(known) - place) * p))
        result[i] = worst
    return result


def paired_tests(collection: Collection) -> list[PairedTest]:
    """Return every "A+DualMix against A" that the store has paired seeds for, all other settings
    equal; whole streams as their presets say come first.
    """
    places = {
        (g.label, g.content, g.memory, repr(g.changed)): g
        for g in sorted(
            collection.groups, key=lambda g: (STREAM in dict(g.changed), bool(g.changed))
        )
    }
    scores: tuple[Score, ...] = ("average_accuracy", "forgetting")
    result: list[PairedTest] = []
    for score in scores:
        some = []
        for (label, content, memory, changed), group in places.items():
            base, plus, addition = label.rpartition("+")
            other = places.get((base, content, memory, changed))
            if not plus or addition != "dualmix" or other is None:
                continue
            a, b = group.values(score), other.values(score)
            seeds = tuple(sorted(a.keys() & b.keys()))
            if not seeds:
                continue
            differences = [a[seed] - b[seed] for seed in seeds]
            command = " && ".join(map(commands.rerun_command, (other, group)))
            some.append(
                PairedTest(
                    base,
                    label,
                    content,
                    memory,
                    group.changed,
                    score,
                    metrics.interval(differences),
                    seeds,
                    paired_p(differences),
                    command=command,
                )
            )
        corrected = holm([one.p for one in some])
        result += [replace(one, holm=p) for one, p in zip(some, corrected, strict=True)]
    return result


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
    found: dict[tuple[Content, int | None], list[Group]] = {}
    for group in collection.groups:
        found.setdefault((group.content, group.first), []).append(group)
    titles = content_titles(collection)
    result = [
        Stream(
            titles[content] + (f", first {first} tasks" if first else ""),
            collection.contents(groups)[0],
            first,
            tuple(group for group in groups if not other_settings(group)),
            tuple(group for group in groups if other_settings(group)),
        )
        for (content, first), groups in found.items()
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


@dataclass(frozen=True)
class Summary:
    """All that is tabulated of a store: built once, then written as a page or as text."""

    collection: Collection
    streams: tuple[Stream, ...]
    tables: tuple[Table, ...]
    paired_tests: tuple[PairedTest, ...]
    sources: tuple[SourceTable, ...]
    steps: tuple[Step, ...]


def summarise(collection: Collection) -> Summary:
    """Return all tables of a store's runs."""
    matching = Matching(collection)
    return Summary(
        collection,
        tuple(streams(collection)),
        tuple(paper_tables(collection, matching)),
        tuple(paired_tests(collection)),
        tuple(source_tables(matching)),
        tuple(ladder_steps(matching)),
    )


def mean_curve(group: Group, score: str) -> list[metrics.Interval | None]:
    """Return a score after each task in per cent, averaged over the runs that have it."""
    rows = [run.scores.get(score) for run in group.runs]
    columns = np.array(rows, dtype=float).T
    return [
        metrics.interval(100 * column[np.isfinite(column)]) if np.isfinite(column).any() else None
        for column in columns
    ]
