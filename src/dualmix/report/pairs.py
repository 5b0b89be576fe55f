"""What DualMix adds to each host, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dualmix.report.charts import (
    GREY,
    STRONG,
    WIDTH,
    Figure,
    FigureView,
    Record,
    axis_about,
    chart_of,
    panels,
    spec_of,
    spread,
)
from dualmix.report.commands import sweep_command
from dualmix.report.paired_tests import PairedTest
from dualmix.report.summary import LEVEL, place_of
from dualmix.report.words import listed

TITLES = {"average_accuracy": "accuracy, points", "forgetting": "forgetting, points"}


def pairs(tests: Sequence[PairedTest]) -> Figure:
    """Return the differences of all hosts in both scores, a view per stream and memory."""
    views, says = [], []
    for at in dict.fromkeys(place_of(test, other=False) for test in tests):
        here = [test for test in tests if place_of(test, other=False) == at]
        charts = [
            _differences([test for test in here if test.score == score], title)
            for score, title in TITLES.items()
            if any(test.score == score for test in here)
        ]
        views.append(FigureView(at, spec_of(panels(charts))))
        says.append(_said(at, here))
    caption = (
        "With DualMix minus without, by seed, all other settings equal. Dot: mean; line: its 95 % "
        "interval, which one or two seeds do not have."
    )
    return Figure(
        "paired",
        "What does DualMix add?",
        caption,
        sweep_command("table1", ["er", "er+dualmix"]),
        tuple(views),
        tuple(says),
    )


def verdict(test: PairedTest) -> str:
    """Return what the paired test says in words."""
    if test.holm is None:
        return "too few seeds"
    if test.holm >= LEVEL:
        return "not told apart"
    return f"{'better' if _better(test) else 'worse'} with DualMix"


def _better(test: PairedTest) -> bool:
    return (test.difference.mean if test.score == "average_accuracy" else -test.difference.mean) > 0


def _said(at: str, tests: Sequence[PairedTest]) -> str:
    parts = []
    for score, title in TITLES.items():
        here = [test for test in tests if test.score == score]
        if here:
            better = sum(_better(test) for test in here)
            parts.append(f"{title.partition(',')[0]} is better for {better} of {len(here)}")
    sure = [test for test in tests if verdict(test).startswith(("better", "worse"))]
    names = [
        f"{base} ({listed([_word(test) for test in sure if test.base == base])})"
        for base in dict.fromkeys(test.base for test in sure)
    ]
    tested = f"A paired test (Holm, {100 * LEVEL:.0f} %) "
    tested += f"tells apart {listed(names)}" if sure else "tells none apart"
    return f"{at}, hosts with DualMix: {' and '.join(parts)}. {tested}."


def _word(test: PairedTest) -> str:
    return f"{test.score.replace('_', ' ')} {verdict(test).split()[0]}"


def _differences(tests: Sequence[PairedTest], title: str) -> Any:
    rows: list[Record] = []
    for test in tests:
        name = test.base + (
            f" ({place_of(test, where=False)})" if place_of(test, where=False) else ""
        )
        rows.append({"name": name, **spread(test.difference, 1)})
    low, high = axis_about(rows, whole=True, signed=True)
    scale = alt.Scale(domain=[min(low, 0), max(high, 0)])
    base = chart_of(rows)
    two_lines = alt.Axis(labelLimit=150, labelExpr="split(replace(datum.label, ')', ''), ' (')")
    y = alt.Y("name:N", sort=[row["name"] for row in rows], title=None, axis=two_lines)
    tip = [
        alt.Tooltip("name:N", title="host"),
        alt.Tooltip("text:N", title=title),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    return alt.layer(
        chart_of([{"zero": 0}]).mark_rule(color=GREY, strokeDash=[4, 3]).encode(alt.X("zero:Q")),
        base.mark_rule(strokeWidth=2, color=STRONG, clip=True).encode(
            alt.X("low:Q", title=title, scale=scale), alt.X2("high:Q"), y
        ),
        base.mark_point(filled=True, size=90, color=STRONG, opacity=1).encode(
            alt.X("mean:Q", scale=scale), y, tooltip=tip
        ),
        base.mark_text(dy=-11, fontSize=12).encode(
            alt.X("mean:Q"), y, text=alt.Text("mean:Q", format="+.1f")
        ),
    ).properties(width=WIDTH // 2 - 20, height=34 * len(rows) + 10)
