"""The paper's tables with ours beside them, and all that is tabulated of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

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
from dualmix.report.against import Mark, distance_text, mark
from dualmix.report.budget import Budget, budget
from dualmix.report.engines import engine_sentence
from dualmix.report.evidence import Ladder, SourceTable, ladder_steps, source_tables
from dualmix.report.matching import Matching
from dualmix.report.paired_tests import PairedTest, paired_tests
from dualmix.report.streams import Stream, streams
from dualmix.report.words import SCORE_NAMES, Score
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content, Group


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
    mark: Mark = ""
    best: bool = False
    paper_best: bool = False
    span: int = 1

    @property
    def distance(self) -> str:
        """Where our mean lies by the paper's interval, in words."""
        return distance_text(self.ours, self.paper)


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
    told = caption + engine_sentence(shown)
    return Table(name, title, told, columns, _best(rows, columns), above)


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
        paper = {label: sign * told[0] for label, c in result.items() if (told := c[number].paper)}
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


@dataclass(frozen=True)
class Summary:
    """All that is tabulated of a store: built once, then written as a page or as text."""

    collection: Collection
    streams: tuple[Stream, ...]
    tables: tuple[Table, ...]
    paired_tests: tuple[PairedTest, ...]
    sources: tuple[SourceTable, ...]
    ladder: Ladder
    budget: Budget


def summarise(collection: Collection) -> Summary:
    """Return all tables of a store's runs."""
    matching = Matching(collection)
    return Summary(
        collection,
        tuple(streams(collection)),
        tuple(paper_tables(collection, matching)),
        tuple(paired_tests(collection)),
        tuple(source_tables(collection)),
        ladder_steps(collection),
        budget(collection),
    )
