"""The command `python -m benchmarks`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bench, growth
from benchmarks.tables import bench_table, scale_table
from dualmix import cli
from dualmix.cli.progress import Countdown
from dualmix.cli.terminal import make_console
from dualmix.errors import DualmixError
from dualmix.store.files import make_folder, write_bytes

SCALE = {
    "images": (1_000_000, "length of the scale run"),
    "classes": (10_000, "classes of the scale run"),
    "batch": (100, "new images per step in the scale run"),
    "width": (8, "channels of its network's first stage; the paper's is 20"),
}
"""Flags of the scale run: default and what each says."""


def main(words: Sequence[str]) -> None:
    """Measure what the words of the command line ask for, and leave with the exit code."""
    cli.main(["bench", *words], extra=_add_command)


def _add_command(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    parser = add(
        "bench",
        _bench,
        "Measure steps, their parts, evaluation, memory and start-up on this machine, as ratios.",
        parents=[plain],
        prog="python -m benchmarks",
        epilog=f"Groups: {', '.join(bench.GROUPS)} (by default all but scale). Nothing else should "
        "run on the machine meanwhile; where the spread is larger than the difference it gives no "
        "verdict.",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="what to measure")
    parser.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="how often (default: 15)"
    )
    parser.add_argument(
        "--methods", action="append", metavar="NAME", help="only these methods' steps"
    )
    parser.add_argument(
        "--against",
        action="append",
        metavar="PACKAGE",
        help="also measure ER by another package, which must be installed: avalanche",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write the record, which `dualmix report --bench` shows",
    )
    for name, (default, doc) in SCALE.items():
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{doc} (default: {default})"
        )


def _bench(given: argparse.Namespace) -> int:
    for name in ("rounds", *SCALE):
        if getattr(given, name) < 1:
            raise DualmixError(f"--{name} must be 1 or more.")
    if given.out:
        make_folder(given.out.parent)
    console = make_console(stderr=True, quiet=given.json)
    rows = bench.bench(
        given.groups,
        rounds=given.rounds,
        methods=given.methods or (),
        against=given.against or (),
        say=lambda line: console.print(line, style="dim"),
    )
    stages = []
    if "scale" in given.groups:
        with Countdown(console, given.images, "images") as countdown:
            stages = growth.scale(
                given.images,
                given.classes,
                batch=given.batch,
                width=given.width,
                watch=countdown.show,
            )
    record = bench.record(rows, stages, given.against or ())
    if given.out:
        write_bytes(given.out, record.encode())
    if given.json:
        print(record)
        return 0
    if rows:
        make_console().print(bench_table(rows))
    if stages:
        make_console().print(scale_table(stages))
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
