"""The commands for data sets: data get, data verify, data list."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.cli.terminal import make_console

if TYPE_CHECKING:
    from dualmix.data.fetch import Show

MB = 1_000_000
MOST_OWN = 10
"""Files and folders of the user's own in the list."""


def add_commands(commands: Any) -> None:
    """Add these commands to the command line."""
    doc = "Get, list and check data sets."
    data = commands.add_parser("data", help=doc, description=doc)
    actions = data.add_subparsers(title="actions", metavar="ACTION")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    shared.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a data set",
    )
    for name, command, doc in (
        ("get", _get, "Download a data set; a broken transfer goes on where it stopped."),
        (
            "verify",
            _verify,
            "Count classes, check shapes and checksums, and say what the files are.",
        ),
        ("list", _list, "Show which data sets are here, where, and how big."),
    ):
        made = actions.add_parser(
            name,
            help=doc,
            description=doc,
            parents=[shared],
            epilog="Settings are flags too: --data.root DIR (else DUALMIX_DATA, else the "
            "platform's cache folder), --data.path, --data.size, --data.fit, --data.skip, "
            "--data.held_out, --data.split_seed.",
        )
        if name == "get":
            made.add_argument(
                "--url", action="append", help="fetch from another address; the checksum stays"
            )
        if name == "list":
            made.set_defaults(name="digits")
        else:
            made.add_argument("name", metavar="NAME", help="a name from `dualmix data list`")
        made.set_defaults(command=command, prepare=_compose)


def _compose(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    from dualmix.config.compose import compose_data

    given.data = compose_data({"data.name": given.name, **overrides}, faults)


def _get(given: argparse.Namespace) -> int:
    from dualmix.data.catalog import root
    from dualmix.data.fetch import get

    with _shown(not given.json) as show:
        path = get(given.data.name, root(given.data.root), show=show, urls=given.url)
    print(
        json.dumps({"name": given.data.name, "path": str(path)})
        if given.json
        else f"{path} is here and whole."
    )
    return 0


def _verify(given: argparse.Namespace) -> int:
    from dualmix.cli.data_tables import verification
    from dualmix.data.verify import verify

    report = verify(given.data)
    if given.json:
        print(json.dumps(asdict(report), indent=1))
    else:
        make_console().print(verification(report))
    return 0 if report.ok else 2


def _list(given: argparse.Namespace) -> int:
    from dualmix.cli.data_tables import about, data_table
    from dualmix.data.catalog import root
    from dualmix.data.verify import listing

    where = root(given.data.root)
    entries = listing(where)
    if given.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        console = make_console()
        console.print(f"Data in {where}", soft_wrap=True)
        own = [entry for entry in entries if not entry.doc]
        shown = [entry for entry in own if entry.present][:MOST_OWN]
        here = [entry for entry in entries if entry.doc or entry in shown]
        console.print(data_table(here))
        for entry in here:
            doc, place = about(entry, where)
            if doc:
                console.print(doc)
            if place:  # a path is never broken: the terminal folds it, and it can be copied
                console.print(place, style="dim", soft_wrap=True)
        if more := sum(bool(entry.present) for entry in own) - len(shown):
            console.print(f"{more} more of your own are here (--json lists them).")
        if gone := [entry for entry in own if not entry.present]:
            kept = sum(entry.decoded for entry in gone) / MB
            console.print(
                f"{len(gone)} of your own that were decoded before are gone; their decoded copies "
                f"hold {kept:.1f} MB (--json lists them)."
            )
        console.print()
        hint = "`dualmix data get NAME` downloads one, `dualmix data verify NAME` checks one."
        console.print(hint, style="dim")
    return 0


@contextmanager
def _shown(wanted: bool) -> Iterator[Show]:
    """Show how far a download is: a bar on a terminal, a line per tenth elsewhere."""
    if not wanted:
        yield lambda name, done, total: None
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=make_console(stderr=True)) as bar:
            tasks: dict[str, Any] = {}

            def show(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=None)
                bar.update(tasks[name], completed=done, total=total or None)

            yield show
    else:
        yield _Lines()


class _Lines:
    """Plain lines for logs: one per tenth of a file."""

    def __init__(self) -> None:
        self.tenths: dict[str, int] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        tenths = 10 * done // total if total else done // (10 * MB)
        if tenths > self.tenths.get(name, -1):
            self.tenths[name] = tenths
            whole = f" of {total / MB:.1f}" if total else ""
            print(f"{name}: {done / MB:.1f}{whole} MB", file=sys.stderr)
