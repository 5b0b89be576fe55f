"""Which runs of a grid need no training, because a store has their result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dualmix.config.compose import compose
from dualmix.config.fields import Probes
from dualmix.report.evidence import ladder_steps, source_tables
from dualmix.report.matching import Matching, told
from dualmix.runs.filing import covers
from dualmix.runs.records import Collection, Content, Run
from dualmix.sweeps.sweep import Job


class Known:
    """Seeds of a configuration whose result a store has: on whichever engine, device or number of
    threads, or because another run is the same training (`Step.closed_seeds`, `Row.way`).

    Parameters
    ----------
    counts
        Whether runs on some images count.
    """

    def __init__(self, collection: Collection, counts: Callable[[Content], bool]) -> None:
        self.collection = replace(
            collection,
            runs=tuple(run for run in collection.runs if counts(run.content)),
            twins=tuple(run for run in collection.twins if counts(run.content)),
        )
        self.same = {
            told(step.rung.preset, step.rung.settings()): step.closed_seeds
            for step in ladder_steps(self.collection).steps
        }
        self.same |= {
            told(cell.row.preset, table.source.settings(cell.row, cell.memory)): cell.seeds
            for table in source_tables(self.collection)
            for cells in table.cells
            for cell in cells
            if cell.row.way
        }
        self._matching: dict[str, Matching] = {}

    def seeds(self, job: Job) -> set[int]:
        """Return the seeds of a job's configuration whose result is there, with all its probes."""
        asked = compose(job.preset, job.values).config.probes
        runs = {
            run.seed
            for group in self._by(asked).groups(job.preset, job.preset, job.values)
            for run in group.runs
            if _probed(run, asked)
        }
        return runs | (
            {*self.same.get(told(job.preset, job.values), ())} if not asked.on else set()
        )

    def _by(self, asked: Probes) -> Matching:
        """Return the runs by configuration, of twins those with the probes that are asked for."""
        name = asked.model_dump_json()
        if name not in self._matching:
            prefer = (lambda run: _probed(run, asked)) if asked.on else None
            self._matching[name] = Matching(self.collection, prefer)
        return self._matching[name]


def _probed(run: Run, asked: Probes) -> bool:
    made = {
        path.removeprefix("probes."): value
        for path, value in run.settings.items()
        if path.startswith("probes.")
    }
    return not asked.on or (bool(run.probes) and covers(made, asked))
