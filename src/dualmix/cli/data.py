"""The commands for data sets: data get, data verify, data list."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from dualmix.cli.terminal import make_console


def add_commands(commands: Any) -> None:
    """Add these commands to the command line."""
    doc = "Get, list and check data sets."
    data = commands.add_parser("data", help=doc, description=doc)
    actions = data.add_subparsers(title="actions", metavar="ACTION")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print one JSON object instead of text")
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
            epilog="Settings are flags too: --data.root DIR (else DUALMIX_DATA, else the platform's cache folder), "
            "--data.path, --data.size, --data.held_out, --data.split_seed.",
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

    path = get(given.data.name, root(given.data.root), progress=not given.json, urls=given.url)
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
    from dualmix.cli.data_tables import data_table
    from dualmix.data.catalog import root
    from dualmix.data.verify import listing

    where = root(given.data.root)
    entries = listing(where)
    if given.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        make_console().print(data_table(where, entries))
    return 0
