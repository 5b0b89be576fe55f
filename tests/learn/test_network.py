"""The network against an independent plain implementation, its initial weights, and its growing
head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from dualmix.errors import ConfigError, InputError
from dualmix.learn.backbones import Block, ReducedResNet18
from dualmix.learn.modes import eval_mode, fused_bn
from dualmix.learn.network import Classifier


def small(shape: tuple[int, int, int] = (1, 8, 8), **more: Any) -> Classifier:
    return Classifier(shape, **{"width": 4, **more})


def images(shape: tuple[int, int, int], count: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((count, *shape), dtype=np.float32))


@pytest.mark.parametrize(
    ("size", "classes", "parameters", "features"),
    [(32, 100, 1_109_240, 160), (84, 100, 1_157_240, 640), (64, 200, 1_221_340, 640)],
)
def test_the_paper_sizes(size: int, classes: int, parameters: int, features: int) -> None:
    model = Classifier((3, size, size), classes=classes)
    assert model.backbone.features == features
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(p.numel() for p in model.backbone.parameters()) == 1_093_140
    assert model.weight.shape == (classes, features) and model.bias.shape == (classes,)


@pytest.mark.parametrize(
    ("size", "features"),
    [(4, 32), (8, 32), (12, 32), (28, 32), (32, 32), (33, 32), (64, 128), (84, 128)],
)
def test_sizes_work(size: int, features: int) -> None:
    backbone = ReducedResNet18((3, size, size), width=4).eval()
    out = backbone(images((3, size, size), 2))
    assert out.shape == (2, features) and backbone.features == features


def test_images_need_not_be_square() -> None:
    backbone = ReducedResNet18((1, 32, 64), width=2)
    assert backbone(images((1, 32, 64), 2)).shape == (2, 16 * 2) == (2, backbone.features)


def test_images_below_the_pooling_window_are_refused() -> None:
    with pytest.raises(ConfigError, match="3x9 pixels are too small"):
        Classifier((1, 3, 9))


def plain_norm(
    x: torch.Tensor, state: dict[str, torch.Tensor], name: str, training: bool
) -> torch.Tensor:
    if training:
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    else:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / torch.sqrt(var + 1e-5)
    return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]


def plain_forward(
    x: torch.Tensor, state: dict[str, torch.Tensor], strides: list[int], training: bool
) -> torch.Tensor:
    """Compute the logits from the tensors alone, in double precision."""
    state = {name: value.double().contiguous() for name, value in state.items()}
    x = F.conv2d(x.double(), state["backbone.stem.weight"], padding=1)
    x = plain_norm(x, state, "backbone.bn", training).clamp(min=0)
    for number, stride in enumerate(strides):
        block = f"backbone.blocks.{number}"
        out = F.conv2d(x, state[f"{block}.conv1.weight"], stride=stride, padding=1)
        out = plain_norm(out, state, f"{block}.bn1", training).clamp(min=0)
        out = plain_norm(
            F.conv2d(out, state[f"{block}.conv2.weight"], padding=1),
            state,
            f"{block}.bn2",
            training,
        )
        if f"{block}.shortcut.0.weight" in state:
            side = F.conv2d(x, state[f"{block}.shortcut.0.weight"], stride=stride)
            x = plain_norm(side, state, f"{block}.shortcut.1", training)
        x = (out + x).clamp(min=0)
    rows, cols = x.shape[2] // 4, x.shape[3] // 4
    pooled = (
        x[:, :, : rows * 4, : cols * 4].unflatten(2, (rows, 4)).unflatten(4, (cols, 4)).mean((3, 5))
    )
    return pooled.flatten(1) @ state["weight"].T + state["bias"]


def stirred(model: Classifier) -> Classifier:
    """Give statistics and scales values that differ from their defaults."""
    rng = np.random.default_rng(1)
    for name, tensor in model.state_dict().items():
        if ("bn" in name or "shortcut.1" in name) and tensor.dtype == torch.float32:
            tensor.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, tuple(tensor.shape))))
    return model


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("size", "width", "strides"),
    [
        (32, 4, [1, 1, 2, 1, 2, 1, 2, 1]),
        (44, 20, [1, 1, 2, 1, 2, 1, 2, 1]),
        (33, 17, [1, 1, 2, 1, 2, 1, 2, 1]),
        (16, 4, [1, 1, 2, 1, 2, 1, 1, 1]),
        (8, 4, [1, 1, 2, 1, 1, 1, 1, 1]),
        (4, 4, [1] * 8),
    ],
)
def test_logits_equal_a_plain_implementation(
    size: int, width: int, strides: list[int], training: bool
) -> None:
    model = stirred(small((3, size, size), classes=5, width=width, seed=3)).train(training)
    x = images((3, size, size), 4)
    want = plain_forward(
        x, {n: v.clone() for n, v in model.state_dict().items()}, strides, training
    )
    torch.testing.assert_close(model(x).double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("inputs", "size"), [(4, 64), (15, 84), (16, 64), (20, 64)])
def test_gradients_of_a_strided_shortcut_are_right_and_in_bounds(inputs: int, size: int) -> None:
    """oneDNN overruns its workspace here for fewer than 16 channels laid out channels last (oneDNN
    issue 6035).
    """
    block = Block(inputs, 2 * inputs, 2).to(memory_format=torch.channels_last)
    weight = block.shortcut[0].weight
    weight.data.copy_(
        torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, tuple(weight.shape)))
    )
    x = images((inputs, size, size), 4)
    block.shortcut[1] = torch.nn.Identity()
    block.bn2.weight.data.zero_()
    block(x.contiguous(memory_format=torch.channels_last)).sum().backward()
    even = x[:, :, ::2, ::2].double()
    on = (torch.einsum("nchw,oc->nohw", even, weight.detach().double()[:, :, 0, 0]) > 0).double()
    want = torch.einsum("nchw,nohw->oc", even, on)
    torch.testing.assert_close(weight.grad[:, :, 0, 0].double(), want, rtol=1e-3, atol=1e-2)


def test_initial_weights_are_uniform_within_the_fan_in_bound() -> None:
    model = Classifier((3, 32, 32), classes=100, seed=0)
    for name, weight in model.backbone.named_parameters():
        if weight.ndim == 4:
            fan_in = weight.shape[1] * weight.shape[2] * weight.shape[3]
            _uniform(weight.detach(), 1 / math.sqrt(fan_in))
        else:
            assert weight.unique().tolist() == [0.0 if name.endswith("bias") else 1.0]
    for name, buffer in model.backbone.named_buffers():
        assert buffer.unique().tolist() == [1.0 if name.endswith("running_var") else 0.0]
    _uniform(model.weight.detach(), 1 / math.sqrt(160))
    _uniform(model.bias.detach(), 1 / math.sqrt(160))


def _uniform(weight: torch.Tensor, bound: float) -> None:
    values = weight.double().flatten().numpy()
    assert np.abs(values).max() <= bound * (1 + 1e-6)
    assert stats.kstest(values / bound, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    noise = 4 / math.sqrt(len(values))
    assert abs(values.mean()) < noise * bound / math.sqrt(3)
    assert abs(values.var() / (bound**2 / 3) - 1) < noise


def test_norms_have_the_usual_momentum_and_epsilon() -> None:
    norms = [m for m in small().modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 1 + 16 + 3
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.1, 1e-5)}


def test_a_seed_decides_the_weights_and_no_two_are_alike() -> None:
    one, same, other = (small(classes=3, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    drawn = [name for name in one if one[name].ndim == 4] + ["weight", "bias"]
    assert not any(torch.equal(one[name], other[name]) for name in drawn)
    firsts = [one[name].flatten()[0].item() for name in drawn]
    assert len(set(firsts)) == len(firsts)


def test_making_a_network_touches_no_global_chance() -> None:
    before = torch.get_rng_state()
    small(classes=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_fixed_and_growing_heads_have_the_same_rows() -> None:
    fixed, growing = small(classes=6, seed=4), small(seed=4)
    assert growing.weight.shape == (0, 32)
    for labels in ([9], [9, 3, 3], [1, 7, 0, 2]):
        growing.admit(np.array(labels))
    assert torch.equal(growing.weight, fixed.weight) and torch.equal(growing.bias, fixed.bias)
    assert torch.equal(growing.backbone.stem.weight, fixed.backbone.stem.weight)


def test_growing_keeps_what_rows_have_learned() -> None:
    model = small()
    model.admit(np.array([1, 2]))
    with torch.no_grad():
        model.weight.fill_(7), model.bias.fill_(8)
    model.admit(np.array([3]))
    assert model.weight.shape == (3, 32) and model.bias.shape == (3,)
    assert (model.weight[:2] == 7).all() and (model.bias[:2] == 8).all()
    assert torch.equal(model.weight[2], small(classes=3).weight[2])
    assert model.weight.requires_grad and isinstance(model.weight, torch.nn.Parameter)


def test_a_head_that_grows_one_by_one_is_seldom_moved_and_stays_what_it_was() -> None:
    growing, at_once = small(seed=4), small(seed=4)
    at_once.admit(np.arange(200))
    places = set()
    for label in range(200):
        growing.admit(np.array([label]))
        assert growing.weight.is_contiguous() and growing.weight.shape == (label + 1, 32)
        places.add((growing.weight.data_ptr(), growing.bias.data_ptr()))
    assert len(places) < 20
    assert torch.equal(growing.weight, at_once.weight) and torch.equal(growing.bias, at_once.bias)
    assert at_once.weight.untyped_storage().nbytes() == 200 * 32 * 4, (
        "a head made at once has no room to spare"
    )


def test_a_reset_or_restored_head_does_not_write_into_the_old_one() -> None:
    model = small(seed=4)
    for label in range(9):
        model.admit(np.array([label]))
    old = model.weight.detach()
    with torch.no_grad():
        old.fill_(7)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.reset()
    assert (old == 7).all() and not (model.weight == 7).any()
    model.restore(list(range(9)), state)
    model.admit(np.array([9]))
    assert (
        (model.weight[:9] == 7).all() and (state["weight"] == 7).all() and len(state["weight"]) == 9
    )


def test_columns_are_given_in_order_of_first_sight() -> None:
    model = small()
    assert model.admit(np.array([5, -3, 5])).tolist() == [0, 1, 0]
    assert model.admit(np.array([2**62, -3])).tolist() == [2, 1]
    assert model.labels == [5, -3, 2**62]
    assert model.names(torch.tensor([2, 0])).tolist() == [2**62, 5]


def test_text_labels_keep_their_length() -> None:
    model = small()
    model.admit(np.array(["a"]))
    model.admit(np.array(["a much longer name"]))
    assert model.names(torch.tensor([1, 0])).tolist() == ["a much longer name", "a"]


@pytest.mark.parametrize(("first", "then"), [([1, 2], ["1"]), (["1"], [1])])
def test_text_and_numbers_do_not_mix(first: list, then: list) -> None:
    model = small()
    model.admit(np.array(first))
    with pytest.raises(InputError, match="use one kind of label"):
        model.admit(np.array(then))
    assert model.labels == first and len(model.weight) == len(first)


def test_a_fixed_head_is_full_at_its_number() -> None:
    model = small(classes=2)
    model.admit(np.array([7]))
    with pytest.raises(
        InputError, match=r"Label 9 is class number 3, but the head was fixed at 2 classes"
    ):
        model.admit(np.array([8, 9]))
    assert model.labels == [7]
    assert model.admit(np.array([8, 7])).tolist() == [1, 0]


def test_restore_takes_over_larger_and_smaller_heads() -> None:
    source, larger, smaller = small(seed=1), small(seed=2), small(seed=3)
    source.admit(np.array([4, 5]))
    larger.admit(np.array([1, 2, 3]))
    for target in (larger, smaller):
        target.restore([4, 5], source.state_dict())
        assert target.labels == [4, 5]
        assert target.admit(np.array([5])).tolist() == [1]
        assert all(
            torch.equal(a, b) for a, b in zip(target.parameters(), source.parameters(), strict=True)
        )
        assert target.weight.data_ptr() != source.weight.data_ptr()


def test_normalisation_by_hand() -> None:
    shape = (3, 8, 8)
    plain, normal = (
        small(shape, classes=2),
        small(shape, classes=2, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0)),
    )
    x = images(shape)
    by_hand = torch.stack([(x[:, 0] - 0.1) / 0.5, x[:, 1] - 0.2, (x[:, 2] - 0.3) / 2], dim=1)
    torch.testing.assert_close(normal.eval()(x), plain.eval()(by_hand))
    assert not torch.allclose(normal(x), plain(x))
    assert normal.state_dict().keys() == plain.state_dict().keys()


def test_normalisation_must_fit_the_channels() -> None:
    with pytest.raises(ConfigError, match=r"mean has 3 numbers, but the images have 1 channels"):
        small(mean=(0.1, 0.2, 0.3), std=(1, 1, 1))


def test_pixels_are_divided_by_255() -> None:
    raw = (
        torch.tensor([[0, 51], [255, 102]], dtype=torch.uint8).view(1, 1, 2, 2).permute(0, 2, 3, 1)
    )
    x = small().pixels(raw)
    assert x.shape == (1, 1, 2, 2) and x.dtype == torch.float32
    torch.testing.assert_close(x.flatten(), torch.tensor([0.0, 0.2, 1.0, 0.4]))


@pytest.mark.parametrize("training", [True, False])
def test_glance_leaves_statistics_mode_and_gradients_alone(training: bool) -> None:
    model = small(classes=3).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with eval_mode(model):
        inside = model(images((1, 8, 8)))
        assert not model.training and not inside.requires_grad
    assert model.training is training and all(m.training is training for m in model.modules())
    assert torch.is_grad_enabled()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(inside, model.eval()(images((1, 8, 8))))


def test_glance_restores_the_mode_after_a_fault() -> None:
    model = small(classes=3).train()
    with pytest.raises(ZeroDivisionError), eval_mode(model):
        raise ZeroDivisionError
    assert model.training and torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("shape", "width", "mean"),
    [
        ((3, 32, 32), 20, ()),
        ((3, 64, 64), 5, ()),
        ((3, 84, 84), 5, ()),
        ((1, 8, 8), 4, (0.3,)),
        ((2, 5, 9), 17, ()),
    ],
)
def test_fused_batch_norm_gives_the_same_answers(
    shape: tuple[int, int, int], width: int, mean: tuple
) -> None:
    model = Classifier(
        shape, classes=7, seed=3, width=width, mean=mean, std=tuple(0.5 for _ in mean)
    )
    chance = torch.Generator().manual_seed(1)
    for module in model.backbone.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low in (
                (module.weight, 0.5),
                (module.bias, -1),
                (module.running_mean, -1),
                (module.running_var, 0.1),
            ):
                tensor.data.uniform_(low, low + 1, generator=chance)
    x = torch.rand((6, *shape), generator=chance).to(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    with eval_mode(model):
        plain = model(x)
    with fused_bn(model):
        quick = model(x)
        assert not quick.requires_grad
    assert model.training
    torch.testing.assert_close(quick, plain, rtol=1e-5, atol=1e-5 * float(plain.abs().max()))
    assert not torch.equal(quick, torch.zeros_like(quick))
    with eval_mode(model):
        assert torch.equal(model(x), plain)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_folding_follows_the_weights_of_the_moment() -> None:
    model = Classifier((1, 8, 8), classes=3, seed=0, width=4)
    x = torch.rand(2, 1, 8, 8)
    with fused_bn(model):
        first = model(x)
    with torch.no_grad():
        model.backbone.blocks[0].bn1.weight.mul_(3)
    with fused_bn(model):
        assert not torch.allclose(model(x), first)
