"""Rungs with views, against each other with what all of them tell of the noise.

Trainings that share their seeds are randomised blocks (R. A. Fisher, The Design of Experiments,
1935): score = training + seed + noise, with noise of one spread. A pair of three seeds leaves two
degrees of freedom for its interval; all trainings together leave many more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dualmix.paper.ladder import MEMORY, Rung, loss_of
from dualmix.report.evidence import PAIRED, Ladder
from dualmix.report.words import counted, p_text
from dualmix.runs.metrics import FEWEST
from dualmix.runs.records import Group

LEVEL = 0.95
ONE_RULE = ("ladder", "a", "b", "f")
"""Parts of the ladder under one rule of weights, one mean over all images."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """What trainings of the same seeds tell of each other.

    Attributes
    ----------
    means
        Of each training.
    noise, freedom
        The standard deviation of the noise, and its degrees of freedom.
    half
        Half of the 95 % interval of the difference of two trainings that were chosen beforehand.
    every
        The same if all pairs are asked at once (J. W. Tukey's studentised range).
    ratio, p
        Fisher's F, and its p if all trainings are alike.
    by_rank
        The same p by M. Friedman's test (1937), which takes no noise for normal. Where there is no
        noise at all, nothing is tested and these three are NaN.
    """

    means: tuple[float, ...]
    noise: float
    freedom: int
    half: float
    every: float
    ratio: float
    p: float
    by_rank: float


def blocks(scores: ArrayLike) -> Blocks:
    """Return what scores tell: a row per training, a column per seed; two or more of each.

    Examples
    --------
    >>> three = blocks([[1, 2, 4], [2, 4, 5], [5, 5, 9]])
    >>> f"noise {three.noise:.3f}, {three.freedom} degrees of freedom, p {three.p:.3f}"
    'noise 0.782, 4 degrees of freedom, p 0.008'
    """
    from scipy import stats

    table = np.asarray(scores, dtype=np.float64)
    trainings, seeds = table.shape
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    freedom = (trainings - 1) * (seeds - 1)
    left = table - rows[:, None] - columns + mean
    noise = float(np.sqrt((left**2).sum() / freedom))
    if np.allclose(left, 0):
        return Blocks(tuple(map(float, rows)), 0.0, freedom, 0.0, 0.0, math.nan, math.nan, math.nan)
    ratio = float(seeds * ((rows - mean) ** 2).sum() / (trainings - 1) / noise**2)
    error = noise / np.sqrt(seeds)
    return Blocks(
        tuple(map(float, rows)),
        noise,
        freedom,
        float(stats.t.ppf((1 + LEVEL) / 2, freedom) * error * np.sqrt(2)),
        float(stats.studentized_range.ppf(LEVEL, trainings, freedom) * error),
        ratio,
        float(stats.f.sf(ratio, trainings - 1, freedom)),
        float(stats.friedmanchisquare(*table).pvalue),
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A rung less the training that it changes, in points, in each of `PAIRED`."""

    rung: Rung
    points: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """Trainings with augmented views under one mean over all images.

    Attributes
    ----------
    trainings
        The rungs that each training is; several where they are the same to the byte.
    scores
        What they tell, in the order of `PAIRED`.
    """

    trainings: tuple[tuple[Rung, ...], ...]
    seeds: tuple[int, ...]
    scores: tuple[Blocks, ...]

    @property
    def differences(self) -> list[Difference]:
        """Each rung that changes another training of these."""
        place = {rung.name: number for number, same in enumerate(self.trainings) for rung in same}
        return [
            Difference(rung, tuple(one.means[at] - one.means[other] for one in self.scores))
            for at, same in enumerate(self.trainings)
            for rung in same
            if (other := place.get(rung.against, at)) != at
        ]


def design(found: Ladder) -> Design | None:
    """Return the trainings of the ladder that can be compared in this way; none where they are
    fewer than three, or share fewer than three seeds.
    """
    some = [
        (step.rung, step.group)
        for step in found.steps
        if step.group and len(step.group.runs) >= FEWEST and _belongs(step.rung)
    ]
    some = [(rung, group) for rung, group in some if group.content == some[0][1].content]
    if not some:
        return None
    seeds = sorted(
        set.intersection(*({*group.values(score)} for _, group in some for score in PAIRED))
    )
    same: dict[tuple[str, ...], list[tuple[Rung, Group]]] = {}
    for rung, group in some:
        keys = tuple(run.key for run in group.runs if run.seed in seeds)
        same.setdefault(keys, []).append((rung, group))
    if len(same) < FEWEST or len(seeds) < FEWEST:
        return None
    scores = (
        blocks([[one.values(score)[seed] for seed in seeds] for (_, one), *_ in same.values()])
        for score in PAIRED
    )
    trainings = tuple(tuple(rung for rung, _ in alike) for alike in same.values())
    return Design(trainings, tuple(seeds), tuple(scores))


def _belongs(rung: Rung) -> bool:
    """Whether a rung has views, under the one rule."""
    return rung.part in ONE_RULE and rung.memory == MEMORY and loss_of(rung).viewed


def design_sentences(found: Design | None) -> list[str]:
    """Return what the trainings tell together."""
    if found is None:
        return []
    pairs = len(found.trainings) * (len(found.trainings) - 1) // 2
    told = [
        f"{len(found.trainings)} trainings with augmented views under one mean, against each other "
        f"({counted(len(found.seeds), 'seed')}; randomised blocks, whose noise all of them tell):"
    ]
    return told + [
        f"{name}: F({len(found.trainings) - 1}, {one.freedom}) = {one.ratio:.1f}, "
        f"p {p_text(one.p)}, by ranks {p_text(one.by_rank)}; noise {one.noise:.1f} points, a "
        f"difference ± {one.half:.1f}, or ± {one.every:.1f} if all {pairs} pairs are asked."
        for name, one in zip(NAMES, found.scores, strict=True)
        if one.noise
    ]


NAMES = ("Accuracy", "Anytime accuracy", "Forgetting")
"""Of `PAIRED`."""
