"""What the figures are made of: styles that are the same in all of them, lines with bands, axes,
places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt
from altair.utils import schemapi

from dualmix.paper.numbers import BOUNDS, ROWS, rank
from dualmix.runs import metrics
from dualmix.runs.records import Content, Group

COLOURS = (
    "#e69f00",
    "#17a2b8",
    "#8c564b",
    "#d55e00",
    "#56a64b",
    "#0072b2",
    "#a6761d",
    "#cc5fa0",
    "#5b6bd6",
    "#009e73",
)
GREY = "#7f7f7f"
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [12, 4], [6, 2, 2, 2, 2, 2])
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
WIDTH, HEIGHT = 620, 320

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureView:
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
    views: tuple[FigureView, ...] = ()


class Place(NamedTuple):
    """What runs must share to stand in one picture."""

    content: Content
    memory: int | None = None
    first: int | None = None

    def __str__(self) -> str:
        """Return data set, length of the stream where it is not the whole one, and memory."""
        subset = " (subset)" if self.content.subset else ""
        short = f", first {self.first} tasks" if self.first else ""
        return f"{self.content.title}{subset}{short}" + (
            "" if self.memory is None else f", memory {self.memory:,}"
        )


def chart_of(values: list[Record]) -> alt.Chart:
    """Return a chart of rows that stand in the specification itself."""
    return alt.Chart(alt.InlineData(values=values))


def spec_of(chart: Any) -> Record:
    """Return a chart's specification; the page sets its colours.

    Altair's debug mode says whether it is checked against the schema of Vega-Lite.
    """
    spec: Record = chart.to_dict(validate=schemapi.DEBUG_MODE)
    spec.pop("config", None)
    return spec


def styles(labels: Iterable[str]) -> tuple[list[str], dict[str, alt.Scale]]:
    """Return methods in order, and colour, dash and shape of each: the same in all figures."""
    names = sorted(dict.fromkeys(labels), key=rank)
    strange = [name for name in names if name not in ROWS]
    at = {
        name: ROWS.index(name) if name in ROWS else len(ROWS) + strange.index(name)
        for name in names
    }
    plain = {
        name: GREY if name in (*BOUNDS, "iid-online") else COLOURS[i % len(COLOURS)]
        for name, i in at.items()
    }
    scales = {
        "color": alt.Scale(domain=names, range=list(plain.values())),
        "dash": alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in at.values()]),
        "shape": alt.Scale(domain=names, range=[SHAPES[i % len(SHAPES)] for i in at.values()]),
    }
    return names, scales


def by_place(groups: Iterable[Group]) -> list[tuple[Place, list[Group]]]:
    """Return groups by data set, stream and memory; a method without memory joins every memory of
    its stream.

    The longest stream comes first, and of several the fullest, in the paper's order.
    """
    groups = list(groups)
    sizes: dict[Place, set[int]] = {}
    for group in groups:
        memories = sizes.setdefault(Place(group.content, None, group.first), set())
        memories.update([] if group.memory is None else [group.memory])
    places: list[Place] = []
    for stream, held in sizes.items():
        places += [stream._replace(memory=memory) for memory in sorted(held)] or [stream]
    pairs = [
        (
            at,
            [
                g
                for g in groups
                if (g.content, g.first) == (at.content, at.first) and g.memory in (at.memory, None)
            ],
        )
        for at in places
    ]
    return sorted(pairs, key=lambda pair: (-(pair[0].first or math.inf), -len(pair[1])))


def lines_over_tasks(
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
    names, scale = styles(row[field] for row in rows)
    legend = alt.Legend(
        title=None, symbolSize=90, symbolStrokeWidth=2, labelLimit=260, columns=5, orient="top"
    )
    axis = alt.Axis(tickMinStep=1, format="d")
    x = alt.X("task:Q", title="task", axis=axis, scale=alt.Scale(domain=[1, max(tasks, 2)]))
    up = alt.Scale(domain=list(domain or axis_about(rows)))
    colour = alt.Color(f"{field}:N", scale=scale["color"], sort=names, legend=legend)
    tip = [
        alt.Tooltip(f"{field}:N"),
        alt.Tooltip("task:Q"),
        alt.Tooltip("text:N", title=y),
        alt.Tooltip("n:Q", title="runs"),
    ]
    pick = alt.selection_point(fields=[field], bind="legend", name="pick")
    faint = {"opacity": alt.condition(pick, alt.value(1), alt.value(0.08))} if alone else {}
    base = chart_of(rows)
    band = base.mark_area(fillOpacity=0.13, clip=True).encode(
        x, alt.Y("low:Q", title=y, scale=up), alt.Y2("high:Q"), colour, **faint
    )
    dash = alt.StrokeDash(f"{field}:N", scale=scale["dash"], sort=names, legend=legend)
    line = base.mark_line(strokeWidth=2).encode(
        x, alt.Y("mean:Q"), colour, strokeDash=dash, **faint
    )
    shape = alt.Shape(f"{field}:N", scale=scale["shape"], sort=names, legend=legend)
    point = base.mark_point(filled=True, size=46).encode(
        x, alt.Y("mean:Q"), colour, shape=shape, tooltip=tip, **faint
    )
    chart = alt.layer(band, line, point.add_params(pick) if alone else point)
    return chart.properties(width=WIDTH, height=HEIGHT)


def points(curve: Sequence[metrics.Interval | None], **more: Any) -> list[Record]:
    """Return one row per task of a curve, without the tasks that have no value."""
    return [
        {"task": number, **spread(one), **more}
        for number, one in enumerate(curve, start=1)
        if one is not None
    ]


def spread(one: metrics.Interval, digits: int = 2) -> Record:
    """Return a mean with its interval, as numbers and in words."""
    half = 0.0 if math.isnan(one.half) else one.half
    words = f"{one.mean:.{digits}f}" + ("" if math.isnan(one.half) else f" ± {half:.{digits}f}")
    numbers = {"mean": one.mean, "low": one.mean - half, "high": one.mean + half}
    return {**{name: round(v, 5) for name, v in numbers.items()}, "text": words, "n": one.n}


def axis_about(rows: Sequence[Record], *, zero: bool = False) -> tuple[float, float]:
    """Return the range of an axis on which means can be told apart: intervals may be cut, two
    seeds' are immense.
    """
    means = [row["mean"] for row in rows]
    bottom, top = min(means), max(means)
    room = 0.3 * (top - bottom) or max(abs(top), 1) * 0.1
    low = max(min(row["low"] for row in rows), bottom - room) - room / 4
    high = min(max(row["high"] for row in rows), top + room) + room / 4
    if zero or (bottom >= 0 and low < 0):
        low = 0
    return low, high if high > low else low + room


def side_by_side(charts: Sequence[Any]) -> Any:
    """Return charts side by side with one legend."""
    return alt.hconcat(*charts).resolve_scale(color="shared", strokeDash="shared", shape="shared")
