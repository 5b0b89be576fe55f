"""What each part of DualMix does: a ladder from er to er+dualmix, and controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dualmix.paper.ladder import SEEDS, WEIGHTINGS
from dualmix.report.blocks import design, design_sentences
from dualmix.report.charts import (
    GREY,
    WIDTH,
    Figure,
    FigureView,
    Record,
    axis_about,
    chart_of,
    dots,
    panels,
    spec_of,
    spread,
)
from dualmix.report.evidence import Ladder, Step
from dualmix.report.shares import share_chart, share_sentences, shares
from dualmix.report.words import counted, seeds_text
from dualmix.runs import metrics

PARTS = {
    "From er to er+dualmix": ("ladder",),
    "er+dualmix with one thing changed": ("a", "b", "c", "f", "i"),
    "Every row under every weighting": ("e",),
    "Memory 5,000, to which nothing was fitted": ("g",),
    "Hosts above the paper, read otherwise": ("h",),
}
"""What each view shows, by the parts of its rungs."""
TOLD = ("ladder", "a", "h")
"""Views with a part among these are told in sentences too; the table of all rungs has every one."""


def by_question(found: Ladder) -> dict[str, list[Step]]:
    """Return the rungs that were run under what they ask, without questions of which no rung can be
    compared.
    """
    asked = {
        title: [step for step in found.steps if step.rung.part in parts and step.accuracy]
        for title, parts in PARTS.items()
    }
    return {title: run for title, run in asked.items() if any(step.difference for step in run)}


def ladder(found: Ladder) -> Figure:
    """Return the rungs that were run, a view per question, and which are missing."""
    views, says, steps = [], [], found.steps
    for title, run in by_question(found).items():
        charts = [_rungs(run, DIFFERENCE), _rungs(run, ACCURACY)]
        views.append(FigureView(title, spec_of(panels(charts))))
        if set(PARTS[title]) & set(TOLD):
            says += [f"{title}, in points of accuracy:", *_said(run)]
    says += design_sentences(design(found))
    erred = _erred(steps)
    if erred:
        charts = [_rungs(erred, GAP_DIFFERENCE), _rungs(erred, GAP)]
        views.append(FigureView("Which way they err", spec_of(panels(charts))))
    trained = shares(found)
    ranked = share_sentences(trained)
    if ranked:
        views.append(
            FigureView("Forgetting by the share of new images", spec_of(share_chart(trained)))
        )
        says += ranked
    missing = [step for step in steps if step.accuracy is None]
    if missing:
        says.append(f"{len(missing)} of {len(steps)} rungs were not run.")
    caption = (
        "Each rung changes one thing of another and is paired with it by seed. "
        "Dot: mean difference in average accuracy; line: its 95 % interval, which one or two seeds "
        "do not have; a rung that is compared with none has no dot. Right, or below: the accuracy "
        "itself. Which way they err: er(o,n) - er(n,o) of Figures 4 and 6, mean over the tasks; "
        "above 0 the errors lean to new classes. Behind a name in the last view: the share of the "
        "loss's weights that new images have (AdpMix counts half); grey: no augmented views. "
        f"{'; '.join(f'{name}: {what}' for name, what in WEIGHTINGS.items())}." + _exceptions(found)
    )
    return Figure(
        "ladder",
        "What does each part of DualMix do?",
        caption,
        f"dualmix sweep ladder --seeds {SEEDS}",
        tuple(views),
        tuple(says) if views else (),
    )


def _exceptions(found: Ladder) -> str:
    """Return which runs are not of the ladder's engine, and which rungs needed no run."""
    odd = seeds_text((step.rung.name, step.odd_seeds) for step in found.steps)
    same = seeds_text((step.rung.name, step.closed_seeds) for step in found.steps)
    words = f" All on the {found.engine} engine" + (f", but for {odd}." if odd else ".")
    if same:
        words += (
            f" Not trained again: {same}. The gate of Eq. 9 never opened in er+dualmix, so that "
            "these are the same training to the byte."
        )
    return words


def _said(steps: Sequence[Step]) -> list[str]:
    """Return a sentence for each rung that others are compared with."""
    gains: dict[str, list[str]] = {}
    for step in steps:
        if step.difference is None:
            continue
        half = "" if step.difference.shown is None else f" ± {step.difference.half:.1f}"
        gain = f"{step.difference.mean:+.1f}{half} ({counted(len(step.seeds), 'seed')})"
        gains.setdefault(step.rung.against, []).append(f"{step.rung.name} {gain}")
    return [f"over {against}: {'; '.join(named)}." for against, named in gains.items()]


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel shows of each rung, and whether that is a difference, whose 0 is marked."""

    title: str
    of: Callable[[Step], metrics.Interval | None]
    change: bool


DIFFERENCE = Panel("difference, points", lambda step: step.difference, change=True)
ACCURACY = Panel("accuracy, %", lambda step: step.accuracy, change=False)
GAP_DIFFERENCE = Panel("difference of the gap, points", lambda step: step.gap_difference, True)
GAP = Panel("er(o,n) - er(n,o), points", lambda step: step.gap, change=True)
ERRING = ("ladder", "a", "b", "c", "f")
"""Parts whose errors are shown."""


def _erred(steps: Sequence[Step]) -> list[Step]:
    """Return the rungs whose errors are shown; none where nothing can be compared."""
    some = [step for step in steps if step.rung.part in ERRING and step.errs]
    return some if any(step.gap_difference for step in some) else []


def _rungs(steps: Sequence[Step], panel: Panel) -> Any:
    title, change = panel.title, panel.change
    rows: list[Record] = []
    for step in steps:
        one = panel.of(step)
        if one is not None:
            rows.append({"name": step.rung.name, "changes": step.rung.changes, **spread(one, 1)})
    names = [step.rung.name for step in steps]
    low, high = axis_about(rows, whole=True, signed=change)
    scale = alt.Scale(domain=[min(low, 0), max(high, 0)] if change else [low, high])
    y = alt.Y(
        "name:N",
        sort=names,
        scale=alt.Scale(domain=names),
        title=None,
        axis=alt.Axis(labelLimit=150),
    )
    tip = [
        alt.Tooltip("name:N", title="rung"),
        alt.Tooltip("changes:N", title="changes"),
        alt.Tooltip("text:N", title=title),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    zero = chart_of([{"zero": 0}]).mark_rule(color=GREY, strokeDash=[4, 3])
    layers = [zero.encode(alt.X("zero:Q"))] if change else []
    layers += dots(rows, y, title, scale, tip, "+.1f" if change else ".1f")
    return alt.layer(*layers).properties(width=WIDTH // 2 - 20, height=34 * len(names) + 10)
