"""The commands for one run, and for what can be run: run, explain, methods, show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.cli.terminal import asked_to_stop, make_console, tell
from dualmix.errors import StoreError

if TYPE_CHECKING:
    from dualmix.config.compose import Composed
    from dualmix.store.folder import Folder
    from dualmix.store.store import Store


def add_commands(add: Any, store: argparse.ArgumentParser, plain: argparse.ArgumentParser) -> None:
    """Add these commands to the command line."""
    preset = argparse.ArgumentParser(add_help=False)
    preset.add_argument(
        "preset",
        metavar="PRESET",
        help="a name from `dualmix methods`, a saved config, or a run's folder",
    )
    preset.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a method or a data set",
    )

    run = add(
        "run",
        _run,
        "Train a method on a stream, or go on where it was cut off.",
        prepare=_compose,
        parents=[preset, store, plain],
        epilog="Settings are flags too, e.g. --method.memory 2000 --data.name cifar100 --seed 3: "
        "`dualmix run PRESET --help` lists them all.",
    )
    run.add_argument("--fresh", action="store_true", help="start over, whatever is there")
    run.add_argument("--quiet", action="store_true", help="print the result only")
    run.add_argument(
        "--track",
        action="append",
        choices=("tensorboard", "mlflow", "wandb"),
        help="also send numbers there (an extra of that name); again for more",
    )
    add(
        "explain",
        _explain,
        "Show every value, its origin and what the paper says.",
        prepare=_compose,
        parents=[preset, plain],
    )
    methods = add("methods", _methods, "List the methods.", parents=[plain])
    methods.add_argument(
        "--plugin",
        action="append",
        type=Path,
        metavar="FILE",
        help="a file that registers a method or a data set",
    )
    show = add(
        "show",
        _show,
        "Show a run's scores and learning curve, or the curves of several side by side.",
        parents=[store, plain],
    )
    show.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run's folder, its name or a part of it"
    )
    show.add_argument(
        "--steps", action="store_true", help="also loss and online accuracy of --log_every"
    )


def _compose(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    from dualmix.config.compose import compose

    given.composed = compose(given.preset, overrides, faults)


def _run(given: argparse.Namespace) -> int:
    from dualmix.config.compose import NOT_BUILT
    from dualmix.data import load
    from dualmix.runs.filing import place, probed, results
    from dualmix.store.opening import open_store

    composed: Composed = given.composed
    moved = Path(given.preset)
    store = open_store(given.store, moved if (moved / "config.json").is_file() else None)
    images = load(composed.config.data)
    folder = place(store, composed, images.fingerprint)
    console = make_console(stderr=True, quiet=given.quiet or given.json)
    for note in images.notes:
        console.print(f"note: {images.name}: {note}")
    if composed.origins["model.engine"].endswith(NOT_BUILT):
        console.print(f"note: model.engine is torch ({NOT_BUILT})")
    again = folder.done and not given.fresh
    if again:
        folder.check()
    if again and probed(folder, composed):
        scores, times = results(folder)
        console.print(f"done already (--fresh starts over): {folder}", soft_wrap=True)
        return _report(folder, scores, times, given.json)
    from dualmix.cli.progress import Display
    from dualmix.runs.run import Stopped, run
    from dualmix.runs.trackers import Tracking, all_of, trackers

    if again:
        console.print("done before, but without the probes asked for: training again")

    stop = asked_to_stop()
    try:
        with (
            Display(console) as display,
            Tracking(trackers(given.track or ()), composed, tell) as tracking,
        ):
            result = run(
                composed,
                store,
                images=images,
                fresh=given.fresh,
                watch=all_of(display, tracking),
                stop=stop,
            )
    except Stopped as stopped:
        tell(f"{stopped}.")
        return 130
    result.folder.publish()
    return _report(result.folder, result.scores, result.times, given.json)


def _report(folder: Folder, scores: dict[str, Any], times: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"run": str(folder), "scores": scores, "times": times}))
        return 0
    from dualmix.cli.scores import results

    make_console().print(results(str(folder), scores, times))
    return 0


def _explain(given: argparse.Namespace) -> int:
    from dualmix.cli.settings import explanation, explanation_rows

    if given.json:
        print(json.dumps(explanation_rows(given.composed), indent=1))
    else:
        make_console().print(explanation(given.composed))
    return 0


def list_settings(preset: str, overrides: dict[str, str]) -> int:
    """Print every setting of a preset, with the values that flags give it."""
    from dualmix.cli.settings import settings
    from dualmix.config.compose import compose

    make_console().print(settings(compose(preset, overrides)))
    return 0


def _methods(given: argparse.Namespace) -> int:
    from dualmix.cli.settings import method_table
    from dualmix.registry import presets

    if given.json:
        print(
            json.dumps(
                {name: {"doc": p.doc, "paper": p.paper} for name, p in presets().items()}, indent=1
            )
        )
    else:
        make_console().print(method_table(presets()))
    return 0


def pick(store: Store, name: str) -> Folder:
    """Return the latest run that a name may mean, and say so where there are others."""
    from dualmix.store.archive import find_run

    folder = find_run(store, name)
    others = [path.name for path in store.matches(name) if path != folder.path]
    if others and folder.path.name != Path(name).name:
        tell(
            f"{folder.path.name} is the latest of {len(others) + 1} runs that match {name!r}; "
            f"the one before: {others[0]}."
        )
    return folder


def _show(given: argparse.Namespace) -> int:
    from dualmix.cli.scores import curve, curve_rows, side_by_side, step_charts
    from dualmix.runs.steps import steps
    from dualmix.store.opening import open_store

    store = open_store(given.store)
    folders = [pick(store, name) for name in given.runs]
    logged = [steps(folder) if given.steps else [] for folder in folders]
    for folder, stages in zip(folders, logged, strict=True):
        if given.steps and not stages:
            raise StoreError(
                f"{folder.path.name} logged no single steps: train it with --log_every 10 --fresh."
            )
    if given.json:
        rows = [
            {**curve_rows(folder), **({"steps": list(map(asdict, stages))} if stages else {})}
            for folder, stages in zip(folders, logged, strict=True)
        ]
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=1))
        return 0
    console = make_console()
    names = run_names(folders)
    console.print(curve(folders[0]) if len(folders) == 1 else side_by_side(folders, names))
    if given.steps:
        console.print(step_charts(dict(zip(names, logged, strict=True))))
    return 0


def run_names(folders: Sequence[Folder]) -> list[str]:
    """Return what runs are called: method, settings that differ and seed, else their folders'
    names.
    """
    from dualmix.runs.apart import Usual, name_runs, of_folder

    usual = Usual()
    told = [of_folder(folder, usual) for folder in folders]
    read = iter(name_runs(one for one in told if one is not None))
    return [
        folder.path.name if one is None else next(read)
        for folder, one in zip(folders, told, strict=True)
    ]
