"""Calibration: which reading of the paper's open choices comes nearest to its Table 3.

`python -m studies.calibrate` trains the rows of Table 3 under every reading of
`dualmix.paper.readings` at a memory of 1000, and prints how far each is from the paper.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix import cli
from dualmix.cli import sweep
from dualmix.cli.terminal import make_console
from dualmix.errors import ConfigError
from dualmix.paper.numbers import ABLATION_ACCURACY, ABLATION_FORGETTING
from dualmix.paper.readings import (
    FULL_STREAM,
    READINGS,
    TERMS,
    Deviation,
    Measured,
    Reading,
    deviation,
    reading_settings,
)
from dualmix.registry import nearest
from dualmix.store.opening import open_store
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Entry, Job, entries

SHORT_STREAM = {"stream.first": 10, "method.memory": 500}
"""The shortened stream: its first half, at whose end rows have parted.

It leaves 10 images per class in memory, as the whole stream does at a memory of 1000.
"""


def find_readings(names: Sequence[str]) -> list[Reading]:
    """Return readings by name, or all; the base comes first in any case."""
    known = {reading.name: reading for reading in READINGS}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"There is no reading {name!r}{nearest(name, known)} (known: {', '.join(known)})."
            )
    return [reading for reading in READINGS if not names or reading.name in (*names, "base")]


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """A row of Table 3 under a reading: its run of each seed."""

    reading: str
    row: str
    runs: tuple[Entry, ...]


def reading_rows(
    readings: Sequence[Reading],
    store: Store,
    *,
    seeds: Sequence[int],
    rows: Sequence[str] = tuple(TERMS),
    values: Mapping[str, Any],
) -> list[ReadingRow]:
    """Return every reading's rows; readings that share a row share its runs."""
    for row in rows:
        if row not in TERMS:
            raise ConfigError(
                f"Table 3 has no row {row!r}{nearest(row, TERMS)} (known: {', '.join(TERMS)})."
            )
    base = find_readings(["base"])[0]
    runs: dict[tuple[str, tuple[tuple[str, Any], ...]], tuple[Entry, ...]] = {}
    wanted = []
    for reading in [base, *(r for r in readings if r is not base)]:
        for row in TERMS:
            if row in rows or row == "er":
                changes = {
                    f"method.{path}": v for path, v in reading_settings(reading, row).items()
                }
                key = (row, tuple(sorted(changes.items())))
                if key not in runs:
                    jobs = [Job(row, {**values, **changes, "seed": seed}) for seed in seeds]
                    runs[key] = tuple(entries(jobs, store))
                wanted.append(ReadingRow(reading.name, row, runs[key]))
    return wanted


def measured(row: ReadingRow) -> Measured:
    """Read a row's finished runs from the store."""
    accuracy, forgetting, anytime = {}, {}, {}
    for run in row.runs:
        if run.folder.done:
            scores = run.folder.read_json("scores.json")
            seed = run.composed.config.seed
            accuracy[seed] = 100 * scores["average_accuracy"]
            forgetting[seed] = 100 * scores["forgetting"]
            anytime[seed] = 100 * scores["anytime_accuracy"]
    return Measured(accuracy, forgetting, anytime)


def ranked(rows: Sequence[ReadingRow]) -> list[Deviation]:
    """Return every reading's deviation, the nearest first."""
    names = dict.fromkeys(row.reading for row in rows)
    deviations = [
        deviation(name, {row.row: measured(row) for row in rows if row.reading == name})
        for name in names
    ]
    return sorted(deviations, key=lambda one: one.rank)


def reading_table(readings: Sequence[Reading]) -> RenderableType:
    """Return the readings that can be compared."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("reading", style="bold", no_wrap=True)
    table.add_column("choice", no_wrap=True)
    table.add_column("what it says")
    for reading in readings:
        table.add_row(reading.name, reading.choice, reading.doc)
    return table


def deviation_table(deviations: Sequence[Deviation], *, full: bool) -> RenderableType:
    """Return readings by their distance from the paper's Table 3, with accuracy / forgetting of
    each row.
    """
    names = list(ABLATION_ACCURACY)
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        padding=0,
        title="Table 3 at M=1k, by reading",
        title_justify="left",
    )
    table.add_column("reading", style="bold", no_wrap=True)
    for name in ("off", "any"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in names:
        table.add_column(name.removeprefix("er+"), justify="right", no_wrap=True)
    table.add_column("n", justify="right")
    paper = [
        f"{ABLATION_ACCURACY[name][0][0]:.1f}/{ABLATION_FORGETTING[name][0][0]:.1f}"
        for name in names
    ]
    table.add_row("the paper", "", "", *paper, "10", end_section=True)
    for one in deviations:
        cells = [
            f"{mean[0]:.1f}/{mean[1]:.1f}" if (mean := one.mean(name)) else "-" for name in names
        ]
        off = f"{one.points:.1f}" if full else f"{100 * one.gains:.0f}%"
        table.add_row(
            one.reading,
            "-" if math.isnan(one.points if full else one.gains) else off,
            "-" if math.isnan(one.anytime) else f"{100 * one.anytime:.0f}%",
            *cells,
            str(len(one.seeds)),
        )
    measure = (
        "off: root mean square distance of all cells from the paper's, in points"
        if full
        else "off: root mean square distance of each row's gain over er from the paper's, as a "
        "factor; the cells themselves are those of a shortened stream and not the paper's"
    )
    legend = (
        f"average accuracy / forgetting in per cent, mean over n seeds. {measure}. any: the gain "
        "in anytime accuracy against the paper's in accuracy, steadier than the last task's."
    )
    return Group(table, Text(legend, style="dim"))


def main(words: Sequence[str]) -> None:
    """Calibrate as the words of the command line say, and leave with the exit code."""
    cli.main(["calibrate", *words], extra=_add_command)


def _add_command(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    parser = add(
        "calibrate",
        _calibrate,
        "Compare readings of the paper's open choices with its Table 3.",
        prepare=sweep.for_all,
        parents=[sweep.many_flags(), store, plain],
        prog="python -m studies.calibrate",
        epilog="Without --full it trains on the first 10 tasks with a memory of 500 and compares "
        "what each row gains over ER; with it, on the whole stream with a memory of 1000. "
        f"{sweep.SETTINGS}",
    )
    parser.add_argument(
        "--readings",
        action="append",
        metavar="NAME",
        help="only these; `--readings help` lists them",
    )
    parser.add_argument(
        "--rows", action="append", metavar="NAME", help="only these rows of Table 3 (er always)"
    )
    parser.add_argument("--full", action="store_true", help="the whole stream, memory 1000")


def _calibrate(given: argparse.Namespace) -> int:
    if given.readings == ["help"]:
        make_console().print(reading_table(READINGS))
        return 0
    store = open_store(given.store)
    rows = reading_rows(
        find_readings(given.readings or []),
        store,
        seeds=range(given.seeds or 3),
        rows=given.rows or tuple(TERMS),
        values={
            "data.name": "cifar100",
            **(FULL_STREAM if given.full else SHORT_STREAM),
            **given.overrides,
        },
    )
    runs = list({run.folder.key: run for row in rows for run in row.runs}.values())
    runs.sort(key=lambda run: run.composed.config.seed)
    if given.dry_run:
        return sweep.plan(given, runs, store)
    code = sweep.train(given, runs, store)
    deviations = ranked(rows)
    if given.json:
        plain = {"readings": [asdict(one) for one in deviations], "runs": sweep.states(runs)}
        print(json.dumps(plain, indent=1))
    else:
        make_console().print(deviation_table(deviations, full=given.full))
    return code


if __name__ == "__main__":
    main(sys.argv[1:])
