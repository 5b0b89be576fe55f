"""The commands that read results: report, compare, export, archive."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.cli.run import pick
from dualmix.cli.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from dualmix.runs.records import Collection

SHOWN = 10
FORMATS = ("html", "md", "tex", "csv")
ARCHIVE = """\
  dualmix archive --to results              finished runs to results/runs.zip
  dualmix archive runs/NAME --to results    add one
  dualmix report --store results            every command reads an archive
  dualmix archive --store results --extract --to runs
                                            back to folders, without learners

The archive is a zip file of the runs' own files with their digests. Each run
is checked first: one that is not finished or is damaged is refused, and then
nothing is added. A run that is there already changes nothing.
"""


def add_commands(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    """Add these commands to the command line."""
    plugin = argparse.ArgumentParser(add_help=False)
    plugin.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a method or a data set",
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
        help="also show the record of `python -m benchmarks --out` on the page",
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
    archive = add(
        "archive",
        _archive,
        "Put finished runs, without their learners, into one small file to publish.",
        parents=[store, plain, plugin],
        epilog=ARCHIVE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    archive.add_argument(
        "runs", nargs="*", metavar="RUN", help="a run's folder or its name (default: all finished)"
    )
    archive.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder whose runs.zip they are added to; with --extract: where folders are made",
    )
    archive.add_argument(
        "--replace", action="store_true", help="a run takes the place of another of its name"
    )
    archive.add_argument(
        "--extract", action="store_true", help="the other way: make folders of archived runs"
    )


def _report(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.report.collect import collect
    from dualmix.report.tables import summarise
    from dualmix.store.files import make_folder, write_bytes
    from dualmix.store.opening import open_store

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
    with make_console(stderr=True, quiet=given.json).status("reading the runs") as status:
        speed = None
        if given.bench:
            from dualmix.report.speed import read_speed

            speed = read_speed(given.bench)
        collection = collect(
            open_store(given.store),
            progress=lambda what, done, total: status.update(f"{done} of {total} {what}"),
        )
        status.update(f"{len(collection.runs)} runs: making tables")
        summary = summarise(collection)
        if kind == "html":
            from dualmix.report.page import html

            content = html(
                summary,
                figures_to=given.figures,
                speed=speed,
                tell=lambda doing: status.update(f"{len(collection.runs)} runs: {doing}"),
            )
        else:
            from dualmix.report.markdown import markdown
            from dualmix.report.text_tables import as_csv, latex

            content = {"md": markdown, "tex": latex, "csv": as_csv}[kind](summary)
    write_bytes(out, content.encode())
    if given.json:
        print(json.dumps({"report": str(out), **_counts(collection)}, indent=1))
        return 0
    console = make_console()
    size = len(content.encode())
    told = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    console.print(f"{out}: {len(collection.runs)} runs, {told}", soft_wrap=True)
    _remark(console, collection)
    return 0


def _counts(collection: Collection) -> dict[str, Any]:
    """Return how many runs count, and what is said about the others, as JSON."""
    return {
        "runs": len(collection.runs),
        "left_out": [asdict(remark) for remark in collection.left_out],
        "unfinished": [asdict(remark) for remark in collection.unfinished],
        "remarks": [asdict(remark) for remark in collection.remarks],
    }


def _remark(console: Console, collection: Collection) -> None:
    """Name the runs that do not count, or not with all of their files."""
    for title, remarks in (
        ("left out", collection.left_out),
        ("not finished", collection.unfinished),
        ("note", collection.remarks),
    ):
        for remark in remarks[:SHOWN]:
            console.print(f"{title}: {remark.run}: {remark.text}", soft_wrap=True)
        if len(remarks) > SHOWN:
            console.print(f"{title}: {len(remarks) - SHOWN} more, all listed with --json")


def _compare(given: argparse.Namespace) -> int:
    from dualmix.cli.comparison import differing
    from dualmix.report.compare import compare
    from dualmix.store.archive import find_run
    from dualmix.store.opening import open_store

    store = open_store(given.store)
    find_run(store, given.second)  # if it is not there, nothing is said of the first
    comparison = compare(pick(store, given.first), pick(store, given.second))
    if given.json:
        print(json.dumps(asdict(comparison), indent=1))
    else:
        make_console().print(differing(comparison))
    return 0


def _export(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.report.collect import collect
    from dualmix.report.export import FORMATS, export
    from dualmix.store.files import make_folder
    from dualmix.store.opening import open_store

    if given.out.name in ("", ".."):
        raise DualmixError(f"{given.out} is a folder: --out needs the name of a file in it.")
    make_folder(given.out.parent)
    collection = collect(open_store(given.store))
    paths = [
        str(export(collection, given.out, name)) for name in dict.fromkeys(given.format or FORMATS)
    ]
    if given.json:
        print(json.dumps({"files": paths, **_counts(collection)}, indent=1))
    else:
        console = make_console()
        for path in paths:
            console.print(f"{path}: {len(collection.runs)} runs", soft_wrap=True)
        _remark(console, collection)
    return 0


def _archive(given: argparse.Namespace) -> int:
    from dualmix.errors import DualmixError
    from dualmix.runs.archiving import archive, extract
    from dualmix.store.archive import find_run
    from dualmix.store.opening import open_store

    store = open_store(given.store)
    store.refresh()
    folders = [find_run(store, name) for name in given.runs] or [
        folder for path in store.paths() if (folder := store.open(path)).done
    ]
    if not folders:
        raise DualmixError(f"{store} has no finished run: give the store with --store.")
    if given.extract:
        where = [str(path) for path in extract(folders, given.to)]
        counts: dict[str, Any] = {"extracted": where}
        said = f"{given.to}: {len(where)} runs extracted"
    else:
        added = archive(folders, given.to, replace=given.replace)
        counts = {"added": added, "there": len(folders) - len(added)}
        said = f"{given.to}: {len(added)} runs added, {counts['there']} were there already"
    if given.json:
        print(json.dumps(counts, indent=1))
    else:
        make_console().print(said, soft_wrap=True)
    return 0
