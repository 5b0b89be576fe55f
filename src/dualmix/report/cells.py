"""What a cell of a table says, in whatever form the table is written."""

from __future__ import annotations

from collections.abc import Sequence

from dualmix.paper.numbers import Published
from dualmix.report.evidence import Beside
from dualmix.report.tables import Cell, Column, Table
from dualmix.runs import metrics

MARKS = {"": "", "above": "▲", "below": "▼"}
LEGEND = (
    "Ours above, the paper's below: mean ± 95 % interval over n seeds (Student's t); what stands "
    "behind the paper's ± is taken for its interval, and behind that stands where our mean lies by "
    "it, in points. ▲ ▼: the two intervals do not meet. Bold: best of a column, where it has the "
    "same number of seeds as the others or its interval lies clear of theirs."
)


def published(cell: Beside) -> Published | metrics.Interval:
    """Return another paper's number; without its plus-minus where it prints none."""
    mean, spread_ = cell.theirs
    return cell.theirs if spread_ else metrics.Interval(mean, 0.0, 0.0, 1)


def one_per_column(cells: Sequence[Cell]) -> list[Cell]:
    """Return one cell per column: one that stands for several columns is there several times."""
    return [cell for cell in cells for _ in range(cell.span)]


def filled_rows(table: Table) -> list[tuple[str, Sequence[Cell]]]:
    """Return bounds and rows in which a run of the store stands."""
    return [
        (label, cells)
        for rows in (table.bounds, table.rows)
        for label, cells in rows.items()
        if any(cell.ours for cell in cells)
    ]


def place_text(cell: Cell) -> str:
    """Return a cell's place in words."""
    memory = f", memory {cell.column.memory:,}" if cell.column.memory else ""
    return f"{cell.label}, {cell.column.title}{memory}"


def size_text(memory: int | None) -> str:
    """Return how many images a memory holds; a dash for a method without one."""
    return "-" if memory is None else f"{memory:,}"


def head(column: Column, table: Table, *, data: bool = True) -> str:
    """Return the heading of a column; without its data set where that is said elsewhere."""
    part = " (subset)" if column.content and column.content.subset else ""
    score = (
        {"average_accuracy": " acc.", "forgetting": " forg."}[column.score]
        if table.name.startswith("table3")
        else ""
    )
    memory = f"{column.memory // 1000}k{score}"
    return f"{column.title}{part} {memory}" if data else memory


def notes_of(table: Table) -> list[str]:
    """Return what is noted about the images behind a table, a line for each set."""
    contents = dict.fromkeys(column.content for column in table.columns if column.content)
    return [
        *(
            f"{c.title} ({c.fingerprint[:6]}): {'; '.join(c.notes)}."
            for c in contents
            if c and c.notes
        ),
        "",
    ]
