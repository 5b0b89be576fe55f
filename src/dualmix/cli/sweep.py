"""The commands for many runs: demo, sweep, status, proposition, tune."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.cli.terminal import asked_to_stop, make_console, tell
from dualmix.errors import ConfigError, DualmixError, StoreError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dualmix.store.store import Store
    from dualmix.sweeps.sweep import Entry, Executor
    from dualmix.sweeps.tune import Search


MOST = 100_000
"""Seeds, workers, retries or trials; more are a slip of the pen."""
SETTINGS = "Settings are flags too and hold for all runs, e.g. --data.root DIR --stream.first 4."


def many_flags() -> argparse.ArgumentParser:
    """Return the flags that all commands for many runs share."""
    many = argparse.ArgumentParser(add_help=False)
    many.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1")
    many.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="runs at a time (default: cores; Ray: what it holds)",
    )
    many.add_argument(
        "--retries",
        type=int,
        default=2,
        metavar="N",
        help="restarts of a run that fails (default: 2)",
    )
    many.add_argument(
        "--dry-run", action="store_true", help="list the runs and their estimated time"
    )
    many.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a method or a data set",
    )
    many.add_argument(
        "--on",
        choices=("local", "ray"),
        default="local",
        help="this machine (default) or a Ray cluster",
    )
    many.add_argument(
        "--address",
        metavar="ADDR",
        help="Ray: the cluster's (default: RAY_ADDRESS, else this machine)",
    )
    many.add_argument(
        "--cpus", type=float, metavar="N", help="Ray: cores set aside for a run (default: 1)"
    )
    many.add_argument(
        "--gpus", type=float, metavar="N", help="Ray: GPUs for a run, e.g. 0.25 (default: 0)"
    )
    return many


def add_commands(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    """Add these commands to the command line."""
    many = many_flags()
    add(
        "demo",
        _demo,
        "Compare methods over five seeds on the embedded digits: about a minute.",
        prepare=for_all,
        parents=[many, store, plain],
        epilog=SETTINGS,
    )
    sweep = add(
        "sweep",
        _sweep,
        "Train many runs, one process each: those done are skipped, those cut off go on.",
        prepare=for_all,
        parents=[many, store, plain],
        epilog=f"The same command again goes on where it was stopped. {SETTINGS}",
    )
    sweep.add_argument(
        "grid",
        metavar="GRID",
        help="table1, table2, table3, table3-one-mean, figure2, figure5, proposition; ladder (what "
        "each part of DualMix does); survey, scr-paper, ocl-survey (tables of other papers); or a "
        "YAML file (presets, seeds, grid, values)",
    )
    sweep.add_argument("--data", action="append", metavar="NAME", help="only these data sets")
    sweep.add_argument(
        "--memory", action="append", type=int, metavar="M", help="only these memories"
    )
    sweep.add_argument("--methods", action="append", metavar="NAME", help="only these rows")
    sweep.add_argument(
        "--missing",
        action="store_true",
        help="leave out what the store has the result of, also from another engine or from a run "
        "that is the same training",
    )
    status = add("status", _status, "Show where the runs of a store are.", parents=[store, plain])
    status.add_argument("--all", action="store_true", help="list the done ones too")
    add(
        "proposition",
        _proposition,
        "Put the paper's Proposition 1 to the test, from runs in the store.",
        parents=[store, plain],
        epilog="`dualmix sweep proposition` trains what it needs.",
    )
    tune = add(
        "tune",
        _tune,
        "Choose a method's settings on the first tasks, without any test image.",
        prepare=for_all,
        parents=[many, store, plain],
        epilog="It trains on the first two tasks (--stream.first) but a tenth of their training "
        "images (--stream.validation), which it scores by. The same command goes on where it was "
        "stopped; a setting that is given a value is not tuned.",
    )
    tune.add_argument(
        "preset", metavar="PRESET", help="a name from `dualmix methods` or a saved config"
    )
    tune.add_argument(
        "--trials", type=int, default=20, metavar="N", help="values to try (default: 20)"
    )
    tune.add_argument(
        "--only", action="append", metavar="SETTING", help="tune these settings, e.g. method.lr"
    )


def for_all(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    """Check what holds for all runs of a sweep; the settings themselves are checked run by run."""
    for name, least in (("seeds", 1), ("workers", 1), ("retries", 0), ("trials", 1)):
        count = getattr(given, name, None)
        if count is not None and not least <= count <= MOST:
            faults.append(f"--{name} must be {least} or more, and {MOST:,} at most")
    for name in ("address", "cpus", "gpus"):
        amount = getattr(given, name)
        if amount is not None and given.on != "ray":
            faults.append(f"--{name} is for --on ray")
        elif isinstance(amount, float) and not 0 < amount <= MOST:
            faults.append(f"--{name} must be above 0, and {MOST:,} at most")
    if "seed" in overrides:
        faults.append("--seed: a sweep has --seeds N")
    if faults:
        raise ConfigError("; ".join(faults) + ".")
    given.overrides = overrides


def _demo(given: argparse.Namespace) -> int:
    from dualmix.cli.demo import NEXT, REFERENCE, SEEDS, TITLE, jobs
    from dualmix.store.opening import open_store
    from dualmix.sweeps.sweep import entries

    store = open_store(given.store)
    runs = entries(jobs(given.seeds or SEEDS, given.overrides), store)
    if given.dry_run:
        return plan(given, runs, store)
    code = train(given, runs, store)
    if given.json:
        print(json.dumps(states(runs), indent=1))
    elif all(run.state == "done" for run in runs):
        console = make_console()
        console.print(TITLE)
        console.print(summary(runs, store, REFERENCE, curves=True))
        console.print(f"\n{NEXT}")
    return code


def _sweep(given: argparse.Namespace) -> int:
    from dualmix.paper.grids import NAMES, jobs
    from dualmix.store.opening import open_store
    from dualmix.sweeps.sweep import Job, entries, read_grid

    store = open_store(given.store)
    if given.grid not in NAMES and Path(given.grid).is_file():
        if given.data or given.memory or given.methods or given.seeds:
            raise DualmixError(
                "A grid file says itself which data, memories, methods and seeds: leave those "
                "flags out."
            )
        wanted = [
            Job(job.preset, {**job.values, **given.overrides})
            for job in read_grid(Path(given.grid))
        ]
    else:
        wanted = jobs(
            given.grid,
            data=given.data or (),
            memory=given.memory or (),
            methods=given.methods or (),
            seeds=range(given.seeds) if given.seeds else None,
            values=given.overrides,
        )
    runs = entries(wanted, store)
    if given.missing:
        runs = _missing(runs, store)
    return plan(given, runs, store) if given.dry_run else _swept(given, runs, store)


def _missing(runs: Sequence[Entry], store: Store) -> list[Entry]:
    """Return the runs whose result the store does not have in one way or another."""
    from dualmix.data import load
    from dualmix.report.collect import collect
    from dualmix.report.known import Known

    if not store.paths():
        return list(runs)
    images = {load(run.composed.config.data).fingerprint for run in runs}
    known = Known(collect(store), lambda content: content.fingerprint in images)
    left = [run for run in runs if run.composed.config.seed not in known.seeds(run.job)]
    tell(f"the store has the results of {len(runs) - len(left)} of {len(runs)} runs.")
    return left


def _swept(given: argparse.Namespace, runs: Sequence[Entry], store: Store) -> int:
    """Train what is not done, say what became of each run, and return the exit code."""
    code = train(given, runs, store)
    if given.json:
        print(json.dumps(states(runs), indent=1))
    elif any(run.state == "done" for run in runs):
        make_console().print(summary(runs, store))
    return code


def summary(
    runs: Sequence[Entry], store: Store, against: str | None = None, *, curves: bool = False
) -> RenderableType:
    """Return the finished runs of a sweep by configuration."""
    from dualmix.cli.configuration_table import render
    from dualmix.report.collect import collect
    from dualmix.runs.configurations import configurations

    done = {run.folder.path.name for run in runs if run.state == "done"}
    rows, common = configurations(collect(store, only=done).configurations, against)
    return render(rows, common, against=against, curves=curves)


def plan(given: argparse.Namespace, runs: Sequence[Entry], store: Store) -> int:
    """Say what would be done, and how long it would take."""
    from dualmix.cli.board import entry_names, planned
    from dualmix.sweeps.sweep import estimate

    seconds = estimate(runs, store)
    if given.json:
        names = entry_names(runs)
        rows = [
            {
                "run": r.folder.path.name,
                "name": names[r.folder.key],
                "state": r.state,
                "seconds": seconds.get(r.folder.key),
            }
            for r in runs
        ]
        print(json.dumps(rows, indent=1))
        return 0
    with _executor(given, runs, store) as executor:
        make_console().print(planned(runs, seconds, executor.room()))
    return 0


@contextmanager
def _executor(given: argparse.Namespace, runs: Sequence[Entry], store: Store) -> Iterator[Executor]:
    """Make what the runs are executed by, and close it in the end."""
    plugins = given.plugin or ()
    executor: Executor
    if given.on == "ray":
        from dualmix.sweeps.ray_cluster import Ray, check

        check(runs, given.gpus or 0)
        executor = Ray(
            store,
            address=given.address,
            cpus=given.cpus or 1,
            gpus=given.gpus or 0,
            workers=given.workers,
            plugins=plugins,
        )
    else:
        from dualmix.sweeps.executors import Local

        executor = Local(store, given.workers or os.cpu_count() or 1, plugins)
    try:
        yield executor
    finally:
        executor.close()


def train(given: argparse.Namespace, runs: Sequence[Entry], store: Store) -> int:
    """Train what is not done of some runs, show how it goes, and return the exit code."""
    from dualmix.cli.board import Board, failures
    from dualmix.sweeps.sweep import estimate, sweep

    console = make_console(stderr=True, quiet=given.json)
    with _executor(given, runs, store) as executor:
        stop = asked_to_stop()
        with Board(console, estimate(runs, store), executor) as board:
            sweep(runs, executor, retries=given.retries, watch=board, stop=stop)
    ended = [run.state for run in runs]
    console.print(f"{ended.count('done')} of {len(runs)} runs are done.")
    if (failed := failures(runs)) is not None:
        console.print(failed)
    if stop() and "failed" not in ended and ended.count("done") < len(runs):
        tell("stopped; the same command goes on from there.")
        return 130
    return 2 if "failed" in ended else 0


def states(runs: Sequence[Entry]) -> list[dict[str, str]]:
    """Return what became of each run."""
    from dualmix.cli.board import entry_names

    names = entry_names(runs)
    return [
        {
            "run": run.folder.path.name,
            "name": names[run.folder.key],
            "state": run.state,
            "fault": run.fault,
        }
        for run in runs
    ]


def _status(given: argparse.Namespace) -> int:
    from dualmix.cli.board import status_table
    from dualmix.runs.status import standings
    from dualmix.store.opening import open_store

    store = open_store(given.store)
    known = standings(store, now=time.time())
    if given.json:
        print(json.dumps([asdict(one) for one in known], indent=1))
    else:
        names = partial(folder_names, store)
        make_console().print(status_table(known, everything=given.all, names=names))
    return 0


def folder_names(store: Store, folders: Sequence[str]) -> dict[str, str]:
    """Return what runs are called, by the names of their folders."""
    from dualmix.cli.run import run_names

    names = run_names([store.at(store.root / name) for name in folders])
    return dict(zip(folders, names, strict=True))


def _proposition(given: argparse.Namespace) -> int:
    from dualmix.cli.proposition import proposition
    from dualmix.paper.proposition import FEWEST, verdicts
    from dualmix.report.collect import collect
    from dualmix.store.opening import open_store

    tested = verdicts(collect(open_store(given.store)).runs)
    if not tested:
        raise StoreError(
            f"No run in {given.store} has measured {FEWEST} augmentations on one model: "
            "`dualmix sweep proposition` trains what is needed."
        )
    if given.json:
        print(json.dumps([asdict(verdict) for verdict in tested], indent=1))
    else:
        make_console().print(proposition(tested))
    return 0


def _tune(given: argparse.Namespace) -> int:
    from dualmix.cli.board import Board
    from dualmix.cli.tuning import search_table, tuning
    from dualmix.store.opening import open_store
    from dualmix.sweeps.sweep import sweep
    from dualmix.sweeps.tune import search, tune

    chosen = search(
        given.preset,
        given.overrides,
        open_store(given.store),
        only=given.only or (),
        seeds=given.seeds or 1,
    )
    if given.dry_run:
        make_console().print(search_table(chosen))
        return 0
    console = make_console(stderr=True, quiet=given.json)
    with _executor(given, _first(chosen), chosen.store) as executor:
        stop = asked_to_stop()
        together = max(1, executor.room() // chosen.seeds)

        def train(runs: Sequence[Entry]) -> None:
            with Board(console, {}, executor) as board:
                sweep(runs, executor, retries=given.retries, watch=board, stop=stop)

        result = tune(chosen, given.trials, together=together, train=train)
    if given.json:
        print(json.dumps(result, indent=1))
    else:
        make_console().print(tuning(result, str(chosen.home)))
    if stop() and sum(trial["state"] != "running" for trial in result["trials"]) < given.trials:
        tell("stopped; the same command goes on from there.")
        return 130
    return 0 if result["best"] else 2


def _first(chosen: Search) -> Sequence[Entry]:
    from dualmix.sweeps.sweep import entries

    return entries(chosen.jobs({}), chosen.store)
