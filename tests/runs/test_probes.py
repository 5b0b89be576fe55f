"""Probes against brute force and hand-computed values, without effect on what they look at."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualmix.config.compose import compose
from dualmix.config.fields import Probes
from dualmix.data.stream import Plan, Task
from dualmix.errors import ConfigError
from dualmix.runs.probes import covariance, forgetting_gap, mean_variance, measure, risk_factor
from dualmix.runs.run import run
from dualmix.store.store import Store

pytestmark = pytest.mark.usefixtures("shallow")

LOSSES = arrays(
    np.float64, st.tuples(st.integers(2, 6), st.integers(1, 5)), elements=st.floats(0, 20)
)
SMALL = {
    "method.memory": 30,
    "model.width": 4,
    "stream.tasks": 3,
    "stream.class_order": [0, 1, 2, 3, 4, 5],
    "stream.batch": 40,
    "save_every": 3,
    "probes.draws": 3,
    "probes.rows": 12,
    "probes.past": 20,
}


@given(LOSSES)
@settings(deadline=None)
def test_covariance_is_the_mean_over_all_pairs(losses: np.ndarray) -> None:
    centred = losses - losses.mean(0)
    pairs = [
        np.mean(centred[:, i] * centred[:, j])
        for i, j in itertools.product(range(losses.shape[1]), repeat=2)
    ]
    assert covariance(losses) == pytest.approx(np.mean(pairs), abs=1e-9)


@given(LOSSES, st.floats(0, 10), st.floats(0.01, 5))
@settings(deadline=None)
def test_the_gap_is_its_two_parts(losses: np.ndarray, goal: float, factor: float) -> None:
    gap = forgetting_gap(losses, goal, factor)
    brute = np.mean([(factor * row.mean() - goal) ** 2 for row in losses])
    assert gap.total == pytest.approx(brute, rel=1e-9, abs=1e-9)
    assert gap.variance + gap.bias == pytest.approx(gap.total, rel=1e-6, abs=1e-6)


def test_gap_by_hand() -> None:
    # mean losses 2 and 4, factor 0.5: risks 1 and 2; goal 3: squares 4 and 1, mean 2.5;
    # variance 0.25; bias 1.5^2
    gap = forgetting_gap(np.array([[1.0, 3.0], [4.0, 4.0]]), goal=3.0, factor=0.5)
    assert (gap.total, gap.variance, gap.bias) == (2.5, 0.25, 2.25)


def test_risk_factor_of_the_papers_last_task() -> None:
    # CIFAR-100, M = 1000: lambda 2.5, beta 1 / (1 + 2 * 2500 / 50000) = 0.909...
    assert risk_factor(2500, 1000, 50000) == pytest.approx(2.5 / 1.1)


def test_mean_variance_by_hand() -> None:
    # class 0 varies by 0.1 around its mean, class 1 not at all
    assert mean_variance(np.array([[0.2, 0.5], [0.4, 0.5]])) == pytest.approx(0.05)


@pytest.mark.slow
def test_probes_change_nothing_and_survive_a_stop(tmp_path) -> None:
    plain = run(compose("er+dualmix", SMALL), Store(tmp_path / "plain"))
    probed = compose("er+dualmix", {**SMALL, "probes.on": True})
    whole = run(probed, Store(tmp_path / "whole"))
    for name in ("learner.safetensors", "scores.json", "confusion.npz"):
        assert (plain.folder.path / name).read_bytes() == (whole.folder.path / name).read_bytes()
    assert not (plain.folder.path / "probes.json").exists()

    from dualmix.runs.run import Stopped

    asked = iter(range(10**6))
    with pytest.raises(Stopped):
        run(probed, Store(tmp_path / "cut"), stop=lambda: next(asked) == 12)
    cut = run(probed, Store(tmp_path / "cut"))
    assert (cut.folder.path / "probes.json").read_bytes() == (
        whole.folder.path / "probes.json"
    ).read_bytes()

    records = json.loads((whole.folder.path / "probes.json").read_text())
    assert [record["task"] for record in records] == [1, 2, 3]
    for record in records:
        assert sum(record["memory_counts"]) == 30
        assert len(record["head_norms"]) == 2 * record["task"]
        assert set(record["operators"]) == {"view", "enmix"}
        assert record["tally"]["adpmix pairs"] >= record["tally"]["adpmix gate open"]
    assert "gap" in records[0]["operators"]["view"]
    assert "gap" not in records[-1]["operators"]["view"]
    assert records[0]["norm_ratio"] is None


@pytest.mark.slow
def test_probes_that_were_not_taken_are_taken_by_training_again(tmp_path) -> None:
    store = Store(tmp_path)
    plain = run(compose("er+dualmix", SMALL), store)
    scores = (plain.folder.path / "scores.json").read_bytes()
    probed = run(compose("er+dualmix", {**SMALL, "probes.on": True}), store)
    assert probed.folder.path == plain.folder.path
    assert len(json.loads((probed.folder.path / "probes.json").read_text())) == 3
    assert (probed.folder.path / "scores.json").read_bytes() == scores
    kept = (probed.folder.path / "facts.json").read_bytes()
    run(compose("er+dualmix", SMALL), store)
    assert (probed.folder.path / "facts.json").read_bytes() == kept
    for asked, names in (
        ("[flip,grey]", {"flip", "grey", "view", "enmix"}),
        ("[grey]", {"flip", "grey", "view", "enmix"}),
    ):
        run(compose("er+dualmix", {**SMALL, "probes.on": True, "probes.operators": asked}), store)
        last = json.loads((probed.folder.path / "probes.json").read_text())[-1]
        assert set(last["operators"]) == names, "more are asked for, then fewer than there are"
    with pytest.raises(ConfigError, match=r"add probes\.on true"):
        compose("er", {"probes.operators": "[flip]"})


def test_measured_numbers_against_a_plain_loop() -> None:
    from dualmix.data import Data, load
    from dualmix.methods import ER, Mixing
    from dualmix.runs.build import build

    images = load(Data())
    rows = np.flatnonzero(images.train_y < 4)[:60]
    learner = build(ER(memory=10, mix=Mixing(view=1.0, augment="identity")), images.shape, seed=1)
    for start in range(0, 60, 10):
        at = rows[start : start + 10]
        learner.observe(images.train_x[at].transpose(0, 3, 1, 2), images.train_y[at])
    order = Plan(
        (
            Task((0, 1, 2, 3), rows[None], np.flatnonzero(images.test_y < 4)),
            Task(
                (4,), np.flatnonzero(images.train_y == 4)[None], np.flatnonzero(images.test_y == 4)
            ),
        ),
        5,
        10,
        "keep",
    )
    record = measure(learner, images, order, 0, Probes(draws=2, rows=100, past=1000), seed=3)
    model = learner.model.eval()
    with torch.no_grad():
        y = torch.tensor([model.labels.index(int(label)) for label in images.train_y[rows]])
        past = torch.nn.functional.cross_entropy(
            model(model.pixels(torch.from_numpy(images.train_x[rows]))), y
        )
    found = record["operators"]["view"]
    assert record["past_risk"] == pytest.approx(float(past), rel=1e-5)
    assert (record["rows"], record["draws"]) == (10, 2)
    assert found["covariance"] == pytest.approx(0, abs=1e-12)
    assert found["mean_variance"] == pytest.approx(0, abs=1e-7)
    norms = model.weight.detach().pow(2).sum(1).sqrt()
    assert record["head_norms"] == pytest.approx(norms.tolist(), rel=1e-5)


def test_further_augmentations_are_measured_on_the_same_model(tmp_path) -> None:
    names = ["identity", "flip", "crop-1.3", "enmix"]
    found = run(
        compose("er", {**SMALL, "probes.on": True, "probes.operators": names}), Store(tmp_path)
    )
    for record in json.loads((found.folder.path / "probes.json").read_text()):
        operators = record["operators"]
        assert set(operators) == set(names)
        assert operators["identity"]["covariance"] == pytest.approx(0, abs=1e-12)
        assert len({operators[name]["covariance"] for name in names}) == 4
    with pytest.raises(ConfigError, match="no augmentation 'blur'"):
        compose("er", {"probes.operators": ["flip", "blur"]})


@pytest.mark.slow
def test_loops_of_their_own_are_measured_too(tmp_path) -> None:
    values = {name: given for name, given in SMALL.items() if name != "probes.past"}
    for preset in ("agem", "gdumb"):
        found = run(
            compose(preset, {**values, "probes.on": True, "probes.operators": ["flip"]}),
            Store(tmp_path),
        )
        for record in json.loads((found.folder.path / "probes.json").read_text()):
            assert sum(record["memory_counts"]) == 30
            assert len(record["head_norms"]) == 2 * record["task"]
            assert set(record["operators"]) == {"flip"}
            assert "tally" not in record
