"""Configurations side by side: settings that differ, mean and spread, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.chart import MOST, Chart, Line
from dualmix.cli.text import clock
from dualmix.runs.apart import FEW

if TYPE_CHECKING:
    from dualmix.runs.configurations import Row, Spread


def render(
    rows: Sequence[Row],
    common: Mapping[str, str],
    *,
    spread: str = "ci",
    against: str | None = None,
    curves: bool = False,
) -> RenderableType:
    """Return the table for a terminal."""
    if not rows:
        return Text("No finished run yet: `dualmix run er` makes one.")
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    table = Table(box=box.SIMPLE, pad_edge=False)
    columns = names if len(names) <= FEW else []
    table.add_column("method", overflow="fold", min_width=10 if columns else 16)
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    for title in ("accuracy", "forgetting", *([f"over {against}"] if against else [])):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        method = Text(row.label, style="bold")
        if not columns and row.settings:
            told = ", ".join(f"{name} {value}" for name, value in row.settings.items())
            method.append(f"\n{told}", "not bold")
        gain = [with_spread(row.against, spread, signed=True, both=False)] if against else []
        table.add_row(
            method,
            *(row.settings.get(name, "-") for name in columns),
            with_spread(row.spreads["average_accuracy"], spread),
            with_spread(row.spreads["forgetting"], spread, both=False),
            *gain,
            str(len(row.runs)),
            "-" if row.seconds is None else clock(row.seconds),
        )
    parts: list[RenderableType] = [table, Text(legend(rows, spread, against), style="dim")]
    if common:
        told = " ".join(f"--{path} {value}" for path, value in common.items())
        parts.append(Text(f"All runs: {told}", style="dim"))
    if curves:
        parts += [Text(), learning_curves(rows)]
    return Group(*parts)


def learning_curves(rows: Sequence[Row]) -> RenderableType:
    """Return the mean learning curves of configurations as a chart."""
    lines = [
        Line(
            " ".join((row.label, *(f"{k} {v}" for k, v in row.settings.items()))),
            [(task, share) for task, share in enumerate(row.curve, start=1)],
        )
        for row in rows[:MOST]
    ]
    chart = Chart("average accuracy of the tasks so far, mean over seeds", "task", lines)
    left = len(rows) - len(lines)
    return Group(chart, Text(f"{left} more rows are not drawn: name methods.")) if left else chart


def with_spread(
    over: Spread | None, spread: str = "ci", *, signed: bool = False, both: bool = True
) -> str:
    """Return a mean with its spread: ± what is asked for, or both values of two runs.

    Parameters
    ----------
    signed
        A difference: with its sign.
    both
        Whether the values of two runs stand behind their mean.

    Examples
    --------
    >>> from dualmix.runs.configurations import spread
    >>> with_spread(spread([10.0, 11.0, 12.0])), with_spread(spread([7.0, 26.0]))
    ('11.0 ± 2.5', '16.5 (7.0, 26.0)')
    >>> with_spread(spread([7.0, 26.0]), "sd"), with_spread(spread([7.0]), signed=True)
    ('16.5 ± 13.4', '+7.0')
    """
    if over is None:
        return "-"
    sign = "+" if signed else ""
    mean = f"{over.mean:{sign}.1f}"
    half = over.std if spread == "sd" else over.half
    if half is not None:
        return f"{mean} ± {half:.1f}"
    return f"{mean} ({over.low:{sign}.1f}, {over.high:{sign}.1f})" if both and over.n > 1 else mean


def legend(rows: Sequence[Row], spread: str, against: str | None) -> str:
    """Return what the numbers are, in words, for what the table has."""
    counts = {len(row.runs) for row in rows}
    many = max(counts)
    what = "standard deviation" if spread == "sd" else "half of the 95 % interval (Student t)"
    parts = [f"In per cent. ±: {what} over seeds"] if many > (1 if spread == "sd" else 2) else []
    parts = parts or ["In per cent"]
    if spread == "ci" and 2 in counts:
        parts.append("of two runs both values stand behind the mean")
    if against:
        parts.append(f"over {against}: points gained, each seed paired with {against}'s")
    return "; ".join([*parts, "time: mean of a run"]) + "."
