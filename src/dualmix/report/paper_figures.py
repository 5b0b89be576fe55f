"""The figures of the paper (Fan et al. 2023, arXiv:2303.07864), from the runs of a store.

Each is one Vega-Lite specification, which gives the page, the svg and the pdf.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from dualmix.paper.grids import OPERATORS, SCATTER
from dualmix.paper.proposition import Correlation, rank_correlation
from dualmix.report.charts import (
    GREY,
    HEIGHT,
    STRONG,
    WIDTH,
    Figure,
    FigureView,
    Line,
    Record,
    axis_about,
    by_place,
    chart_of,
    panels,
    small_multiple,
    small_multiples,
    spec_of,
    spread,
)
from dualmix.report.commands import sweep_command
from dualmix.report.labels import SIDES, sides_of
from dualmix.report.streams import mean_curve
from dualmix.report.words import counted, listed
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Group, Run

PLAIN = "none (er)"


def _dots(rows: list[Record], x: str, order: list[str]) -> Any:
    """Return one value per name with its interval, the number written beside it."""
    base = chart_of(rows)
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=150))
    tip = [
        alt.Tooltip("name:N", title="augmentation"),
        alt.Tooltip("text:N", title=x),
        alt.Tooltip("n:Q", title="runs"),
    ]
    scale = alt.Scale(domain=list(axis_about(rows, whole=True)))
    rule = base.mark_rule(strokeWidth=2, color=STRONG, clip=True).encode(
        alt.X("low:Q", title=x, scale=scale, axis=alt.Axis(tickCount=6)), alt.X2("high:Q"), y
    )
    dot = base.mark_point(filled=True, size=90, color=STRONG).encode(
        alt.X("mean:Q", scale=scale), y, tooltip=tip
    )
    label = base.mark_text(dy=-10, fontSize=12).encode(
        alt.X("mean:Q"), y, text=alt.Text("mean:Q", format=".1f")
    )
    return alt.layer(rule, dot, label).properties(width=WIDTH // 2 - 20, height=30 * len(rows) + 10)


def _augmentation(group: Group) -> str | None:
    """Return the name in Figure 2 of a group that is ER, or ER+DA on some augmentation, and nothing
    else.
    """
    if group.label == "er" and _only(group):
        return PLAIN
    if group.label == "er+da" and _only(group, "method.mix.augment"):
        return str(group.runs[0].settings["method.mix.augment"])
    return None


def _only(group: Group, *paths: str) -> bool:
    """Return whether a group is its preset but for these settings and the length of the stream."""
    return {path for path, _ in group.changed} <= {*paths, "stream.first"}


def figure2(collection: Collection) -> Figure:
    """Return Figure 2: accuracy and forgetting of ER under each augmentation."""
    views, says = [], []
    order = [PLAIN, *OPERATORS, *(name for name in SCATTER if name not in OPERATORS)]
    for at, groups in by_place(g for g in collection.groups if _augmentation(g)):
        named = {name: g for g in groups if (name := _augmentation(g))}
        if len(named) < 2 or not named.keys() - {PLAIN, "standard"}:
            continue
        charts = []
        for score, title in (
            ("average_accuracy", "average accuracy, %"),
            ("forgetting", "average forgetting, %"),
        ):
            rows = [{"name": n, **spread(i)} for n, g in named.items() if (i := g.interval(score))]
            names = [n for n in order if n in named] + sorted(named.keys() - set(order))
            charts.append(_dots(rows, title, names))
            if score == "average_accuracy":
                ranked = sorted(rows, key=lambda row: -float(row["mean"]))
                named_ = listed([f"{row['name']} {row['mean']:.1f}" for row in ranked])
                says.append(f"{at}, accuracy in per cent from best to worst: {named_}.")
        views.append(FigureView(str(at), spec_of(panels(charts))))
    caption = (
        "ER, and ER with a view of the rehearsed batch under each augmentation; the line is the "
        "95 % interval. The paper's Figure 2 shows accuracy."
    )
    return Figure(
        "figure2",
        "Which augmentation helps? (Figure 2)",
        caption,
        sweep_command("figure2", []),
        tuple(views),
        tuple(says),
    )


ERRORS = {
    "er_new_old": "new taken for old, er(n,o), %",
    "er_old_new": "old taken for new, er(o,n), %",
}
BASE, ADAPTED = "er", "er+adpmix"
"""Whose errors Figures 4 and 6 show."""


def errors(collection: Collection) -> Figure:
    """Return Figures 4 and 6 as one: which way ER errs, and ER with AdpMix, on the same axes."""
    views, says = [], []
    for at, groups in by_place(g for g in collection.plain if g.label in (BASE, ADAPTED)):
        charts, ends = [], {}
        for score, title in ERRORS.items():
            lines = [Line(g.label, mean_curve(g, score), g.label == ADAPTED) for g in groups]
            lines = [line for line in lines if any(line.curve)]
            if lines:
                tasks = max(g.tasks for g in groups)
                charts.append(
                    small_multiple(title, lines, "share of errors, %", (0, 100), tasks, 220)
                )
            for line in lines:
                last = [one for one in line.curve if one][-1]
                ends[line.name, score] = f"{last.mean:.0f} % ({counted(last.n, 'seed')})"
        if charts:
            views.append(FigureView(str(at), small_multiples(charts)))
            said = [
                f"{label} takes {ends[label, 'er_old_new']} of its errors on old classes for new "
                f"ones and {ends[label, 'er_new_old']} of those on new classes for old ones"
                for label in (BASE, ADAPTED)
                if (label, "er_old_new") in ends and (label, "er_new_old") in ends
            ]
            says += [f"{at}, after the last task: {'; '.join(said)}."] if said else []
    caption = (
        "Of the errors on old classes, the share that is taken for a new class, and the other way "
        "round. Grey: er (the paper's Figure 4); blue: er+adpmix (Figure 6). Bands are 95 % "
        "intervals of three seeds or more."
    )
    return Figure(
        "errors",
        "Which way does it err? (Figures 4 and 6)",
        caption,
        sweep_command("table3", [BASE, ADAPTED]),
        tuple(views),
        tuple(says),
    )


MEASURES = {
    "mean_variance": "m-bar over draws (Eq. 6 as written)",
    "sample_spread": "m-bar* over images",
}
"""What Figure 5 has on its horizontal axis, in two readings."""


def figure5(collection: Collection) -> Figure:
    """Return Figure 5: m-bar of each augmentation (Eq. 6), in both readings, against the accuracy
    that it gives.
    """
    views, says = [], []
    for at, groups in by_place(g for g in collection.groups if _scattered(g)):
        charts = []
        for measure, title in MEASURES.items():
            rows = [row for group in groups if (row := _point(group, measure))]
            if len(rows) > 1:
                ranks = rank_correlation([row["m"] for row in rows], [row["mean"] for row in rows])
                charts.append(_scatter(rows, title, ranks))
                says.append(f"{at}, {title}: {ranks.words('augmentations')}.")
        if charts:
            views.append(FigureView(str(at), spec_of(panels(charts))))
    says += (
        ["The paper expects the lower mean variance with the higher accuracy, so a negative rho."]
        if says
        else []
    )
    caption = (
        "Each augmentation's mean variance on the memory, averaged over the borders from task 2 "
        "on, against what training with it gave. The paper expects: the lower, the better."
    )
    return Figure(
        "figure5",
        "Is the steadier augmentation the better one? (Figure 5)",
        caption,
        sweep_command("figure5", []),
        tuple(views),
        tuple(says),
    )


def _point(group: Group, measure: str) -> Record | None:
    """Return a group's mean of a measure and its accuracy, over the runs that were probed."""
    probed = [(m, run) for run in group.runs if (m := _measured(run, measure)) is not None]
    if not probed:
        return None
    mean = float(np.mean([m for m, _ in probed]))
    accuracy = metrics.interval([100 * run.scores["average_accuracy"] for _, run in probed])
    return {"name": _scattered(group), "m": mean, **spread(accuracy), "m_text": f"{mean:.2e}"}


def _scatter(rows: list[Record], name: str, ranks: Correlation) -> Any:
    """Return accuracy over a measure, with the rank correlation of the two as title."""
    both = [(row["m"], row["mean"]) for row in rows]
    width, height = WIDTH // 2 - 20, HEIGHT - 40
    sides = sides_of([row["name"] for row in rows], both, width - 60, height)
    base = chart_of([{**row, "side": side} for row, side in zip(rows, sides, strict=True)])
    x = alt.X(
        "m:Q",
        title=name,
        scale=alt.Scale(zero=False, nice=True, padding=30),
        axis=alt.Axis(format="~g", tickCount=5),
    )
    title, scale = "average accuracy, %", alt.Scale(domain=list(axis_about(rows)))
    y = alt.Y("mean:Q", title=title, scale=scale)
    tip = [
        alt.Tooltip("name:N", title="augmentation"),
        alt.Tooltip("m_text:N", title="m-bar"),
        alt.Tooltip("text:N", title="accuracy, %"),
        alt.Tooltip("n:Q", title="runs"),
    ]
    return alt.layer(
        base.mark_rule(color=GREY, clip=True).encode(
            x, alt.Y("low:Q", title=title, scale=scale), alt.Y2("high:Q")
        ),
        base.mark_point(filled=True, size=90, color=STRONG).encode(x, y, tooltip=tip),
        *(
            base.transform_filter(f"datum.side == '{side}'")
            .mark_text(**SIDES[side])
            .encode(x, y, text="name:N")
            for side in dict.fromkeys(sides)
        ),
    ).properties(
        width=width,
        height=height,
        title=f"rho {ranks.rho:+.2f}" if ranks.rho is not None else "no ranking",
    )


def _scattered(group: Group) -> str | None:
    """Return the name in Figure 5 of a group."""
    if group.label == "er+enmix" and _only(group):
        return "enmix"
    return _augmentation(group) if group.label == "er+da" else None


def _measured(run: Run, measure: str) -> float | None:
    """Return a measure of a run's own augmentation, averaged over tasks 2 to T."""
    own = "enmix" if run.label == "er+enmix" else "view"
    values = [
        float(record["operators"][own][measure])
        for record in run.probes
        if record["task"] > 1 and own in record.get("operators", {})
    ]
    return float(np.mean(values)) if values else None
