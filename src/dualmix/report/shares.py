"""Forgetting beside the share of the loss that new images have, over the rungs of the ladder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dualmix.paper.ladder import loss_of
from dualmix.paper.proposition import FEWEST, rank_correlation
from dualmix.report.charts import GREY, STRONG, WIDTH, axis_about, chart_of, spread
from dualmix.report.evidence import Ladder
from dualmix.runs import metrics

HOSTS = "h"
"""The part of the ladder whose hosts rehearse otherwise than er does."""


@dataclass(frozen=True, slots=True)
class Share:
    """A training of er's with any weights and views.

    Attributes
    ----------
    names
        The rungs that are this training.
    new, viewed
        What its loss is made of (`dualmix.paper.ladder.Loss`).
    gap
        By how much its errors lean to new classes (`dualmix.report.erring.Erring`).
    """

    names: tuple[str, ...]
    memory: int
    new: float
    viewed: bool
    accuracy: metrics.Interval
    forgetting: metrics.Interval
    gap: metrics.Interval | None

    @property
    def text(self) -> str:
        """Its first name and the share of new images."""
        return f"{self.names[0]} ({100 * self.new:.0f} %)"


def shares(found: Ladder) -> list[Share]:
    """Return the trainings of er's that were run, by memory and by the share of new images."""
    runs: dict[tuple[Any, ...], Share] = {}
    for step in sorted(found.steps, key=lambda step: bool(step.closed_seeds)):
        if step.rung.part == HOSTS or step.accuracy is None or step.forgetting is None:
            continue
        loss = loss_of(step.rung)
        new = round(loss.new, 6)
        key = (step.rung.memory, new, loss.viewed, step.accuracy, step.forgetting)
        names = (*runs[key].names, step.rung.name) if key in runs else (step.rung.name,)
        runs[key] = Share(
            names,
            step.rung.memory,
            new,
            loss.viewed,
            step.accuracy,
            step.forgetting,
            step.gap,
        )
    return sorted(runs.values(), key=lambda one: (one.memory, one.new, one.forgetting.mean))


def share_sentences(found: Sequence[Share]) -> list[str]:
    """Return how forgetting, and the lean of the errors, rank with the share of new images."""
    told = []
    for memory in dict.fromkeys(one.memory for one in found):
        some = [one for one in found if one.viewed and one.memory == memory]
        measures = {
            "Forgetting": [(one.new, one.forgetting.mean) for one in some],
            "er(o,n) - er(n,o)": [(one.new, one.gap.mean) for one in some if one.gap],
        }
        for name, points in measures.items():
            if len(points) >= FEWEST:
                rho = rank_correlation(*map(list, zip(*points, strict=True)))
                told.append(
                    f"{name} against the share of the loss that new images have, with augmented "
                    f"views, memory {memory:,}: {rho.words('trainings')}."
                )
    return told


def share_chart(found: Sequence[Share]) -> Any:
    """Return the forgetting of each training, one below the other, the least of new images first;
    those without augmented views are grey.
    """
    rows = [
        {
            "name": one.text,
            "alike": ", ".join(one.names),
            "memory": one.memory,
            "views": one.viewed,
            **spread(one.forgetting, 1),
        }
        for one in found
    ]
    names = [row["name"] for row in rows]
    low, high = axis_about(rows, whole=True)
    scale = alt.Scale(domain=[low, high])
    axis = alt.Axis(labelLimit=230)
    y = alt.Y("name:N", sort=names, scale=alt.Scale(domain=names), title=None, axis=axis)
    colour = alt.condition("datum.views", alt.value(STRONG), alt.value(GREY))
    tip = [
        alt.Tooltip("alike:N", title="rungs"),
        alt.Tooltip("memory:Q"),
        alt.Tooltip("text:N", title="forgetting, %"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    base = chart_of(rows)
    layers = (
        base.mark_rule(strokeWidth=2).encode(
            alt.X("low:Q", title="forgetting, %", scale=scale, axis=alt.Axis(tickCount=6)),
            alt.X2("high:Q"),
            y,
            color=colour,
        ),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            alt.X("mean:Q", scale=scale), y, color=colour, tooltip=tip
        ),
        base.mark_text(dy=-9, fontSize=11).encode(
            alt.X("mean:Q"), y, text=alt.Text("mean:Q", format=".1f")
        ),
    )
    return alt.layer(*layers).properties(width=WIDTH - 240, height=27 * len(names) + 10)
