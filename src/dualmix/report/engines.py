"""Which engine made which cells of a table: both round differently."""

from __future__ import annotations

from collections.abc import Iterable

from dualmix.report.words import seeds_of
from dualmix.runs.records import Group

NAMES = {"torch": "torch", "native": "the native engine"}


def engine_sentence(groups: Iterable[Group | None]) -> str:
    """Return a sentence that names the cells of a table on the engine with fewer runs, by column;
    of a cell on both, the seeds. Nothing where all are on torch.
    """
    cells = list({id(group): group for group in groups if group}.values())
    counts = {
        engine: sum(run.engine == engine for cell in cells for run in cell.runs)
        for engine in ("native", "torch")
    }
    if not counts["native"]:
        return ""
    if not counts["torch"]:
        return " All on the native engine."
    few, many = sorted(counts, key=lambda engine: counts[engine])
    columns: dict[str, list[str]] = {}
    for cell in cells:
        if text := _cell(cell, few):
            columns.setdefault(_column(cell, cells), []).append(text)
    said = "; ".join(
        f"{column}: {', '.join(some)}" if column else ", ".join(some)
        for column, some in columns.items()
    )
    return f" On {NAMES[few]}, the rest on {NAMES[many]}: {said}."


def _cell(cell: Group, engine: str) -> str:
    """Return a cell's label, with the seeds on an engine if others are not; empty if none is."""
    seeds = [run.seed for run in cell.runs if run.engine == engine]
    if not seeds:
        return ""
    return cell.label if len(seeds) == len(cell.runs) else f"{cell.label} ({seeds_of(seeds)})"


def _column(cell: Group, cells: Iterable[Group]) -> str:
    """Return the column of a cell; the images too where a table has several."""
    title = cell.content.title if len({other.content for other in cells}) > 1 else ""
    memory = f"M = {cell.memory:,}" if cell.memory else ""
    return ", ".join(part for part in (title, memory) if part)
