"""Data sets: which are here, and what their files are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.runs.apart import distinct_ends

if TYPE_CHECKING:
    from dualmix.data.verify import Entry, Report

LONGEST = 22
"""Characters of a file's name in the table; the whole path stands below it."""


def verification(report: Report) -> RenderableType:
    """Return what a check of a data set found."""
    style = "green" if report.ok else "red"
    verdict = [Text(f"{'ok' if report.ok else 'BAD'}: {report.verdict[0]}", style=style)]
    verdict += [Text(f"note: {line}") for line in report.verdict[1:]]
    facts = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("where", report.where)
    if report.classes:
        what = "images" if len(report.shape) == 3 else "vectors"
        size = f"{report.shape[0]} numbers"
        if len(report.shape) == 3:
            channels, height, width = report.shape
            size = f"{height}x{width} pixels, {channels} channels"
        facts.add_row(what, f"{report.classes} classes, {size}")
        facts.add_row("training", f"{report.train:,} {what}, {_span(report.train_span)} per class")
        facts.add_row("test", f"{report.test:,} {what}, {_span(report.test_span)} per class")
        facts.add_row("content", f"sha256 {report.fingerprint}")
    for file in report.files:
        published = {
            True: "as published",
            False: "not the published checksum",
            None: "no published checksum",
        }
        facts.add_row(file.name, f"{_size(file.size)}, md5 {file.md5}, {published[file.official]}")
    return Group(Text(f"{report.name}"), facts, *verdict)


def data_table(entries: Sequence[Entry]) -> RenderableType:
    """Return which data sets are here, how many images of how many, and how big."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("here", no_wrap=True)
    for name in ("images", "of", "size", "decoded"):
        table.add_column(name, justify="right", no_wrap=True)
    own = [entry for entry in entries if not entry.doc]
    tails = dict(zip((e.where for e in own), distinct_ends(e.where for e in own), strict=True))
    for entry in entries:
        here = {True: "yes", False: "no", None: "yours"}[entry.present]
        table.add_row(
            entry.name if entry.doc else f"  {_name(tails[entry.where])}",
            here,
            "not counted" if entry.images is None and entry.present else _count(entry.images),
            _count(entry.full),
            _size(entry.size),
            _size(entry.decoded),
        )
    return table


def about(entry: Entry, root: Path) -> tuple[str, str]:
    """Return what a set is and where it lies, below the root if it is there; either may be
    empty.
    """
    path = Path(entry.where)
    shown = path.relative_to(root) if path.is_relative_to(root) and path != root else path
    where = f"  {shown}" if entry.present else ""
    return (f"{entry.name}: {entry.doc}" if entry.doc else ""), where


def _name(end: str) -> str:
    return end if len(end) <= LONGEST else f"...{end[3 - LONGEST :]}"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _span(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count else "-"
