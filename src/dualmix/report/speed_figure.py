"""The benchmark as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from dualmix.report.charts import (
    COLOURS,
    GREY,
    HEIGHT,
    STRONG,
    WIDTH,
    Figure,
    FigureView,
    chart_of,
    panels,
    spec_of,
)
from dualmix.report.speed import MAKE, Row, Speed, Stage
from dualmix.report.words import sentence


def benchmark(speed: Speed) -> Figure:
    """Return the ratios of each group, and the scale run."""
    groups = dict.fromkeys(row.group for row in speed.rows)
    views = [
        FigureView(sentence(group), spec_of(_ratios(rows)))
        for group in groups
        if (rows := [row for row in speed.rows if row.group == group and row.ratio is not None])
    ]
    if speed.stages:
        views.append(FigureView("Scale run", spec_of(_growth(speed.stages))))
    caption = (
        "Each row as a multiple of the first row of its group, which the table below names; memory "
        "as a multiple of what it may be. Dot: median; line: quartiles; upright stroke: the limit, "
        "met, missed, or unclear where the quartiles lie on both sides of it. "
        f"Measured on {speed.where}."
    )
    return Figure("bench", QUESTION, caption, MAKE, tuple(views), tuple(_costs(speed.rows)))


QUESTION = "What does it cost? (Figure 7)"


def no_benchmark() -> Figure:
    """Return what stands in place of a benchmark: times of runs that share a machine are none."""
    return Figure("bench", QUESTION, "", f"{MAKE} && dualmix report --bench FILE")


def _costs(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what DualMix costs on each host that was measured with it and without."""
    ratios = {(row.group, row.name): row.ratio for row in rows if row.unit == "s" and row.ratio}
    first = {row.group: row.name for row in reversed(rows)}
    for (group, name), ratio in ratios.items():
        host, plus, addition = name.rpartition("+")
        alone = ratios.get((group, host))
        if plus and addition == "dualmix" and alone:
            bare = first[group] == "floor" or first[group].endswith("bare step")
            than = "the bare step" if bare else f"a step of {first[group]}"
            yield (
                f"A step of {name} takes {ratio / alone:.2f} times as long as one of {host} "
                f"({ratio:.2f} and {alone:.2f} times {than})."
            )
    if steps := {name: ratio for (group, name), ratio in ratios.items() if group == "step"}:
        dear = max(steps, key=lambda name: steps[name])
        yield f"The dearest is {dear}: {steps[dear]:.2f} times the bare step."
    yield (
        "Ratios were measured in turns on one core. The paper's Figure 7 shows minutes of whole "
        "runs at a memory of 2,000; those of this store shared their cores, so ratios of steps "
        "stand in for them."
    )


def _ratios(measured: Sequence[Row]) -> Any:
    """Return one ratio per row with its quartiles, its limit and its verdict."""
    widest = 1.5 * max(
        max(row.high or 0, row.limit or 0) for row in measured
    )  # room for the words behind the last
    rows = [
        {
            "name": row.name,
            "ratio": row.ratio,
            "low": row.low,
            "high": row.high,
            "limit": row.limit,
            "end": _end(row, widest),
            "text": f"{row.ratio:.2f} {row.verdict}".strip(),
        }
        for row in measured
    ]
    base = chart_of(rows)
    y = alt.Y(
        "name:N", sort=[row.name for row in measured], title=None, axis=alt.Axis(labelLimit=140)
    )
    tip = [alt.Tooltip("name:N"), alt.Tooltip("text:N", title="ratio"), alt.Tooltip("limit:Q")]
    limits = base.transform_filter("datum.limit !== null")
    return alt.layer(
        base.mark_rule(strokeWidth=2, color=GREY).encode(
            alt.X(
                "low:Q", title="times the first of its group", scale=alt.Scale(domain=[0, widest])
            ),
            alt.X2("high:Q"),
            y,
        ),
        base.mark_point(filled=True, size=70, color=STRONG).encode(
            alt.X("ratio:Q"), y, tooltip=tip
        ),
        limits.mark_tick(thickness=3, size=18, color=COLOURS[3]).encode(alt.X("limit:Q"), y),
        base.mark_text(align="left", dx=8, fontSize=11).encode(alt.X("end:Q"), y, text="text:N"),
    ).properties(width=WIDTH, height=max(60, 26 * len(rows)))


def _end(row: Row, widest: float) -> float:
    """Return what the words of a row stand behind: its quartiles, and a limit that would lie under
    them.
    """
    high, limit = row.high or 0, row.limit or 0
    return limit if high < limit < high + widest / 5 else high


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
        chart_of(rows)
        .mark_line(point=alt.OverlayMarkDef(color=STRONG), color=STRONG)
        .encode(
            x,
            alt.Y(f"{field}:Q", title=title),
            tooltip=[*tip, alt.Tooltip(f"{field}:Q", title=title)],
        )
        .properties(width=WIDTH // 2 - 30, height=HEIGHT - 80)
        for field, title in (("ms", "ms per step"), ("mb", "memory, MB"))
    ]
    return panels(charts)
