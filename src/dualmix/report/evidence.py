"""Ours beside tables of other papers, and what each part of DualMix does, paired by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dualmix.paper.independent import SOURCES, Row, Source
from dualmix.paper.ladder import GATE, RUNGS, Rung
from dualmix.report.against import Mark, distance_text, mark
from dualmix.report.commands import machinery
from dualmix.report.erring import Erring, erring, gap_difference
from dualmix.report.matching import Matching
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Group, Run


@dataclass(frozen=True, slots=True)
class Beside:
    """A number of another paper, a point where it has no spread, and ours with its seeds."""

    row: Row
    memory: int
    theirs: tuple[float, float]
    ours: metrics.Interval | None
    seeds: tuple[int, ...]
    command: str

    @property
    def mark(self) -> Mark:
        """Where ours lies if the intervals do not meet."""
        return mark(self.ours, self.theirs)

    @property
    def distance(self) -> str:
        """Where our mean lies, in words."""
        return distance_text(self.ours, self.theirs)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of another paper with ours beside it, row by row in the order of its memories."""

    source: Source
    cells: tuple[tuple[Beside, ...], ...]

    @property
    def command(self) -> str:
        """The sweep that trains all of it."""
        return f"dualmix sweep {self.source.name} --seeds {self.source.seeds}"

    @property
    def filled(self) -> int:
        """How many of its numbers have a run."""
        return sum(cell.ours is not None for cells in self.cells for cell in cells)

    @property
    def columns(self) -> list[bool]:
        """Whether each memory has a run."""
        return [any(cell.ours for cell in some) for some in zip(*self.cells, strict=True)]

    @property
    def total(self) -> int:
        """How many numbers it has."""
        return sum(map(len, self.cells))


def source_tables(collection: Collection) -> list[SourceTable]:
    """Return every source, those without runs too."""
    matching, asked = Matching(collection), Matching(collection, lambda run: bool(_answers(run)))
    return [
        SourceTable(
            source,
            tuple(
                tuple(
                    _beside(source, row, place, memory, matching, asked)
                    for place, memory in enumerate(source.memory)
                )
                for row in source.rows
            ),
        )
        for source in SOURCES.values()
    ]


def _beside(
    source: Source, row: Row, place: int, memory: int, matching: Matching, asked: Matching
) -> Beside:
    spread = row.spread[place] if row.spread else 0.0
    command = f"dualmix sweep {source.name} --methods {row.name} --memory {memory}"
    groups = matching.groups(row.name, row.preset, source.settings(row, memory))
    ours = _accuracy(groups, row)
    if row.way:
        alike = source.settings(replace(row, values={}), memory)
        ours = _answered(asked.groups(row.name, row.preset, alike), row.way) | ours
    return Beside(
        row,
        memory,
        (row.published[place], spread),
        metrics.interval(list(ours.values())) if ours else None,
        tuple(sorted(ours)),
        f"{command} --seeds {source.seeds}" + machinery(groups[0].runs if groups else ()),
    )


def _accuracy(groups: Sequence[Group], row: Row) -> dict[int, float]:
    """Return what a row compares, in per cent, by seed."""
    if not groups:
        return {}
    if row.score != "linear":
        return groups[0].values(row.score)
    probed = {run.seed: run.probes[-1].get("linear") for run in groups[0].runs if run.probes}
    return {seed: 100 * float(one["accuracy"]) for seed, one in probed.items() if one}


def _answered(groups: Sequence[Group], way: str) -> dict[int, float]:
    """Return the accuracy of a way to answer of runs that were asked for it."""
    told = {run.seed: _answers(run) for run in (groups[0].runs if groups else ())}
    return {seed: 100 * float(one[way]) for seed, one in told.items() if way in one}


def _answers(run: Run) -> Mapping[str, float]:
    """Return what each way to answer gave in a run that was asked for it (`probes.answers`)."""
    return (run.probes[-1].get("answers") or {}) if run.probes else {}


@dataclass(frozen=True, slots=True)
class Step:
    """A rung of the ladder: what it gives, and by how much it differs from the one it changes.

    Attributes
    ----------
    group
        Its runs, and those that stand in for it; none: it was not run.
    difference, anytime_difference, forgetting_difference
        In points of accuracy after the last task, of its mean over all tasks, and of forgetting,
        over the seeds that both have.
    errs, gap_difference
        Which way it errs, and by how much more to new classes than the other.
    odd_seeds
        Seeds of its runs on another engine than most of the ladder's.
    closed_seeds
        Seeds for which a run of `Rung.closed` stands in, because its gate never opened.
    """

    rung: Rung
    group: Group | None
    difference: metrics.Interval | None
    anytime_difference: metrics.Interval | None
    forgetting_difference: metrics.Interval | None
    errs: Erring | None
    gap_difference: metrics.Interval | None
    seeds: tuple[int, ...]
    odd_seeds: tuple[int, ...]
    closed_seeds: tuple[int, ...]

    @property
    def accuracy(self) -> metrics.Interval | None:
        """After the last task, in per cent."""
        return self.group.interval("average_accuracy") if self.group else None

    @property
    def forgetting(self) -> metrics.Interval | None:
        """After the last task, in per cent."""
        return self.group.interval("forgetting") if self.group else None

    @property
    def gap(self) -> metrics.Interval | None:
        """By how much its errors lean to new classes, in points."""
        return self.errs.gap if self.errs else None

    @property
    def command(self) -> str:
        """The sweep that trains it."""
        runs = self.group.runs if self.group else ()
        return f"dualmix sweep ladder --methods '{self.rung.name}'{machinery(runs)}"


@dataclass(frozen=True, slots=True)
class Ladder:
    """Every rung, those without runs too, and the engine of most of their runs.

    Of two runs of a seed that one counts, so that rungs are paired on one engine where they can be:
    rounding is then no part of a difference.
    """

    engine: str
    steps: tuple[Step, ...]


def ladder_steps(collection: Collection) -> Ladder:
    """Return the ladder as a store's runs have it."""
    found = {engine: _rung_groups(on_engine(collection, engine)) for engine in ENGINES}
    engine = max(ENGINES, key=lambda engine: len(_on(found[engine].values(), engine)))
    groups = found[engine]
    closed = {name: _stand_in(rung, groups) for name, rung in RUNGS.items()}
    groups |= {name: group for name, (group, seeds) in closed.items() if group and seeds}
    steps = []
    for name, rung in RUNGS.items():
        group, base = groups.get(name), groups.get(rung.against)
        seeds: tuple[int, ...] = ()
        gain = anytime = forgets = leans = None
        if group and base and group.content == base.content:
            seeds = tuple(sorted(set(group.seeds) & set(base.seeds)))
            gain, anytime, forgets = (_paired(group, base, score, seeds) for score in PAIRED)
            leans = gap_difference(group, base)
        errs = erring(group) if group else None
        odd = tuple(run.seed for run in group.runs if run.engine != engine) if group else ()
        same = closed[name][1]
        steps.append(Step(rung, group, gain, anytime, forgets, errs, leans, seeds, odd, same))
    return Ladder(engine, tuple(steps))


def on_engine(collection: Collection, engine: str) -> Matching:
    """Return the runs of a store, those on an engine before their twins."""
    return Matching(collection, lambda run: run.engine == engine)


ENGINES = ("torch", "native")
PAIRED = ("average_accuracy", "anytime_accuracy", "forgetting")


def _rung_groups(matching: Matching) -> dict[str, Group]:
    """Return the runs of each rung that has some."""
    found = {
        name: matching.groups(name, rung.preset, rung.settings()) for name, rung in RUNGS.items()
    }
    return {name: groups[0] for name, groups in found.items() if groups}


def _on(groups: Iterable[Group], engine: str) -> set[str]:
    """Return the runs on an engine."""
    return {run.key for group in groups for run in group.runs if run.engine == engine}


def _stand_in(rung: Rung, groups: Mapping[str, Group]) -> tuple[Group | None, tuple[int, ...]]:
    """Return the runs of a rung, and the seeds for which one of `Rung.closed` is the same."""
    own, other = groups.get(rung.name), groups.get(rung.closed)
    if other is None or (own and own.content != other.content):
        return own, ()
    runs = {run.seed: run for run in other.runs if _stayed_closed(run)}
    runs |= {run.seed: run for run in own.runs} if own else {}
    had = set(own.seeds) if own else set()
    group = replace(other, label=rung.name, runs=tuple(runs[seed] for seed in sorted(runs)))
    return group, tuple(sorted(set(runs) - had))


def _stayed_closed(run: Run) -> bool:
    """Whether it is known that the gate of Eq. 9 never opened in a run."""
    tally = (run.probes[-1].get("tally") or {}) if run.probes else {}
    return tally.get(GATE) == 0


def _paired(group: Group, base: Group, score: str, seeds: Sequence[int]) -> metrics.Interval | None:
    a, b = group.values(score), base.values(score)
    both = [a[seed] - b[seed] for seed in seeds if seed in a and seed in b]
    return metrics.interval(both) if both else None
