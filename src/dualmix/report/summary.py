"""What stands first on the page: what was run, what came out, what does not agree with the paper,
when and where.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualmix.report.evidence import Step
from dualmix.report.paired_tests import PairedTest
from dualmix.report.tables import Cell, Summary
from dualmix.report.words import changes, counted, interval_text, listed, p_text, sentence
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Group

LEVEL = 0.05
MOST = 4
"""Streams, commits and machines that are named; the others are counted."""
FURTHEST = 5
"""Numbers of one or two seeds that are named with the paper's; the tables have all."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences that answer one question."""

    title: str
    sentences: tuple[str, ...]


def paragraphs(summary: Summary) -> list[Paragraph]:
    """Return the summary of a store; what a store says nothing about is left out."""
    if not summary.collection.runs:
        return [Paragraph("What was run", ("No run is finished in this store.",))]
    parts = {
        "What was run": _what(summary),
        "What came out": [
            *_best(summary),
            *_gains(summary.paired_tests),
            *_parts(summary.ladder.steps),
        ],
        "Against the paper": _against(summary),
        "When and where": _where(summary.collection),
    }
    return [Paragraph(title, tuple(said)) for title, said in parts.items() if said]


def name_of(group: Group) -> str:
    """Return a configuration's name: its label and the settings that differ from the preset's."""
    other = changes(group.changed)
    return f"{group.label} ({other})" if other else group.label


def _what(summary: Summary) -> Iterator[str]:
    runs, groups = summary.collection.runs, summary.collection.groups
    seeds = sorted({len(group.seeds) for group in groups})
    span = (
        counted(seeds[0], "seed")
        if len(seeds) == 1
        else f"{seeds[0]} to {counted(seeds[-1], 'seed')}"
    )
    methods = counted(len({group.label for group in groups}), "method")
    yield (
        f"{counted(len(runs), 'finished run')} of {methods}: "
        f"{counted(len(groups), 'configuration')} with {span} each."
    )
    named = [
        f"{stream.title} ({counted(len(stream.groups), 'configuration')})"
        for stream in summary.streams[:MOST]
    ]
    more = len(summary.streams) - MOST
    yield f"{sentence('; '.join([*named, f'{more} more'] if more > 0 else named))}."


def _best(summary: Summary) -> Iterator[str]:
    """Yield the most accurate configuration of each stream, with the number of its seeds; one that
    had all classes at once, such as an upper bound, is none of them.
    """
    for stream in summary.streams[:MOST]:
        groups = [group for group in stream.groups if group.tasks > 1]
        scored = [(i, g) for g in groups if (i := g.interval("average_accuracy"))]
        if len(scored) < 2:
            continue
        accuracy, group = max(scored, key=lambda pair: pair[0].mean)
        memory = "" if group.memory is None else f" with memory {group.memory:,}"
        yield (
            f"{stream.title}: {name_of(group)}{memory} has the highest average accuracy, "
            f"{interval_text(accuracy)} % ({counted(accuracy.n, 'seed')}; "
            f"{counted(len(scored), 'configuration')})."
        )


def _gains(tests: Sequence[PairedTest]) -> Iterator[str]:
    """Yield what DualMix adds in accuracy: hosts with several seeds one by one."""
    some = [test for test in tests if test.score == "average_accuracy"]
    for test in some:
        if test.difference.shown is not None:
            more = "more" if test.difference.mean >= 0 else "less"
            p = "" if test.holm is None else f", p {p_text(test.holm)} after Holm's correction"
            yield (
                f"DualMix makes {test.base} {abs(test.difference.mean):.1f} ± "
                f"{test.difference.half:.1f} points {more} accurate ({place_of(test)}, "
                f"{counted(len(test.seeds), 'paired seed')}{p})."
            )
    places: dict[str, list[str]] = {}
    for test in some:
        if test.difference.shown is None:
            places.setdefault(place_of(test), []).append(f"{test.base} {test.difference.mean:+.1f}")
    if places:
        single = "; ".join(f"{at}: {listed(gains)}" for at, gains in places.items())
        yield f"What DualMix adds with one or two seeds, which tell little, in points: {single}."


def _parts(steps: Sequence[Step]) -> Iterator[str]:
    """Yield which of the changes from er to er+dualmix have an interval that is clear of 0."""
    paired = [
        (step.rung, step.difference)
        for step in steps
        if step.rung.part == "ladder" and step.difference and step.difference.shown is not None
    ]
    if not paired:
        return
    clear = [(rung, gain) for rung, gain in paired if abs(gain.mean) > gain.half]
    named = [f"{rung.name} ({rung.changes}) {_signed(gain)}" for rung, gain in clear]
    yield (
        f"From er to er+dualmix, one change at a time: of {counted(len(paired), 'change')} "
        f"{len(clear)} {'has' if len(clear) == 1 else 'have'} an interval clear of 0, in points of "
        f"accuracy{': ' if named else ''}{listed(named)}."
    )


def _signed(gain: metrics.Interval) -> str:
    return f"{'+' if gain.mean >= 0 else ''}{interval_text(gain)}"


def place_of(test: PairedTest, *, where: bool = True, other: bool = True) -> str:
    """Return the stream and memory of a pair, and the settings in which both differ from their
    presets.
    """
    first = dict(test.changed).get("stream.first")
    subset = " (subset)" if test.content.subset else ""
    parts = [f"{test.content.title}{subset}" + (f", first {first} tasks" if first else "")]
    parts += [] if test.memory is None else [f"memory {test.memory:,}"]
    parts = parts if where else []
    said = changes(test.changed)
    return ", ".join([*parts, said] if other and said else parts)


def outside(cell: Cell) -> float:
    """Return how far the mean of ours lies outside the paper's interval, below it negative; 0
    inside it, or where one is missing.
    """
    if cell.ours is None or cell.paper is None:
        return 0.0
    off = cell.ours.mean - cell.paper[0]
    return math.copysign(max(abs(off) - cell.paper[1], 0.0), off)


def _against(summary: Summary) -> Iterator[str]:
    tables = [table for table in summary.tables if not table.rule]
    cells = [cell for table in tables for cell in table.cells() if cell.paper]
    ours = _once(cell for cell in cells if cell.ours)
    total = len(_once(cells))
    if not ours:
        yield (
            f"None of the {total} numbers of the paper's Tables 1 to 3 has a run in this store as "
            "its preset says."
        )
        return
    yield (
        f"{len(ours)} of the {total} numbers of the paper's Tables 1 to 3 have runs in this store."
    )
    several = [cell for cell in ours if cell.ours and cell.ours.shown is not None]
    single = [cell for cell in ours if cell.ours and cell.ours.shown is None]
    if several:
        apart = [cell for cell in several if cell.mark]
        meet = "all meet the paper's"
        if apart:
            meet = f"{len(apart)} do not meet the paper's: {listed([*map(_beside, apart)])}"
        yield f"{counted(len(several), 'has', 'have')} an interval over seeds; {meet}."
        means = [cell for cell in several if outside(cell) and not cell.mark]
        if means:
            yield (
                "Our interval is wide, as few seeds are; the mean lies outside the paper's ± for "
                f"{listed([*map(_beside, means)])}."
            )
    if single:
        away = sorted((cell for cell in single if outside(cell)), key=lambda c: -abs(outside(c)))
        said = (
            "inside the paper's ± in all" if not away else f"outside the paper's ± in {len(away)}"
        )
        furthest = ", furthest" if len(away) > FURTHEST else ""
        names = f"{furthest}: {listed([*map(_beside, away[:FURTHEST])])}" if away else ""
        yield f"{counted(len(single), 'has', 'have')} one or two seeds, {said}{names}."


def _once(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells without those of another table that show the same number."""
    kept: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        column = cell.column
        at = (cell.label, column.content, column.data, column.memory, column.score)
        kept.setdefault(at, cell)
    return list(kept.values())


def _beside(cell: Cell) -> str:
    score = "" if cell.column.score == "average_accuracy" else " forgetting"
    subset = f" on {cell.column.title} (subset)" if _subset(cell) else ""
    where = (
        ""
        if cell.column.data == "cifar100" and not subset
        else subset or f" on {cell.column.title}"
    )
    memory = "" if cell.column.memory in (0, 1000) else f" at memory {cell.column.memory:,}"
    return (
        f"{cell.label}{score}{where}{memory} {interval_text(cell.ours)} "
        f"(paper {interval_text(cell.paper)})"
    )


def _subset(cell: Cell) -> bool:
    return cell.column.content is not None and cell.column.content.subset


def _where(collection: Collection) -> Iterator[str]:
    facts = [run.facts for run in collection.runs]
    days = sorted(
        str(session["started"])[:10]
        for fact in facts
        for session in _records(fact.get("sessions"))
        if session.get("started")
    )
    if days:
        span = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
        yield f"The runs were begun {span}."
    commits = Counter(str(fact["commit"])[:7] for fact in facts if fact.get("commit"))
    if commits:
        named = [f"{name} ({counted(n, 'run')})" for name, n in commits.most_common(MOST)]
        rest = len(commits) - MOST
        yield f"Commits: {listed([*named, f'{rest} more'] if rest > 0 else named)}."
    dirty = sum(bool(fact.get("uncommitted_changes")) for fact in facts)
    if dirty:
        yield f"{counted(dirty, 'run')} had uncommitted changes."
    machines = Counter(_machine(fact.get("host")) for fact in facts)
    named = [f"{name} ({counted(n, 'run')})" for name, n in machines.most_common(MOST)]
    yield f"Machines: {'; '.join(named)}."
    torch = sorted({str(_record(fact.get("versions")).get("torch", "")) for fact in facts} - {""})
    if torch:
        yield f"torch {listed(torch)}."


def _records(plain: Any) -> list[Mapping[str, Any]]:
    return [one for one in plain if isinstance(one, Mapping)] if isinstance(plain, list) else []


def _record(plain: Any) -> Mapping[str, Any]:
    return plain if isinstance(plain, Mapping) else {}


def _machine(host: Any) -> str:
    known = _record(host)
    cores = known.get("cores")
    parts = [str(known.get("processor") or "unknown")]
    parts += [f"{cores} cores"] if cores else []
    parts += [str(known["instructions"])] if known.get("instructions") else []
    return ", ".join(parts)
