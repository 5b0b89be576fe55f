"""Methods and their settings, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.config.compose import Composed, lookup, walk
from dualmix.config.plain import as_flag
from dualmix.paper.numbers import DATA as PAPERS_DATA
from dualmix.registry import Preset, additions, find_preset, get_preset

CHOICES = {
    "paper": "the paper's",
    "reference": "reference",
    "inferred": "inferred",
    "calibrated": "calibrated",
    "ours": "ours",
    "yours": "yours",
}


def method_table(known: Mapping[str, Preset]) -> RenderableType:
    """Return the list of methods."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it does")
    table.add_column("in the paper", style="dim")
    extras = additions()
    hosts = {
        name: preset
        for name, preset in known.items()
        if not name.endswith(tuple(f"+{e}" for e in extras))
    }
    for name, preset in sorted(hosts.items()):
        table.add_row(name, _cited(preset.doc, preset.cite), preset.paper)
    added = Table(box=box.SIMPLE, pad_edge=False)
    added.add_column("added", style="bold", no_wrap=True)
    added.add_column("what it adds")
    added.add_column("fits")
    for name, (extra, fits) in extras.items():
        added.add_row(f"+{name}", _cited(extra.doc, extra.cite), ", ".join(fits))
    return Group(
        table,
        added,
        Text(
            "dualmix run METHOD trains one; dualmix explain METHOD shows all its settings.",
            style="dim",
        ),
    )


def _cited(doc: str, cite: str) -> Text:
    return Text.assemble(doc, (f" ({cite})" if cite else "", "dim"))


def settings(composed: Composed) -> RenderableType:
    """Return every setting of a preset with its value and meaning."""
    table = Table(
        title=f"Settings of {composed.label} on {composed.config.data.name}",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        caption="Give them as flags: --SETTING VALUE. Lists as [1,2,3], no value as none.",
        caption_justify="left",
    )
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("meaning")
    for path, info in walk(type(composed.config)):
        table.add_row(f"--{path}", as_flag(lookup(composed.config, path)), info.description or "")
    return table


def explanation_rows(composed: Composed) -> list[dict[str, Any]]:
    """Return, for every setting, its value, its origin, what the paper says and whose choice the
    value is.
    """
    rows = []
    for path, info in walk(type(composed.config)):
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        value = lookup(composed.config, path)
        origin, _, name = composed.origins[path].partition(" ")
        choice = extra.get("source", "ours") if origin == "default" else "yours"
        if origin == "default" and name and name.removeprefix("for ") not in PAPERS_DATA:
            choice = "ours"
        if origin == "preset":
            choice = get_preset(name).sources.get(path, "ours")
        rows.append(
            {
                "setting": path,
                "value": value if isinstance(value, int | float | str | None) else as_flag(value),
                "from": composed.origins[path],
                "paper": extra.get("paper", "-"),
                "choice": choice,
                "meaning": info.description or "",
            }
        )
    return rows


def explanation(composed: Composed) -> RenderableType:
    """Return the explanation as a table."""
    table = Table(
        box=box.SIMPLE, pad_edge=False, title=f"{composed.label}, every value", title_justify="left"
    )
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from")
    table.add_column("the paper says", overflow="fold")
    table.add_column("whose choice", style="dim", no_wrap=True)
    shown = ""
    for row in explanation_rows(composed):
        group, _, name = row["setting"].rpartition(".")
        if group != shown:
            shown = group
            table.add_row(f"{group}." if group else "the run")
        named = row["from"].startswith("default for")
        shown_from = row["from"] if named else row["from"].split()[0]
        origin = Text(shown_from, style="" if row["from"] == "default" else "yellow")
        table.add_row(
            f"  {name}", as_flag(row["value"]), origin, row["paper"], CHOICES[row["choice"]]
        )
    legend = (
        "whose choice: the paper's = stated there; reference = read in the code behind its "
        "baselines; inferred = from two or more facts; calibrated = by its Table 3 "
        "(docs/reading-of-the-paper.md)."
    )
    preset = find_preset(composed.label)
    cite = f"{composed.label}: {preset.cite}.\n" if preset and preset.cite else ""
    return Group(table, Text(cite + legend, style="dim"))
