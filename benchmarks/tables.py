"""What was measured, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.report.speed import Row, Stage


def bench_table(rows: Sequence[Row]) -> RenderableType:
    """Return what the benchmark measured: time, spread, ratio with its quartiles, and whether a
    limit is kept.
    """
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for name in ("", "median", "spread", "ratio", "quartiles", "limit", "verdict"):
        table.add_column(name, justify="left" if name in ("", "verdict") else "right", no_wrap=True)
    shown = ""
    for row in rows:
        if row.group != shown:
            shown = row.group
            table.add_row(Text(row.group, style="bold"))
        limit = "" if row.limit is None else f"{'>=' if row.atleast else '<='} {row.limit:g}"
        digits = 2 if (row.ratio or 0) < 100 else 0
        ratio = "" if row.ratio is None else f"{row.ratio:.{digits}f}"
        quartiles = "" if row.low is None else f"{row.low:.{digits}f}-{row.high:.{digits}f}"
        median = f"{row.median:.0f} MB" if row.unit == "MB" else f"{1000 * row.median:.2f} ms"
        cells = (median, f"{100 * row.spread:.0f} %", ratio, quartiles, limit, row.verdict)
        table.add_row(f"  {row.name}", *cells)
    legend = (
        "median: of the CPU time of a call, one thread, or of a process's peak memory; spread: "
        "half the distance of the quartiles; ratio: to the first row of the group, round by round, "
        "for memory to what it may be (its memory of images, its network and 300 MB); unclear: the "
        "quartiles straddle the limit, so measure longer or in quiet."
    )
    return Group(table, Text(legend, style="dim"))


def scale_table(stages: Sequence[Stage]) -> RenderableType:
    """Return how the cost of a step develops along the scale run."""
    table = Table(box=box.SIMPLE, pad_edge=False, title="Scale run", title_justify="left")
    for name in ("images", "classes", "ms per step", "memory MB"):
        table.add_column(name, justify="right")
    for stage in stages:
        table.add_row(
            f"{stage.images:,}",
            f"{stage.classes:,}",
            f"{1000 * stage.step_seconds:.2f}",
            f"{stage.memory_mb:.0f}",
        )
    return table
