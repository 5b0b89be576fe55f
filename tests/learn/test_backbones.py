"""Backbones by name, modules of one's own, frozen ones, weight files, and vectors of any range."""

import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import dualmix
from dualmix.errors import ConfigError, StoreError, TrainingError
from dualmix.learn import backbones
from dualmix.learn.backbones import MLP, ResNet18, Standardise, register_backbone

D = 5


def vectors(count=40, scale=1.0, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    x = 2 * np.eye(3, D)[y] + rng.normal(size=(count, D)) * 0.3
    return (x * scale + shift).astype(np.float32), y


class Own(nn.Module):
    def __init__(self, outputs=7):
        super().__init__()
        self.inner = nn.Linear(D, outputs)

    def forward(self, x):
        return torch.tanh(self.inner(x))


def test_standardise_has_mean_and_deviation_of_all_rows():
    x = torch.from_numpy(vectors(37, scale=100, shift=-3)[0])
    layer = Standardise(D)
    for part in x.split([1, 5, 20, 11]):
        layer(part)
    np.testing.assert_allclose(layer.mean, x.double().mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        layer.spread / layer.count, x.double().var(0, correction=0), rtol=1e-10
    )
    before = layer.mean.clone()
    want = (x.double() - x.double().mean(0)) / x.double().std(0, correction=0)
    np.testing.assert_allclose(layer.eval()(x), want.clamp(-10, 10), atol=1e-5)
    assert torch.equal(layer.mean, before)


def test_a_number_that_was_constant_is_cut_off():
    layer = Standardise(2)
    layer(torch.tensor([[1.0, 5.0], [2.0, 5.0]]))
    assert layer.eval()(torch.tensor([[1.0, 1e6]]))[0, 1] == backbones.FARTHEST


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("method", ["er", "er+dualmix"])
def test_vectors_of_any_range_are_learned(method, scale):
    x, y = vectors(800, scale=scale, shift=7 * scale)
    learner = dualmix.create(method, shape=(D,), memory=30, hidden=32)
    for start in range(0, 800, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    assert (learner.predict(x) == y).mean() > 0.95


def test_vectors_may_be_kept_in_half_the_room():
    x, y = vectors(20, scale=1e4)
    learner = dualmix.create("er", shape=(D,), memory=20, stored="float16", hidden=4)
    learner.observe(x, y)
    assert learner.memory.x.dtype == torch.float16
    np.testing.assert_allclose(learner.memory.x.float(), x, rtol=1e-3)


def test_seed_decides_a_networks_weights_and_global_chance_does_not():
    torch.manual_seed(1)
    one = dualmix.create("er", shape=(D,), seed=3).model.state_dict()
    torch.manual_seed(2)
    two = dualmix.create("er", shape=(D,), seed=3).model.state_dict()
    other = dualmix.create("er", shape=(D,), seed=4).model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["backbone.inner.weight"], other["backbone.inner.weight"])
    assert 0.9 / D**0.5 < float(one["backbone.inner.weight"].abs().max()) <= 1 / D**0.5


@pytest.mark.parametrize(
    ("name", "length"), [("linear", 3 * 8 * 8), ("mlp", 16), ("resnet18", 512)]
)
def test_networks_by_name_take_images(name, length):
    learner = dualmix.create("er", shape=(3, 8, 8), memory=4, model=name, hidden=16)
    learner.observe(np.random.default_rng(0).integers(0, 256, (4, 3, 8, 8), np.uint8), [0, 1, 0, 1])
    assert learner.embed(np.zeros((2, 3, 8, 8), np.uint8)).shape == (2, length)


def test_resnet18_has_the_parts_and_the_size_of_resnet18():
    network = ResNet18((3, 64, 64))
    assert sum(weight.numel() for weight in network.parameters()) == 11_176_512
    assert "layer2.0.downsample.0.weight" in network.state_dict()


def test_a_module_of_ones_own_is_trained_saved_and_loaded(tmp_path):
    x, y = vectors(60)
    learner = dualmix.create("er", shape=(D,), memory=10, backbone=Own())
    before = learner.model.backbone.inner.weight.clone()
    for start in range(0, 60, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    assert not torch.equal(before, learner.model.backbone.inner.weight)
    dualmix.save(learner, tmp_path / "own.safetensors")
    with pytest.raises(StoreError, match="Own: load it with backbone="):
        dualmix.load(tmp_path / "own.safetensors")
    again = dualmix.load(tmp_path / "own.safetensors", backbone=Own())
    np.testing.assert_array_equal(again.scores(x), learner.scores(x))


class Maps(nn.Module):
    def forward(self, x):
        return x[:, :, None, None]


class Bare(nn.Module):
    def forward(self, x):
        raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Maps(), r"one vector per row, \(2, d\) for two of them, not \(2, 5, 1, 1\)"),
        (Bare(), r"cannot take rows of \(5,\) \(KeyError"),
        ("resnet", "must be a torch module"),
    ],
)
def test_a_module_that_does_not_fit_is_refused_at_once(module, sentence):
    with pytest.raises(ConfigError, match=sentence):
        dualmix.create("er", shape=(D,), backbone=module)


def test_a_module_that_cannot_take_a_batch_is_told_and_nothing_changes():
    net = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4))
    learner = dualmix.create("er", shape=(D,), memory=5, backbone=net)
    x, y = vectors()
    learner.observe(x[:8], y[:8])
    before = dualmix.to_bytes(learner)
    with pytest.raises(TrainingError, match=r"failed at a batch of 1 \(ValueError: Expected more"):
        learner.observe(x[:1], y[:1])
    assert dualmix.to_bytes(learner) == before


def test_a_module_unlike_the_saved_one_is_told():
    kept = dualmix.to_bytes(dualmix.create("er", shape=(D,), memory=5, backbone=Own(7)))
    with pytest.raises(StoreError, match=r"does not fit the backbone that was given.*inner"):
        dualmix.load(kept, backbone=Own(6))


def test_a_frozen_backbone_stays_as_it_is_and_the_head_learns():
    x, y = vectors(600)
    learner = dualmix.create("er", shape=(D,), memory=20, backbone=Own(32), frozen=True)
    before = {name: part.clone() for name, part in learner.model.state_dict().items()}
    for start in range(0, 600, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    after = learner.model.state_dict()
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("backbone."))
    assert (learner.predict(x) == y).mean() > 0.9


@pytest.mark.parametrize("method", ["mir", "gss", "agem", "aser", "scr", "dvc", "gdumb", "der++"])
def test_every_method_takes_a_frozen_network(method):
    x, y = vectors(30)
    learner = dualmix.create(method, shape=(D,), memory=10, frozen=True, hidden=4)
    for start in range(0, 30, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    learner.consolidate()
    assert learner.predict(x).shape == (30,)


def test_weights_come_from_a_file_and_must_fit(tmp_path):
    given = MLP((D,), 16)
    for weight in given.parameters():
        weight.data.fill_(0.25)
    state = {f"backbone.{name}": part for name, part in given.state_dict().items()}
    save_file({**state, "fc.weight": torch.zeros(2, 16)}, tmp_path / "mlp.safetensors")
    path = str(tmp_path / "mlp.safetensors")
    learner = dualmix.create("er", shape=(D,), hidden=16, weights=path)
    assert learner.model.backbone.inner.weight.tolist() == [[0.25] * D] * 16
    with pytest.raises(ConfigError, match=r"inner.weight in .* is \(16, 5\), but"):
        dualmix.create("er", shape=(D,), hidden=8, weights=path)
    with pytest.raises(ConfigError, match=r"has no stem\.weight"):
        dualmix.create("er", shape=(3, 8, 8), weights=path)
    (tmp_path / "odd.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="is no safetensors file of weights"):
        dualmix.create("er", shape=(D,), weights=str(tmp_path / "odd.safetensors"))
    large = {name: part.double() + 1e300 for name, part in state.items()}  # too large for float32
    save_file(large, tmp_path / "large.safetensors")
    with pytest.raises(ConfigError, match="holds NaN or infinite numbers"):
        dualmix.create("er", shape=(D,), hidden=16, weights=str(tmp_path / "large.safetensors"))


def test_names_that_do_not_fit_are_said():
    for settings, sentence in [
        ({"model": "vit"}, "There is no backbone 'vit': give linear, mlp"),
        ({"model": "resnet18"}, "takes images, not vectors"),
        ({"model": "mlp", "engine": "native"}, "The native engine has no mlp"),
        ({"augment": "flip"}, None),
    ]:
        method = "scr" if "augment" in settings else "er"
        with pytest.raises(ConfigError, match=sentence or "flip is for images"):
            dualmix.create(method, shape=(D,), **settings)


@pytest.mark.slow
def test_a_backbone_can_be_registered(monkeypatch):
    monkeypatch.setattr(backbones, "_MAKERS", dict(backbones._MAKERS))
    register_backbone("tiny")(lambda shape, hidden: nn.Sequential(nn.Flatten(), nn.Linear(D, 3)))
    learner = dualmix.create("er", shape=(D,), model="tiny")
    assert learner.model.features == 3
    assert float(learner.model.backbone[1].weight.detach().abs().max()) > 0
    with pytest.raises(ConfigError, match="already"):
        register_backbone("tiny")(lambda shape, hidden: nn.Identity())


class Timm(types.ModuleType):
    """What dualmix uses of timm: `list_models`, and `create_model`, which draws from torch's global
    generator and leaves out the head where `num_classes` is 0.
    """

    def __init__(self):
        super().__init__("timm")
        self.__spec__ = importlib.machinery.ModuleSpec("timm", None)

    def list_models(self):
        return ["tinynet_x", "other"]

    def create_model(self, name, *, num_classes, in_chans):
        assert (name, num_classes) == ("tinynet_x", 0)
        return nn.Sequential(nn.Conv2d(in_chans, 6, 3), nn.BatchNorm2d(6), nn.Flatten())


def test_names_of_timm_are_backbones_where_it_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", Timm())
    chance = torch.get_rng_state()
    one, two = (
        dualmix.create("er", (2, 6, 6), memory=4, model="tinynet_x", seed=s) for s in (3, 3)
    )
    assert torch.equal(torch.get_rng_state(), chance) and one.model.features == 6 * 4 * 4
    x = np.random.default_rng(0).integers(0, 256, (6, 2, 6, 6), dtype=np.uint8)
    for learner in (one, two):
        learner.observe(x, [0, 1] * 3)
    again = dualmix.load(dualmix.to_bytes(one))
    for learner in (one, two, again):
        learner.observe(x, [0, 1] * 3)
        assert np.array_equal(learner.scores(x), one.scores(x))
    with pytest.raises(ConfigError, match=r"timm has a backbone 'tinynet_y'.*mean tinynet_x\?"):
        dualmix.create("er", (2, 6, 6), model="tinynet_y")
    with pytest.raises(ConfigError, match=r"'tinynet_x' for rows of \(5,\)"):
        dualmix.create("er", (5,), model="tinynet_x")


def test_a_name_without_timm_and_a_timm_that_does_not_load_are_said(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "timm" else find(n))
    with pytest.raises(ConfigError, match=r"'tinynet_x': give .*mlp.*, or install timm"):
        dualmix.create("er", (2, 6, 6), model="tinynet_x")
    monkeypatch.undo()
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ConfigError, match=r"timm cannot be imported .operator nms does not"):
        dualmix.create("er", (2, 6, 6), model="tinynet_x")


@pytest.mark.parametrize("method", ["er", "scr", "dvc", "agem", "gdumb", "er+dualmix"])
def test_a_frozen_network_stays_as_it_is_from_the_first_batch_on(method):
    own = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4))
    for backbone in (own, None):
        learner = dualmix.create(
            method, (D,), memory=10, backbone=backbone, frozen=True, hidden=8, lr=0.01
        )
        before = {n: t.clone() for n, t in learner.model.backbone.state_dict().items()}
        head = learner.model.weight.clone()
        x, y = vectors(20)
        learner.observe(x, y)
        learner.consolidate()
        learner.predict(x)
        learner.observe(x, y)
        after = learner.model.backbone.state_dict()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
        assert learner.model.weight.shape != head.shape or method == "gdumb"


def test_a_network_that_comes_in_evaluation_mode_is_trained_all_the_same():
    own = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4)).eval()
    dualmix.create("er", (D,), memory=4, backbone=own).observe(*vectors(20))
    assert own[1].num_batches_tracked > 0


def test_statistics_that_came_without_their_count_are_answered_as_they_are():
    """Converted weights often count no batch: the correction must not divide by their start."""
    own = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4))
    own[1].running_mean.fill_(5.0)
    learner = dualmix.create("er", (D,), memory=4, backbone=own, lr=1e-6)
    x, y = vectors(20)
    learner.observe(x, y)
    with torch.no_grad():
        want = own.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(learner.embed(x), want, rtol=1e-4, atol=1e-5)


def test_a_saved_learner_is_a_file_of_weights(tmp_path):
    one = dualmix.create("er", (D,), memory=4, hidden=8)
    x, y = vectors(20)
    one.observe(x, y)
    dualmix.save(one, tmp_path / "learner.safetensors")
    two = dualmix.create(
        "slda", (D,), model="mlp", hidden=8, weights=tmp_path / "learner.safetensors", frozen=True
    )
    np.testing.assert_allclose(two.embed(x), one.embed(x), rtol=1e-6)
    with pytest.raises(ConfigError, match=r"inner.weight .* the weights of another network"):
        dualmix.create("slda", (D,), model="mlp", weights=tmp_path / "learner.safetensors")


def test_a_network_of_ones_own_leaves_no_choice_of_another():
    for more, named in (({"model": "mlp"}, "model"), ({"engine": "native"}, "engine native")):
        with pytest.raises(ConfigError, match=f"leave out {named}, or backbone"):
            dualmix.create("er", (D,), backbone=Own(), **more)


def test_float16_refuses_what_it_cannot_hold_and_nothing_changes():
    learner = dualmix.create("er", (D,), memory=4, stored="float16")
    x, y = vectors(20)
    learner.observe(x, y)
    before = dualmix.to_bytes(learner)
    with pytest.raises(dualmix.InputError, match="above 65504, where float16 ends"):
        learner.observe(x * 1e6, y)
    assert dualmix.to_bytes(learner) == before
