"""How well a learner does on a stream of one's own, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import InputError
from dualmix.learn.inputs import as_labels
from dualmix.learn.types import ImagesLike, Labels, LabelsLike, Learner

Label = int | str


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve.

    Attributes
    ----------
    rows, classes
        Learned by then.
    online
        Share of the rows since the last point that were recognised before they were learned.
    holdout
        Share of the hold-out rows recognised, of classes that have come; none without hold-out.
    """

    rows: int
    classes: int
    online: float
    holdout: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What `evaluate` found; every accuracy is a share in [0, 1].

    Attributes
    ----------
    accuracy
        Prequential: the share of all rows that were recognised before they were learned (Gama et
        al., 2013, "On evaluating stream learning algorithms"). A row of a class that has not come
        yet is a miss.
    per_class
        The same by label.
    holdout, holdout_per_class
        On the hold-out rows after the last batch; of a class that never came, 0.
    curve
        Points in the order of the stream.
    """

    rows: int
    accuracy: float
    per_class: dict[Label, float]
    curve: list[Point]
    holdout: float | None = None
    holdout_per_class: dict[Label, float] | None = None

    def __str__(self) -> str:
        said = f"{self.accuracy:.1%} of {self.rows} rows recognised before they were learned"
        if self.holdout is not None:
            said += f", {self.holdout:.1%} of the hold-out after the last"
        return said


def evaluate(
    learner: Learner,
    stream: Iterable[tuple[ImagesLike, LabelsLike]],
    *,
    holdout: tuple[ImagesLike, LabelsLike] | None = None,
    every: int = 10,
) -> Evaluation:
    """Let a learner answer each batch and then learn it.

    Parameters
    ----------
    stream
        Batches of rows and labels: a list, a generator, a torch DataLoader.
    holdout
        Rows and labels that are never learned.
    every
        Batches between two points of the curve; the last batch is always one.

    Examples
    --------
    >>> import dualmix
    >>> batches = [([[0.0, 1.0], [1.0, 0.0]], ["north", "east"]) for _ in range(5)]
    >>> print(dualmix.evaluate(dualmix.create("ncm", shape=(2,)), batches))
    80.0% of 10 rows recognised before they were learned
    """
    if not hasattr(learner, "observe") or not hasattr(learner, "predict"):
        raise InputError(f"Only a learner can be evaluated, not a {type(learner).__name__}.")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every must be a whole number of batches from 1 on, not {every!r}.")
    kept = None
    if holdout is not None:
        ((x, y),) = _pairs([holdout])
        kept = (x, as_labels(y, len(x)))
    known: set[Label] = set(getattr(learner, "classes_", ()))
    right: list[NDArray[np.bool_]] = []
    truth: list[Labels] = []
    curve: list[Point] = []
    for x, y in _pairs(stream):
        labels = as_labels(y)
        right.append(_right(learner, x, labels, known))
        truth.append(labels)
        learner.observe(x, y)
        known |= set(labels.tolist())
        if len(right) % every == 0:
            curve.append(_point(learner, right, kept, known, curve))
    if not right:
        raise InputError("The stream has no batch: give at least one.")
    if len(right) % every:
        curve.append(_point(learner, right, kept, known, curve))
    hits, came = np.concatenate(right), as_labels(np.concatenate(truth))
    result = Evaluation(len(hits), float(hits.mean()), _by_class(hits, came), curve)
    if kept is None:
        return result
    last = _right(learner, *kept, known)
    by_class = _by_class(last, kept[1])
    return replace(result, holdout=float(last.mean()), holdout_per_class=by_class)


def _pairs(
    stream: Iterable[tuple[ImagesLike, LabelsLike]],
) -> Iterator[tuple[ImagesLike, LabelsLike]]:
    if not isinstance(stream, Iterable):
        raise InputError(f"A stream is batches of rows and labels, not a {type(stream).__name__}.")
    for batch in stream:
        pair = isinstance(batch, list | tuple) and len(batch) == 2
        if not pair or not isinstance(batch[0], Sized):
            raise InputError(
                f"A batch is a pair of rows and labels, not this {type(batch).__name__}."
            )
        yield batch[0], batch[1]


def _right(learner: Learner, x: ImagesLike, labels: Labels, known: set[Label]) -> NDArray[np.bool_]:
    if not known:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(learner.predict(x) == labels)


def _point(
    learner: Learner,
    right: list[NDArray[np.bool_]],
    kept: tuple[ImagesLike, Labels] | None,
    known: set[Label],
    curve: list[Point],
) -> Point:
    hits = np.concatenate(right)
    online = float(hits[curve[-1].rows if curve else 0 :].mean())
    held: float | None = None
    if kept is not None:
        came = np.isin(kept[1], list(known))
        held = float(_right(learner, *kept, known)[came].mean()) if came.any() else None
    return Point(len(hits), len(known), online, held)


def _by_class(right: NDArray[np.bool_], labels: Labels) -> dict[Label, float]:
    return {label: float(right[labels == label].mean()) for label in dict.fromkeys(labels.tolist())}
