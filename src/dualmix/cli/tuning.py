"""A search for settings: what it would try, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.text import percent
from dualmix.config.plain import as_flag

if TYPE_CHECKING:
    from dualmix.sweeps.tune import Search


def search_table(chosen: Search) -> RenderableType:
    """Return what `dualmix tune` would try."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("now", justify="right")
    table.add_column("from", justify="right")
    table.add_column("to", justify="right")
    for path, tried in chosen.ranges.items():
        spread = f"{tried.high:g}{' (by factors)' if tried.log else ''}"
        table.add_row(path, as_flag(chosen.default[path]), f"{tried.low:g}", spread)
    tasks, kept = chosen.values["stream.first"], 100 * float(chosen.values["stream.validation"])
    return Group(
        table,
        Text(
            f"On the first {tasks} tasks, scored by {kept:g} % of their training images; "
            f"seeds: {chosen.seeds}."
        ),
    )


def tuning(result: Mapping[str, Any], where: str) -> RenderableType:
    """Return the result of a search: the preset's own values, the best, and the command that uses
    it.
    """
    scored = [trial for trial in result["trials"] if trial["score"] is not None]
    failed = sum(trial["state"] == "fail" for trial in result["trials"])
    head = f"{len(scored)} trials scored" + (f", {failed} failed" if failed else "")
    if not scored:
        return Text(f"{head}\n{where}")
    best = result["best"]
    table = Table(box=box.SIMPLE, pad_edge=False, title=head, title_justify="left")
    table.add_column("setting", style="bold", no_wrap=True)
    columns = [
        trial for trial in scored if trial["number"] == 0 and trial["number"] != best["number"]
    ] + [best]
    for trial in columns:
        table.add_column("best" if trial is best else "as it was", justify="right")
    for path in best["values"]:
        table.add_row(path, *(f"{trial['values'][path]:g}" for trial in columns))
    table.add_row("accuracy", *(percent(trial["score"]) for trial in columns))
    return Group(
        table,
        Text(result["protocol"]["score"] + "."),
        Text(result["command"]),
        Text(where, style="dim"),
    )
