"""Scores over tasks: a panel per host with DualMix and without, and the curves of any
configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualmix.report.charts import (
    Figure,
    FigureView,
    Line,
    Record,
    by_place,
    lines_over_tasks,
    points,
    small_multiple,
    small_multiples,
    spec_of,
)
from dualmix.report.commands import sweep_command
from dualmix.report.streams import Stream, mean_curve, other_settings
from dualmix.report.summary import name_of
from dualmix.report.words import changes
from dualmix.runs.records import Collection, Group

SCORES = {"accuracy": "average_accuracy_by_task", "forgetting": "forgetting_by_task"}
SHOWN = 6
"""Curves of a stream that are drawn before the reader chooses: the best as their presets say, each
with its host.
"""


@dataclass(frozen=True, slots=True)
class ChosenLine:
    """The curve of a configuration, by its place in its stream."""

    place: int
    name: str
    rows: list[Record]


@dataclass(frozen=True, slots=True)
class AnyCurves:
    """All curves of a stream, and a picture of the best."""

    id: str
    stream: Stream
    spec: Record
    lines: list[ChosenLine]
    shown: list[int]

    @property
    def places(self) -> set[int]:
        """Configurations that have a curve, by their place in the stream."""
        return {line.place for line in self.lines}


def curves(collection: Collection) -> Figure:
    """Return accuracy and forgetting after each task (Eqs. 14 and 15), a panel per host: the host
    grey, with DualMix strong.
    """
    views = []
    for at, groups in by_place(group for group in collection.groups if group.tasks > 1):
        hosts = _hosts(groups)
        for name, score in SCORES.items():
            lines = {
                title: [
                    Line(g.label, curve, strong)
                    for g, strong in pair
                    if any(curve := mean_curve(g, score))
                ]
                for title, pair in hosts.items()
            }
            means = [i.mean for some in lines.values() for one in some for i in one.curve if i]
            if not means:
                continue
            domain = (min(0.0, *means), max(1.0, *means) * 1.08)
            tasks = max(group.tasks for group in groups)
            charts = [
                small_multiple(title, some, f"{name}, %", domain, tasks)
                for title, some in lines.items()
                if some
            ]
            views.append(FigureView(f"{at}: {name}", small_multiples(charts, 4)))
    caption = (
        "Mean over seeds after each task; the number is the value after the last. Grey: the method "
        "alone; blue: with DualMix. Bands are 95 % intervals of three seeds or more, cut where "
        "they leave the picture."
    )
    return Figure(
        "curves",
        "How does it go over the tasks, with DualMix and without?",
        caption,
        sweep_command("table1", []),
        tuple(views),
    )


def _hosts(groups: Sequence[Group]) -> dict[str, list[tuple[Group, bool]]]:
    """Return the panels: each method with what is DualMix on it; then, changed settings that have
    such a pair or no unchanged configuration.
    """
    whole = [group for group in groups if not other_settings(group)]
    other = [group for group in groups if other_settings(group)]
    labels = {group.label.partition("+")[0] for group in whole}
    titles: dict[str, list[tuple[Group, bool]]] = {}
    for group in (*whole, *other):
        host, _, addition = group.label.partition("+")
        said = changes(group.changed)
        if addition not in ("", "dualmix") or (said and host in labels and addition != "dualmix"):
            continue
        titles.setdefault(f"{host}: {said}" if said else host, []).append(
            (group, addition == "dualmix")
        )
    return {
        title: pair
        for title, pair in titles.items()
        if not other_settings(pair[0][0])
        or len(pair) > 1
        or pair[0][0].label.partition("+")[0] not in labels
    }


def any_curves(streams: Sequence[Stream]) -> list[AnyCurves]:
    """Return the curves of every configuration of every stream, for the reader to choose from."""
    result = []
    for number, stream in enumerate(streams):
        lines: list[ChosenLine] = []
        for place, group in enumerate(stream.groups):
            curve = mean_curve(group, SCORES["accuracy"])
            if group.tasks < 2 or not any(curve):
                continue
            memory = (
                f", memory {group.memory:,}"
                if group.memory != stream.memory and group.memory is not None
                else ""
            )
            last = [one for one in curve if one][-1].mean
            name = f"{name_of(group)}{memory}: {last:.1f}"
            while any(line.name == name for line in lines):  # two plugins under one name
                name += "′"
            lines.append(ChosenLine(place, name, points(curve, method=name)))
        if not lines:
            continue
        whole = [line for line in lines if line.place < len(stream.plain)] or lines
        shown = _first_shown(whole, [stream.groups[line.place].label for line in whole])
        tasks = max(group.tasks for group in stream.groups)
        spec = lines_over_tasks(
            [row for line in shown for row in line.rows],
            "average accuracy, %",
            tasks=tasks,
            names=[line.name for line in shown],
        )
        result.append(
            AnyCurves(f"any-{number}", stream, spec_of(spec), lines, [x.place for x in shown])
        )
    return result


def _first_shown(lines: Sequence[ChosenLine], labels: Sequence[str]) -> list[ChosenLine]:
    """Return the best lines, each with the line of its host, in the order of the table."""
    hosts = {label: line for label, line in zip(labels, lines, strict=True) if "+" not in label}
    chosen: list[ChosenLine] = []
    for label, line in sorted(
        zip(labels, lines, strict=True), key=lambda pair: -pair[1].rows[-1]["mean"]
    ):
        host = hosts.get(label.partition("+")[0], line)
        new = [one for one in (line, host) if one not in chosen]
        chosen += [one for i, one in enumerate(new) if one not in new[:i]]
    return [line for line in lines if line in chosen[:SHOWN]]
