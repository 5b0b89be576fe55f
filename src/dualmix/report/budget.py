"""What the runs of a store took, and what the grids still lack, with the command that trains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dualmix.paper.grids import ONE_MEAN, jobs
from dualmix.paper.independent import SOURCES
from dualmix.paper.numbers import DATA
from dualmix.report.known import Known
from dualmix.report.matching import told
from dualmix.report.words import counted
from dualmix.runs.records import Collection, Run
from dualmix.sweeps.sweep import Job

SEEDS = 3
"""Seeds of each configuration that are asked for: the least with a useful interval."""
LACKING = (
    f"What each grid lacks with {SEEDS} seeds of each configuration, and the command that trains "
    "just that; give it this store with --store. Grids share runs. Hours of a core: what such "
    "runs took on that engine here, at the median."
)
HOUR = 3600.0
SECONDS = ("train_seconds", "evaluate_seconds", "probe_seconds", "save_seconds")


@dataclass(frozen=True, slots=True)
class Lack:
    """A grid, how many of its runs are there, and what the others would take.

    Attributes
    ----------
    hours
        Of one core, for the runs that are missing and like which something was run.
    unknown
        Missing runs whose method was never run on these images.
    """

    name: str
    total: int
    there: int
    hours: float
    unknown: int
    command: str

    @property
    def missing(self) -> int:
        """Runs that it lacks."""
        return self.total - self.there

    @property
    def text(self) -> str:
        """The hours that the missing runs would take, and of how many nothing is known."""
        known = f"{self.hours:.1f}" if self.missing > self.unknown else ""
        unknown = f"? for {counted(self.unknown, 'run')}" if self.unknown else ""
        return " + ".join(part for part in (known, unknown) if part) or "–"


@dataclass(frozen=True, slots=True)
class Budget:
    """Hours of a core behind a store's runs, and what each grid lacks."""

    spent: float
    by_engine: dict[str, float]
    lacks: tuple[Lack, ...]

    @property
    def said(self) -> str:
        """The hours in words."""
        shares = ", ".join(f"{hours:.1f} on {engine}" for engine, hours in self.by_engine.items())
        return f"The runs of this store took {self.spent:.1f} hours of a core ({shares})."


def budget(collection: Collection) -> Budget:
    """Return what was spent, and what the grids lack on the whole sets that the store has runs of.

    Grids share runs: a run that two of them lack is counted in both.
    """
    every = (*collection.runs, *collection.twins)
    engines = sorted({run.engine for run in every})
    by_engine = {
        engine: sum(_seconds(run) for run in every if run.engine == engine) / HOUR
        for engine in engines
    }
    return Budget(sum(by_engine.values()), by_engine, tuple(_lacks(collection)))


def _lacks(collection: Collection) -> list[Lack]:
    contents = collection.contents(collection.groups)
    data = [name for name in DATA if any(c.name == name and not c.subset for c in contents)]
    known, pace = Known(collection, lambda content: not content.subset), Pace(collection)
    grids = [("table1", data)] if data else []
    grids += [(name, [DATA[0]]) for name in CIFAR] if DATA[0] in data else []
    return [_lack(name, sets, known, pace) for name, sets in grids]


CIFAR = ("table3", ONE_MEAN, "ladder", *SOURCES)


def _lack(name: str, data: Sequence[str], known: Known, pace: Pace) -> Lack:
    """Return what a grid lacks; several cells that are one configuration count once."""
    wanted = {told(job.preset, job.values): job for job in jobs(name, data=data, seeds=[0])}
    seconds, there, unknown = 0.0, 0, 0
    for job in wanted.values():
        missing = len(set(range(SEEDS)) - known.seeds(job))
        there += SEEDS - missing
        one = pace.seconds(job)
        if one is None:
            unknown += missing
        else:
            seconds += missing * one
    words = "".join(f" --data {one}" for one in data) if name == "table1" else ""
    words += f" --seeds {SEEDS} --missing"
    words += "" if pace.engine == DEFAULT else f" --model.engine {pace.engine}"
    command = f"dualmix sweep {name}{words}"
    return Lack(name, SEEDS * len(wanted), there, seconds / HOUR, unknown, command)


DEFAULT = "torch"


class Pace:
    """How long runs take: the median of the seconds per step of a preset on a data set, whatever
    machines they were on; on the engine of most runs, or on another where it has none.
    """

    def __init__(self, collection: Collection) -> None:
        runs = (*collection.runs, *collection.twins)
        counts = Counter(run.engine for run in runs)
        self.engine = max(sorted(counts), key=lambda engine: counts[engine], default=DEFAULT)
        self.median: dict[tuple[str, str], float] = {}
        for here in (False, True):
            paces: dict[tuple[str, str], list[float]] = {}
            for run in runs:
                if here == (run.engine == self.engine):
                    at = run.label, run.content.name
                    paces.setdefault(at, []).append(_seconds(run) / max(_steps(run), 1))
            self.median |= {at: median(some) for at, some in paces.items()}
        self.steps: dict[tuple[str, str], int] = {}
        for run in runs:
            if run.settings.get("stream.first") is None and not run.content.subset:
                epochs = run.settings.get("stream.epochs") or 1
                self.steps.setdefault(("", run.content.name), _steps(run) // epochs)
                self.steps.setdefault((run.label, run.content.name), _steps(run))

    def seconds(self, job: Job) -> float | None:
        """Return what a run on the whole stream would take; none where nothing tells. A preset of
        which only shortened streams were run takes one pass.
        """
        name = job.values["data.name"]
        step = self.median.get((job.preset, name))
        steps = self.steps.get((job.preset, name), self.steps.get(("", name)))
        return None if step is None or steps is None else step * steps


def _steps(run: Run) -> int:
    return sum(task.get("batches", 0) for task in run.plan["tasks"])


def _seconds(run: Run) -> float:
    return sum(run.times.get(name, 0.0) for name in SECONDS)
