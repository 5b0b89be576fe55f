"""Which combination of what the project has is best at the paper's budget.

`python -m studies.recommend` trains candidates on class orders 100 to 102 alone, a sweep that goes
on where it was stopped, and prints the choice. Seeds 0 to 2, on which it is reported, are never
looked at: what is chosen on a seed cannot be shown on it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix import cli
from dualmix.cli import sweep
from dualmix.cli.terminal import make_console
from dualmix.config.plain import as_flag
from dualmix.errors import ConfigError
from dualmix.paper.numbers import DATA, MEMORY
from dualmix.paper.readings import TERMS
from dualmix.registry import nearest
from dualmix.runs import metrics
from dualmix.store.folder import Folder
from dualmix.store.opening import open_store
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Entry, Job, entries

SEEDS = (100, 101, 102)
REPORTED = (0, 1, 2)
BASE = "er+dualmix"
GOAL = 3.0
"""Points above the base at every memory."""
BUDGET = {"method.memory_batch": 10, "method.iterations": 1, "method.lr": 0.1}
"""The paper's: 10 rehearsed images, one step per batch, its learning rate; no normalisation."""


PROBED = {
    "probes.on": True,
    "probes.draws": 2,
    "probes.rows": 1,
    "probes.past": 1,
    "probes.answers": True,
}
"""The ways to answer are scored, and as little as may be of what else probes measure."""
OWN = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A preset and settings beside it, within `BUDGET`.

    Attributes
    ----------
    preset, values
        What is reported on other seeds.
    trained
        The preset that is trained to choose by; none: the same.
    way
        How it answers (`probes.answers`): training does not differ, so that candidates which only
        answer in another way share their runs. `OWN`: as the run itself does.
    """

    name: str
    preset: str
    values: Mapping[str, Any] = field(default_factory=dict)
    trained: str = ""
    way: str = OWN

    def job(self, memory: int, seed: int, values: Mapping[str, Any]) -> Job:
        """Return the run that it is judged by."""
        settings = {path: value for path, value in self.values.items() if path != READOUT}
        told = {"data.name": DATA[0], "method.memory": memory, **BUDGET, **settings, **values}
        return Job(self.trained or self.preset, {**told, **PROBED, "seed": seed})

    def accuracy(self, folder: Folder) -> float:
        """Return what a finished run says of it, in per cent."""
        if self.way == OWN:
            return 100 * float(folder.read_json("scores.json")["average_accuracy"])
        return 100 * float(folder.read_json("probes.json")[-1]["answers"][self.way])


READOUT = "method.readout"


def answering(name: str, preset: str, values: Mapping[str, Any]) -> list[Candidate]:
    """Return the four ways to answer of one training: by the head or by the nearest class mean,
    with the weights or with their average.
    """
    ways = (("weights", "", ""), ("average", "+ema", ", +ema" if values else "+ema"))
    return [
        Candidate(
            f"{name}{added}{', ncm' if readout == 'ncm' else ''}",
            f"{preset}{extra}",
            {**values, READOUT: readout} if readout == "ncm" else values,
            f"{preset}+ema",
            f"{network}, {readout}",
        )
        for network, extra, added in ways
        for readout in ("head", "ncm")
    ]


def shares(host: str, weight: float) -> dict[str, Any]:
    """Return the weights of a host's losses, one mean over its images, and of its distillation as
    shares of one.

    Distillation came with Adam, which takes a step of the same length however large a loss is. At a
    rate of 0.1 of plain SGD, 5.5 beside the host's losses is a step several times as long.
    """
    terms = TERMS[host]
    mix = {f"method.mix.{term}": 1 / len(terms) / (1 + weight) for term in terms}
    return {**mix, "method.mkd.weight": weight / (1 + weight)}


CANDIDATES = {
    one.name: one
    for one in (
        *(
            one
            for preset in ("er+dualmix", "mir+dualmix", "er-ace+dualmix", "der+++dualmix")
            for one in answering(preset, preset, {})
        ),
        *answering("er+dualmix, unmixed", "er+dualmix", {"method.mix.mixed": False}),
        *answering("er+dualmix, balanced", "er+dualmix", {"method.reservoir": "balanced"}),
        *answering("er+dualmix, review", "er+dualmix", {"method.review": 0.1}),
        *(
            Candidate(f"{host}+mkd{name}", f"{host}+mkd", values)
            for host in ("er", "er+dualmix")
            for name, values in (
                ("", {}),
                (", weight 1", {"method.mkd.weight": 1.0}),
                (", shares", shares(host, 5.5)),
                (", shares, weight 1", shares(host, 1.0)),
            )
        ),
    )
}
"""Hosts, mixes, averages, distillation, read-outs, class-balanced memory, asymmetric loss and
review.
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a candidate gave on the class orders that are chosen by, in per cent, by memory and
    seed.
    """

    name: str
    accuracy: Mapping[int, Mapping[int, float]]

    def complete(self, memory: Sequence[int]) -> bool:
        """Whether every memory has every class order."""
        return all(set(self.accuracy.get(size, ())) == set(SEEDS) for size in memory)

    def mean(self, memory: int) -> metrics.Interval | None:
        """Return the accuracy at a memory."""
        values = list(self.accuracy.get(memory, {}).values())
        return metrics.interval(values) if values else None


def choose(standings: Sequence[Standing], memory: Sequence[int]) -> Standing | None:
    """Return the complete candidate with the highest accuracy, averaged over the memories; none
    while none is complete.
    """
    done = [one for one in standings if one.complete(memory)]
    return max(done, key=lambda one: _overall(one, memory), default=None)


def gain(one: Standing, base: Standing, memory: int) -> metrics.Interval | None:
    """Return how far a candidate is above another at a memory, paired by class order."""
    a, b = one.accuracy.get(memory, {}), base.accuracy.get(memory, {})
    both = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    return metrics.interval(both) if both else None


def _overall(one: Standing, memory: Sequence[int]) -> float:
    means = [mean.mean for size in memory if (mean := one.mean(size))]
    return sum(means) / len(means)


def planned(
    names: Sequence[str], memory: Sequence[int], values: Mapping[str, Any], store: Store
) -> dict[str, dict[int, list[Entry]]]:
    """Return the runs of each candidate by memory."""
    for name in names:
        if name not in CANDIDATES:
            raise ConfigError(
                f"There is no candidate {name!r}{nearest(name, CANDIDATES)} "
                f"(known: {'; '.join(CANDIDATES)})."
            )
    for path in ("seed", "order_seed", "run_seed"):
        if path in values:
            raise ConfigError(f"--{path}: the choice is made on seeds 100 to 102 alone.")
    return {
        name: {
            size: entries([one.job(size, seed, values) for seed in SEEDS], store) for size in memory
        }
        for name, one in CANDIDATES.items()
        if not names or name in names or name == BASE
    }


def standing(name: str, runs: Mapping[int, Sequence[Entry]]) -> Standing:
    """Read a candidate's finished runs."""
    return Standing(
        name,
        {
            size: {
                run.composed.config.seed: CANDIDATES[name].accuracy(run.folder)
                for run in some
                if run.folder.done
            }
            for size, some in runs.items()
        },
    )


def report_command(name: str, memory: Sequence[int]) -> str:
    """Return the command that trains a choice on the seeds on which it is reported."""
    one = CANDIDATES[name]
    flags = " ".join(f"--{path} {as_flag(value)}" for path, value in one.values.items())
    words = f"dualmix run {one.preset} --data.name {DATA[0]} --method.memory $m {flags}".rstrip()
    sizes, seeds = " ".join(map(str, memory)), " ".join(map(str, REPORTED))
    return f"for m in {sizes}; do for s in {seeds}; do {words} --seed $s; done; done"


def standing_table(standings: Sequence[Standing], memory: Sequence[int]) -> RenderableType:
    """Return the candidates, best first, and the choice in words."""
    table = Table(
        box=box.SIMPLE, pad_edge=False, title="Class orders 100-102", title_justify="left"
    )
    table.add_column("candidate", style="bold", no_wrap=True)
    for size in memory:
        table.add_column(f"M {size:,}", justify="right", no_wrap=True)
        table.add_column("over base", justify="right", no_wrap=True)
    base = next(one for one in standings if one.name == BASE)
    some = [one for one in standings if any(one.accuracy.values())]
    order = sorted(some, key=lambda one: (not one.complete(memory), -_overall(one, memory)))
    for one in order:
        cells = []
        for size in memory:
            mean, over = one.mean(size), gain(one, base, size)
            cells += [f"{mean.mean:.1f} ({mean.n})" if mean else "-"]
            cells += [f"{over.mean:+.1f}" if over else "-"]
        table.add_row(one.name, *cells)
    return Group(table, Text(_verdict(standings, base, memory), style="dim"))


def _verdict(standings: Sequence[Standing], base: Standing, memory: Sequence[int]) -> str:
    chosen = choose(standings, memory)
    if chosen is None:
        return "No candidate has all its runs yet: the same command goes on."
    left = sum(not one.complete(memory) for one in standings)
    gains = [over.mean for size in memory if (over := gain(chosen, base, size))]
    reached = len(gains) == len(memory) and min(gains) >= GOAL
    return (
        f"Choice: {chosen.name}{f' (of those complete; {left} are not)' if left else ''}. "
        f"{GOAL:g} points above {BASE} at every memory: {'yes' if reached else 'no'}, on these "
        f"class orders. Report it on seeds 0-2: {report_command(chosen.name, memory)}"
    )


def main(words: Sequence[str]) -> None:
    """Choose as the words of the command line say, and leave with the exit code."""
    cli.main(["recommend", *words], extra=_add_command)


def _add_command(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    parser = add(
        "recommend",
        _recommend,
        "Choose the best combination at the paper's budget, on class orders 100 to 102.",
        prepare=sweep.for_all,
        parents=[sweep.many_flags(), store, plain],
        prog="python -m studies.recommend",
        epilog=sweep.SETTINGS,
    )
    parser.add_argument(
        "--candidates", action="append", metavar="NAME", help="only these, and er+dualmix"
    )
    parser.add_argument(
        "--memory", action="append", type=int, metavar="M", help="only these memories"
    )


def _recommend(given: argparse.Namespace) -> int:
    if given.seeds:
        raise ConfigError("--seeds: the choice is made on class orders 100 to 102 alone.")
    store, memory = open_store(given.store), given.memory or MEMORY
    runs = planned(given.candidates or (), memory, given.overrides, store)
    every = {run.folder.key: run for by in runs.values() for some in by.values() for run in some}
    wanted = sorted(every.values(), key=lambda run: run.composed.config.seed)
    if given.dry_run:
        return sweep.plan(given, wanted, store)
    code = sweep.train(given, wanted, store)
    standings = [standing(name, by) for name, by in runs.items()]
    if given.json:
        chosen = choose(standings, memory)
        plain = {
            "candidates": [asdict(one) for one in standings],
            "choice": chosen and chosen.name,
            "runs": sweep.states(wanted),
        }
        print(json.dumps(plain, indent=1))
    else:
        make_console().print(standing_table(standings, memory))
    return code


if __name__ == "__main__":
    main(sys.argv[1:])
