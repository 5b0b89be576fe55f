"""The page of methods in the documents: one card per method, made from the code, the benchmark and
the filed runs.

    python -m studies.method_cards          writes docs/methods.md
"""

from __future__ import annotations

from inspect import get_annotations
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dualmix.methods.dualmix import Mixing
from dualmix.methods.ema import Averaging
from dualmix.methods.mkd import Distilling
from dualmix.registry import additions, get_method, presets
from dualmix.report.collect import collect
from dualmix.report.speed import read_speed
from dualmix.report.tables import Summary, summarise
from dualmix.report.words import changes, interval_text, listed, short
from dualmix.store.opening import open_store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods.md"
INTRO = """\
# Methods

One card per method, made from the code, the benchmark and the filed runs by
`python -m studies.method_cards`.

- **Cost** is the time of a step as a multiple of a bare one (forward, backward and update on 20
  images in one batch), with its quartiles: memory 1,000 and full, 100 classes, one thread
  (`results/steps.json`).
- **Our figures** are average accuracy and forgetting after the last of 20 tasks of CIFAR-100 at a
  memory of 1,000, in per cent: mean ± 95 % interval over n seeds (`results/runs.zip`). The paper's
  stand beside them. One seed tells little.
- **Whose** choice a default is: the *paper* states it, the *reference* code behind its baselines
  has it, it is *inferred*, *calibrated* on the paper's Table 3, or *ours*. `dualmix explain NAME`
  shows the values in force.
"""


def card_page() -> str:
    """Return the page."""
    summary = summarise(collect(open_store(str(ROOT / "results"))))
    costs = {
        row.name: f"{row.ratio:.2f} ({row.low:.2f}-{row.high:.2f})"
        for row in read_speed(ROOT / "results" / "steps.json").rows
        if row.group == "step" and row.ratio is not None
    }
    parts = [INTRO]
    alone = {
        name: preset
        for name, preset in presets().items()
        if name not in _added() and _ours(preset.kind)
    }
    parts += [_overview(list(alone), costs, summary)]
    for name, preset in alone.items():
        parts += [f"## {name}\n", f"{preset.doc}\n"]
        facts = [f"Paper: {preset.cite}." if preset.cite else ""]
        facts += [f"In the DualMix paper: {preset.paper}." if preset.paper != "-" else ""]
        facts += [f"Takes {', '.join(fits)}." if (fits := _fits(preset.kind)) else ""]
        facts += [f"Preset: {changes(preset.values.items())}." if preset.values else ""]
        parts += [" ".join(filter(None, facts)) + "\n"]
        parts += _figures([name, *(f"{name}{fit}" for fit in _fits(preset.kind))], costs, summary)
        if preset.kind == name:
            parts += _settings(get_method(preset.kind), own=True)
    parts += ["## What is added behind a plus\n"]
    for name, (addition, hosts) in additions().items():
        cite = f" {addition.cite}." if addition.cite else ""
        group = f"method.{addition.group}"
        values = changes((f"{group}.{path}", value) for path, value in addition.values.items())
        on = ", ".join(filter(_ours, hosts))
        parts += [f"- `+{name}`: {addition.doc}.{cite} Sets {values}. On {on}."]
    parts += ["", *_settings(Mixing, own=False, prefix="mix.")]
    parts += _settings(Distilling, own=False, prefix="mkd.", skip=("augment",))
    parts += _settings(Averaging, own=False, prefix="ema.")
    parts += ["## Settings that methods share\n"]
    parts += _settings(get_method("er"), own=False, skip=("mix", "mkd", "ema"))
    return "\n".join(parts).rstrip() + "\n"


def _ours(kind: str) -> bool:
    """Return whether a method is the package's own, not that of a plugin which is loaded too."""
    return get_method(kind).__module__.startswith("dualmix.")


def _added() -> set[str]:
    return {f"{host}+{name}" for name, (_, hosts) in additions().items() for host in hosts}


def _fits(kind: str) -> list[str]:
    return [f"+{name}" for name, (_, hosts) in additions().items() if kind in hosts]


def _row(name: str, costs: dict[str, str], summary: Summary) -> list[str]:
    groups = [g for stream in summary.streams if not stream.first for g in stream.groups]
    mine = [g for g in groups if g.label == name and g.memory in (1000, None)]
    group = next((g for g in mine if not g.changed), None)
    if group is None and len(mine) == 1:  # of an earlier preset; the note says what differs
        group = mine[0]
    paper = {
        cell.column.score: cell.paper
        for table in summary.tables
        for cell in table.cells()
        if (cell.label, cell.column.data) == (name, "cifar100") and cell.column.memory in (0, 1000)
    }
    cells = [f"`{name}`", costs.get(name, "-")]
    for score in ("average_accuracy", "forgetting"):
        ours = group.interval(score) if group else None
        published = paper.get(score)
        cells += [interval_text(ours) if ours else "-"]
        cells += [interval_text(published) if published else "-"]
    note = f" ({changes(group.changed)})" if group and group.changed else ""
    return [*cells, f"{len(group.runs)}{note}" if group else "-"]


HEADS = ("", "cost", "accuracy", "paper's", "forgetting", "paper's", "n")


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    lines = [list(heads), ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |".replace(" ± ", "\u00a0±\u00a0") for line in lines]


def _overview(names: list[str], costs: dict[str, str], summary: Summary) -> str:
    rows, rest = [], []
    for name in names:
        link = f"[`{name}`](#{_anchor(name)})"
        _, *cells = _row(name, costs, summary)
        if any(cell != "-" for cell in cells):
            rows.append([link, *cells])
        else:
            rest.append(link)
    return "\n".join(
        [*_table(HEADS, rows), "", f"Not measured on this stream: {listed(rest)}.", ""]
    )


def _anchor(name: str) -> str:
    return "".join(c for c in name if c.isalnum() or c == "-")


def _figures(names: list[str], costs: dict[str, str], summary: Summary) -> list[str]:
    rows = [_row(name, costs, summary) for name in names]
    known = [row for row in rows if any(cell != "-" for cell in row[1:])]
    return [*_table(HEADS, known), ""] if known else []


def _settings(
    method: type[BaseModel], *, own: bool, prefix: str = "", skip: tuple[str, ...] = ()
) -> list[str]:
    """Return the settings that a method's own file declares, or all of them."""
    rows = [
        [f"`{prefix}{name}`", f"`{short(field.default)}`", _cell(field.description), _whose(field)]
        for name, field in method.model_fields.items()
        if name not in skip and (not own or _declared(method, name) == method.__module__)
    ]
    return [*_table(("setting", "default", "what it does", "whose"), rows), ""] if rows else []


def _declared(method: type[BaseModel], name: str) -> str:
    return next(c.__module__ for c in method.__mro__ if name in get_annotations(c))


def _whose(field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else "-"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(card_page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
