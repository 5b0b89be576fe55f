"""What the figures are made of: styles that are the same in all of them, lines with bands, axes,
places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt
from altair.utils import schemapi

from dualmix.paper.numbers import BOUNDS, DATA, ROWS, rank
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
STRONG = COLOURS[5]
"""The line to look at, beside grey ones."""
WIDTH, HEIGHT = 620, 320
BANDED = "datum.n > 2"
"""Which intervals are drawn as bands: those of two seeds would fill the picture."""
FEW = 3
"""Lines of a picture that all have their bands."""
MULTIPLE = 130
"""Height of a small multiple."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure for one data set and memory."""

    name: str
    spec: Record


@dataclass(frozen=True, slots=True)
class Figure:
    """A question, what the store answers, and the picture of it.

    Attributes
    ----------
    title
        The question.
    caption
        How to read the picture.
    command
        The sweep that trains its runs; shown where they are missing.
    says
        The answer in sentences. Without a view it stands alone; with neither, nothing is shown.
    wide
        Whether the picture needs the whole width of the page, so that the answer stands above it.
    """

    id: str
    title: str
    caption: str
    command: str
    views: tuple[FigureView, ...] = ()
    says: tuple[str, ...] = ()
    wide: bool = False


class Place(NamedTuple):
    """What runs must share to stand in one picture."""

    content: Content
    memory: int | None = None
    first: int | None = None
    twin: bool = False

    def __str__(self) -> str:
        """Return data set, with its digest where another has its name, length of the stream where
        it is not the whole one, and memory.
        """
        twin = f" ({self.content.fingerprint[:6]})" if self.twin else ""
        subset = " (subset)" if self.content.subset else ""
        short = f", first {self.first} tasks" if self.first else ""
        return f"{self.content.title}{twin}{subset}{short}" + (
            "" if self.memory is None else f", memory {self.memory:,}"
        )


def chart_of(values: list[Record]) -> alt.Chart:
    """Return a chart of rows that stand in the specification itself.

    They are a tuple because Altair copies lists, row by row, whenever a chart becomes a part.
    """
    return alt.Chart(alt.InlineData(values=tuple(values)))


def spec_of(chart: Any) -> Record:
    """Return a chart's specification; the page sets its colours.

    Altair's debug mode says whether it is checked against the schema of Vega-Lite.
    """
    spec: Record = chart.to_dict(validate=schemapi.DEBUG_MODE)
    spec.pop("config", None)
    return spec


def styles(
    labels: Iterable[str], order: Sequence[str] | None = None
) -> tuple[list[str], dict[str, alt.Scale]]:
    """Return methods in order, and colour, dash and shape of each: the same in all figures, but
    where an order is given, which has names of its own.
    """
    names = list(order or sorted(dict.fromkeys(labels), key=rank))
    strange = [name for name in names if name not in ROWS]
    at = {
        name: ROWS.index(name) if name in ROWS else len(ROWS) + strange.index(name)
        for name in names
    }
    if order:
        at = {name: number for number, name in enumerate(names)}
    plain = {
        name: GREY if name in (*BOUNDS, "iid-online") and not order else COLOURS[i % len(COLOURS)]
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

    Data of one's own come first, then the longest stream, and of several the fullest.
    """
    groups = list(groups)
    titles = Counter(content.title for content in {group.content for group in groups})
    sizes: dict[Place, set[int]] = {}
    for group in groups:
        twin = titles[group.content.title] > 1
        memories = sizes.setdefault(Place(group.content, None, group.first, twin), set())
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
    return sorted(
        pairs,
        key=lambda pair: (
            pair[0].content.name in DATA,
            -(pair[0].first or math.inf),
            -len(pair[1]),
        ),
    )


def lines_over_tasks(
    rows: list[Record], y: str, *, tasks: int, names: Sequence[str] | None = None
) -> Any:
    """Return lines over tasks with bands, told apart by colour, dash and shape.

    The parameter `alone` names the line that is shown alone: the page's legend sets it. Bands are
    drawn of a line that is alone, and of `FEW` lines at most: more would hide each other.

    Parameters
    ----------
    names
        The order of the lines, if it is not that of the paper's tables.
    """
    names, scale = styles((row["method"] for row in rows), names)
    legend = alt.Legend(
        title=None, symbolSize=90, symbolStrokeWidth=2, labelLimit=330, columns=5, orient="top"
    )
    axis = alt.Axis(values=task_ticks(tasks), format="d")
    x = alt.X("task:Q", title="task", axis=axis, scale=alt.Scale(domain=[1, max(tasks, 2)]))
    up = alt.Scale(domain=list(axis_about(rows)))
    colour = alt.Color("method:N", scale=scale["color"], sort=names, legend=legend)
    tip = [
        alt.Tooltip("method:N", title="configuration"),
        alt.Tooltip("task:Q"),
        alt.Tooltip("text:N", title=y),
        alt.Tooltip("n:Q", title="runs"),
    ]
    alone = alt.param(name="alone", value="")
    few = alt.param(name="few", value=len(names) <= FEW)
    clear = alt.condition(
        "alone === datum.method || (alone === '' && few)", alt.value(1), alt.value(0)
    )
    faint = alt.condition("alone === '' || alone === datum.method", alt.value(1), alt.value(0.08))
    base = chart_of(rows)
    band = (
        base.transform_filter(BANDED)
        .mark_area(fillOpacity=0.13, clip=True)
        .encode(x, alt.Y("low:Q", title=y, scale=up), alt.Y2("high:Q"), colour, opacity=clear)
    )
    dash = alt.StrokeDash("method:N", scale=scale["dash"], sort=names, legend=legend)
    line = base.mark_line(strokeWidth=2).encode(
        x, alt.Y("mean:Q", title=y, scale=up), colour, strokeDash=dash, opacity=faint
    )
    shape = alt.Shape("method:N", scale=scale["shape"], sort=names, legend=legend)
    point = base.mark_point(filled=True, size=46).encode(
        x, alt.Y("mean:Q", title=y, scale=up), colour, shape=shape, tooltip=tip, opacity=faint
    )
    layers = alt.layer(band, line, point).add_params(alone, few)
    return layers.properties(width=WIDTH, height=HEIGHT)


def task_ticks(tasks: int) -> list[int]:
    """Return the tasks that an axis names: all of few, else the first and every fifth.

    Examples
    --------
    >>> task_ticks(3), task_ticks(20)
    ([1, 2, 3], [1, 5, 10, 15, 20])
    """
    return [t for t in range(1, tasks + 1) if tasks <= 10 or t == 1 or t % 5 == 0]


def points(curve: Sequence[metrics.Interval | None], **more: Any) -> list[Record]:
    """Return one row per task of a curve, without the tasks that have no value."""
    return [
        {"task": number, **spread(one), **more}
        for number, one in enumerate(curve, start=1)
        if one is not None
    ]


def spread(one: metrics.Interval, digits: int = 2) -> Record:
    """Return a mean with its interval, as numbers and in words."""
    half = one.shown or 0.0
    words = f"{one.mean:.{digits}f}" + ("" if one.shown is None else f" ± {half:.{digits}f}")
    numbers = {"mean": one.mean, "low": one.mean - half, "high": one.mean + half}
    return {**{name: round(v, 5) for name, v in numbers.items()}, "text": words, "n": one.n}


def dots(
    rows: Sequence[Record], y: Any, title: str, scale: Any, tip: Sequence[Any], digits: str = ".1f"
) -> list[Any]:
    """Return the layers of means with their intervals, one below the other, each with its number.

    Parameters
    ----------
    rows
        What `spread` returns, and what `y` and `tip` name.
    title
        Of the axis.
    digits
        How the number is written.
    """
    base = chart_of(list(rows))
    return [
        base.mark_rule(strokeWidth=2, color=STRONG, clip=True).encode(
            alt.X("low:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6)),
            alt.X2("high:Q"),
            y,
        ),
        base.mark_point(filled=True, size=90, color=STRONG, opacity=1).encode(
            alt.X("mean:Q", scale=scale), y, tooltip=list(tip)
        ),
        base.mark_text(dy=-11, fontSize=12).encode(
            alt.X("mean:Q"), y, text=alt.Text("mean:Q", format=digits)
        ),
    ]


def axis_about(
    rows: Sequence[Record], *, zero: bool = False, whole: bool = False, signed: bool = False
) -> tuple[float, float]:
    """Return the range of an axis on which means can be told apart: wide intervals are cut, but
    where they are to be shown whole.

    Parameters
    ----------
    zero
        The axis begins at 0.
    signed
        What is shown can be negative, as a difference can: an interval may go below 0.
    """
    means = [row["mean"] for row in rows]
    bottom, top = min(means), max(means)
    room = 0.3 * (top - bottom) or max(abs(top), 1) * 0.1
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    if not whole:
        low, high = max(low, bottom - room), min(high, top + room)
    low, high = low - room / 4, high + room / 4
    if zero or (bottom >= 0 and low < 0 and not signed):
        low = 0
    return low, high if high > low else low + room


def panels(charts: Sequence[Any], columns: int = 2) -> Any:
    """Return charts in columns, each with axes of its own; the page fits their number to its width.

    A facet would leave axes that hang below nothing where its last row is not full.
    """
    return alt.concat(*charts, columns=columns)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel: what it is, its curve, and whether it is the one to look at."""

    name: str
    curve: Sequence[metrics.Interval | None]
    strong: bool


def small_multiple(
    title: str,
    lines: Sequence[Line],
    y: str,
    domain: tuple[float, float],
    tasks: int,
    height: int = MULTIPLE,
) -> Record:
    """Return a panel of few lines over tasks: strong ones in colour, the others grey, each with the
    value at its end.

    It is written out, not built by Altair: a page has a hundred of them, and Altair needs 40 ms for
    each.
    """
    rows = [
        row | {"strong": line.strong}
        for line in lines
        for row in points(line.curve, name=line.name)
    ]
    last = max(tasks, 2)
    ticks = {"values": task_ticks(tasks), "format": "d", "grid": False}
    x = {"field": "task", "type": "quantitative", "title": None, "axis": ticks}
    x["scale"] = {"domain": [1, last]}
    up = {"type": "quantitative", "title": y, "scale": {"domain": list(domain)}}
    up["axis"] = {"tickCount": 4}
    look = {"condition": {"test": "datum.strong", "value": STRONG}, "value": GREY}
    same = {"x": x, "color": look, "detail": {"field": "name", "type": "nominal"}}
    tip = [
        {"field": "name", "type": "nominal", "title": "configuration"},
        {"field": "task", "type": "quantitative"},
        {"field": "text", "type": "nominal", "title": y},
        {"field": "n", "type": "quantitative", "title": "runs"},
    ]
    band = {**same, "y": {"field": "low", **up}, "y2": {"field": "high"}}
    line_ = {**same, "y": {"field": "mean", **up}}
    label = {"x": x, "color": look, "y": {"field": "at", **up}}
    return {
        "title": title,
        "width": 170,
        "height": height,
        "data": {"values": rows},
        "layer": [
            {
                "transform": [{"filter": BANDED}],
                "mark": {"type": "area", "fillOpacity": 0.15, "clip": True},
                "encoding": band,
            },
            {"mark": {"type": "line", "strokeWidth": 2.5}, "encoding": line_},
            {
                "mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.9},
                "encoding": {**line_, "tooltip": tip},
            },
            {
                "data": {"values": _apart([_end(line) for line in lines], domain, height)},
                "mark": {
                    "type": "text",
                    "align": "left",
                    "dx": 6,
                    "fontSize": 12,
                    "fontWeight": 600,
                },
                "encoding": {**label, "text": {"field": "text", "type": "nominal"}},
            },
        ],
    }


def small_multiples(charts: Sequence[Record], columns: int = 2) -> Record:
    """Return small multiples in columns as a specification."""
    return {"$schema": alt.SCHEMA_URL, "concat": list(charts), "columns": columns}


def _end(line: Line) -> Record:
    task, last = max((n, one) for n, one in enumerate(line.curve, 1) if one is not None)
    return {"task": task, "at": last.mean, "text": f"{last.mean:.1f}", "strong": line.strong}


def _apart(ends: list[Record], domain: tuple[float, float], height: int) -> list[Record]:
    """Return labels moved up so far that none covers the one below it."""
    room = 13 * (domain[1] - domain[0]) / height
    below = -math.inf
    for end in sorted(ends, key=lambda row: float(row["at"])):
        end["at"] = round(max(end["at"], below + room), 3)
        below = end["at"]
    return ends
