"""Scores as pure functions of confusion counts.

Equation numbers are those of DualMix (Fan et al. 2023, arXiv:2303.07864), which takes its two
scores from earlier work: average accuracy (Eq. 14) and forgetting (Eq. 15).

``counts[i, y, p]`` is the number of test images of class ``y`` predicted as ``p`` after task ``i``.
Tasks and stages count from 0 here and from 1 in the paper. Every accuracy is a share in [0, 1]; NaN
stands for "not defined" or "not measured".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
Scores = NDArray[np.float64]

FEWEST = 3
"""Runs from which a 95 % interval is shown: of two, Student's t makes it 9 times as wide as they
are apart.
"""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over ``n`` runs: ``mean`` ± ``half`` (Student's t), and the standard deviation
    ``std``.
    """

    mean: float
    std: float
    half: float
    n: int

    @property
    def shown(self) -> float | None:
        """The half width, from `FEWEST` runs on."""
        return self.half if self.n >= FEWEST else None


def accuracy_matrix(counts: Counts, tasks: Sequence[Sequence[int]]) -> Scores:
    """a_{i,j} of Eqs. (14) and (15): the share of task j's test images that are predicted right
    after task i.

    Parameters
    ----------
    counts
        Confusion counts (S, C, C) of the S stages finished so far, S <= len(tasks). Rows of tasks
        that are still to come are not read.
    tasks
        The class numbers of each task.

    Returns
    -------
    NDArray
        (S, S), so (T, T) for a finished run; NaN for j > i. Each image of a task weighs the same.

    Raises
    ------
    ValueError
        If the counts or tasks are malformed, or a task seen at a stage has no test image there.

    Examples
    --------
    >>> counts = np.zeros((2, 3, 3), dtype=np.int64)
    >>> counts[0, 0] = [4, 0, 0]  # after task 0: all 4 images of class 0 are right
    >>> counts[1] = [[1, 0, 3], [0, 2, 0], [0, 1, 1]]
    >>> accuracy_matrix(counts, [[0], [1, 2]])
    array([[1.  ,  nan],
           [0.25, 0.75]])
    """
    table, members = _checked(counts, tasks)
    stages = len(table)
    right = np.diagonal(table, axis1=1, axis2=2)
    images = table.sum(axis=2)
    a = np.full((stages, stages), np.nan)
    for j, classes in enumerate(members[:stages]):
        total = images[j:, classes].sum(axis=1)
        if not total.all():
            stage = j + int(np.argmin(total)) + 1
            raise ValueError(
                f"Task {j + 1} has no accuracy: the counts after task {stage} hold no test image "
                "of it."
            )
        a[j:, j] = right[j:, classes].sum(axis=1) / total
    return a


def average_accuracy(a: Scores) -> Scores:
    """Average accuracy A_i, the mean over the tasks up to i, for each stage i (Eq. 14).

    Each task weighs the same. At the last stage it is the ACC of Lopez-Paz and Ranzato 2017,
    arXiv:1706.08840.

    Examples
    --------
    >>> average_accuracy(np.array([[1.0, np.nan], [0.25, 0.75]]))
    array([1. , 0.5])
    """
    a = _measured(a)
    return np.array([a[i, : i + 1].mean() for i in range(len(a))])


def forgetting(a: Scores) -> Scores:
    """Average forgetting F_i, for each stage i (Eq. 15).

    The mean over earlier tasks of their best accuracy before stage i minus that at stage i, as
    Chaudhry et al. 2018 (arXiv:1801.10112) define it. A task that stage i improves counts as a
    negative term. F_0 is NaN: nothing could be forgotten.

    Examples
    --------
    >>> forgetting(np.array([[1.0, np.nan], [0.25, 0.75]]))
    array([ nan, 0.75])
    """
    a = _measured(a)
    best = np.maximum.accumulate(a, axis=0)
    return np.array([np.nan] + [(best[i - 1, :i] - a[i, :i]).mean() for i in range(1, len(a))])


def forgetting_ref(a: Scores) -> Scores:
    """Eq. (15) as the reference code computes it, for each stage.

    The mean is over all tasks up to i and the best accuracy may be that of stage i itself, so task
    i adds 0 and no term is negative. With no negative term in `forgetting` this is F_i * i / (i +
    1), stages from 0.

    Examples
    --------
    >>> forgetting_ref(np.array([[1.0, np.nan], [0.25, 0.75]]))
    array([0.   , 0.375])
    """
    a = _measured(a)
    best = np.maximum.accumulate(a, axis=0)
    return np.array([(best[i, : i + 1] - a[i, : i + 1]).mean() for i in range(len(a))])


def error_shares(counts: Counts, tasks: Sequence[Sequence[int]]) -> tuple[Scores, Scores]:
    """er(n,o) and er(o,n) of Fan et al. 2023 (Figures 4 and 6), for each stage.

    New classes are those of the task just finished, old ones those of the tasks before it. er(n,o)
    is the share of the misclassified new-class images that are taken for an old class; er(o,n) is
    the share of the misclassified old-class images that are taken for a new one. An image taken for
    a class that is still to come is misclassified too.

    Parameters
    ----------
    counts, tasks
        As for `accuracy_matrix`.

    Returns
    -------
    tuple of NDArray
        er(n,o) and er(o,n), each (S,). NaN at the first stage (no old class) and where there is no
        error.

    Examples
    --------
    >>> counts = np.zeros((2, 3, 3), dtype=np.int64)
    >>> counts[1] = [[1, 0, 3], [0, 2, 0], [3, 1, 0]]
    >>> error_shares(counts, [[0], [1, 2]])
    (array([ nan, 0.75]), array([nan,  1.]))
    """
    table, members = _checked(counts, tasks)
    new_old, old_new = np.full((2, len(table)), np.nan)
    for i in range(1, len(table)):
        new, old = members[i], np.concatenate(members[:i])
        new_old[i] = _share(table[i], new, old)
        old_new[i] = _share(table[i], old, new)
    return new_old, old_new


def anytime_accuracy(a: Scores) -> float:
    """Mean of Eq. (14) over the stages: how good the learner was all along, not only at the end.

    Examples
    --------
    >>> anytime_accuracy(np.array([[1.0, np.nan], [0.25, 0.75]]))
    0.75
    """
    return float(average_accuracy(a).mean())


def backward_transfer(a: Scores) -> float:
    """Backward transfer (BWT) of Lopez-Paz and Ranzato 2017, arXiv:1706.08840.

    The mean over all tasks j but the last of a_{T,j} - a_{j,j}: negative where tasks got worse
    once learned; NaN for a single task.

    Examples
    --------
    >>> backward_transfer(np.array([[1.0, np.nan], [0.25, 0.75]]))
    -0.75
    """
    a = _measured(a)
    return float((a[-1, :-1] - a.diagonal()[:-1]).mean()) if len(a) > 1 else math.nan


def learning_accuracy(a: Scores) -> float:
    """Mean of a_{j,j}: how well each task was known right after it was learned.

    It is the learning accuracy (LA) of Riemer et al. 2019, arXiv:1810.11910.

    Examples
    --------
    >>> learning_accuracy(np.array([[1.0, np.nan], [0.25, 0.75]]))
    0.875
    """
    return float(_measured(a).diagonal().mean())


def class_accuracy(counts: Counts) -> Scores:
    """Share of each class's test images predicted right at the last stage; NaN for a class without
    any.

    Examples
    --------
    >>> class_accuracy(np.array([[[1, 0, 3], [0, 2, 0], [0, 0, 0]]]))
    array([0.25, 1.  ,  nan])
    """
    last = _checked_counts(counts)[-1]
    images = last.sum(axis=1)
    accuracy = np.full(len(last), np.nan)
    np.divide(last.diagonal(), images, out=accuracy, where=images > 0)
    return accuracy


def interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean, standard deviation and half width t_{(1+level)/2, n-1} * std / sqrt(n) of independent
    runs.

    Parameters
    ----------
    values
        One finite number per run.
    level
        Coverage of the interval, between 0 and 1.

    Returns
    -------
    Interval
        ``std`` has n - 1 in its denominator; ``std`` and ``half`` are NaN for a single run.

    Examples
    --------
    >>> mean = interval([0.1, 0.2, 0.3])
    >>> f"{mean.mean:.3f} ± {mean.half:.3f}, std {mean.std:.3f}, n {mean.n}"
    '0.200 ± 0.248, std 0.100, n 3'
    """
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 1 or not len(runs):
        raise ValueError(
            f"An interval needs a list of one or more numbers, but got shape {runs.shape}."
        )
    if not np.isfinite(runs).all():
        raise ValueError("An interval needs finite numbers, but a value is NaN or infinite.")
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval lies between 0 and 1, but it is {level}.")
    n, mean = len(runs), float(runs.mean())
    if n == 1:
        return Interval(mean, math.nan, math.nan, n)
    from scipy.special import stdtrit

    std = float(runs.std(ddof=1))
    return Interval(mean, std, float(stdtrit(n - 1, (1 + level) / 2)) * std / math.sqrt(n), n)


def summary(counts: Counts, tasks: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Every score of a run, Eqs. (14) and (15) first, ready for JSON: plain floats and lists, None
    for NaN.

    Parameters
    ----------
    counts, tasks
        As for `accuracy_matrix`; of an unfinished run the scores are those after its last finished
        task.

    Examples
    --------
    >>> counts = np.array([[[4, 0], [0, 0]], [[1, 3], [0, 2]]])
    >>> scores = summary(counts, [[0], [1]])
    >>> scores["average_accuracy"], scores["forgetting"], scores["forgetting_by_task"]
    (0.625, 0.75, [None, 0.75])
    """
    a = accuracy_matrix(counts, tasks)
    average, forgot, forgot_ref = average_accuracy(a), forgetting(a), forgetting_ref(a)
    new_old, old_new = error_shares(counts, tasks)
    scores = {
        "average_accuracy": average[-1],
        "forgetting": forgot[-1],
        "forgetting_ref": forgot_ref[-1],
        "anytime_accuracy": anytime_accuracy(a),
        "backward_transfer": backward_transfer(a),
        "learning_accuracy": learning_accuracy(a),
        "last_task_accuracy": a[-1, -1],
        "average_accuracy_by_task": average,
        "forgetting_by_task": forgot,
        "er_new_old": new_old,
        "er_old_new": old_new,
        "accuracy_matrix": a,
        "class_accuracy": class_accuracy(counts),
    }
    return {name: _plain(np.asarray(score).tolist()) for name, score in scores.items()}


def _plain(score: Any) -> Any:
    if isinstance(score, list):
        return [_plain(part) for part in score]
    return None if math.isnan(score) else score


def _share(table: Counts, true: NDArray[np.int64], taken_for: NDArray[np.int64]) -> float:
    """Share of the misclassified images of some classes that are taken for one of some other
    classes.
    """
    wrong = table[true].sum() - table[true, true].sum()
    return float(table[np.ix_(true, taken_for)].sum() / wrong) if wrong else math.nan


def _measured(a: Scores) -> Scores:
    """Return an accuracy matrix with zeros above its diagonal, where nothing was measured."""
    a = np.asarray(a, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise ValueError(
            "An accuracy matrix is square, one row per stage and one column per task, but got "
            f"shape {a.shape}."
        )
    a = np.tril(a)
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError(
            "An accuracy matrix holds shares from 0 to 1 on and below its diagonal, but one is not."
        )
    return a


def _checked_counts(counts: Counts) -> Counts:
    table = np.asarray(counts)
    if table.ndim != 3 or table.shape[1] != table.shape[2] or not table.size:
        raise ValueError(
            "Confusion counts have shape (stages, classes, classes), none 0, but got "
            f"{table.shape}."
        )
    if not np.issubdtype(table.dtype, np.integer):
        raise ValueError(f"Confusion counts are whole numbers, but their type is {table.dtype}.")
    if table.min() < 0:
        raise ValueError(f"Confusion counts are never negative, but one is {table.min()}.")
    return table.astype(np.int64, copy=False)


def _checked(
    counts: Counts, tasks: Sequence[Sequence[int]]
) -> tuple[Counts, list[NDArray[np.int64]]]:
    table = _checked_counts(counts)
    stages, classes = table.shape[:2]
    if stages > len(tasks):
        raise ValueError(f"The counts have {stages} stages, but there are only {len(tasks)} tasks.")
    seen: set[int] = set()
    for number, members in enumerate(tasks, start=1):
        for c in members:
            if isinstance(c, bool) or not isinstance(c, int | np.integer):
                raise ValueError(f"Task {number} names class {c!r}, which is not a whole number.")
            if not 0 <= c < classes:
                raise ValueError(
                    f"Task {number} names class {c}, but classes are 0 to {classes - 1}."
                )
            if c in seen:
                raise ValueError(f"Task {number} names class {c}, which was named before.")
            seen.add(int(c))
    return table, [np.array(members, dtype=np.int64) for members in tasks]
