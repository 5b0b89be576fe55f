"""The figures of the paper (Fan et al. 2023, arXiv:2303.07864), from the runs of a store.

Each is one Vega-Lite specification, which gives the page, the svg and the pdf.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from dualmix.paper.grids import OPERATORS, SCATTER
from dualmix.paper.proposition import rank_correlation
from dualmix.report.charts import (
    COLOURS,
    GREY,
    HEIGHT,
    WIDTH,
    Figure,
    FigureView,
    Place,
    Record,
    axis_about,
    by_place,
    chart_of,
    lines_over_tasks,
    points,
    side_by_side,
    spec_of,
    spread,
    styles,
)
from dualmix.report.commands import sweep_command
from dualmix.report.tables import mean_curve
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Group, Run

PLAIN = "none (er)"


def over_tasks(collection: Collection, name: str, title: str, score: str, y: str) -> Figure:
    """Return a score after each task (Eqs. 14 and 15), one line per method."""
    views = []
    for at, groups in by_place(collection.plain):
        rows = [
            row
            for g in groups
            if g.tasks > 1
            for row in points(mean_curve(g, score), method=g.label)
        ]
        if rows:
            tasks = max(g.tasks for g in groups)
            views.append(FigureView(str(at), spec_of(lines_over_tasks(rows, y, tasks=tasks))))
    caption = (
        "Mean over seeds after each task; the band is the 95 % interval (none for a single seed), "
        "cut where it would hide the lines. "
    )
    return Figure(
        name,
        title,
        f"{caption}Click a method in the legend to see it alone.",
        sweep_command("table1", []),
        tuple(views),
    )


def _bars(rows: list[Record], y: str, order: list[str]) -> Any:
    """Return one value per name with its interval, the number written beside it."""
    base = chart_of(rows)
    x = alt.X("name:N", sort=order, title=None, axis=alt.Axis(labelAngle=-30))
    tip = [
        alt.Tooltip("name:N", title="augmentation"),
        alt.Tooltip("text:N", title=y),
        alt.Tooltip("n:Q", title="runs"),
    ]
    scale = alt.Scale(domain=list(axis_about(rows)))
    rule = base.mark_rule(strokeWidth=2, color=GREY, clip=True).encode(
        x, alt.Y("low:Q", title=y, scale=scale), alt.Y2("high:Q")
    )
    dot = base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(
        x, alt.Y("mean:Q", scale=scale), tooltip=tip
    )
    label = base.mark_text(dx=8, align="left", fontSize=11).encode(
        x, alt.Y("mean:Q"), text=alt.Text("mean:Q", format=".1f")
    )
    return alt.layer(rule, dot, label).properties(width=WIDTH // 2 - 20, height=HEIGHT - 60)


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
    views = []
    order = [PLAIN, *OPERATORS, *(name for name in SCATTER if name not in OPERATORS)]
    for at, groups in by_place(g for g in collection.groups if _augmentation(g)):
        named = {name: g for g in groups if (name := _augmentation(g))}
        if len(named) < 2 or not named.keys() - {PLAIN, "standard"}:
            continue
        charts = []
        for score, y in (
            ("average_accuracy", "average accuracy, %"),
            ("forgetting", "average forgetting, %"),
        ):
            rows = [{"name": n, **spread(i)} for n, g in named.items() if (i := g.interval(score))]
            charts.append(
                _bars(rows, y, [n for n in order if n in named] + sorted(named.keys() - set(order)))
            )
        views.append(FigureView(str(at), spec_of(alt.hconcat(*charts))))
    caption = (
        "ER, and ER with a view of the rehearsed batch under each augmentation; the line is the "
        "95 % interval. The paper shows accuracy."
    )
    return Figure(
        "figure2", "Figure 2: augmentations", caption, sweep_command("figure2", []), tuple(views)
    )


def error_figure(collection: Collection, name: str, title: str, label: str) -> Figure:
    """Return Figure 4 or 6: which way a method errs, one line per memory."""
    views = []
    for content in collection.contents(collection.plain):
        groups = [
            g
            for g in collection.plain
            if g.label == label and g.content == content and g.memory is not None
        ]
        charts = []
        for score, y in (("er_new_old", "er(n,o), %"), ("er_old_new", "er(o,n), %")):
            rows = [
                r
                for g in groups
                for r in points(mean_curve(g, score), memory=f"memory {g.memory:,}")
            ]
            if rows:
                tasks = max(g.tasks for g in groups)
                chart = lines_over_tasks(
                    rows, y, tasks=tasks, field="memory", domain=(0, 100), alone=False
                )
                charts.append(chart.properties(width=WIDTH // 2 - 20, height=HEIGHT - 40))
        if charts:
            views.append(FigureView(str(Place(content)), spec_of(side_by_side(charts))))
    caption = (
        "er(n,o): share of the errors on new classes that are taken for old ones; er(o,n): share "
        "of the errors on old classes that are taken for new ones. Bands are 95 % intervals."
    )
    return Figure(name, title, caption, sweep_command("table3", [label]), tuple(views))


def figure5(collection: Collection) -> Figure:
    """Return Figure 5: m-bar of each augmentation (Eq. 6), in both readings, against the accuracy
    that it gives.
    """
    views = []
    for at, groups in by_place(g for g in collection.groups if _scattered(g)):
        charts = [
            _scatter(rows, title)
            for measure, title in (
                ("mean_variance", "m-bar, deviation over draws (Eq. 6 as written)"),
                ("sample_spread", "m-bar*, deviation over images"),
            )
            if len(rows := [row for group in groups if (row := _point(group, measure))]) > 1
        ]
        if charts:
            views.append(FigureView(str(at), spec_of(alt.hconcat(*charts))))
    caption = (
        "Each augmentation's mean variance on the memory, averaged over the borders from task 2 "
        "on, against what training with it gave. The paper expects: the lower, the better."
    )
    return Figure(
        "figure5",
        "Figure 5: mean variance against accuracy",
        caption,
        sweep_command("figure5", []),
        tuple(views),
    )


def _point(group: Group, measure: str) -> Record | None:
    """Return a group's mean of a measure and its accuracy, over the runs that were probed."""
    probed = [(m, run) for run in group.runs if (m := _measured(run, measure)) is not None]
    if not probed:
        return None
    mean = float(np.mean([m for m, _ in probed]))
    accuracy = metrics.interval([100 * run.scores["average_accuracy"] for _, run in probed])
    return {"name": _scattered(group), "m": mean, **spread(accuracy), "m_text": f"{mean:.2e}"}


def _scatter(rows: list[Record], name: str) -> Any:
    """Return accuracy over a measure, with the rank correlation of the two as title."""
    both = [(row["m"], row["mean"]) for row in rows]
    ranks = rank_correlation([row["m"] for row in rows], [row["mean"] for row in rows])
    width, height = WIDTH // 2 - 20, HEIGHT - 40
    sides = _sides([row["name"] for row in rows], both, width - 60, height)
    base = chart_of([{**row, "side": side} for row, side in zip(rows, sides, strict=True)])
    x = alt.X(
        "m:Q",
        title=name,
        scale=alt.Scale(zero=False, nice=True, padding=30),
        axis=alt.Axis(format=".1e", tickCount=5),
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
        base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(x, y, tooltip=tip),
        *(
            base.transform_filter(f"datum.side == '{side}'")
            .mark_text(**_SIDES[side])
            .encode(x, y, text="name:N")
            for side in dict.fromkeys(sides)
        ),
    ).properties(width=width, height=height, title=ranks.words("augmentations"))


_SIDES: dict[str, dict[str, Any]] = {
    "right": {"dx": 9, "align": "left"},
    "left": {"dx": -9, "align": "right"},
    "above": {"dy": -13},
    "below": {"dy": 13},
}


def _sides(
    names: list[str], points: list[tuple[float, float]], width: float, height: float
) -> list[str]:
    """Return for each point of a picture the side on which its name meets no other point and no
    name before it.

    Vega-Lite writes names where it is told to; widths are those of its font of 11 pixels, a little
    too large."""
    low, size = np.min(points, axis=0), np.maximum(np.ptp(points, axis=0), 1e-300)
    places = [(x, y) for x, y in (np.asarray(points) - low) / size * (width, -height)]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    chosen = []
    for name, (x, y) in zip(names, places, strict=True):
        long = 6.5 * len(name)
        boxes = {
            "right": (x + 6, y - 6, x + 9 + long, y + 6),
            "left": (x - 9 - long, y - 6, x - 6, y + 6),
            "above": (x - long / 2, y - 19, x + long / 2, y - 7),
            "below": (x - long / 2, y + 7, x + long / 2, y + 19),
        }
        side = next(
            (s for s, box in boxes.items() if not any(_meet(box, other) for other in taken)),
            "right",
        )
        taken.append(boxes[side])
        chosen.append(side)
    return chosen


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


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


def figure7(collection: Collection) -> Figure:
    """Return Figure 7: the training time of every method."""
    views = []
    for at, groups in by_place(collection.plain):
        rows: list[Record] = []
        for group in groups:
            minutes = [
                run.times["train_seconds"] / 60
                for run in group.runs
                if run.times.get("train_seconds")
            ]
            if minutes and group.label not in ("iid-offline", "iid-online"):
                rows.append({"method": group.label, **spread(metrics.interval(minutes))})
        if not rows:
            continue
        names, _ = styles(row["method"] for row in rows)
        across = alt.Scale(domain=list(axis_about(rows, zero=True)))
        base = chart_of([{**row, "end": min(row["high"], across.domain[1])} for row in rows])
        y = alt.Y("method:N", sort=names, title=None)
        tip = [
            alt.Tooltip("method:N"),
            alt.Tooltip("text:N", title="minutes"),
            alt.Tooltip("n:Q", title="runs"),
        ]
        chart = alt.layer(
            base.mark_bar(color=COLOURS[0], opacity=0.75, height={"band": 0.6}).encode(
                alt.X("mean:Q", title="training time, minutes", scale=across), y, tooltip=tip
            ),
            base.mark_rule(strokeWidth=2, color=GREY, clip=True).encode(
                alt.X("low:Q"), alt.X2("high:Q"), y
            ),
            base.mark_text(align="left", dx=6, fontSize=11).encode(
                alt.X("end:Q"), y, text=alt.Text("mean:Q", format=".1f")
            ),
        ).properties(width=WIDTH, height=max(60, 26 * len(rows)))
        views.append(FigureView(str(at), spec_of(chart)))
    views.sort(key=lambda view: view.name != "CIFAR-100, memory 2,000")
    hosts = sorted(
        {str(run.facts.get("host", {}).get("processor", "?")) for run in collection.runs}
    )
    caption = (
        "Time spent training, without testing; the paper shows CIFAR-100 with a memory of 2,000. "
        f"Measured on: {', '.join(hosts) or '-'}. Runs that share a machine slow each other down."
    )
    return Figure(
        "figure7",
        "Figure 7: running time",
        caption,
        sweep_command("table1", [], "cifar100", 2000),
        tuple(views),
    )
