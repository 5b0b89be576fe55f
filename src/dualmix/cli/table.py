"""The command table: what was run, by configuration."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dualmix.cli.terminal import make_console

if TYPE_CHECKING:
    from dualmix.runs.records import Collection

SPREADS = ("ci", "sd")
SHOWN = 5
EPILOG = """\
A row is a configuration: runs that differ in their seed only. Only the
settings that differ are columns. The mean stands with half of its 95 %
interval (Student t over seeds) or, by --spread sd, with the standard
deviation. Two runs give no interval worth the name: both values stand behind
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
    from dualmix.cli.configuration_table import render
    from dualmix.errors import DualmixError
    from dualmix.registry import nearest
    from dualmix.report.collect import collect
    from dualmix.runs.configurations import configurations, plain
    from dualmix.store.opening import open_store

    if given.json and given.csv:
        raise DualmixError("--json and --csv are two forms of one table: give one of them.")
    collection = collect(open_store(given.store))
    labels = {group.label for group in collection.configurations}
    wanted = [*given.methods, *([given.against] if given.against else [])]
    for name in wanted if labels else ():
        if name not in labels:
            raise DualmixError(
                f"{given.store} has no finished run of {name!r}{nearest(name, labels)} (it has "
                f"{', '.join(sorted(labels))})."
            )
    chosen = [g for g in collection.configurations if not given.methods or g.label in wanted]
    rows, common = configurations(chosen, given.against)
    if given.json:
        records = [{**plain(row), "accuracy_by_seed": row.values, "runs": row.runs} for row in rows]
        print(json.dumps({"rows": records, "shared": common}, indent=1))
    elif given.csv:
        from dualmix.report.export import as_cell

        sys.stdout.write(as_csv([plain(row) for row in rows], as_cell))
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
    """Return a line for each run that is in no row, but for many of them."""
    shown = {run.name for run in collection.twins}
    said = [f"left out: {r.run}: {r.text}" for r in collection.left_out if r.run not in shown]
    more = [f"{len(said) - SHOWN} more are left out."] if len(said) > SHOWN else []
    waiting = len(collection.unfinished)
    more += [f"{waiting} not finished (`dualmix status` lists them)."] if waiting else []
    return [*said[:SHOWN], *more]
