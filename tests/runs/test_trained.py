"""What a run leaves is a learner for its maker: it knows the data's names, and goes on growing."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import dualmix
from dualmix.config.compose import compose
from dualmix.errors import ConfigError, DataError, InputError
from dualmix.report.gallery import Gallery, gallery
from dualmix.runs.collect import collect
from dualmix.store.store import Store

D = 6
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(4, D)) * 4
Y = np.arange(80) % 4
X = CENTRES[Y] + RNG.normal(size=(80, D))
NAMES = np.array(["ant", "bee", "cat", "dog"])[Y]
SMALL = {
    "method.memory": 10,
    "stream.tasks": 2,
    "model.hidden": 8,
    "method.lr": 0.05,
    "stream.batch": 4,
}


def trained(tmp_path, y, method="er", **more):
    images = dualmix.from_arrays(X, y)
    result = dualmix.train(method, tmp_path / "runs", {**SMALL, **more}, images=images)
    return result, result.folder.path / "learner.safetensors"


def test_arrays_in_memory_are_trained_and_filed(tmp_path):
    result, _ = trained(tmp_path, NAMES)
    assert result.scores["average_accuracy"] > 0.4
    assert result.folder.config()["config"]["data"]["name"] == "arrays"
    again, _ = trained(tmp_path, NAMES)
    assert again.folder.path == result.folder.path


@pytest.mark.parametrize("method", ["er", "der++", "scr", "dvc", "aser", "slda"])
def test_a_runs_learner_answers_names_and_its_head_grows(tmp_path, method):
    known = {k: v for k, v in SMALL.items() if method != "slda" or not k.startswith("method")}
    images = dualmix.from_arrays(X, NAMES)
    made = dualmix.train(method, tmp_path, known, images=images).folder.path
    learner = dualmix.load(made / "learner.safetensors")
    assert set(learner.predict(X)) <= {"ant", "bee", "cat", "dog"}
    learner.observe(X[:10], ["eel"] * 10)
    learner.observe(X[:10], NAMES[:10])
    assert learner.classes_[-1] == "eel" and learner.predict_proba(X).shape == (80, 5)
    twin = dualmix.load(dualmix.to_bytes(learner))
    for one in (learner, twin):
        one.observe(X[:4], ["fly"] * 4)
    assert np.array_equal(learner.scores(X), twin.scores(X)) and len(twin.classes_) == 6


def test_numbers_stay_numbers_and_a_head_may_stay_fixed(tmp_path):
    _, path = trained(tmp_path, Y * 10 - 10)
    assert set(dualmix.load(path).classes_.tolist()) == {-10, 0, 10, 20}
    fixed = dualmix.load(path, head="saved")
    with pytest.raises(InputError, match="fixed at 4"):
        fixed.observe(X[:2], [99, 99])
    with pytest.raises(ConfigError, match="head must be"):
        dualmix.load(path, head="open")


def test_a_fixed_head_of_ones_own_grows_if_asked_to():
    one = dualmix.create("er", shape=(D,), classes=4, memory=5, hidden=4)
    one.observe(X[:8], Y[:8])
    saved = dualmix.to_bytes(one)
    with pytest.raises(InputError, match="fixed at 4"):
        dualmix.load(saved).observe(X[:1], [9])
    grown = dualmix.load(saved, head="growing")
    assert np.array_equal(grown.scores(X), one.scores(X))
    grown.observe(X[:1], [9])
    assert 9 in grown.classes_


def test_vectors_of_a_file_run_at_the_command_line(tmp_path, capsys):
    from dualmix.cli import main

    np.savez(tmp_path / "mine.npz", x=X, y=NAMES)
    words = ["--data.path", str(tmp_path / "mine.npz"), "--data.root", str(tmp_path)]
    flags = [word for k, v in SMALL.items() for word in (f"--{k}", str(v))]
    for command in (
        ["run", "er", "--store", str(tmp_path / "runs"), "--data.name", "arrays", *flags],
        ["data", "verify", "arrays"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, *words])
        assert ended.value.code == 0
    assert "4 classes, 6 numbers" in capsys.readouterr().out


def test_what_cannot_be_trained_is_said(tmp_path):
    with pytest.raises(DataError, match="both x_test"):
        dualmix.from_arrays(X, Y, x_test=X)
    with pytest.raises(DataError, match="NaN"):
        dualmix.from_arrays(np.full((4, 2), np.nan), [0, 0, 1, 1])
    with pytest.raises(ConfigError, match=r"compose it with data\.name arrays"):
        dualmix.train(compose("er"), tmp_path, images=dualmix.from_arrays(X, Y))
    with pytest.raises(ConfigError, match="values belong to a name"):
        dualmix.train(compose("er"), tmp_path, {"seed": 1})


def test_weights_stand_in_the_key_by_their_content(tmp_path):
    def weights(name, value):
        layer = {"inner": (3, D), "outer": (3, 3)}
        tensors = {f"{n}.weight": torch.full(s, value) for n, s in layer.items()}
        tensors |= {f"{n}.bias": torch.zeros(s[0]) for n, s in layer.items()}
        tensors |= {"scale.count": torch.zeros((), dtype=torch.float64)}
        tensors |= {f"scale.{n}": torch.zeros(D, dtype=torch.float64) for n in ("mean", "spread")}
        save_file(tensors, tmp_path / name)
        return str(tmp_path / name)

    one, moved, other = weights("a", 0.5), weights("b", 0.5), weights("c", 0.25)
    keys = [compose("er", {"model.weights": path}).config.key("x") for path in (one, moved, other)]
    assert keys[0] == keys[1] != keys[2] and keys[0] != compose("er").config.key("x")
    composed = compose("er", {"model.weights": one, "data.name": "cifar100"})
    learner = dualmix.create("er", shape=(D,), weights=one, hidden=3)
    assert float(learner.model.backbone.inner.weight[0, 0].detach()) == 0.5
    weights("a", 0.125)
    with pytest.raises(ConfigError, match="not the file that the settings were made with"):
        dualmix.build(composed.config.method, (D,), model=composed.config.model)
    (tmp_path / "a").unlink()
    assert dualmix.load(dualmix.to_bytes(learner)).model.features == 3
    with pytest.raises(ConfigError, match="cannot be read"):
        compose("er", {"model.weights": one})


def test_probes_measure_vectors_and_refuse_what_is_for_images(tmp_path):
    asked = {"probes.on": True, "probes.draws": 2, "probes.linear": True}
    named = {**asked, "probes.operators": ["noise", "standard", "enmix"]}
    result, _ = trained(tmp_path, NAMES, "er+dualmix", **named)
    last = json.loads((result.folder.path / "probes.json").read_text())[-1]
    assert {"noise", "standard", "enmix"} <= set(last["operators"])
    assert all(np.isfinite(one["covariance"]) for one in last["operators"].values())
    with pytest.raises(ConfigError, match="flip is for images, but the learner is for vectors"):
        trained(tmp_path, NAMES, "er+dualmix", **{**asked, "probes.operators": ["flip"]})
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_page_of_runs_on_vectors_has_no_pictures_and_says_so(tmp_path):
    np.savez(tmp_path / "v.npz", x=X, y=NAMES)
    from_file = {"data.name": "arrays", "data.path": str(tmp_path / "v.npz")}
    dualmix.train("er+dualmix", tmp_path / "runs", {**SMALL, **from_file})
    collection = collect(Store(tmp_path / "runs"))
    assert gallery(collection) == Gallery("No pictures: what the runs learned are vectors.")


def test_what_train_does_not_take_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"train takes no memory: settings are in values"):
        dualmix.train("er", tmp_path, memory=3)
    with pytest.raises(ConfigError, match="images are what from_arrays"):
        dualmix.train("er", tmp_path, images=(X, Y))
