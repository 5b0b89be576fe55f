"""The figures: one Vega-Lite specification each, which gives the page, the svg and the pdf."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from dualmix import metrics
from dualmix.paper import BOUNDS, OPERATORS, SCATTER
from dualmix.proposition import Verdict
from dualmix.report.commands import sweep
from dualmix.report.runs import ROWS, Collection, Content, Group, Run, rank
from dualmix.report.speed import Speed
from dualmix.report.tables import mean_curve
from dualmix.timing import Row, Stage

COLOURS = ("#e69f00", "#17a2b8", "#8c564b", "#d55e00", "#56a64b", "#0072b2", "#a6761d", "#cc5fa0", "#5b6bd6", "#009e73")
GREY = "#7f7f7f"
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [12, 4], [6, 2, 2, 2, 2, 2])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
PLAIN = "none (er)"
WIDTH, HEIGHT = 620, 320

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class View:
    """A figure for one data set and memory."""

    name: str
    spec: Record


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, or what would make it.

    Attributes
    ----------
    command
        The sweep that trains its runs; shown where they are missing.
    """

    id: str
    title: str
    caption: str
    command: str
    views: tuple[View, ...] = ()


def figures(found: Collection, verdicts: Sequence[Verdict], speed: Speed | None = None) -> list[Figure]:
    """Return all figures in the order of the page; the last is the benchmark's, where one is given."""
    drawn = [
        _over_tasks(found, "accuracy", "Accuracy over tasks", "average_accuracy_by_task", "average accuracy, %"),
        _over_tasks(found, "forgetting", "Forgetting over tasks", "forgetting_by_task", "average forgetting, %"),
        _figure2(found),
        _error_shares(found, "figure4", "Figure 4: which way ER errs", "er"),
        _figure5(found),
        _error_shares(found, "figure6", "Figure 6: which way ER+AdpMix errs", "er+adpmix"),
        _figure7(found),
        _heat_map(found),
        _confusion(found),
        _norms(found),
        _gate(found),
        _memory(found),
        _proposition(verdicts),
    ]
    return drawn if speed is None else [*drawn, _speed(speed)]


def place(content: Content, memory: int | None) -> str:
    """Return the name of a data set and a memory."""
    held = "" if memory is None else f", memory {memory:,}"
    return f"{content.title}{' (subset)' if content.subset else ''}{held}"


def _chart(values: list[Record]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=values))


def _spec(chart: Any) -> Record:
    spec: Record = chart.to_dict()
    spec.pop("config", None)
    return spec


def _style(labels: Iterable[str]) -> tuple[list[str], dict[str, alt.Scale]]:
    """Return methods in order, and colour, dash and shape of each: the same in all figures."""
    names = sorted(dict.fromkeys(labels), key=rank)
    strange = [name for name in names if name not in ROWS]
    at = {name: ROWS.index(name) if name in ROWS else len(ROWS) + strange.index(name) for name in names}
    plain = {name: GREY if name in (*BOUNDS, "iid-online") else COLOURS[i % len(COLOURS)] for name, i in at.items()}
    scales = {
        "color": alt.Scale(domain=names, range=list(plain.values())),
        "dash": alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in at.values()]),
        "shape": alt.Scale(domain=names, range=[SHAPES[i % len(SHAPES)] for i in at.values()]),
    }
    return names, scales


def _places(groups: Iterable[Group]) -> list[tuple[Content, int | None, list[Group]]]:
    """Return groups by data set and memory; a method without memory joins every memory of its data set.

    The fullest comes first, in the paper's order where several are.
    """
    groups = list(groups)
    sets: dict[Content, set[int]] = {}
    for group in groups:
        sets.setdefault(group.content, set()).update([] if group.memory is None else [group.memory])
    places: list[tuple[Content, int | None]] = []
    for content, sizes in sets.items():
        places += [(content, memory) for memory in sorted(sizes)] or [(content, None)]
    found = [
        (content, memory, [g for g in groups if g.content == content and g.memory in (memory, None)])
        for content, memory in places
    ]
    return sorted(found, key=lambda one: -len(one[2]))


def _lines(
    rows: list[Record],
    y: str,
    *,
    tasks: int,
    field: str = "method",
    domain: tuple[float, float] | None = None,
    alone: bool = True,
) -> Any:
    """Return lines over tasks with bands, told apart by colour, dash and shape.

    Parameters
    ----------
    field
        What tells lines apart.
    domain
        The range of the vertical axis, beyond which bands are cut; none: about the lines.
    alone
        A click on the legend shows a line alone.
    """
    names, scale = _style(row[field] for row in rows)
    legend = alt.Legend(title=None, symbolSize=90, symbolStrokeWidth=2, labelLimit=260, columns=5, orient="top")
    axis = alt.Axis(tickMinStep=1, format="d")
    x = alt.X("task:Q", title="task", axis=axis, scale=alt.Scale(domain=[1, max(tasks, 2)]))
    up = alt.Scale(domain=list(domain or _about(rows)))
    colour = alt.Color(f"{field}:N", scale=scale["color"], sort=names, legend=legend)
    tip = [
        alt.Tooltip(f"{field}:N"),
        alt.Tooltip("task:Q"),
        alt.Tooltip("text:N", title=y),
        alt.Tooltip("n:Q", title="runs"),
    ]
    pick = alt.selection_point(fields=[field], bind="legend", name="pick")
    faint = {"opacity": alt.condition(pick, alt.value(1), alt.value(0.08))} if alone else {}
    base = _chart(rows)
    band = base.mark_area(fillOpacity=0.13, clip=True).encode(
        x, alt.Y("low:Q", title=y, scale=up), alt.Y2("high:Q"), colour, **faint
    )
    dash = alt.StrokeDash(f"{field}:N", scale=scale["dash"], sort=names, legend=legend)
    line = base.mark_line(strokeWidth=2).encode(x, alt.Y("mean:Q"), colour, strokeDash=dash, **faint)
    shape = alt.Shape(f"{field}:N", scale=scale["shape"], sort=names, legend=legend)
    point = base.mark_point(filled=True, size=46).encode(x, alt.Y("mean:Q"), colour, shape=shape, tooltip=tip, **faint)
    chart = alt.layer(band, line, point.add_params(pick) if alone else point)
    return chart.properties(width=WIDTH, height=HEIGHT)


def _points(curve: Sequence[metrics.Interval | None], **more: Any) -> list[Record]:
    """Return a row a task of a curve, without the tasks that have no value."""
    return [{"task": number, **_spread(one), **more} for number, one in enumerate(curve, start=1) if one is not None]


def _spread(one: metrics.Interval, digits: int = 2) -> Record:
    half = 0.0 if math.isnan(one.half) else one.half
    words = f"{one.mean:.{digits}f}" + ("" if math.isnan(one.half) else f" ± {half:.{digits}f}")
    numbers = {"mean": one.mean, "low": one.mean - half, "high": one.mean + half}
    return {**{name: round(v, 5) for name, v in numbers.items()}, "text": words, "n": one.n}


def _about(rows: Sequence[Record], *, zero: bool = False) -> tuple[float, float]:
    """Return the range of an axis on which means can be told apart: intervals may be cut, two seeds' are immense."""
    means = [row["mean"] for row in rows]
    bottom, top = min(means), max(means)
    room = 0.3 * (top - bottom) or max(abs(top), 1) * 0.1
    low = max(min(row["low"] for row in rows), bottom - room)
    high = min(max(row["high"] for row in rows), top + room)
    if zero or (bottom >= 0 and low < 0):
        low = 0
    return low, high if high > low else low + room


def _over_tasks(found: Collection, name: str, title: str, score: str, y: str) -> Figure:
    views = []
    for content, memory, groups in _places(found.plain):
        rows = [row for g in groups if g.tasks > 1 for row in _points(mean_curve(g, score), method=g.label)]
        if rows:
            tasks = max(g.tasks for g in groups)
            views.append(View(place(content, memory), _spec(_lines(rows, y, tasks=tasks))))
    caption = (
        "Mean over seeds after each task; the band is the 95 % interval (none for a single seed), cut where it would "
        "hide the lines. "
    )
    return Figure(
        name, title, f"{caption}Click a method in the legend to see it alone.", sweep("table1", []), tuple(views)
    )


def _bars(rows: list[Record], y: str, order: list[str]) -> Any:
    """Return a value a name with its interval, the number written beside it."""
    base = _chart(rows)
    x = alt.X("name:N", sort=order, title=None, axis=alt.Axis(labelAngle=-30))
    tip = [
        alt.Tooltip("name:N", title="augmentation"),
        alt.Tooltip("text:N", title=y),
        alt.Tooltip("n:Q", title="runs"),
    ]
    scale = alt.Scale(domain=list(_about(rows)))
    rule = base.mark_rule(strokeWidth=2, color=GREY, clip=True).encode(
        x, alt.Y("low:Q", title=y, scale=scale), alt.Y2("high:Q")
    )
    dot = base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(x, alt.Y("mean:Q", scale=scale), tooltip=tip)
    label = base.mark_text(dx=8, align="left", fontSize=11).encode(
        x, alt.Y("mean:Q"), text=alt.Text("mean:Q", format=".1f")
    )
    return alt.layer(rule, dot, label).properties(width=WIDTH // 2 - 20, height=HEIGHT - 60)


def _augmentation(group: Group) -> str | None:
    """Return the name in Figure 2 of a group that is ER, or ER+DA on some augmentation, and nothing else."""
    if group.label == "er" and not group.changed:
        return PLAIN
    if group.label == "er+da" and all(path == "method.mix.augment" for path, _ in group.changed):
        return str(group.runs[0].settings["method.mix.augment"])
    return None


def _figure2(found: Collection) -> Figure:
    views = []
    order = [PLAIN, *OPERATORS, *(name for name in SCATTER if name not in OPERATORS)]
    for content, memory, groups in _places(g for g in found.groups if _augmentation(g)):
        named = {name: g for g in groups if (name := _augmentation(g))}
        if len(named) < 2 or not named.keys() - {PLAIN, "standard"}:
            continue
        charts = []
        for score, y in (("average_accuracy", "average accuracy, %"), ("forgetting", "average forgetting, %")):
            rows = [{"name": n, **_spread(i)} for n, g in named.items() if (i := g.interval(score))]
            charts.append(_bars(rows, y, [n for n in order if n in named] + sorted(named.keys() - set(order))))
        views.append(View(place(content, memory), _spec(alt.hconcat(*charts))))
    caption = (
        "ER, and ER with a view of the rehearsed batch under each augmentation; the line is the 95 % interval. "
        "The paper shows accuracy."
    )
    return Figure("figure2", "Figure 2: augmentations", caption, sweep("figure2", []), tuple(views))


def _error_shares(found: Collection, name: str, title: str, label: str) -> Figure:
    views = []
    for content in found.contents(found.plain):
        groups = [g for g in found.plain if g.label == label and g.content == content and g.memory is not None]
        charts = []
        for score, y in (("er_new_old", "er(n,o), %"), ("er_old_new", "er(o,n), %")):
            rows = [r for g in groups for r in _points(mean_curve(g, score), memory=f"memory {g.memory:,}")]
            if rows:
                tasks = max(g.tasks for g in groups)
                chart = _lines(rows, y, tasks=tasks, field="memory", domain=(0, 100), alone=False)
                charts.append(chart.properties(width=WIDTH // 2 - 20, height=HEIGHT - 40))
        if charts:
            views.append(View(place(content, None), _spec(_together(charts))))
    caption = (
        "er(n,o): share of the errors on new classes that are taken for old ones; er(o,n): share of the errors on old "
        "classes that are taken for new ones. Bands are 95 % intervals."
    )
    return Figure(name, title, caption, sweep("table3", [label]), tuple(views))


def _together(charts: Sequence[Any]) -> Any:
    """Return charts side by side with one legend."""
    return alt.hconcat(*charts).resolve_scale(color="shared", strokeDash="shared", shape="shared")


def _figure5(found: Collection) -> Figure:
    views = []
    for content, memory, groups in _places(g for g in found.groups if _scattered(g)):
        rows: list[Record] = []
        for group in groups:
            probed = [(m, run) for run in group.runs if (m := _mean_variance(run)) is not None]
            if probed:
                mean = float(np.mean([m for m, _ in probed]))
                accuracy = metrics.interval([100 * run.scores["average_accuracy"] for _, run in probed])
                rows.append({"name": _scattered(group), "m": mean, **_spread(accuracy), "m_text": f"{mean:.2e}"})
        if len(rows) < 2:
            continue
        base = _chart(rows)
        x = alt.X(
            "m:Q",
            title="mean variance m-bar (Eq. 6)",
            scale=alt.Scale(zero=False, nice=True, padding=30),
            axis=alt.Axis(format=".1e", tickCount=5),
        )
        y = alt.Y("mean:Q", title="average accuracy, %", scale=alt.Scale(domain=list(_about(rows))))
        tip = [
            alt.Tooltip("name:N", title="augmentation"),
            alt.Tooltip("m_text:N", title="m-bar"),
            alt.Tooltip("text:N", title="accuracy, %"),
            alt.Tooltip("n:Q", title="runs"),
        ]
        chart = alt.layer(
            base.mark_rule(color=GREY, clip=True).encode(x, alt.Y("low:Q"), alt.Y2("high:Q")),
            base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(x, y, tooltip=tip),
            base.mark_text(dx=9, align="left").encode(x, y, text="name:N"),
        ).properties(width=WIDTH, height=HEIGHT)
        views.append(View(place(content, memory), _spec(chart)))
    caption = (
        "Each augmentation's mean variance on the memory, averaged over the borders from task 2 on, against "
        "what training with it gave. The paper expects: the lower, the better."
    )
    return Figure("figure5", "Figure 5: mean variance against accuracy", caption, sweep("figure5", []), tuple(views))


def _scattered(group: Group) -> str | None:
    """Return the name in Figure 5 of a group."""
    if group.label == "er+enmix" and not group.changed:
        return "enmix"
    return _augmentation(group) if group.label == "er+da" else None


def _mean_variance(run: Run) -> float | None:
    """Return a run's m-bar of its own augmentation, averaged over tasks 2 to T."""
    own = "enmix" if run.label == "er+enmix" else "view"
    found = [
        float(record["operators"][own]["mean_variance"])
        for record in run.probes
        if record["task"] > 1 and own in record.get("operators", {})
    ]
    return float(np.mean(found)) if found else None


def _figure7(found: Collection) -> Figure:
    views = []
    for content, memory, groups in _places(found.plain):
        rows: list[Record] = []
        for group in groups:
            minutes = [run.times["train_seconds"] / 60 for run in group.runs if run.times.get("train_seconds")]
            if minutes and group.label not in ("iid-offline", "iid-online"):
                rows.append({"method": group.label, **_spread(metrics.interval(minutes))})
        if not rows:
            continue
        names, _ = _style(row["method"] for row in rows)
        across = alt.Scale(domain=list(_about(rows, zero=True)))
        base = _chart([{**row, "end": min(row["high"], across.domain[1])} for row in rows])
        y = alt.Y("method:N", sort=names, title=None)
        tip = [alt.Tooltip("method:N"), alt.Tooltip("text:N", title="minutes"), alt.Tooltip("n:Q", title="runs")]
        chart = alt.layer(
            base.mark_bar(color=COLOURS[0], opacity=0.75, height={"band": 0.6}).encode(
                alt.X("mean:Q", title="training time, minutes", scale=across), y, tooltip=tip
            ),
            base.mark_rule(strokeWidth=2, color=GREY, clip=True).encode(alt.X("low:Q"), alt.X2("high:Q"), y),
            base.mark_text(align="left", dx=6, fontSize=11).encode(
                alt.X("end:Q"), y, text=alt.Text("mean:Q", format=".1f")
            ),
        ).properties(width=WIDTH, height=max(60, 26 * len(rows)))
        views.append(View(place(content, memory), _spec(chart)))
    views.sort(key=lambda view: view.name != "CIFAR-100, memory 2,000")
    hosts = sorted({str(run.facts.get("host", {}).get("processor", "?")) for run in found.runs})
    caption = (
        "Time spent training, without testing; the paper shows CIFAR-100 with a memory of 2,000. Measured on: "
        f"{', '.join(hosts) or '-'}. Runs that share a machine slow each other down."
    )
    return Figure("figure7", "Figure 7: running time", caption, sweep("table1", [], "cifar100", 2000), tuple(views))


def _fullest(found: Collection) -> list[tuple[Content, int | None, list[Group]]]:
    """Return, for each data set, the memory that most methods have."""
    best: dict[Content, tuple[Content, int | None, list[Group]]] = {}
    for content, memory, groups in _places(g for g in found.plain if g.tasks > 1):
        if content not in best or len(groups) > len(best[content][2]):
            best[content] = (content, memory, groups)
    return list(best.values())


def _tiles(rows: list[Record], names: list[str], x: str, y: str, value: str, title: str) -> Any:
    """Return a small heat map a method."""
    tasks = max(row[x] for row in rows)
    side = max(90, min(190, 9 * tasks))
    ticks = [t for t in range(1, tasks + 1) if t in (1, tasks) or t % 5 == 0]
    scale = alt.Scale(scheme="viridis", domain=[0, max(1, *(row[value] for row in rows))])
    tip = [
        alt.Tooltip("method:N"),
        alt.Tooltip(f"{x}:O"),
        alt.Tooltip(f"{y}:O"),
        alt.Tooltip(f"{value}:Q", title=title, format=".1f"),
    ]
    chart = _chart(rows).mark_rect().encode(
        alt.X(f"{x}:O", axis=alt.Axis(values=ticks, labelAngle=0)), alt.Y(f"{y}:O", axis=alt.Axis(values=ticks)),
        alt.Color(f"{value}:Q", title=title, scale=scale), tooltip=tip,
    )  # fmt: skip
    return chart.properties(width=side, height=side).facet(
        facet=alt.Facet("method:N", sort=names, title=None), columns=3
    )  # fmt: skip


def _heat_map(found: Collection) -> Figure:
    views = []
    for content, memory, groups in _fullest(found):
        rows: list[Record] = []
        for group in groups:
            mean = 100 * np.mean([np.array(run.scores["accuracy_matrix"], dtype=float) for run in group.runs], axis=0)
            rows += [
                {"method": group.label, "tested": j + 1, "after": i + 1, "accuracy": round(float(mean[i, j]), 1)}
                for i in range(len(mean))
                for j in range(i + 1)
            ]
        if rows:
            names, _ = _style(row["method"] for row in rows)
            views.append(
                View(place(content, memory), _spec(_tiles(rows, names, "tested", "after", "accuracy", "accuracy, %")))
            )
    caption = (
        "Accuracy on each task (column) after each task (row), mean over seeds: the diagonal is what was just "
        "learned, the last row what is left of it."
    )
    return Figure("heatmap", "Accuracy on every task after every task", caption, sweep("table1", []), tuple(views))


def _confusion(found: Collection) -> Figure:
    views = []
    for content, memory, groups in _fullest(found):
        rows: list[Record] = []
        for group in groups:
            counts = np.sum([run.confusion for run in group.runs], axis=0).astype(float)
            share = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
            rows += [
                {"method": group.label, "predicted": j + 1, "true": i + 1, "share": round(float(share[i, j]), 1)}
                for i in range(len(share))
                for j in range(len(share))
            ]
        if rows:
            names, _ = _style(row["method"] for row in rows)
            views.append(
                View(place(content, memory), _spec(_tiles(rows, names, "predicted", "true", "share", "images, %")))
            )
    caption = (
        "After the last task: of the test images of each task (row), the share taken for a class of each task "
        "(column). A bright last column means that everything looks new."
    )
    return Figure("confusion", "Confusion by task", caption, sweep("table1", []), tuple(views))


def _probed(found: Collection, measure: Callable[[Run], dict[int, float]], y: str) -> list[View]:
    """Return a line a method of something that probes measured."""
    views = []
    for content, memory, groups in _places(found.plain):
        rows: list[Record] = []
        for group in groups:
            runs = [values for run in group.runs if (values := measure(run))]
            for task in sorted({task for values in runs for task in values}):
                one = metrics.interval([values[task] for values in runs if task in values])
                rows.append({"method": group.label, "task": task, **_spread(one, 4)})
        if rows:
            views.append(View(place(content, memory), _spec(_lines(rows, y, tasks=max(row["task"] for row in rows)))))
    return views


def _norm_ratio(run: Run) -> dict[int, float]:
    return {int(r["task"]): float(r["norm_ratio"]) for r in run.probes if r.get("norm_ratio") is not None}


def _open_gate(run: Run) -> dict[int, float]:
    """Return the share of AdpMix's pairs in each task whose norm ratio is above kappa, in per cent."""
    shares, pairs, opened = {}, 0.0, 0.0
    for record in run.probes:
        tally = record.get("tally") or {}
        now = (float(tally.get("adpmix pairs", 0)), float(tally.get("adpmix gate open", 0)))
        if now[0] > pairs:
            shares[int(record["task"])] = 100 * (now[1] - opened) / (now[0] - pairs)
        pairs, opened = now
    return shares


def _norms(found: Collection) -> Figure:
    views = _probed(found, _norm_ratio, "norm ratio, new / old")
    caption = (
        "Mean norm of the head's weights of the task's classes over that of all earlier classes, at each task's"
        " end: above 1 the head leans to the new."
    )
    return Figure("norms", "Head norms", caption, sweep("table3", []), tuple(views))


def _gate(found: Collection) -> Figure:
    views = _probed(found, _open_gate, "pairs with open gate, %")
    caption = (
        "Share of AdpMix's pairs in each task whose norm ratio is above kappa (Eq. 9), so that the label may be tilted."
    )
    return Figure("gate", "AdpMix's gate", caption, sweep("table3", ["er+adpmix", "er+dualmix"]), tuple(views))


def _memory(found: Collection) -> Figure:
    views = []
    for content, memory, groups in _places(found.plain):
        rows: list[Record] = []
        for group in groups:
            held = [_held(run) for run in group.runs if run.probes]
            held = [counts for counts in held if counts]
            if held:
                mean = np.mean(held, axis=0)
                rows += [
                    {"method": group.label, "task": i + 1, "images": round(float(n), 2)} for i, n in enumerate(mean)
                ]
        if rows:
            names, scale = _style(row["method"] for row in rows)
            tip = [alt.Tooltip("method:N"), alt.Tooltip("task:O"), alt.Tooltip("images:Q", format=".1f")]
            chart = _chart(rows).mark_bar().encode(
                alt.X("task:O", title="task the images came from", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
                alt.Y("images:Q", title="images in memory"),
                alt.Color("method:N", scale=scale["color"], sort=names, legend=None),
                tooltip=tip,
            )  # fmt: skip
            chart = chart.properties(width=WIDTH // 2 - 30, height=110).facet(
                facet=alt.Facet("method:N", sort=names, title=None), columns=2
            )  # fmt: skip
            views.append(View(place(content, memory), _spec(chart)))
    caption = "Images of each task that the memory holds after the last task, mean over seeds."
    return Figure("memory", "What the memory holds", caption, sweep("table3", []), tuple(views))


def _held(run: Run) -> list[int]:
    """Return how many images of each task the memory holds at the end."""
    last = run.probes[-1]
    labels, counts = last.get("labels"), last.get("memory_counts")
    if not labels or not counts or sum(counts) == 0:
        return []
    by_class = dict(zip(labels, counts, strict=False))
    return [sum(int(by_class.get(c, 0)) for c in task["classes"]) for task in run.plan["tasks"]]


def _proposition(verdicts: Sequence[Verdict]) -> Figure:
    views = []
    for verdict in verdicts:
        rows = [
            {"name": one.name, "co": one.covariance, "fg": one.gap, "tip": f"CO {one.covariance:.1e}, FG {one.gap:.3g}"}
            for one in verdict.operators
            if math.isfinite(one.gap) and one.covariance > 0
        ]
        if not rows:
            continue
        base = _chart(rows)
        x = alt.X(
            "co:Q",
            title="covariance CO (Eq. 5), log scale",
            scale=alt.Scale(type="log", padding=30),
            axis=alt.Axis(format=".0e", tickCount=5),
        )
        y = alt.Y("fg:Q", title="forgetting gap FG (Eq. 4)", scale=alt.Scale(zero=False, padding=15))
        chart = alt.layer(
            base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(
                x, y, tooltip=[alt.Tooltip("name:N", title="augmentation"), alt.Tooltip("tip:N", title="measured")]
            ),
            base.mark_text(dx=9, align="left").encode(x, y, text="name:N"),
        ).properties(width=WIDTH, height=HEIGHT)
        views.append(View(verdict.stream, _spec(chart)))
    caption = (
        "Each augmentation measured on the same models of ER and averaged over task borders. Proposition 1 "
        "says: the lower the covariance, the smaller the gap."
    )
    return Figure(
        "proposition",
        "Proposition 1: covariance against forgetting gap",
        caption,
        sweep("proposition", []),
        tuple(views),
    )


def _speed(speed: Speed) -> Figure:
    groups = dict.fromkeys(row.group for row in speed.rows)
    views = [
        View(group, _spec(_ratios(found)))
        for group in groups
        if (found := [row for row in speed.rows if row.group == group and row.ratio is not None])
    ]
    if speed.stages:
        views.append(View("scale run", _spec(_growth(speed.stages))))
    caption = (
        "Time of a call as a multiple of the first row of its group in the table, or memory as a multiple of what it "
        "may be. Dot: median; line: quartiles; upright stroke: the limit, and the verdict in words; unclear where the "
        f"quartiles straddle it. Measured on: {speed.where}."
    )
    return Figure("bench", "Benchmark", caption, "dualmix bench --out bench.json", tuple(views))


def _ratios(found: Sequence[Row]) -> Any:
    """Return a ratio a row with its quartiles, its limit and its verdict."""
    rows = [
        {
            "name": row.name,
            "ratio": row.ratio,
            "low": row.low,
            "high": row.high,
            "limit": row.limit,
            "end": max(row.high or 0, row.limit or 0),
            "text": f"{row.ratio:.2f} {row.verdict}".strip(),
        }
        for row in found
    ]
    base = _chart(rows)
    y = alt.Y("name:N", sort=[row.name for row in found], title=None, axis=alt.Axis(labelLimit=260))
    tip = [alt.Tooltip("name:N"), alt.Tooltip("text:N", title="ratio"), alt.Tooltip("limit:Q")]
    limits = base.transform_filter("datum.limit !== null")
    return alt.layer(
        base.mark_rule(strokeWidth=2, color=GREY).encode(alt.X("low:Q", title="ratio"), alt.X2("high:Q"), y),
        base.mark_point(filled=True, size=70, color=COLOURS[0]).encode(alt.X("ratio:Q"), y, tooltip=tip),
        limits.mark_tick(thickness=3, size=18, color=COLOURS[3]).encode(alt.X("limit:Q"), y),
        base.mark_text(align="left", dx=8, fontSize=11).encode(alt.X("end:Q"), y, text="text:N"),
    ).properties(width=WIDTH, height=max(60, 26 * len(rows)))


def _growth(stages: Sequence[Stage]) -> Any:
    """Return the time of a step and the process's memory over the images of the scale run."""
    rows = [
        {
            "images": stage.images,
            "classes": stage.classes,
            "ms": round(1000 * stage.step_seconds, 3),
            "mb": round(stage.memory_mb, 1),
        }
        for stage in stages
    ]
    x = alt.X("images:Q", title="images seen", axis=alt.Axis(format="~s"))
    tip = [alt.Tooltip("images:Q", format=","), alt.Tooltip("classes:Q", format=",")]
    charts = [
        _chart(rows)
        .mark_line(point=alt.OverlayMarkDef(color=COLOURS[0]), color=COLOURS[0])
        .encode(x, alt.Y(f"{field}:Q", title=title), tooltip=[*tip, alt.Tooltip(f"{field}:Q", title=title)])
        .properties(width=WIDTH // 2 - 30, height=HEIGHT - 80)
        for field, title in (("ms", "ms a step"), ("mb", "memory, MB"))
    ]
    return alt.hconcat(*charts)
