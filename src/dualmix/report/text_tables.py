"""The tables as text: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace

from dualmix.paper.numbers import Published
from dualmix.report import commands
from dualmix.report.budget import LACKING, Budget
from dualmix.report.evidence import Beside, SourceTable, Step
from dualmix.report.export import as_cell
from dualmix.report.streams import Stream
from dualmix.report.summary import p_text, paragraphs
from dualmix.report.tables import Cell, Column, Summary, Table
from dualmix.report.words import changes, counted, interval_text
from dualmix.runs import metrics

MARKS = {"": "", "above": "▲", "below": "▼"}
LEGEND = (
    "Ours above, the paper's below: mean ± 95 % interval over n seeds (Student's t); what stands "
    "behind the paper's ± is taken for its interval, and behind that stands where our mean lies by "
    "it, in points. ▲ ▼: the two intervals do not meet. Bold: best of a column, where it has the "
    "same number of seeds as the others or its interval lies clear of theirs."
)
PAGE = 30
"""Configurations that fit on a page."""
LATIN = 0x250
"""Letters below this are known to LaTeX without a package."""


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
                _size(g.memory),
                changes(g.changed) or "-",
                interval_text(g.interval("average_accuracy")),
                interval_text(g.interval("forgetting")),
                str(len(g.runs)),
                f"`{commands.rerun_command(g)}`",
            ]
            for g in stream.groups
        ]
        parts += [f"## {stream.title}", "", *_md_table(heads, rows), ""]
        parts += [f"{note}." for note in stream.content.notes]
        parts += [""] if stream.content.notes else []
    parts += ["## With DualMix against without", ""]
    rows = [
        [
            f"`{c.label}` - `{c.base}`",
            c.content.title,
            _size(c.memory),
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
    parts += _md_table([*heads, "p (Holm)"], rows) if rows else ["No seeds are paired yet."]
    parts += [""]
    for table in summary.tables:
        parts += [f"## The paper's {table.number}: {table.title[0].lower()}{table.title[1:]}", ""]
        parts += [f"{table.caption} {LEGEND}", ""]
        at = [number for number, filled in enumerate(table.filled()) if filled]
        if at:
            heads = ["method", *(_head(table.columns[number], table) for number in at)]
            rows = [
                [f"`{label}`", *(_md_cell(_spread(cells)[number]) for number in at)]
                for label, cells in _filled_rows(table)
            ]
            parts += [*_md_table(heads, rows), "", *_notes(table)]
        left = sum(cell.ours is None for cell in table.cells())
        parts += [f"Not run: {left} of {len(table.cells())} cells.", ""] if left else []
        parts += ["<details><summary>How to reproduce each cell</summary>", ""]
        parts += dict.fromkeys(f"- {place_text(cell)}: `{cell.command}`" for cell in table.cells())
        parts += ["", "</details>", ""]
    parts += [*_md_steps(summary.ladder.steps), *_md_sources(summary.sources)]
    parts += _md_budget(summary.budget)
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


def _md_steps(steps: Sequence[Step]) -> list[str]:
    """Return the rungs that were run and the names of those that were not; nothing where none can
    be compared.
    """
    if not any(step.difference for step in steps):
        return []
    heads = ["rung", "what it changes", "against", "accuracy, %", "difference, points", "n"]
    rows = [
        [
            f"`{step.rung.name}`",
            step.rung.changes,
            f"`{step.rung.against}`" if step.rung.against else "-",
            interval_text(step.accuracy),
            interval_text(step.difference),
            str(len(step.seeds) or step.accuracy.n),
        ]
        for step in steps
        if step.accuracy
    ]
    missing = [f"`{step.rung.name}`" for step in steps if not step.accuracy]
    left = f"Not run: {', '.join(missing)}. `dualmix sweep ladder` trains them." if missing else ""
    return [
        "## What each part of DualMix does",
        "",
        "Each rung changes one thing of another and is paired with it by seed; mean ± 95 % "
        "interval over n seeds.",
        "",
        *_md_table(heads, rows),
        "",
        *([left, ""] if left else []),
    ]


def _md_budget(budget: Budget) -> list[str]:
    """Return what the runs took, and what each grid lacks."""
    if not budget.spent:
        return []
    heads = ["grid", "runs there", "missing", "hours of a core", "command"]
    rows = [
        [
            lack.name,
            f"{lack.there} of {lack.total}",
            str(lack.missing),
            lack.text,
            f"`{lack.command}`",
        ]
        for lack in budget.lacks
    ]
    table = [LACKING, "", *_md_table(heads, rows), ""] if rows else []
    return ["## What it took, and what is missing", "", budget.said, "", *table]


def _md_sources(sources: Sequence[SourceTable]) -> list[str]:
    """Return ours beside tables of other papers, those of which something was run."""
    parts = []
    for table in sources:
        if not table.filled:
            continue
        source = table.source
        heads = ["row", *(f"M {memory:,}" for memory in source.memory)]
        rows = [
            [
                f"{cells[0].row.doc} (`{cells[0].row.name}`)",
                *(
                    f"{interval_text(cell.ours)}"
                    f"{f' (n {cell.ours.n}) {MARKS[cell.mark]}'.rstrip() if cell.ours else ''}"
                    f"<br>{interval_text(published(cell))}"
                    f"{f', {cell.distance}' if cell.ours else ''}"
                    for cell in cells
                ),
            ]
            for cells in table.cells
        ]
        parts += [
            f"## {source.title}",
            "",
            f"{source.doc} Average accuracy in per cent, ours above, theirs below ({source.cite}).",
            "",
            *_md_table(heads, rows),
            "",
        ]
        left = table.total - table.filled
        parts += [f"Not run: {left} of {table.total} cells. `{table.command}`", ""] if left else []
    return parts


def published(cell: Beside) -> Published | metrics.Interval:
    """Return another paper's number; without its plus-minus where it prints none."""
    mean, spread_ = cell.theirs
    return cell.theirs if spread_ else metrics.Interval(mean, 0.0, 0.0, 1)


def _spread(cells: Sequence[Cell]) -> list[Cell]:
    """Return one cell per column: one that stands for several columns is there several times."""
    return [cell for cell in cells for _ in range(cell.span)]


def _filled_rows(table: Table) -> list[tuple[str, Sequence[Cell]]]:
    """Return bounds and rows in which a run of the store stands."""
    return [
        (label, cells)
        for rows in (table.bounds, table.rows)
        for label, cells in rows.items()
        if any(cell.ours for cell in cells)
    ]


def latex(summary: Summary) -> str:
    """Return what the store has as LaTeX (booktabs): each data set of the paper's tables, ours with
    the paper's beneath, then all configurations by stream.
    """
    parts = [
        f"% {counted(len(summary.collection.runs), 'run')}; needs \\usepackage{{booktabs}}. "
        "Small numbers in brackets: seeds."
    ]
    for table in summary.tables:
        filled = table.filled()
        for block in dict.fromkeys((column.content, column.data) for column in table.columns):
            at = [
                number
                for number, column in enumerate(table.columns)
                if (column.content, column.data) == block and filled[number]
            ]
            if at:
                parts += _tex_paper_table(table, at)
    for stream in summary.streams:
        for start in range(0, len(stream.groups), PAGE):
            parts += _tex_stream(stream, start)
    return "\n".join(parts) + "\n"


def _tex_paper_table(table: Table, at: Sequence[int]) -> list[str]:
    """Return one data set of one of the paper's tables."""
    column = table.columns[at[0]]
    subset = " (subset)" if column.content and column.content.subset else ""
    rows = []
    bounds = len(table.bounds)
    for number, (label, cells) in enumerate((*table.bounds.items(), *table.rows.items())):
        here = [_spread(cells)[number] for number in at]
        if not any(cell.ours for cell in here):
            continue
        if number < bounds:  # one number for all memories
            here = [replace(here[0], span=len(at))]
        rows.append(_tex_row(_tex(label), here, _tex_ours))
        rows.append(_tex_row(r"\quad paper", here, _tex_paper))
    return _tex_table(
        f"{table.title} on {column.title}{subset}, beside the paper's {table.number}. "
        f"{table.caption} Mean and 95 % interval over seeds, whose number stands in brackets.",
        f"tab:{table.name}-{column.data}",
        "l" + "c" * len(at),
        ["method", *(_tex(_head(table.columns[number], table, data=False)) for number in at)],
        rows,
        _notes(table),
    )


def _tex_stream(stream: Stream, start: int) -> list[str]:
    """Return a page of a stream's configurations."""
    rows = []
    for group in stream.groups[start : start + PAGE]:
        other = _tex(changes(group.changed))
        name = _tex(group.label) + (rf" {{\scriptsize {other}}}" if other else "")
        scores = (group.interval(score) for score in ("average_accuracy", "forgetting"))
        cells = [name, _size(group.memory), *(_tex_interval(one) for one in scores)]
        rows.append(" & ".join(cells) + r" \\")
    return _tex_table(
        f"{'Continued' if start else 'All configurations'}: {stream.title}. Average accuracy and "
        "forgetting after the last task, in per cent: mean and 95 % interval over seeds, whose "
        "number stands in brackets.",
        f"tab:{stream.content.name}-{stream.content.fingerprint[:6]}-{stream.first or 0}-{start}",
        r"p{0.42\linewidth}rcc",
        ["method", "memory", "accuracy", "forgetting"],
        rows,
        [f"{note}." for note in stream.content.notes],
    )


def _tex_table(
    caption: str,
    label: str,
    columns: str,
    heads: Sequence[str],
    rows: Sequence[str],
    notes: Sequence[str],
) -> list[str]:
    return [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{_tex(caption)}}}",
        rf"\label{{{label.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {' '.join(note.split())}" for note in notes if note),
        r"\end{table}",
        "",
    ]


def as_csv(summary: Summary) -> str:
    """Return the paper's tables, one line per cell."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(
        [
            "table",
            "method",
            "data",
            "notes",
            "memory",
            "score",
            "mean",
            "half",
            "n",
            "seeds",
            "paper",
            "paper_half",
            "against_paper",
            "best",
            "runs",
            "command",
        ]
    )
    for table in summary.tables:
        for cell in table.cells():
            ours, group = cell.ours, cell.group
            writer.writerow(
                as_cell(value)
                for value in (
                    table.name,
                    cell.label,
                    cell.column.data,
                    "; ".join(cell.column.content.notes) if cell.column.content else "",
                    cell.column.memory or "",
                    cell.column.score,
                    ours.mean if ours else "",
                    ours.shown if ours and ours.shown is not None else "",
                    ours.n if ours else 0,
                    " ".join(map(str, group.seeds)) if group else "",
                    *(cell.paper or ("", "")),
                    cell.mark,
                    int(cell.best),
                    " ".join(run.name for run in group.runs) if group else "",
                    cell.command,
                )
            )
    return lines.getvalue()


def place_text(cell: Cell) -> str:
    """Return a cell's place in words."""
    memory = f", memory {cell.column.memory:,}" if cell.column.memory else ""
    return f"{cell.label}, {cell.column.title}{memory}"


def _size(memory: int | None) -> str:
    return "-" if memory is None else f"{memory:,}"


def _head(column: Column, table: Table, *, data: bool = True) -> str:
    part = " (subset)" if column.content and column.content.subset else ""
    score = (
        {"average_accuracy": " acc.", "forgetting": " forg."}[column.score]
        if table.name.startswith("table3")
        else ""
    )
    memory = f"{column.memory // 1000}k{score}"
    return f"{column.title}{part} {memory}" if data else memory


def _notes(table: Table) -> list[str]:
    contents = dict.fromkeys(column.content for column in table.columns if column.content)
    return [
        *(
            f"{c.title} ({c.fingerprint[:6]}): {'; '.join(c.notes)}."
            for c in contents
            if c and c.notes
        ),
        "",
    ]


def _md_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_md_row(heads), _md_row(["---"] * len(heads)), *map(_md_row, rows)]


def _md_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _md_cell(cell: Cell) -> str:
    ours = interval_text(cell.ours)
    if cell.ours:
        ours = (
            f"{f'**{ours}**' if cell.best else ours} (n {cell.ours.n}) {MARKS[cell.mark]}".strip()
        )
    paper = interval_text(cell.paper)
    paper = f"**{paper}**" if cell.paper_best else paper
    return f"{ours}<br>{', '.join(filter(None, (paper, cell.distance)))}"


def _tex_row(name: str, cells: Sequence[Cell], show: Callable[[Cell], str]) -> str:
    shown = [
        rf"\multicolumn{{{cell.span}}}{{c}}{{{show(cell)}}}" if cell.span > 1 else show(cell)
        for cell in cells
    ]
    return " & ".join([name, *shown]) + r" \\"


def _tex_interval(interval: metrics.Interval | None) -> str:
    if interval is None:
        return "--"
    shown = interval_text(interval).replace(" ± ", r" $\pm$ ")
    return rf"{shown} {{\scriptsize ({interval.n})}}"


def _tex_ours(cell: Cell) -> str:
    sign = {"": "", "above": r"$^{\uparrow}$", "below": r"$^{\downarrow}$"}[cell.mark]
    shown = _tex_interval(cell.ours)
    return (rf"\textbf{{{shown}}}" if cell.best else shown) + sign


def _tex_paper(cell: Cell) -> str:
    if not cell.paper:
        return "--"
    shown = interval_text(cell.paper).replace(" ± ", r" $\pm$ ")
    return rf"\textbf{{{shown}}}" if cell.paper_best else shown


def _tex(content: str) -> str:
    """Return text that LaTeX prints as it is; what it has no letter for becomes a question mark."""
    return "".join(TEX.get(c, c if c.isprintable() and ord(c) < LATIN else "?") for c in content)


TEX = {
    **{c: rf"\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "–": "--",
}
