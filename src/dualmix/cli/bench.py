"""The command that measures: bench."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dualmix.cli.terminal import make_console
from dualmix.errors import DualmixError


def add_commands(add: Any, plain: argparse.ArgumentParser) -> None:
    """Add this command to the command line."""
    bench = add(
        "bench",
        _bench,
        "Measure steps, their parts, evaluation, memory and start-up on this machine, as ratios in one run.",
        parents=[plain],
        epilog="Groups: step, profile, evaluation, augmentation, filing, memory, start (all of them by default) and "
        "scale. Nothing else should run on the machine meanwhile; where the spread is larger than the difference it "
        "gives no verdict.",
    )
    bench.add_argument("groups", nargs="*", metavar="GROUP", help="what to measure")
    bench.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="how often (default: 15)"
    )
    bench.add_argument(
        "--methods", action="append", metavar="NAME", help="only these methods' steps"
    )
    bench.add_argument(
        "--against",
        action="append",
        metavar="PACKAGE",
        help="also measure ER by another package, which must be installed: avalanche",
    )
    bench.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write the record, which `report --bench` shows",
    )
    for name, default, doc in (
        ("images", 1_000_000, "length of the scale run"),
        ("classes", 10_000, "classes of the scale run"),
        ("batch", 100, "new images of a step in the scale run"),
        ("width", 8, "channels of its network's first stage; the paper's is 20"),
    ):
        bench.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{doc} (default: {default})"
        )


def _bench(given: argparse.Namespace) -> int:
    from dualmix.bench import bench, growth
    from dualmix.cli.progress import Countdown
    from dualmix.cli.show.bench import bench_table, scale_table
    from dualmix.store.files import make_folder, write_bytes

    for name in ("rounds", "images", "classes", "batch", "width"):
        if getattr(given, name) < 1:
            raise DualmixError(f"--{name} must be 1 or more.")
    if given.out:
        make_folder(given.out.parent)
    console = make_console(stderr=True, quiet=given.json)
    found = bench.bench(
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
    record = bench.record(found, stages, given.against or ())
    if given.out:
        write_bytes(given.out, record.encode())
    if given.json:
        print(record)
    else:
        make_console().print(bench_table(found)) if found else None
        make_console().print(scale_table(stages)) if stages else None
    return 0
