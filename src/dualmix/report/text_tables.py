"""The tables as text: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence

from dualmix.report import commands
from dualmix.report.export import as_cell
from dualmix.report.tables import Cell, Column, Summary, Table, interval_text

MARKS = {"": "", "above": "▲", "below": "▼"}
LEGEND = (
    "Ours above, the paper's below: mean ± 95 % interval over n seeds (Student's t); what stands "
    "behind the paper's ± is taken for its interval. ▲ ▼: ours lies above or below and the "
    "intervals do not meet. Bold: best of a column."
)


def markdown(summary: Summary) -> str:
    """Return everything but the figures as GitHub Markdown."""
    collection = summary.collection
    parts = [
        "# Results",
        "",
        f"{len(collection.runs)} finished runs in `{collection.place}`. {LEGEND} –: missing.",
        "",
    ]
    for table in summary.tables:
        heads = ["method", *(_head(column, table) for column in table.columns)]
        rows = [[f"`{label}`", *map(_md_cell, cells)] for label, cells in table.rows.items()]
        for label, cells in table.bounds.items():
            rows.insert(
                0, [f"`{label}`", *(_md_cell(cell) for cell in cells for _ in range(cell.span))]
            )
        parts += [f"## {table.title}", "", table.caption, "", *_md_table(heads, rows), ""]
        parts += _notes(table)
        parts += ["<details><summary>How to reproduce each cell</summary>", ""]
        parts += dict.fromkeys(f"- {place_text(cell)}: `{cell.command}`" for cell in table.cells())
        parts += ["", "</details>", ""]
    parts += ["## With DualMix against without", ""]
    rows = [
        [
            f"`{c.label}` - `{c.base}`",
            c.content.title,
            _size(c.memory),
            c.score.replace("_", " "),
            interval_text(c.difference),
            str(len(c.seeds)),
            p_text(c.p),
            p_text(c.holm),
        ]
        for c in summary.paired_tests
    ]
    parts += (
        _md_table(
            ["methods", "data", "memory", "score", "difference, points", "n", "p", "p (Holm)"], rows
        )
        if rows
        else ["No seeds are paired yet."]
    )
    for title, groups in (
        ("Other methods, data and memories", summary.others),
        ("Other configurations", summary.changed),
    ):
        if groups:
            rows = [
                [
                    f"`{g.label}`",
                    g.content.title,
                    _size(g.memory),
                    ", ".join(f"{path} {value}" for path, value in g.changed) or "-",
                    interval_text(g.interval("average_accuracy")),
                    interval_text(g.interval("forgetting")),
                    str(len(g.runs)),
                    f"`{commands.rerun_command(g)}`",
                ]
                for g in groups
            ]
            heads = [
                "method",
                "data",
                "memory",
                "what differs from the preset",
                "accuracy",
                "forgetting",
                "n",
                "command",
            ]
            parts += ["", f"## {title}", "", *_md_table(heads, rows)]
    for title, remarks in (
        ("Left out", collection.left_out),
        ("Not finished", collection.unfinished),
        ("Damaged in part", collection.remarks),
    ):
        if remarks:
            parts += [
                "",
                f"## {title}",
                "",
                *(f"- `{remark.run}`: {remark.text}" for remark in remarks),
            ]
    return "\n".join(parts) + "\n"


def latex(summary: Summary) -> str:
    """Return the paper's tables as LaTeX (booktabs), ours with the paper's beneath."""
    parts = [f"% {len(summary.collection.runs)} runs; needs booktabs. {LEGEND} –: missing."]
    for table in summary.tables:
        parts += [
            r"\begin{table}",
            rf"\caption{{{_tex(table.title)}. {_tex(table.caption)}}}",
            rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
            r"\toprule",
            " & ".join(["method", *(_tex(_head(column, table)) for column in table.columns)])
            + r" \\",
            r"\midrule",
        ]
        for rows in (table.bounds, table.rows):
            for label, cells in rows.items():
                parts.append(_tex_row(_tex(label), cells, _tex_ours))
                parts.append(_tex_row(r"\quad paper", cells, _tex_paper))
            parts += [r"\midrule"] if rows is table.bounds and rows else []
        parts += [
            r"\bottomrule",
            r"\end{tabular}",
            *(f"% {note}" for note in _notes(table) if note),
            r"\end{table}",
            "",
        ]
    return "\n".join(parts)


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
                    ours.half if ours and not math.isnan(ours.half) else "",
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


def p_text(p: float | None) -> str:
    """Return a p value, or a dash where there is none."""
    if p is None:
        return "–"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def place_text(cell: Cell) -> str:
    """Return a cell's place in words."""
    memory = f", memory {cell.column.memory:,}" if cell.column.memory else ""
    return f"{cell.label}, {cell.column.title}{memory}"


def _size(memory: int | None) -> str:
    return "-" if memory is None else f"{memory:,}"


def _head(column: Column, table: Table) -> str:
    part = " (subset)" if column.content and column.content.subset else ""
    score = (
        {"average_accuracy": " acc.", "forgetting": " forg."}[column.score]
        if table.name == "table3"
        else ""
    )
    return f"{column.title}{part} {column.memory // 1000}k{score}"


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
    return f"{ours}<br>{f'**{paper}**' if cell.paper_best else paper}"


def _tex_row(name: str, cells: Sequence[Cell], show: Callable[[Cell], str]) -> str:
    shown = [
        rf"\multicolumn{{{cell.span}}}{{c}}{{{show(cell)}}}" if cell.span > 1 else show(cell)
        for cell in cells
    ]
    return " & ".join([name, *shown]) + r" \\"


def _tex_ours(cell: Cell) -> str:
    if not cell.ours:
        return "--"
    shown = interval_text(cell.ours).replace(" ± ", r" $\pm$ ")
    sign = {"": "", "above": r"$^{\uparrow}$", "below": r"$^{\downarrow}$"}[cell.mark]
    return (rf"\textbf{{{shown}}}" if cell.best else shown) + sign


def _tex_paper(cell: Cell) -> str:
    if not cell.paper:
        return "--"
    shown = interval_text(cell.paper).replace(" ± ", r" $\pm$ ")
    return rf"\textbf{{{shown}}}" if cell.paper_best else shown


def _tex(content: str) -> str:
    return "".join(rf"\{c}" if c in "&%$#_{}" else c for c in content)
