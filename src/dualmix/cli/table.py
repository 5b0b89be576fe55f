"""The command table: what was run, by configuration."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.chart import MOST, Chart, Line
from dualmix.cli.terminal import make_console
from dualmix.cli.text import clock
from dualmix.runs.apart import FEW

if TYPE_CHECKING:
    from dualmix.runs.configurations import Row, Spread
    from dualmix.runs.records import Collection

SPREADS = ("ci", "sd")
SHOWN = 5
EPILOG = """\
A row is a configuration: runs that differ in their seed only. Only the settings that differ are
columns. The mean stands with half of its 95 % interval (Student t over seeds) or, by --spread sd,
with the standard deviation. Two runs give no interval worth the name: both values stand behind
their mean. --against er pairs each seed with er's run on the same stream.

  dualmix table                     all finished runs of the store
  dualmix table er er+dualmix       of these methods
  dualmix table --against er        also the gain over er, seed by seed
  dualmix table --curves            also the learning curves
"""


def add_commands(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    """Add this command to the command line."""
    table = add(
        "table",
        _table,
        "Show what was run by configuration: settings that differ, mean, spread, time.",
        parents=[store, plain],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    table.add_argument("methods", nargs="*", metavar="METHOD", help="only these (default: all)")
    table.add_argument(
        "--spread",
        choices=SPREADS,
        default="ci",
        help="behind ±: half of the 95 %% interval (default), or the standard deviation",
    )
    table.add_argument(
        "--against", metavar="METHOD", help="also the gain in accuracy over this method"
    )
    table.add_argument("--curves", action="store_true", help="also draw the learning curves")
    table.add_argument("--csv", action="store_true", help="print csv instead of text")


def _table(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.registry import nearest
    from dualmix.report.collect import collect
    from dualmix.report.export import cell
    from dualmix.runs.configurations import configurations, plain
    from dualmix.store.opening import open_store

    if given.json and given.csv:
        raise DualmixError("--json and --csv are two forms of one table: give one of them.")
    collection = collect(open_store(given.store))
    labels = {group.label for group in collection.groups}
    wanted = [*given.methods, *([given.against] if given.against else [])]
    for name in wanted if labels else ():
        if name not in labels:
            raise DualmixError(
                f"{given.store} has no finished run of {name!r}{nearest(name, labels)} (it has "
                f"{', '.join(sorted(labels))})."
            )
    chosen = [g for g in collection.groups if not given.methods or g.label in wanted]
    rows, common = configurations(chosen, given.against)
    if given.json:
        records = [{**plain(row), "accuracy_by_seed": row.values, "runs": row.runs} for row in rows]
        print(json.dumps({"rows": records, "shared": common}, indent=1))
    elif given.csv:
        sys.stdout.write(as_csv([plain(row) for row in rows], cell))
    else:
        console = make_console()
        console.print(
            render(rows, common, spread=given.spread, against=given.against, curves=given.curves)
        )
        for line in remarks(collection):
            console.print(line, soft_wrap=True)
    return 0


def as_csv(records: Sequence[Mapping[str, Any]], cell: Any) -> str:
    """Return records as csv, every one with every column."""
    columns = dict.fromkeys(name for record in records for name in record)
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([cell(name) for name in columns] or ["method"])
    writer.writerows([cell(record.get(name)) for name in columns] for record in records)
    return lines.getvalue()


def remarks(collection: Collection) -> list[str]:
    """Return a line for each run that does not count, but for many of them."""
    said = [f"left out: {remark.run}: {remark.text}" for remark in collection.left_out]
    more = [f"{len(said) - SHOWN} more are left out."] if len(said) > SHOWN else []
    waiting = len(collection.unfinished)
    more += [f"{waiting} not finished (`dualmix status` lists them)."] if waiting else []
    return [*said[:SHOWN], *more]


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
