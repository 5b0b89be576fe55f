"""Read the finished runs of a store or an archive: each one checked, and what cannot be used is
listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

from dualmix.errors import ConfigError, StoreError
from dualmix.runs.apart import Own
from dualmix.runs.reader import Reader
from dualmix.runs.records import Collection, Remark, Run
from dualmix.runs.status import standing
from dualmix.store.folder import Folder
from dualmix.store.store import Store

LONGEST = 300
"""Letters of a reason that are shown."""


def collect(
    store: Store,
    *,
    rank: Callable[[str], int] = lambda label: 0,
    own: Own = lambda preset, data: {},
    only: Container[str] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Collection:
    """Read every run of a store; a run that cannot be trusted is left out and named, and never
    stops the others.

    Parameters
    ----------
    rank
        A label's place in tables.
    own
        The settings that stand for a preset on a data set, beside the preset's.
    only
        Names of the folders to read; none: all.
    progress
        Is told what is done, how many of it and of how many.
    """
    store.refresh()
    paths = {*store.paths()}
    if store.root.is_dir():
        paths |= {p for p in store.root.iterdir() if p.is_dir() and not p.name.startswith(".")}
    elif not paths:
        raise StoreError(f"There is no store {store}: give the folder of runs with --store.")
    runs: dict[str, Run] = {}
    left_out, unfinished, remarks = [], [], []
    reader = Reader(own)
    chosen = sorted(path for path in paths if only is None or path.name in only)
    for number, path in enumerate(chosen):
        progress("runs read", number, len(chosen))
        try:
            if not store.at(path).has("config.json"):
                raise StoreError("it has no config.json, so that nothing is known about it")
            folder = store.open(path)
            if not folder.done:
                unfinished.append(Remark(path.name, _progress(folder)))
                continue
            run, lacking = reader.read(folder)
            if run.key in runs:
                twin = runs[run.key]
                same = "equal scores" if twin.scores == run.scores else "other scores"
                raise StoreError(
                    f"it has the key of {twin.name}, with {same}; only that one counts"
                )
        except (StoreError, ConfigError) as fault:
            left_out.append(Remark(path.name, _sentence(str(fault), path)))
        except Exception as fault:  # files of a run can hold anything; it must not stop the others
            text = f"it cannot be read ({type(fault).__name__}: {fault})"
            left_out.append(Remark(path.name, _sentence(text[:LONGEST], path)))
        else:
            runs[run.key] = run
            remarks += [Remark(path.name, text) for text in lacking]
    kept, twins = _one_per_seed(sorted(runs.values(), key=lambda run: len(run.odd)))
    return Collection(
        store.root,
        str(store),
        kept,
        (*left_out, *(Remark(run.name, text) for run, text in twins)),
        tuple(unfinished),
        tuple(remarks),
        rank,
        tuple(run for run, _ in twins),
    )


def _one_per_seed(runs: Iterable[Run]) -> tuple[tuple[Run, ...], list[tuple[Run, str]]]:
    """Keep the first run per seed of each configuration, and return its twins with a sentence: runs
    that differ in device, threads or engine alone are not independent.
    """
    kept: dict[tuple[Any, ...], Run] = {}
    twins = []
    for run in runs:
        told = (run.memory, repr(run.changed), run.plugin.get("sha256"), run.seed)
        place = (run.label, run.content.fingerprint, *told)
        if place in kept:
            text = (
                f"It has the configuration and seed of {kept[place].name} but for device, "
                "threads or engine."
            )
            twins.append((run, text))
        else:
            kept[place] = run
    return tuple(kept.values()), twins


def _progress(folder: Folder) -> str:
    at = standing(folder, now=0)
    if at.state == "failed" and not at.tasks:
        return "Not finished: its plan or its log cannot be read."
    return (
        f"Not finished: {at.finished} of {at.tasks} tasks are done."
        if at.tasks
        else "Not finished: it has no plan."
    )


def _sentence(text: str, path: Path) -> str:
    text = text.replace(f"{path}/", "its ").removesuffix(": run again with --fresh.")
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
