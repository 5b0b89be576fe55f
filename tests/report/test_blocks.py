"""Rungs against each other with what all of them tell of the noise."""

from __future__ import annotations

from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualmix.paper.ladder import RUNGS
from dualmix.report.blocks import blocks, design, design_sentences
from dualmix.report.collect import collect
from dualmix.report.evidence import ladder_steps
from dualmix.report.ladder import ladder
from dualmix.report.markdown import markdown
from dualmix.report.tables import summarise
from dualmix.store.store import Store

from .makers import accurate, counts, made

SCORES = [[1, 2, 4], [2, 4, 5], [5, 5, 9]]


def test_the_noise_is_what_trainings_and_seeds_leave() -> None:
    """Sums of squares by hand: 197 of all less 37²/9; trainings 531/3, seeds 509/3, each less it.

    Critical values from printed tables: t 2.776 at 4 degrees of freedom, Tukey's q 5.04 for three
    means; F 18.0 at 1 %, 61.2 at 0.1 %. Friedman's ranks are 1, 2, 3 for each seed: 6 on 2.
    """
    found = blocks(SCORES)
    whole, trainings, seeds = (total - 37**2 / 9 for total in (197, 531 / 3, 509 / 3))
    noise = sqrt((whole - trainings - seeds) / 4)
    assert found.means == pytest.approx((7 / 3, 11 / 3, 19 / 3))
    assert (found.noise, found.freedom) == (pytest.approx(noise), 4)
    assert found.half == pytest.approx(2.776 * noise * sqrt(2 / 3), abs=2e-3)
    assert found.every == pytest.approx(5.04 * noise / sqrt(3), abs=2e-3)
    assert found.ratio == pytest.approx(trainings / 2 / noise**2)
    assert 0.001 < found.p < 0.01
    assert found.by_rank == pytest.approx(exp(-3))


def test_without_noise_nothing_is_tested() -> None:
    found = blocks([[1, 2, 3], [2, 3, 4], [9, 10, 11]])
    assert found.noise == found.half == found.every == 0 and np.isnan(found.p)


@settings(max_examples=15)  # Tukey's range is an integral
@given(
    scores=arrays(float, (4, 3), elements=st.floats(-50, 50, width=16)),
    shift=arrays(float, 3, elements=st.floats(-50, 50, width=16)),
)
def test_the_noise_is_that_of_least_squares_and_a_seed_shifts_nothing(
    scores: np.ndarray, shift: np.ndarray
) -> None:
    rows, columns = np.indices(scores.shape)
    dummies = np.stack([*(rows == i for i in range(4)), *(columns == j for j in range(1, 3))], -1)
    fit, *_ = np.linalg.lstsq(dummies.reshape(-1, 6).astype(float), scores.ravel(), rcond=None)
    left = scores.ravel() - dummies.reshape(-1, 6) @ fit
    if (left**2).sum() < 1e-9:
        return
    found, shifted = blocks(scores), blocks(scores + shift)
    assert found.noise == pytest.approx(sqrt((left**2).sum() / 6), rel=1e-6)
    assert shifted.noise == pytest.approx(found.noise, rel=1e-6)
    assert shifted.ratio == pytest.approx(found.ratio, rel=1e-6, abs=1e-9)


def run(root: Path, name: str, accuracies: list[float]) -> None:
    accurate(root, RUNGS[name].preset, accuracies, RUNGS[name].settings())


def test_only_trainings_with_views_under_one_mean_are_compared(tmp_path: Path) -> None:
    """Neither er's rungs, which have no views, nor other weights, nor a rung of two seeds."""
    for name, accuracies in {
        "er": [9.0, 9.0, 9.0],
        "weights": [8.0, 9.0, 10.0],
        "no-augmentation": [8.0, 9.0, 10.0],
        "adpmix-half": [17.0, 18.0, 17.0],
        "er+dualmix, sum": [14.0, 15.0, 14.0],
        "view": [17.0, 18.0, 20.0, 30.0],
        "views": [18.0, 20.0, 21.0],
        "alpha-0": [10.0, 20.0],
    }.items():
        run(tmp_path, name, accuracies)
    assert design(ladder_steps(collect(Store(tmp_path)))) is None, "two trainings"
    probes = [{"task": 1}, {"task": 2, "tally": {"adpmix gate open": 0}}]
    for seed, accuracy in enumerate([21, 21, 25]):
        table = counts([[100], [0, 2 * accuracy]], images=100)
        rung = RUNGS["dualmix"]
        made(tmp_path, rung.preset, seed, rung.settings(), table=table, probes=probes)
    rung = RUNGS["kappa-0"]
    for seed in range(3):
        made(tmp_path, rung.preset, seed, rung.settings(), fingerprint="b" * 64)
    found = design(ladder_steps(collect(Store(tmp_path))))
    assert found is not None, "and none on other images"
    assert [[rung.name for rung in same] for same in found.trainings] == [
        ["view"],
        ["views", "plain-views"],
        ["adpmix-untilted", "dualmix", "delta-0.1", "delta-0.2"],
    ]
    assert found.seeds == (0, 1, 2), "a seed that only one has is no block"
    accuracy = found.scores[0]
    moved = blocks(np.array(SCORES) + 16)
    assert accuracy.means == pytest.approx(moved.means) and accuracy.noise == pytest.approx(
        moved.noise
    )
    changes = {one.rung.name: one.points for one in found.differences}
    assert changes.keys() == {"views", "plain-views"}, "what each changes is among them"
    assert changes["views"][0] == pytest.approx(4 / 3)
    assert changes["plain-views"][0] == pytest.approx(-8 / 3)
    assert changes["views"][1] == pytest.approx(2 / 3), "the first task is known to 100 % by all"


def test_the_page_and_the_text_tell_it(tmp_path: Path) -> None:
    for name, accuracies in zip(("view", "views", "new-view"), SCORES, strict=True):
        run(tmp_path, name, [16.0 + one for one in accuracies])
    steps = ladder_steps(collect(Store(tmp_path)))
    said = design_sentences(design(steps))
    assert said[0].startswith("3 trainings with augmented views")
    assert said[1] == (
        "Accuracy: F(2, 4) = 20.4, p 0.008, by ranks 0.050; noise 0.8 points, a difference ± 1.8, "
        "or ± 2.3 if all 3 pairs are asked."
    )
    assert set(said) <= set(ladder(steps).says)
    text = markdown(summarise(collect(Store(tmp_path))))
    assert said[1] in text and "| `views` | three views" in text
    assert "| `view` | +1.3 ± 1.8 |" in text
    assert design_sentences(None) == []
