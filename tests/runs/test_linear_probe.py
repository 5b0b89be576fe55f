"""The linear probe, the ways to answer and the images that are held out."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dualmix.config.compose import compose
from dualmix.config.fields import Probes
from dualmix.data import load
from dualmix.data.config import Data
from dualmix.data.stream import Stream, plan
from dualmix.errors import ConfigError
from dualmix.runs.build import build
from dualmix.runs.filing import probed
from dualmix.runs.probes import linear_probe
from dualmix.runs.run import run
from dualmix.store.opening import open_store

pytestmark = pytest.mark.usefixtures("shallow")


def test_it_separates_features_that_are_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """On raw pixels of the digits a logistic regression is known to reach about 96 %; on features
    without information it guesses.
    """
    images = load(Data(name="digits"))
    order = plan(images.train_y, images.test_y, 10, Stream(tasks=5), 0)
    learner = build(compose("er").config.method, images.shape, classes=10)
    learner.observe(images.train_x[:10].transpose(0, 3, 1, 2), images.train_y[:10])
    network = type(learner.model)
    monkeypatch.setattr(network, "embed", lambda self, x, groups=None: x.flatten(1))
    known = linear_probe(learner, images, order)
    assert 0.93 < known["accuracy"] < 0.99 and known["train_images"] == len(images.train_y)
    monkeypatch.setattr(network, "embed", lambda self, x, groups=None: x.flatten(1)[:, :2] * 0)
    assert linear_probe(learner, images, order)["accuracy"] < 0.15


@pytest.mark.slow
def test_a_run_files_it_after_the_last_task_only(tmp_path) -> None:
    values = {
        "stream.first": 2,
        "method.memory": 20,
        "model.width": 1,
        "probes.on": True,
        "probes.draws": 2,
        "probes.linear": True,
    }
    composed, store = compose("er", values), open_store(str(tmp_path))
    folder = run(composed, store).folder
    first, last = folder.read_json("probes.json")
    assert "linear" not in first and 0 < last["linear"]["accuracy"] <= 1
    assert probed(folder, composed)
    without = compose("er", {**values, "probes.linear": False})
    assert without.config.key("f") == composed.config.key("f")


@pytest.mark.slow
def test_every_way_to_answer_is_what_a_run_that_answers_so_scores(tmp_path) -> None:
    """Four runs, each with one way to answer, against the probe of one of them."""
    values = {
        "data.name": "digits",
        "stream.first": 3,
        "method.memory": 40,
        "probes.on": True,
        "probes.draws": 2,
        "probes.answers": True,
    }
    folder = run(compose("er+ema", values), open_store(str(tmp_path / "probed"))).folder
    first, *_, last = folder.read_json("probes.json")
    assert "answers" not in first and probed(folder, compose("er+ema", values))
    alone = {"probes.on": False, "probes.answers": False}
    scored = {}
    for name, rate in (("weights", 0.0), ("average", 0.01)):
        for way, readout in (("head", "linear"), ("ncm", "ncm")):
            own = {"method.ema.rate": rate, "method.readout": readout}
            made = run(compose("er", {**values, **alone, **own}), open_store(str(tmp_path / "one")))
            scored[f"{name}, {way}"] = made.scores["average_accuracy"]
    assert last["answers"] == pytest.approx(scored) and len(set(scored.values())) > 2


@pytest.mark.parametrize("name", ["linear", "answers"])
def test_it_needs_probes(name: str) -> None:
    with pytest.raises(ValidationError, match=r"add probes\.on true"):
        Probes(**{name: True})


def test_held_out_images_are_in_no_task_and_the_test_images_stay() -> None:
    y, test_y = np.repeat(np.arange(4), 40), np.repeat(np.arange(4), 5)
    whole = plan(y, test_y, 4, Stream(tasks=2), 0)
    part = plan(y, test_y, 4, Stream(tasks=2, held_out=0.05), 0)
    for full, less in zip(whole.tasks, part.tasks, strict=True):
        assert np.array_equal(full.test, less.test)
        left_out = np.setdiff1d(full.train[0], less.train[0])
        assert np.bincount(y[left_out], minlength=4).tolist() == [
            2 * (label in less.classes) for label in range(4)
        ]
    with pytest.raises(ConfigError, match="give one of them"):
        compose("er", {"stream.held_out": 0.1, "stream.validation": 0.1})
