"""Choosing a method's settings on the first tasks of a stream, by training images that the stream
leaves out.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from dualmix.config.compose import Composed, compose, lookup, walk
from dualmix.config.fields import canonical
from dualmix.config.plain import as_flag
from dualmix.data import load
from dualmix.errors import ConfigError, DualmixError, StoreError
from dualmix.registry import nearest
from dualmix.runs.extras import extra
from dualmix.runs.facts import facts
from dualmix.settings import Range
from dualmix.store.files import make_folder, write_bytes, write_json
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Entry, Job, entries

FIRST = 2
VALIDATION = 0.1
JOURNAL = "trials.journal"
PROTOCOL = ("stream.first", "stream.validation")
SCORE = (
    "average accuracy (Eq. 14) after the last of these tasks, mean over seeds, on training images "
    "of theirs that were kept out of the stream; no test image of any task was used"
)


@dataclass(frozen=True)
class Search:
    """What is tuned, and under which protocol.

    Attributes
    ----------
    values
        Settings of every trial: what the user fixed, and the protocol's tasks and validation share.
    ranges
        What is tried, by dotted path.
    home
        Where the trials and the result are filed; a name that follows from all the rest, so that it
        is found again.
    """

    preset: str
    label: str
    values: Mapping[str, Any]
    ranges: Mapping[str, Range]
    seeds: int
    default: Mapping[str, Any]
    data: Mapping[str, Any]
    home: Store

    @property
    def folder(self) -> Path:
        """The folder of the search on this machine."""
        return self.home.root

    @cached_property
    def store(self) -> Store:
        """The store of the trials' runs, which is not that of results."""
        return self.home.below("runs")

    def jobs(self, values: Mapping[str, Any]) -> list[Job]:
        """Return the runs of a trial."""
        return [
            Job(self.preset, {**self.values, **values, "seed": seed}) for seed in range(self.seeds)
        ]


def search(
    preset: str, given: Mapping[str, Any], store: Store, *, only: Sequence[str] = (), seeds: int = 1
) -> Search:
    """Decide what is tuned: every setting with a range that matters to the preset and that the user
    did not fix.

    Parameters
    ----------
    given
        What the user fixed, by dotted path.
    only
        Tune these and nothing else.

    Raises
    ------
    ConfigError
        A setting cannot be tuned, nothing is left to tune, or test images would be used.
    """
    values = {"stream.first": FIRST, "stream.validation": VALIDATION, **given}
    composed = compose(preset, values)
    stream = composed.config.stream
    if not stream.validation:
        raise ConfigError(
            "Settings must not be chosen by test images: give --stream.validation a share above 0."
        )
    if stream.first is None:
        raise ConfigError(
            "Settings are chosen on the first tasks of a stream: say how many with --stream.first."
        )
    ranges = _chosen(composed, values, only)
    images = load(composed.config.data)
    identity = {
        "run": composed.config.key(images.fingerprint),
        "ranges": {path: asdict(tried) for path, tried in ranges.items()},
        "seeds": seeds,
    }
    key = hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]
    return Search(
        preset,
        composed.label,
        values,
        ranges,
        seeds,
        {path: lookup(composed.config, path) for path in ranges},
        {"name": images.name, "fingerprint": images.fingerprint, "notes": list(images.notes)},
        store.below("tune", f"{composed.label}-{images.name}-{key}"),
    )


def _chosen(composed: Composed, fixed: Mapping[str, Any], only: Sequence[str]) -> dict[str, Range]:
    declared = tunable(composed)
    for path in only:
        if path not in declared:
            known = ", ".join(declared)
            raise ConfigError(
                f"--only {path}: it has no range{nearest(path, declared)} "
                f"(those that have: {known})."
            )
        if path in fixed:
            raise ConfigError(f"--only {path}: a setting that is given a value is not tuned.")
    ranges = {
        path: declared[path]
        for path in declared
        if path not in fixed and (path in only if only else not declared[path].asked)
    }
    if not ranges:
        raise ConfigError("Nothing is left to tune: give fewer settings a value.")
    return ranges


def tunable(composed: Composed) -> dict[str, Range]:
    """Return the range of every setting that has one and that matters as the others are, by dotted
    path.
    """
    ranges = {}
    for path, info in walk(type(composed.config)):
        declared = (
            info.json_schema_extra.get("tune") if isinstance(info.json_schema_extra, dict) else None
        )
        if isinstance(declared, dict):
            tried = Range(**declared)  # type: ignore[arg-type]
            group = path.rpartition(".")[0]
            if not tried.needs or any(
                lookup(composed.config, f"{group}.{name}") for name in tried.needs
            ):
                ranges[path] = tried
    return ranges


def tune(
    chosen: Search, trials: int, *, together: int, train: Callable[[Sequence[Entry]], None]
) -> dict[str, Any]:
    """Try settings until there are `trials` trials, going on with those there are, and return and
    file the result.

    The preset's own values are the first trial. What is tried next follows from the number of the
    trial and the scores before it, so that a search which was cut off comes to the same result.

    Parameters
    ----------
    together
        Trials that are chosen and trained at a time.
    train
        Trains runs; it may leave some undone, and then the search stops with these trials open.
    """
    optuna = extra("optuna", "tune", "Tuning")
    states = optuna.trial.TrialState
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _opened(optuna, chosen)
    while True:
        known = study.get_trials()
        group = [t for t in known if t.state == states.RUNNING]
        begun = sum(t.state != states.WAITING for t in known)
        while len(group) < together and begun < trials:
            study.sampler = optuna.samplers.TPESampler(seed=_seed(begun), constant_liar=True)
            group.append(study.ask(_distributions(optuna, chosen)))
            begun += 1
        chosen.home.publish(JOURNAL)
        if not group:
            return _file(study, chosen, states)
        runs = {trial.number: _entries(chosen, trial.params) for trial in group}
        train([run for each in runs.values() for run in each or ()])
        for number, each in runs.items():
            if each and all(run.state == "done" for run in each):
                study.tell(number, _score(each))
            elif each is None or any(run.state == "failed" for run in each):
                study.tell(number, state=states.FAIL)
        chosen.home.publish(JOURNAL)
        if any(run.state in ("stopped", "waiting") for each in runs.values() for run in each or ()):
            return _file(study, chosen, states)


def _opened(optuna: Any, chosen: Search) -> Any:
    """Return the study of a search, new or gone on with.

    Raises
    ------
    StoreError
        Its journal is damaged: optuna meets that with whatever fault its reading comes upon.
    """
    journal = chosen.folder / JOURNAL
    try:
        study = _study(optuna, chosen)
        for trial in study.get_trials():
            _check_trial(trial, chosen)
    except (DualmixError, OSError):
        raise
    except Exception as fault:
        raise StoreError(
            f"The journal {journal} is damaged ({type(fault).__name__}): move it away and give the "
            "same command again; runs that are done are not trained again."
        ) from fault
    return study


def _check_trial(trial: Any, chosen: Search) -> None:
    """Raise `ValueError` unless a trial could have come from this search."""
    for path, at in trial.params.items():
        tried = chosen.ranges[path]
        if isinstance(at, bool) or not isinstance(at, int | float) or not _inside(at, tried):
            raise ValueError(f"{path} is {at!r}")
    if trial.state.name == "COMPLETE":
        _check_score(trial, chosen)
    if trial.state.name in ("COMPLETE", "RUNNING") and trial.params.keys() != chosen.ranges.keys():
        raise ValueError(f"trial {trial.number} has other settings")


def _check_score(trial: Any, chosen: Search) -> None:
    """Raise `ValueError` unless a score is that of the runs, where they are still there."""
    if isinstance(trial.value, bool) or not 0 <= trial.value <= 1:
        raise ValueError(f"the score is {trial.value!r}")
    runs = _entries(chosen, trial.params)
    if runs and all(run.folder.done for run in runs) and _score(runs) != trial.value:
        raise ValueError(f"trial {trial.number} has another score than its runs")


def _score(runs: Sequence[Entry]) -> float:
    return fmean(run.folder.read_json("scores.json")["average_accuracy"] for run in runs)


def _study(optuna: Any, chosen: Search) -> Any:
    make_folder(chosen.folder)
    chosen.home.fetch(JOURNAL)
    _drop_half_a_line(chosen.folder / JOURNAL)
    journal = optuna.storages.journal.JournalFileBackend(str(chosen.folder / JOURNAL))
    storage = optuna.storages.JournalStorage(journal)
    study = optuna.create_study(
        study_name="tune", storage=storage, direction="maximize", load_if_exists=True
    )
    if not study.get_trials():
        within = {
            path: at for path, at in chosen.default.items() if _inside(at, chosen.ranges[path])
        }
        study.enqueue_trial(within)
    return study


def _drop_half_a_line(journal: Path) -> None:
    """Cut off what a process that was killed had begun to write: the next line would join it."""
    content = journal.read_bytes() if journal.is_file() else b""
    if content and not content.endswith(b"\n"):
        write_bytes(journal, content[: content.rfind(b"\n") + 1])


def _inside(at: Any, tried: Range) -> bool:
    return at is not None and tried.low <= at <= tried.high


def _distributions(optuna: Any, chosen: Search) -> dict[str, Any]:
    kinds = optuna.distributions
    return {
        path: kinds.IntDistribution(int(tried.low), int(tried.high), log=tried.log)
        if isinstance(chosen.default[path], int)
        else kinds.FloatDistribution(tried.low, tried.high, log=tried.log)
        for path, tried in chosen.ranges.items()
    }


def _seed(number: int) -> int:
    """Give every trial chance of its own, so that going on repeats nothing that was drawn."""
    return int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:4], "big")


def rounded(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is run for what was drawn: three digits are enough.

    Examples
    --------
    >>> rounded({"method.lr": 0.034567, "method.memory_batch": 1234})
    {'method.lr': 0.0346, 'method.memory_batch': 1234}
    """
    return {path: at if isinstance(at, int) else float(f"{at:.3g}") for path, at in params.items()}


def _entries(chosen: Search, params: Mapping[str, Any]) -> list[Entry] | None:
    """Return the runs of a trial; none where its values do not go together."""
    try:
        return entries(chosen.jobs(rounded(params)), chosen.store)
    except ConfigError:
        return None


def _file(study: Any, chosen: Search, states: Any) -> dict[str, Any]:
    """Write down the protocol, every trial, the best and the command that uses it."""
    tried = [
        {
            "number": t.number,
            "values": rounded(t.params),
            "score": t.value,
            "state": t.state.name.lower(),
        }
        for t in study.get_trials()
        if t.state != states.WAITING
    ]
    scored = [trial for trial in tried if trial["state"] == "complete"]
    best = max(scored, key=lambda trial: (trial["score"], -trial["number"]), default=None)
    result = {
        "preset": chosen.preset,
        "data": dict(chosen.data),
        "protocol": {
            "score": SCORE,
            "tasks": chosen.values["stream.first"],
            "validation": chosen.values["stream.validation"],
            "seeds": list(range(chosen.seeds)),
            "sampler": "Optuna TPE; the preset's own values first",
            "ranges": {path: asdict(span) for path, span in chosen.ranges.items()},
            "fixed": {path: at for path, at in chosen.values.items() if path not in PROTOCOL},
        },
        "trials": tried,
        "best": best,
        "command": command(chosen, best["values"]) if best else None,
        "facts": facts(),
    }
    write_json(chosen.folder / f"tune-{chosen.label}.json", result)
    chosen.home.publish(f"tune-{chosen.label}.json")
    return result


def command(chosen: Search, values: Mapping[str, Any]) -> str:
    """Return the command that runs the whole stream with the values chosen."""
    flags = {**{path: at for path, at in chosen.values.items() if path not in PROTOCOL}, **values}
    return shlex.join(
        [
            "dualmix",
            "run",
            chosen.preset,
            *(w for p, at in flags.items() for w in (f"--{p}", as_flag(at))),
        ]
    )
