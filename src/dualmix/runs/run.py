"""The only training loop: a stream through a learner, scored after each task, ready to die at any
moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualmix.config.compose import Composed, compose
from dualmix.data import Images, load
from dualmix.data.arrays import IN_MEMORY
from dualmix.data.stream import Plan, plan
from dualmix.errors import ConfigError, DualmixError, StoreError
from dualmix.learn.types import Learner
from dualmix.runs import metrics
from dualmix.runs.build import build
from dualmix.runs.events import Began, Ended, Event, Scored, Stepped
from dualmix.runs.facts import facts
from dualmix.runs.filing import continues, place, probed, record, results
from dualmix.runs.probes import measure, named_operators
from dualmix.runs.process import resident, settle
from dualmix.runs.saved import take_over
from dualmix.store.folder import Folder
from dualmix.store.log import STEP
from dualmix.store.opening import open_store
from dualmix.store.store import Store

OPTIONS = ("fresh", "watch", "stop")
"""Of `train`."""
TRACKED = ("tensorboard", "wandb")
"""Folders of trackers in a run's own: they are cleared with it."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run: where it is filed, its scores and what it cost."""

    folder: Folder
    scores: dict[str, Any]
    times: dict[str, Any]


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop and has saved itself."""


def run(
    composed: Composed,
    store: Store,
    *,
    images: Images | None = None,
    fresh: bool = False,
    watch: Callable[[Event], None] = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train and score one configuration, going on from its last snapshot if there is one.

    Parameters
    ----------
    images
        What `composed.config.data` names, where it was loaded already.
    fresh
        Start over, whatever is in the run's folder.
    watch
        Is told what happens; it cannot change the run.
    stop
        Asked after each step; on True the run saves itself and raises `Stopped`.
    """
    if images is None:
        images = load(composed.config.data)
    folder = place(store, composed, images.fingerprint)
    if validation := composed.config.stream.validation:
        images = images.for_validation(validation)
    if not fresh and (filed := _filed(folder, composed)):
        return filed
    order, learner = _prepared(composed, images)
    with folder.locked():
        if not fresh and (filed := _filed(folder, composed)):
            return filed
        if folder.done or fresh or not continues(folder, composed):
            folder.clear(TRACKED)
        return _train(composed, images, order, learner, folder, watch, stop)


def train(
    what: Composed | str,
    store: Store | Path | str,
    values: Mapping[str, Any] | None = None,
    *,
    images: Images | None = None,
    **options: Any,
) -> Result:
    """Train and score one configuration, as `dualmix run` does.

    Parameters
    ----------
    what
        A method's or a preset's name, or what `compose` returned.
    store
        Where the run is filed: a folder, or what `open_store` returned.
    values
        Settings by dotted path, such as ``{"method.memory": 200, "stream.tasks": 5}``, where `what`
        is a name.
    images
        Data in memory (`from_arrays`); none: what the configuration names.
    options
        As of `dualmix.runs.run.run`: ``fresh``, ``watch``, ``stop``.

    Examples
    --------
    >>> images = dualmix.from_arrays(x, y)  # doctest: +SKIP
    >>> dualmix.train("er+dualmix", "runs", {"method.memory": 200}, images=images)  # doctest: +SKIP
    """
    if not isinstance(what, str | Composed):
        raise ConfigError(
            f"A run goes by a name or what compose returned, not by a {type(what).__name__}."
        )
    if odd := options.keys() - OPTIONS:
        raise ConfigError(
            f"train takes no {min(odd)}: settings are in values by their path, such as "
            f"{{'method.memory': 200}}, and options are {', '.join(OPTIONS)}."
        )
    if not isinstance(images, Images | None):
        raise ConfigError(
            f"images are what from_arrays or load_data returned, not a {type(images).__name__}."
        )
    if isinstance(what, str):
        given = dict(values or {})
        if images is not None and images.name == "arrays":
            given = {"data.name": "arrays", "data.path": str(IN_MEMORY), **given}
        what = compose(what, given)
    elif values:
        raise ConfigError("values belong to a name: give them to compose, or give the name.")
    if images is not None and images.name != what.config.data.name:
        raise ConfigError(
            f"The configuration is for {what.config.data.name}, but images are of {images.name}: "
            f"compose it with data.name {images.name}."
        )
    filed = store if isinstance(store, Store) else open_store(store)
    return run(what, filed, images=images, **options)


def _filed(folder: Folder, composed: Composed) -> Result | None:
    """Return the result of a run that is done with all that is asked for.

    Raises
    ------
    StoreError
        It is done, but some file is not as it was written.
    """
    if not folder.done:
        return None
    folder.check()
    if not probed(folder, composed):
        return None
    return Result(folder, *results(folder))


def _prepared(composed: Composed, images: Images) -> tuple[Plan, Learner]:
    """Plan the stream and make the learner: what cannot be run fails here, before anything is
    written.
    """
    config = composed.config
    settle(config.threads)
    order_seed, run_seed = config.seeds()
    named_operators(config.probes.operators, images.shape)
    order = plan(images.train_y, images.test_y, len(images.classes), config.stream, order_seed)
    classes = order.classes if config.model.head == "fixed" else None
    learner = build(
        config.method,
        images.shape,
        classes=classes,
        seed=run_seed,
        model=config.model,
        device=config.device,
    )
    return order, learner


@dataclass(slots=True)
class _Progress:
    """Where a run is: the next batch, what has been counted and what it has cost."""

    task: int
    batch: int
    step: int
    hits: Tensor
    images: int
    counts: list[NDArray[np.int64]]
    times: dict[str, float]
    probes: list[dict[str, Any]]


def _train(
    composed: Composed,
    images: Images,
    order: Plan,
    learner: Learner,
    folder: Folder,
    watch: Callable[[Event], None],
    stop: Callable[[], bool],
) -> Result:
    state, damaged = folder.latest()
    at = (
        _resumed(learner, state, order, len(images.classes))
        if state
        else _Progress(0, 0, 0, torch.zeros((), dtype=torch.int64), 0, [], {}, [])
    )
    mended = folder.begin(
        record(composed, folder.key),
        order.record(),
        order.arrays(),
        lambda: {**facts(composed.config.code()), "data": _account(images, order)},
    )
    folder.drop_after(at.step)
    for remark in damaged:
        folder.log(event="damaged snapshot", remark=remark)
    for remark in mended:
        folder.log(event="mended", remark=remark)
    remarks = [*damaged, *mended]
    folder.log(event="begin", step=at.step)
    total = sum(order.steps(task) for task in range(len(order.tasks)))
    watch(Began(folder.path, composed.label, len(order.tasks), total, at.step, tuple(remarks)))

    while at.task < len(order.tasks):
        loss = None
        for rows in order.batches(at.task, at.batch):
            with _timed(at, "train_seconds"):
                loss = learner.observe(images.as_rows(images.train_x[rows]), images.train_y[rows])
                at.hits = at.hits + learner.hits
            at.images += len(rows)
            at.batch += 1
            at.step += 1
            watch(Stepped(at.task, at.step, loss, at.hits, at.images))
            if (every := composed.config.log_every) and at.step % every == 0:
                _log_step(folder, at, float(loss))
            stopping = stop()
            if stopping or (
                at.step % composed.config.save_every == 0 and at.batch < order.steps(at.task)
            ):
                _save(folder, learner, at)
            if stopping:
                raise Stopped(
                    f"stopped after step {at.step} of {total}; the same command goes on from there"
                )
        last = None if loss is None else float(loss)
        if last is not None and not math.isfinite(last):
            raise DualmixError(
                f"The loss is {last} after task {at.task + 1}: it diverged; use a smaller learning "
                "rate."
            )
        accuracy, forgetting = _end_task(composed, images, order, learner, at)
        folder.log(event="task", task=at.task, step=at.step, accuracy=accuracy, loss=last)
        _save(folder, learner, at)
        watch(Scored(at.task - 1, at.step, accuracy, forgetting))
    return _finish(order, learner, folder, at, watch, list(images.classes))


def _log_step(folder: Folder, at: _Progress, loss: float) -> None:
    """Log loss and hits so far. Only what a snapshot holds is counted, so that a run which was cut
    off logs the same numbers again.
    """
    folder.log(
        event=STEP, task=at.task, step=at.step, loss=loss, hits=int(at.hits), images=at.images
    )


def _end_task(
    composed: Composed, images: Images, order: Plan, learner: Learner, at: _Progress
) -> tuple[float, float]:
    """Use the pause after a task, test all tasks so far, and return average accuracy and
    forgetting.
    """
    with _timed(at, "train_seconds"):
        learner.consolidate()
    with _timed(at, "evaluate_seconds"):
        at.counts.append(confusion(learner, images, order, at.task))
    if composed.config.probes.on:
        with _timed(at, "probe_seconds"):
            seed = composed.config.seeds()[1]
            at.probes.append(measure(learner, images, order, at.task, composed.config.probes, seed))
    at.task, at.batch = at.task + 1, 0
    matrix = metrics.accuracy_matrix(np.stack(at.counts), [task.classes for task in order.tasks])
    return float(metrics.average_accuracy(matrix)[-1]), float(metrics.forgetting(matrix)[-1])


def _finish(
    order: Plan,
    learner: Learner,
    folder: Folder,
    at: _Progress,
    watch: Callable[[Event], None],
    names: list[str],
) -> Result:
    counts = np.stack(at.counts)
    scores = metrics.summary(counts, [task.classes for task in order.tasks])
    scores["online_accuracy"] = float(at.hits) / max(at.images, 1)
    times = _cost(at)
    folder.finish(
        {"recipe": {**learner.recipe, "names": names}, "learner": learner.state_dict()},
        counts,
        scores,
        times,
        at.probes,
    )
    folder.log(event="end", step=at.step, accuracy=scores["average_accuracy"])
    watch(Ended(folder.path, scores, times))
    return Result(folder, scores, times)


def confusion(learner: Learner, images: Images, order: Plan, task: int) -> NDArray[np.int64]:
    """Count (true class, predicted class) over the test images of all tasks up to `task`."""
    classes = len(images.classes)
    rows = np.concatenate([seen.test for seen in order.tasks[: task + 1]])
    counts = np.zeros(classes * classes, dtype=np.int64)
    for part in np.array_split(rows, max(1, len(rows) // 1000)):
        predicted = learner.predict(images.as_rows(images.test_x[part])).astype(np.int64)
        counts += np.bincount(
            images.test_y[part] * classes + predicted, minlength=classes * classes
        )
    return counts.reshape(classes, classes)


def _save(folder: Folder, learner: Learner, at: _Progress) -> None:
    with _timed(at, "save_seconds"):
        folder.save(
            at.step,
            {
                "key": folder.key,
                "task": at.task,
                "batch": at.batch,
                "step": at.step,
                "hits": int(at.hits),
                "images": at.images,
                "counts": torch.from_numpy(np.stack(at.counts).astype(np.int32))
                if at.counts
                else torch.zeros(0, 0, 0),
                "times": {**at.times, "peak_memory_mb": _peak_memory(at)},
                "probes": at.probes,
                "learner": learner.state_dict(),
            },
        )


def _resumed(learner: Learner, state: dict[str, Any], order: Plan, classes: int) -> _Progress:
    """Take over a snapshot, if it is of this stream: its numbers must be those of a step in it."""
    try:
        at = _Progress(
            state["task"],
            state["batch"],
            state["step"],
            torch.tensor(state["hits"]),
            state["images"],
            [np.asarray(stage, dtype=np.int64) for stage in state["counts"].numpy()],
            dict(state["times"]),
            list(state["probes"]),
        )
        steps = [order.steps(task) for task in range(len(order.tasks))]
        sound = (
            all(type(n) is int and n >= 0 for n in (at.task, at.batch, at.step, at.images))
            and at.task <= len(steps)
            and at.batch <= [*steps, 0][at.task]
            and at.step == sum(steps[: at.task]) + at.batch
            and 0 <= int(at.hits) <= at.images
            and len(at.counts) == at.task
            and all(counts.shape == (classes, classes) for counts in at.counts)
            and all(isinstance(n, int | float) and n >= 0 for n in at.times.values())
        )
        if not sound:
            raise ValueError("its counts are of no step of this stream")
        take_over(learner, state["learner"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as fault:
        raise StoreError(f"A snapshot does not fit the run ({fault}): use --fresh.") from fault
    return at


@contextmanager
def _timed(at: _Progress, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    at.times[name] = at.times.get(name, 0.0) + time.perf_counter() - began


def _cost(at: _Progress) -> dict[str, float]:
    train = at.times.get("train_seconds", 0.0)
    return {
        **at.times,
        "images_per_second": at.images / train if train else 0.0,
        "peak_memory_mb": _peak_memory(at),
    }


def _peak_memory(at: _Progress) -> float:
    return max(resident(peak=True), at.times.get("peak_memory_mb", 0.0))


def _account(images: Images, order: Plan) -> dict[str, Any]:
    used = sum(len(task.classes) for task in order.tasks)
    part = (
        []
        if used == len(images.classes)
        else [f"the stream has {used} of {len(images.classes)} classes"]
    )
    return {
        "name": images.name,
        "fingerprint": images.fingerprint,
        "notes": [*images.notes, *part],
        "shape": list(images.shape),
        "classes": list(images.classes),
        "train": len(images.train_y),
        "test": 0 if images.test_x is images.train_x else len(images.test_y),
    }
