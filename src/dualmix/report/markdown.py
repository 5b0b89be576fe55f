"""The tables as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from dualmix.report import commands
from dualmix.report.blocks import NAMES, Design, design, design_sentences
from dualmix.report.budget import LACKING, Budget
from dualmix.report.cells import (
    LEGEND,
    MARKS,
    filled_rows,
    head,
    notes_of,
    one_per_column,
    place_text,
    published,
    size_text,
)
from dualmix.report.evidence import Ladder, SourceTable, Step
from dualmix.report.shares import Share, share_sentences, shares
from dualmix.report.summary import paragraphs
from dualmix.report.tables import Cell, Summary, Table
from dualmix.report.words import changes, interval_text, p_text
from dualmix.runs import metrics


def markdown(summary: Summary) -> str:
    """Return everything but the figures as GitHub Markdown."""
    collection = summary.collection
    parts = ["# Results", "", f"Runs of `{collection.place}`.", ""]
    for paragraph in paragraphs(summary):
        parts += [f"**{paragraph.title}.** {' '.join(paragraph.sentences)}", ""]
    for stream in summary.streams:
        heads = ["method", "memory", "settings", "accuracy, %", "forgetting, %", "n", "command"]
        rows = [
            [
                f"`{g.label}`",
                size_text(g.memory),
                changes(g.changed) or "-",
                interval_text(g.interval("average_accuracy")),
                interval_text(g.interval("forgetting")),
                str(len(g.runs)),
                f"`{commands.rerun_command(g)}`",
            ]
            for g in stream.groups
        ]
        parts += [f"## {stream.title}", "", *rows_of(heads, rows), ""]
        parts += [f"{note}." for note in stream.content.notes]
        parts += [""] if stream.content.notes else []
    parts += ["## With DualMix against without", ""]
    rows = [
        [
            f"`{c.label}` - `{c.base}`",
            c.content.title,
            size_text(c.memory),
            changes(c.changed, stream=True) or "-",
            c.score.replace("_", " "),
            interval_text(c.difference),
            str(len(c.seeds)),
            p_text(c.p),
            p_text(c.holm),
        ]
        for c in summary.paired_tests
    ]
    heads = ["methods", "data", "memory", "settings", "score", "difference, points", "n", "p"]
    parts += rows_of([*heads, "p (Holm)"], rows) if rows else ["No seeds are paired yet."]
    parts += [""]
    for table in summary.tables:
        parts += [f"## The paper's {table.number}: {table.title[0].lower()}{table.title[1:]}", ""]
        parts += [f"{table.caption} {LEGEND}", ""]
        lines = paper_table(table)
        parts += [*lines, "", *notes_of(table)] if lines else []
        left = sum(cell.ours is None for cell in table.cells())
        parts += [f"Not run: {left} of {len(table.cells())} cells.", ""] if left else []
        parts += ["<details><summary>How to reproduce each cell</summary>", ""]
        parts += dict.fromkeys(f"- {place_text(cell)}: `{cell.command}`" for cell in table.cells())
        parts += ["", "</details>", ""]
    parts += _ladder(summary.ladder)
    for source in summary.sources:
        parts += _source(source) if source.filled else []
    parts += _budget(summary.budget)
    for title, remarks in (
        ("Left out", collection.left_out),
        ("Not finished", collection.unfinished),
        ("Damaged in part", collection.remarks),
    ):
        if remarks:
            parts += [
                f"## {title}",
                "",
                *(f"- `{remark.run}`: {remark.text}" for remark in remarks),
                "",
            ]
    return "\n".join(parts)


def paper_table(table: Table) -> list[str]:
    """Return the columns and rows of one of the paper's tables that have runs."""
    at = [number for number, filled in enumerate(table.filled()) if filled]
    heads = ["method", *(head(table.columns[number], table) for number in at)]
    rows = [
        [f"`{label}`", *(_cell(one_per_column(cells)[number]) for number in at)]
        for label, cells in filled_rows(table)
    ]
    return rows_of(heads, rows) if at else []


def ladder_table(steps: Sequence[Step]) -> list[str]:
    """Return the rungs that were run."""
    heads = ["rung", "what it changes", "against", "accuracy, %", "difference, points"]
    rows = [
        [
            f"`{step.rung.name}`",
            step.rung.changes,
            f"`{step.rung.against}`" if step.difference else "-",
            with_seeds(step.accuracy),
            with_seeds(step.difference),
            with_seeds(step.anytime_difference),
            with_seeds(step.forgetting_difference),
        ]
        for step in steps
        if step.accuracy
    ]
    return rows_of([*heads, "of anytime", "of forgetting"], rows)


def blocks_table(found: Design) -> list[str]:
    """Return what each rung changes, with the noise that all trainings tell."""
    heads = ["rung", "what it changes", "against", *(f"{name}, points" for name in NAMES)]
    rows = [
        [
            f"`{one.rung.name}`",
            one.rung.changes,
            f"`{one.rung.against}`",
            *(
                f"{points:+.1f} ± {score.half:.1f}"
                for points, score in zip(one.points, found.scores, strict=True)
            ),
        ]
        for one in found.differences
    ]
    return rows_of(heads, rows)


def share_table(found: Sequence[Share]) -> list[str]:
    """Return the trainings of er's by the share of the loss that new images have."""
    heads = ["memory", "new images, %", "views", "rungs", "accuracy, %"]
    rows = [
        [
            f"{one.memory:,}",
            f"{100 * one.new:.1f}",
            "yes" if one.viewed else "no",
            ", ".join(f"`{name}`" for name in one.names),
            with_seeds(one.accuracy),
            with_seeds(one.forgetting),
            with_seeds(one.gap),
        ]
        for one in found
    ]
    return rows_of([*heads, "forgetting, %", "gap, points"], rows)


def source_table(table: SourceTable) -> list[str]:
    """Return ours beside another paper's numbers."""
    heads = ["row", *(f"M {memory:,}" for memory in table.source.memory)]
    rows = [
        [
            f"{cells[0].row.doc} (`{cells[0].row.name}`)",
            *(
                f"{with_seeds(cell.ours)} {MARKS[cell.mark]}".rstrip()
                + f"<br>{interval_text(published(cell))}"
                + (f", {cell.distance}" if cell.ours else "")
                for cell in cells
            ),
        ]
        for cells in table.cells
    ]
    return rows_of(heads, rows)


def budget_table(budget: Budget) -> list[str]:
    """Return what each grid lacks."""
    heads = ["grid", "runs there", "missing", "hours of a core", "command"]
    rows = [
        [
            lack.name,
            f"{lack.there} of {lack.total}",
            str(lack.missing),
            lack.text,
            f"`{lack.command}`" if lack.missing else "-",
        ]
        for lack in budget.lacks
    ]
    return rows_of(heads, rows)


def rows_of(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def with_seeds(interval: metrics.Interval | None) -> str:
    """Return mean, interval and number of seeds; a dash where there is none."""
    return interval_text(interval) + (f" (n {interval.n})" if interval else "")


def _cell(cell: Cell) -> str:
    ours = interval_text(cell.ours)
    if cell.ours:
        ours = (
            f"{f'**{ours}**' if cell.best else ours} (n {cell.ours.n}) {MARKS[cell.mark]}".strip()
        )
    paper = interval_text(cell.paper)
    paper = f"**{paper}**" if cell.paper_best else paper
    return f"{ours}<br>{', '.join(filter(None, (paper, cell.distance)))}"


def _ladder(found: Ladder) -> list[str]:
    """Return the rungs that were run and the names of those that were not; nothing where none can
    be compared.
    """
    steps, trained = found.steps, shares(found)
    if not any(step.difference for step in steps):
        return []
    missing = [f"`{step.rung.name}`" for step in steps if not step.accuracy]
    left = f"Not run: {', '.join(missing)}. `dualmix sweep ladder` trains them." if missing else ""
    return [
        "## What each part of DualMix does",
        "",
        "Each rung changes one thing of another and is paired with it by seed; mean ± 95 % "
        "interval over n seeds.",
        "",
        *ladder_table(steps),
        "",
        *([left, ""] if left else []),
        *_blocks(design(found)),
        "Forgetting, and the gap er(o,n) - er(n,o), beside the share of the loss's weights that "
        "new images have (AdpMix counts half); rungs in one row are the same training.",
        "",
        *share_table(trained),
        "",
        *(line for said in share_sentences(trained) for line in (said, "")),
    ]


def _blocks(found: Design | None) -> list[str]:
    """Return what the trainings with views tell together."""
    if found is None:
        return []
    said = (line for one in design_sentences(found) for line in (one, ""))
    return [*said, *blocks_table(found), ""]


def _source(table: SourceTable) -> list[str]:
    """Return ours beside a table of another paper."""
    source, left = table.source, table.total - table.filled
    return [
        f"## {source.title}",
        "",
        f"{source.doc} Average accuracy in per cent, ours above, theirs below ({source.cite}).",
        "",
        *source_table(table),
        "",
        *([f"Not run: {left} of {table.total} cells. `{table.command}`", ""] if left else []),
    ]


def _budget(budget: Budget) -> list[str]:
    """Return what the runs took, and what each grid lacks."""
    if not budget.spent:
        return []
    table = [LACKING, "", *budget_table(budget), ""] if budget.lacks else []
    return ["## What it took, and what is missing", "", budget.said, "", *table]
