"""Figures that the paper does not have: every task after every task, confusion, and what the probes
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np

from dualmix.paper.proposition import Verdict
from dualmix.report.charts import (
    HEIGHT,
    STRONG,
    WIDTH,
    Figure,
    FigureView,
    Place,
    Record,
    by_place,
    chart_of,
    lines_over_tasks,
    panels,
    spec_of,
    spread,
    styles,
)
from dualmix.report.commands import sweep_command
from dualmix.report.labels import SIDES, sides_of
from dualmix.report.summary import name_of
from dualmix.report.words import counted, listed
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content, Group, Run

PHONE = 250
"""Width of a picture on a phone, on which names must not meet either."""


def _typical(collection: Collection) -> list[Group]:
    """Return the presets' groups; of a data set that has none, for each method the group with most
    seeds at each length of the stream and each memory.
    """
    preset = {group.content for group in collection.plain}
    chosen: dict[tuple[Any, ...], Group] = {}
    for group in collection.groups:
        place = (group.content, group.first, group.memory, group.label)
        if group.content in preset:
            continue
        if place not in chosen or len(group.seeds) > len(chosen[place].seeds):
            chosen[place] = group
    return [*collection.plain, *chosen.values()]


def _fullest(collection: Collection) -> list[tuple[Place, list[Group]]]:
    """Return, for each data set, the memory that most methods have."""
    best: dict[Content, tuple[Place, list[Group]]] = {}
    for at, groups in by_place(g for g in _typical(collection) if g.tasks > 1):
        best.setdefault(at.content, (at, groups))
    return list(best.values())


def _tiles(rows: list[Record], x: str, y: str, value: str, title: str) -> Any:
    """Return a small heat map per method."""
    names, _ = styles(row["method"] for row in rows)
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
    legend = alt.Legend(title=title, orient="top", gradientLength=160)
    charts = [
        chart_of([row for row in rows if row["method"] == name])
        .mark_rect()
        .encode(
            alt.X(f"{x}:O", axis=alt.Axis(values=ticks, labelAngle=0)),
            alt.Y(f"{y}:O", axis=alt.Axis(values=ticks)),
            alt.Color(f"{value}:Q", scale=scale, legend=legend),
            tooltip=tip,
        )
        .properties(width=side, height=side, title=_lines_of(name))
        for name in names
    ]
    return panels(charts, 4).resolve_scale(color="shared")


def _lines_of(name: str) -> str | list[str]:
    """Return the title of a small picture: a method, and a line for each setting that differs."""
    label, some, changed = name.partition(" (")
    return [label, *changed.removesuffix(")").split("; ")] if some else name


def heat_map(collection: Collection) -> Figure:
    """Return the accuracy on every task after every task, one map per method."""
    views, says = [], []
    for at, groups in _fullest(collection):
        rows: list[Record] = []
        left: dict[str, float] = {}
        for group in groups:
            mean = 100 * np.mean(
                [np.array(run.scores["accuracy_matrix"], dtype=float) for run in group.runs], axis=0
            )
            left[name_of(group)] = float(mean[-1, :-1].mean())
            rows += [
                {
                    "method": name_of(group),
                    "tested": j + 1,
                    "after": i + 1,
                    "accuracy": round(float(mean[i, j]), 1),
                }
                for i in range(len(mean))
                for j in range(i + 1)
            ]
        if rows:
            tiles = _tiles(rows, "tested", "after", "accuracy", "accuracy, %")
            views.append(FigureView(str(at), spec_of(tiles)))
            says.append(f"{at}, accuracy on the tasks before the last: {_extremes(left)}.")
    caption = (
        "Accuracy on each task (column) after each task (row), mean over seeds: the diagonal is "
        "what was just learned, the last row what is left of it."
    )
    return Figure(
        "heatmap",
        "What is left of each task?",
        caption,
        sweep_command("table1", []),
        tuple(views),
        tuple(says),
        wide=True,
    )


def _extremes(shares: dict[str, float]) -> str:
    """Return the largest and the smallest share in words; of one method its own."""
    low, high = min(shares, key=lambda name: shares[name]), max(shares, key=lambda n: shares[n])
    if len(shares) == 1:
        return f"{shares[high]:.1f} % with {high}"
    return f"from {shares[low]:.1f} % with {low} to {shares[high]:.1f} % with {high}"


def confusion_by_task(collection: Collection) -> Figure:
    """Return which task's classes the images of each task are taken for at the end."""
    views, says = [], []
    for at, groups in _fullest(collection):
        rows: list[Record] = []
        newest: dict[str, float] = {}
        for group in groups:
            counts = np.sum([run.confusion for run in group.runs], axis=0).astype(float)
            share = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
            newest[name_of(group)] = float(share[:-1, -1].mean())
            rows += [
                {
                    "method": name_of(group),
                    "predicted": j + 1,
                    "true": i + 1,
                    "share": round(float(share[i, j]), 1),
                }
                for i in range(len(share))
                for j in range(len(share))
            ]
        if rows:
            tiles = _tiles(rows, "predicted", "true", "share", "images, %")
            views.append(FigureView(str(at), spec_of(tiles)))
            says.append(
                f"{at}, images of earlier tasks taken for a class of the last: {_extremes(newest)}."
            )
    caption = (
        "After the last task: of the test images of each task (row), the share taken for a class "
        "of each task (column). A bright last column means that everything looks new."
    )
    return Figure(
        "confusion",
        "What is taken for what?",
        caption,
        sweep_command("table1", []),
        tuple(views),
        tuple(says),
        wide=True,
    )


def _probed(
    some: Iterable[Group], measure: Callable[[Run], dict[int, float]], y: str
) -> list[FigureView]:
    """Return one line per configuration of something that probes measured."""
    views = []
    for at, groups in by_place(some):
        rows: list[Record] = []
        for group in groups:
            runs = [values for run in group.runs if (values := measure(run))]
            for task in sorted({task for values in runs for task in values}):
                one = metrics.interval([values[task] for values in runs if task in values])
                rows.append({"method": name_of(group), "task": task, **spread(one, 4)})
        if rows:
            views.append(
                FigureView(
                    str(at),
                    spec_of(lines_over_tasks(rows, y, tasks=max(row["task"] for row in rows))),
                )
            )
    return views


def _norm_ratio(run: Run) -> dict[int, float]:
    return {
        int(r["task"]): float(r["norm_ratio"])
        for r in run.probes
        if r.get("norm_ratio") is not None
    }


def _open_gate(run: Run) -> dict[int, float]:
    """Return per task the per cent of AdpMix's pairs with a norm ratio above kappa (Eq. 9)."""
    shares, pairs, opened = {}, 0.0, 0.0
    for record in run.probes:
        tally = record.get("tally") or {}
        now = (float(tally.get("adpmix pairs", 0)), float(tally.get("adpmix gate open", 0)))
        if now[0] > pairs:
            shares[int(record["task"])] = 100 * (now[1] - opened) / (now[0] - pairs)
        pairs, opened = now
    return shares


def norms(collection: Collection) -> Figure:
    """Return the ratio of head norms, new classes to old, after each task."""
    views = _probed(_typical(collection), _norm_ratio, "norm ratio, new / old")
    says = []
    for at, groups in by_place(_typical(collection)):
        ends = [
            (float(np.mean(last)), name_of(group))
            for group in groups
            if (last := [list(v.values())[-1] for run in group.runs if (v := _norm_ratio(run))])
        ]
        if ends:
            leans = {end > 1 for end, _ in ends}
            way = "to the new" if leans == {True} else "to the old"
            said = f"the head leans {way} classes" if len(leans) == 1 else "1 is no lean"
            named = listed([f"{end:.2f} with {label}" for end, label in ends])
            says.append(
                f"{at}, norms of new classes over old after the last task: {named}; {said}."
            )
    caption = (
        "Mean norm of the head's weights of the task's classes over that of all earlier classes, "
        "at each task's end: above 1 the head leans to the new. Bands, of three lines "
        "at most: 95 % intervals from three seeds on."
    )
    return Figure(
        "norms",
        "Does the head lean to new classes?",
        caption,
        sweep_command("table3", []),
        tuple(views),
        tuple(says),
        wide=True,
    )


def gate(collection: Collection) -> Figure:
    """Return how often the gate of Eq. 9 was open: a sentence per configuration, and a picture of
    those where it opened.
    """
    says, opened = [], []
    never: list[str] = []
    shut, runs, rare = 0, 0, list[float]()
    for group in collection.groups:
        tallies = [run.probes[-1].get("tally") or {} for run in group.runs if run.probes]
        pairs = sum(int(tally.get("adpmix pairs", 0)) for tally in tallies)
        open_ = sum(int(tally.get("adpmix gate open", 0)) for tally in tallies)
        if 100 * open_ >= pairs > 0:
            at = f", first {group.first} tasks" if group.first else ""
            says.append(
                f"{name_of(group)}{at}, memory {group.memory:,}: open for {open_:,} of {pairs:,} "
                f"pairs ({100 * open_ / pairs:.1f} %)."
            )
            opened.append(group)
        elif open_:
            rare.append(100 * open_ / pairs)
        elif pairs:
            never.append(name_of(group))
            shut, runs = shut + pairs, runs + len(tallies)
    if never:
        says.insert(
            0,
            f"The gate never opened in {listed([*dict.fromkeys(never)])}: 0 of {shut:,} pairs in "
            f"{counted(runs, 'run')}.",
        )
        says.insert(1, "Where it is shut, AdpMix is ordinary mixup of old and new images.")
    if rare:
        also = "more " if never or opened else ""
        which = counted(len(rare), f"{also}configuration")
        says.append(f"In {which} it opened for at most {max(rare):.1g} % of the pairs.")
    caption = (
        "Share of AdpMix's pairs in each task whose norm ratio is above kappa (Eq. 9), so that the "
        "label may be tilted; configurations where it opened for 1 % of the pairs or more."
    )
    return Figure(
        "gate",
        "Does the gate of Eq. 9 open?",
        caption,
        f"{sweep_command('table3', ['er+adpmix', 'er+dualmix'])} --probes.on true",
        tuple(_probed(opened, _open_gate, "pairs with open gate, %")),
        tuple(says),
    )


def memory_classes(collection: Collection) -> Figure:
    """Return the images of each task that the memory holds at the end."""
    views, says = [], []
    for at, groups in by_place(_typical(collection)):
        rows: list[Record] = []
        for group in groups:
            held = [_held(run) for run in group.runs if run.probes]
            held = [counts for counts in held if counts]
            if held:
                mean = np.mean(held, axis=0)
                rows += [
                    {"method": name_of(group), "task": i + 1, "images": round(float(n), 2)}
                    for i, n in enumerate(mean)
                ]
        if rows:
            held_ = [row["images"] for row in rows]
            most = max(held_)
            says.append(f"{at}: {min(held_):.0f} to {most:.0f} images of each task.")
            tip = [
                alt.Tooltip("method:N"),
                alt.Tooltip("task:O"),
                alt.Tooltip("images:Q", format=".1f"),
            ]
            axis = alt.Axis(labelAngle=0, labelOverlap=True)
            charts = [
                chart_of([row for row in rows if row["method"] == name])
                .mark_bar(color=STRONG)
                .encode(
                    alt.X("task:O", title="task the images came from", axis=axis),
                    alt.Y("images:Q", title="images", scale=alt.Scale(domain=[0, 1.05 * most])),
                    tooltip=tip,
                )
                .properties(width=WIDTH // 2 - 30, height=110, title=_lines_of(name))
                for name in styles(row["method"] for row in rows)[0]
            ]
            chart = panels(charts)
            views.append(FigureView(str(at), spec_of(chart)))
    caption = "Images of each task that the memory holds after the last task, mean over seeds."
    return Figure(
        "memory",
        "What does the memory hold?",
        caption,
        sweep_command("table3", []),
        tuple(views),
        tuple(says),
        wide=True,
    )


def _held(run: Run) -> list[int]:
    """Return how many images of each task the memory holds at the end."""
    last = run.probes[-1]
    labels, counts = last.get("labels"), last.get("memory_counts")
    if not labels or not counts or sum(counts) == 0:
        return []
    by_class = dict(zip(labels, counts, strict=False))
    return [sum(int(by_class.get(c, 0)) for c in task["classes"]) for task in run.plan["tasks"]]


def proposition_1(verdicts: Sequence[Verdict]) -> Figure:
    """Return the covariance of each augmentation (Eq. 5) against its forgetting gap (Eq. 4)."""
    views, says = [], []
    for verdict in verdicts:
        says += _found(verdict)
        rows: list[Record] = [
            {
                "name": one.name,
                "co": one.covariance,
                "fg": one.gap,
                "tip": f"CO {one.covariance:.1e}, FG {one.gap:.3g}",
            }
            for one in verdict.operators
            if math.isfinite(one.gap) and one.covariance > 0
        ]
        if not rows:
            continue
        both = [(math.log(row["co"]), row["fg"]) for row in rows]
        sides = sides_of([row["name"] for row in rows], both, PHONE, HEIGHT)
        base = chart_of([{**row, "side": side} for row, side in zip(rows, sides, strict=True)])
        low, high = min(row["co"] for row in rows) / 1.6, max(row["co"] for row in rows) * 1.6
        x = alt.X(
            "co:Q",
            title="covariance CO (Eq. 5), log scale",
            scale=alt.Scale(type="log", domain=[low, high], nice=False),
            axis=alt.Axis(format="~g", values=_decades(low, high)),
        )
        y = alt.Y(
            "fg:Q", title="forgetting gap FG (Eq. 4)", scale=alt.Scale(zero=False, padding=15)
        )
        chart = alt.layer(
            base.mark_point(filled=True, size=90, color=STRONG).encode(
                x,
                y,
                tooltip=[
                    alt.Tooltip("name:N", title="augmentation"),
                    alt.Tooltip("tip:N", title="measured"),
                ],
            ),
            *(
                base.transform_filter(f"datum.side == '{side}'")
                .mark_text(**SIDES[side])
                .encode(x, y, text="name:N")
                for side in dict.fromkeys(sides)
            ),
        ).properties(width=WIDTH, height=HEIGHT)
        views.append(FigureView(verdict.stream, spec_of(chart)))
    caption = (
        "Each augmentation measured on the same models of ER and averaged over task borders. "
        "Proposition 1 says: the lower the covariance, the smaller the gap."
    )
    return Figure(
        "proposition",
        "Does Proposition 1 hold?",
        caption,
        sweep_command("proposition", []),
        tuple(views),
        tuple(says),
    )


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten of a range, which a logarithmic axis names."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [v for p in powers for d in (1, 2, 5) if low <= (v := float(f"{d}e{p}")) <= high]


def _found(verdict: Verdict) -> list[str]:
    """Return what was found on a stream in sentences."""
    pairs = sum(border.pairs for border in verdict.borders)
    failed = pairs - sum(border.agree for border in verdict.borders)
    overruled = sum(border.overruled for border in verdict.borders)
    return [
        f"{verdict.stream}: the lower covariance goes with the smaller gap in "
        f"{100 * verdict.holds:.0f} % of {pairs} pairs of augmentations "
        f"({verdict.gap.words('models')}).",
        f"In {overruled} of the {failed} pairs where it does not, the bias part of the gap "
        "decides, of which the proposition does not speak.",
        f"Covariance against accuracy: {verdict.accuracy.words('augmentations')} (expected: "
        "negative).",
        f"Covariance against forgetting: {verdict.forgetting.words('augmentations')} (expected: "
        "positive).",
    ]
