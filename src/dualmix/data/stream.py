"""The order of the stream as index arrays, planned up front: Plan -> Task -> batches of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from dualmix.data.split import share
from dualmix.errors import ConfigError
from dualmix.rng import generator
from dualmix.settings import Settings, setting


class Stream(Settings):
    """How a data set becomes a stream."""

    tasks: int | None = setting(
        None,
        "number of tasks, each with its own classes; none: the data set's usual number",
        paper="20 on all three sets",
        source="paper",
        ge=1,
    )
    first: int | None = setting(
        None,
        "end the stream after this many tasks; none: after the last",
        paper="-",
        source="ours",
        ge=1,
    )
    batch: int = setting(10, "images per stream batch", paper="10", source="paper", ge=1)
    epochs: int = setting(
        1, "passes over a task before the next begins", paper="1 (online)", source="paper", ge=1
    )
    class_order: Literal["shuffled", "fixed"] | tuple[int, ...] = setting(
        "shuffled",
        "classes to tasks: shuffled (by order_seed), fixed (0, 1, 2, ...) or a list of class "
        "numbers, e.g. [3,1,0,2]",
        paper="classes assigned at random",
        source="paper",
    )
    incomplete: Literal["keep", "drop"] = setting(
        "keep",
        "what becomes of a task's last batch when it is not full",
        source="ours",
        paper="- (the reference code drops it; batches of 10 always fill up)",
    )

    validation: float = setting(
        0.0,
        "test on this share of each class's training images, kept out of the stream, and on no "
        "test image; 0: do not",
        source="ours",
        ge=0,
        lt=1,
    )

    held_out: float = setting(
        0.0,
        "leave this share of each class's training images out of the stream and test on the test "
        "images all the same, as comparisons do that keep images for validation; 0: none",
        source="ours",
        ge=0,
        lt=1,
    )

    @model_validator(mode="after")
    def _kept_out_once(self) -> Stream:
        if self.validation and self.held_out:
            raise ValueError(
                "validation and held_out both keep images out of the stream: give one of them"
            )
        return self

    @field_validator("class_order")
    @classmethod
    def _each_class_once(cls, order: str | tuple[int, ...]) -> str | tuple[int, ...]:
        if not isinstance(order, str) and (
            len(set(order)) != len(order) or min(order, default=-1) < 0
        ):
            raise ValueError("a class order lists each class number once, from 0 on")
        return order


@dataclass(frozen=True, slots=True)
class Task:
    """The classes of one task, its training rows in the order of the stream (one line per epoch)
    and its test rows.

    Where `Stream.validation` is above 0, test rows are rows of the training images.
    """

    classes: tuple[int, ...]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows come when. Its position is two integers, so a stream resumes anywhere at no cost.

    Attributes
    ----------
    classes
        Classes of the whole stream, those of tasks that `Stream.first` cuts off included.
    """

    tasks: tuple[Task, ...]
    classes: int
    batch: int
    incomplete: Literal["keep", "drop"]

    def batches(self, task: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yield the row numbers of each batch of a task from batch `start` on; no batch crosses an
        epoch's end.
        """
        per_epoch = self._batches_an_epoch(task)
        for number in range(start, self.steps(task)):
            epoch, position = divmod(number, per_epoch)
            yield self.tasks[task].train[epoch, position * self.batch : (position + 1) * self.batch]

    def steps(self, task: int) -> int:
        """Number of batches of a task."""
        return self._batches_an_epoch(task) * len(self.tasks[task].train)

    def _batches_an_epoch(self, task: int) -> int:
        full, rest = divmod(self.tasks[task].train.shape[1], self.batch)
        return int(full + (rest > 0 and self.incomplete == "keep"))

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """Return every index array by name, as it is filed beside a result."""
        return {
            f"{kind}_{i}": getattr(task, kind)
            for i, task in enumerate(self.tasks)
            for kind in ("train", "test")
        }

    def record(self) -> dict[str, Any]:
        """Return a readable account of the plan with a digest of its index arrays."""
        digest = hashlib.sha256()
        for name, rows in sorted(self.arrays().items()):
            digest.update(
                f"{name}{rows.shape}".encode() + np.ascontiguousarray(rows, dtype="<i8").tobytes()
            )
        return {
            "class_order": [c for task in self.tasks for c in task.classes],
            "batch": self.batch,
            "incomplete": self.incomplete,
            "tasks": [
                {
                    "classes": list(task.classes),
                    "train_images": int(task.train.shape[1]),
                    "epochs": len(task.train),
                    "batches": self.steps(i),
                    "test_images": len(task.test),
                }
                for i, task in enumerate(self.tasks)
            ],
            "sha256": digest.hexdigest(),
        }


def plan(
    train_y: NDArray[np.int64],
    test_y: NDArray[np.int64],
    classes: int,
    settings: Stream,
    order_seed: int,
) -> Plan:
    """Plan a stream over labelled rows.

    Parameters
    ----------
    train_y, test_y
        Class numbers 0..classes-1 of the training and test rows.
    settings
        Tasks, batch size, class order and epochs; ``settings.tasks`` must be set.
    order_seed
        Decides the class order and the order of the samples, and nothing else.
    """
    order = _class_order(settings.class_order, classes, order_seed)
    tasks = settings.tasks or 1
    if tasks > len(order):
        raise ConfigError(
            f"stream.tasks is {tasks}, but there are {len(order)} classes: give --stream.tasks "
            f"{len(order)} or fewer."
        )
    planned = []
    first = tasks if settings.first is None else settings.first
    if first > tasks:
        raise ConfigError(
            f"stream.first is {first}, but there are {tasks} tasks: --stream.first {tasks} is the "
            "most."
        )
    for number, members in enumerate(np.array_split(order, tasks)[:first]):
        rows = np.flatnonzero(np.isin(train_y, members))
        test = np.flatnonzero(np.isin(test_y, members))
        if settings.validation:
            test = _kept_out(rows, train_y[rows], settings.validation, order_seed)
            rows = np.setdiff1d(rows, test)
        elif settings.held_out:
            kept = _kept_out(rows, train_y[rows], settings.held_out, order_seed)
            rows = np.setdiff1d(rows, kept)
        shuffled = [
            generator(order_seed, "samples", number, epoch).permutation(rows)
            for epoch in range(settings.epochs)
        ]
        if settings.incomplete == "drop" and len(rows) < settings.batch:
            raise ConfigError(
                f"Task {number + 1} has {len(rows)} training images, fewer than stream.batch "
                f"{settings.batch}, and stream.incomplete is drop: nothing would be learned from "
                "it; use --stream.incomplete keep."
            )
        if not len(test):
            raise ConfigError(
                f"Task {number + 1} (classes {members.tolist()}) has no test image: add some or "
                "use fewer tasks."
            )
        planned.append(Task(tuple(int(c) for c in members), np.stack(shuffled), test))
    return Plan(tuple(planned), len(order), settings.batch, settings.incomplete)


def _kept_out(
    rows: NDArray[np.int64], labels: NDArray[np.int64], validation: float, order_seed: int
) -> NDArray[np.int64]:
    """Draw a share of each class, each by a generator of its own."""
    count = share(validation)
    drawn = [
        generator(order_seed, "validation", int(label)).permutation(members)[: count(len(members))]
        for label in np.unique(labels)
        for members in [rows[labels == label]]
    ]
    return np.sort(np.concatenate(drawn))


def _class_order(setting: str | Sequence[int], classes: int, order_seed: int) -> NDArray[np.int64]:
    if setting == "shuffled":
        return generator(order_seed, "classes").permutation(classes)
    if setting == "fixed":
        return np.arange(classes)
    order = np.asarray(setting, dtype=np.int64)
    if order.max() >= classes:
        raise ConfigError(
            f"stream.class_order names class {order.max()}, but the data have classes 0 to "
            f"{classes - 1}."
        )
    return order
