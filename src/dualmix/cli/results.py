"""The commands that read results: report, compare, export."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dualmix.cli.run import pick
from dualmix.cli.terminal import make_console

SHOWN = 10
FORMATS = ("html", "md", "tex", "csv")


def add_commands(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    """Add these commands to the command line."""
    plugin = argparse.ArgumentParser(add_help=False)
    plugin.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a method",
    )
    report = add(
        "report",
        _report,
        "Make tables and figures of the runs in the store, beside the paper's; it never trains.",
        parents=[store, plain, plugin],
        epilog="The page is one file that works offline; it needs pip install 'dualmix[report]', "
        "the other formats do not.",
    )
    report.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write (default: report.html, .md, ...)"
    )
    report.add_argument("--format", choices=FORMATS, help="default: the ending of --out, else html")
    report.add_argument(
        "--figures", type=Path, metavar="DIR", help="also write every figure as svg and pdf"
    )
    report.add_argument(
        "--bench",
        type=Path,
        metavar="FILE",
        help="also show the record of `bench --out` on the page",
    )
    compare = add(
        "compare", _compare, "Show what differs between two runs.", parents=[store, plain]
    )
    compare.add_argument("first", metavar="RUN", help="a run's folder, its name or a part of it")
    compare.add_argument("second", metavar="RUN", help="the other one")
    export = add(
        "export",
        _export,
        "Write all finished runs as a table: scores, times and settings.",
        parents=[store, plain, plugin],
        epilog="Parquet needs pip install 'dualmix[export]'.",
    )
    export.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="FILE",
        help="without ending (default: runs)",
    )
    export.add_argument(
        "--format", choices=("csv", "parquet"), action="append", help="default: both"
    )


def _report(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.report.collect import collect
    from dualmix.store.files import make_folder, write_bytes
    from dualmix.store.remote import open_store

    kind = given.format or (given.out.suffix[1:] if given.out else "html")
    if kind not in FORMATS:
        raise DualmixError(
            f"A report ends in {', '.join(FORMATS)}, not {kind!r}: give --format or another --out."
        )
    if given.figures and kind != "html":
        raise DualmixError("--figures goes with --format html.")
    if given.bench and kind != "html":
        raise DualmixError("--bench goes with --format html.")
    out = given.out or Path(f"report.{kind}")
    for folder in (out.parent, given.figures):
        if folder is not None:
            make_folder(folder)
    found = collect(open_store(given.store))
    if kind == "html":
        from dualmix.report.page import html
        from dualmix.report.speed import read

        content = html(
            found, figures_to=given.figures, speed=read(given.bench) if given.bench else None
        )
    else:
        from dualmix.report import text_tables as words

        content = {"md": words.markdown, "tex": words.latex, "csv": words.as_csv}[kind](found)
    write_bytes(out, content.encode())
    counts = {
        "runs": len(found.runs),
        "left_out": [asdict(remark) for remark in found.left_out],
        "unfinished": [asdict(remark) for remark in found.unfinished],
        "remarks": [asdict(remark) for remark in found.remarks],
    }
    if given.json:
        print(json.dumps({"report": str(out), **counts}, indent=1))
        return 0
    console = make_console()
    console.print(
        f"{out}: {len(found.runs)} runs, {len(content.encode()) / 1e6:.1f} MB", soft_wrap=True
    )
    for title, remarks in (
        ("left out", found.left_out),
        ("not finished", found.unfinished),
        ("note", found.remarks),
    ):
        for remark in remarks[:SHOWN]:
            console.print(f"{title}: {remark.run}: {remark.text}", soft_wrap=True)
        if len(remarks) > SHOWN:
            console.print(
                f"{title}: {len(remarks) - SHOWN} more, all listed in the report or with --json"
            )
    return 0


def _compare(given: argparse.Namespace) -> int:
    from dualmix.cli.comparison import differing
    from dualmix.report.compare import compare
    from dualmix.store.remote import open_store

    store = open_store(given.store)
    store.find(given.second)  # if it is not there, nothing is said of the first
    found = compare(pick(store, given.first), pick(store, given.second))
    if given.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        make_console().print(differing(found))
    return 0


def _export(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.report.collect import collect
    from dualmix.report.export import FORMATS, export
    from dualmix.store.files import make_folder
    from dualmix.store.remote import open_store

    if given.out.name in ("", ".."):
        raise DualmixError(f"{given.out} is a folder: --out needs the name of a file in it.")
    make_folder(given.out.parent)
    found = collect(open_store(given.store))
    paths = [str(export(found, given.out, name)) for name in dict.fromkeys(given.format or FORMATS)]
    if given.json:
        left_out = [asdict(remark) for remark in found.left_out]
        print(json.dumps({"files": paths, "runs": len(found.runs), "left_out": left_out}, indent=1))
    else:
        console = make_console()
        for path in paths:
            console.print(f"{path}: {len(found.runs)} runs", soft_wrap=True)
        for remark in found.left_out:
            console.print(f"left out: {remark.run}: {remark.text}", soft_wrap=True)
    return 0
