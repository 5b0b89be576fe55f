"""Two runs side by side and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.text import percent
from dualmix.config.plain import as_flag

if TYPE_CHECKING:
    from dualmix.report.compare import Comparison, Difference


def differing(comparison: Comparison) -> RenderableType:
    """Return what differs between two runs."""
    a, b = comparison.names
    parts: list[RenderableType] = [Text(f"a: {a}\nb: {b}")]
    for title, rows in (
        ("settings", comparison.settings),
        ("circumstances", comparison.circumstances),
    ):
        if rows:
            parts.append(_two_columns(title, rows))
        else:
            parts.append(Text(f"No {title} differ.\n"))
    scores = Table(box=box.SIMPLE, pad_edge=False, title="scores", title_justify="left")
    for name in ("", "a", "b", "b - a"):
        scores.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in comparison.scores:
        scores.add_row(
            row.name.replace("_", " "), percent(row.a), percent(row.b), _points(row.a, row.b)
        )
    curve = Table(
        box=box.SIMPLE,
        pad_edge=False,
        title="average accuracy after each task",
        title_justify="left",
    )
    for name in ("task", "a", "b", "b - a"):
        curve.add_column(name, justify="right", no_wrap=True)
    for task, one, other in comparison.by_task:
        curve.add_row(str(task), percent(one), percent(other), _points(one, other))
    order = "the same rows in the same order" if comparison.paired else "different streams"
    return Group(*parts, scores, curve, Text(f"Both saw {order}.", style="dim"))


def _two_columns(title: str, rows: Sequence[Difference]) -> Table:
    table = Table(
        box=box.SIMPLE, pad_edge=False, title=f"{title} that differ", title_justify="left"
    )
    table.add_column(title[:-1], style="bold", overflow="fold")
    table.add_column("a", overflow="fold")
    table.add_column("b", overflow="fold")
    for row in rows:
        table.add_row(row.name, *(as_flag(v) for v in (row.a, row.b)))
    return table


def _points(a: float | None, b: float | None) -> str:
    return "-" if a is None or b is None else f"{100 * (b - a):+.1f}"
