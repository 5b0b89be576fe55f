"""Which way to answer is best: the head or the nearest class mean, the weights or their average."""

from __future__ import annotations

from typing import Any

import altair as alt

from dualmix.paper.numbers import DATA
from dualmix.report.charts import (
    WIDTH,
    Figure,
    FigureView,
    Record,
    axis_about,
    by_place,
    dots,
    panels,
    spec_of,
    spread,
)
from dualmix.report.commands import sweep_command
from dualmix.report.summary import name_of
from dualmix.report.words import counted, interval_text
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Group

WAYS = ("weights, head", "weights, ncm", "average, head", "average, ncm")


def scored(group: Group) -> dict[str, metrics.Interval]:
    """Return the average accuracy of each way to answer, in per cent, over the runs that were asked
    for it (`probes.answers`).
    """
    found = [run.probes[-1].get("answers") or {} for run in group.runs if run.probes]
    shares = {way: [100 * float(one[way]) for one in found if way in one] for way in WAYS}
    return {way: metrics.interval(some) for way, some in shares.items() if some}


def ways(collection: Collection) -> Figure:
    """Return the ways to answer of each configuration whose runs were asked for them."""
    views, says = [], []
    asked = {id(group): found for group in collection.groups if (found := scored(group))}
    for at, groups in by_place(group for group in collection.groups if id(group) in asked):
        charts = [_dots(name_of(group), asked[id(group)]) for group in groups]
        views.append(FigureView(str(at), spec_of(panels(charts))))
        best = max(groups, key=lambda group: _rank(asked[id(group)]))
        found = asked[id(best)]
        told = "; ".join(f"{way} {interval_text(found[way])}" for way in WAYS if way in found)
        of = f", the best of {len(groups)}" if len(groups) > 1 else ""
        says.append(f"{at}, {name_of(best)}{of} ({counted(_runs(found), 'run')}): {told}.")
    caption = (
        "Average accuracy after the last task. Head: the trained head answers; ncm: the nearest "
        "class mean of the memory's features. Weights: those of the last step; average: a moving "
        "average of them (+ema). Training is the same for all four. Dot: mean; line: its 95 % "
        "interval, which one or two seeds do not have."
    )
    return Figure(
        "ways",
        "Which way to answer is best?",
        caption,
        sweep_command("table1", ["er+dualmix"], DATA[0], 1000, 3)
        + " --method.ema.rate 0.01 --probes.on true --probes.answers true",
        tuple(views),
        tuple(says),
    )


def _runs(found: dict[str, metrics.Interval]) -> int:
    return max(one.n for one in found.values())


def _rank(found: dict[str, metrics.Interval]) -> tuple[int, float]:
    """Return what puts configurations in order: most runs first, then the best way to answer."""
    return _runs(found), max(one.mean for one in found.values())


def _dots(name: str, found: dict[str, metrics.Interval]) -> Any:
    rows: list[Record] = [{"name": way, **spread(one, 1)} for way, one in found.items()]
    scale = alt.Scale(domain=list(axis_about(rows, whole=True)))
    y = alt.Y("name:N", sort=list(WAYS), title=None, axis=alt.Axis(labelLimit=150))
    tip = [
        alt.Tooltip("name:N", title="way"),
        alt.Tooltip("text:N", title="accuracy, %"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    layers = dots(rows, y, "average accuracy, %", scale, tip)
    return alt.layer(*layers).properties(
        width=WIDTH // 2 - 20, height=34 * len(rows) + 10, title=name
    )
