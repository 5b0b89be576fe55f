"""The tables as LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace

from dualmix.report.cells import head, notes_of, one_per_column, size_text
from dualmix.report.export import as_cell
from dualmix.report.streams import Stream
from dualmix.report.tables import Cell, Summary, Table
from dualmix.report.words import changes, counted, interval_text
from dualmix.runs import metrics

PAGE = 30
"""Configurations that fit on a page."""
LATIN = 0x250
"""Letters below this are known to LaTeX without a package."""


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
        here = [one_per_column(cells)[number] for number in at]
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
        ["method", *(_tex(head(table.columns[number], table, data=False)) for number in at)],
        rows,
        notes_of(table),
    )


def _tex_stream(stream: Stream, start: int) -> list[str]:
    """Return a page of a stream's configurations."""
    rows = []
    for group in stream.groups[start : start + PAGE]:
        other = _tex(changes(group.changed))
        name = _tex(group.label) + (rf" {{\scriptsize {other}}}" if other else "")
        scores = (group.interval(score) for score in ("average_accuracy", "forgetting"))
        cells = [name, size_text(group.memory), *(_tex_interval(one) for one in scores)]
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
