"""What the engine promises to the rest of the package."""

from __future__ import annotations

import copy
import gc
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

from dualmix import engine
from dualmix.errors import ConfigError, InputError
from dualmix.learn.backbones import ReducedResNet18, initialise
from dualmix.learn.modes import frozen_bn, virtual_step
from dualmix.learn.network import Classifier
from tests.engine.building import needs_engine

pytestmark = needs_engine


def network(width: int = 5, shape: tuple[int, int, int] = (3, 16, 16)) -> ReducedResNet18:
    made = ReducedResNet18(shape, width)
    initialise(made, 0)
    return made.to(memory_format=torch.channels_last)


def images(count: int, shape: tuple[int, int, int] = (3, 16, 16), seed: int = 0) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def state(made: torch.nn.Module) -> dict[str, bytes]:
    return {name: value.contiguous().numpy().tobytes() for name, value in made.state_dict().items()}


def test_builds() -> None:
    assert engine.available()[-1] == "portable"
    with pytest.raises(ConfigError, match="no build 'sse9'"):
        engine.select("sse9")


def test_groups_are_separate_passes() -> None:
    together, apart = network(), network()
    x = images(9)
    joint = engine.features(together, x, [4, 2, 3])
    parts = [engine.features(apart, part) for part in x.split([4, 2, 3])]
    assert torch.equal(joint, torch.cat(parts))
    assert state(together) == state(apart)
    assert int(together.bn.num_batches_tracked) == 3
    dy = torch.randn(9, together.features, generator=torch.Generator().manual_seed(1))
    joint.backward(dy)
    torch.cat(parts).backward(dy)
    for one, two in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(
            one.grad, two.grad, rtol=1e-4, atol=1e-5 * float(two.grad.abs().max())
        )


def test_without_gradients_features_are_the_same() -> None:
    one, two = network(), network()
    with torch.no_grad():
        without = engine.features(one, images(5), [2, 3])
    assert not without.requires_grad
    assert torch.equal(without, engine.features(two, images(5), [2, 3]).detach())
    assert state(one) == state(two)


def test_running_statistics() -> None:
    made, x = network(), images(6)
    for _ in range(3):
        engine.features(made, x)
    before = state(made)
    with frozen_bn(made):
        out = engine.features(made, x)
        out.sum().backward()
    assert state(made) == before
    assert all(weight.grad is not None for weight in made.parameters())
    torch.testing.assert_close(out.detach(), made.eval()(x).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(engine.evaluate(made, x), out.detach(), rtol=1e-4, atol=1e-5)


def test_folded_weights_are_those_of_its_making() -> None:
    made, x = network().eval(), images(7)
    folded = engine.Folded(made)
    first = folded(x)
    with torch.no_grad():
        made.stem.weight.add_(1)
    assert torch.equal(folded(x), first)
    assert torch.equal(torch.cat([folded(part) for part in x.split(3)]), first)
    assert not torch.equal(engine.evaluate(made, x), first)


def test_single_images() -> None:
    model = Classifier((3, 16, 16), classes=7, seed=0, width=4).eval()
    x, y = images(5), torch.tensor([0, 3, 6, 3, 1])

    def loss(
        weights: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor
    ) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (image[None],)), label[None])

    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    true = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    head = model.weight.detach()

    def slope(features: torch.Tensor) -> torch.Tensor:
        chance = (features @ head.T + model.bias.detach()).softmax(1)
        return (chance - F.one_hot(y, 7)) @ head

    found = engine.each_gradient(model.backbone, x, slope)
    names = [name for name, _ in model.backbone.named_parameters()]
    for name, each in zip(names, found, strict=True):
        expected = true[f"backbone.{name}"]
        torch.testing.assert_close(
            each, expected, rtol=1e-3, atol=2e-5 * float(expected.abs().max())
        )


def test_virtual_step() -> None:
    made, x = network(), images(6)
    engine.features(made, x).square().sum().backward()
    before = state(made)
    here = engine.features(copy.deepcopy(made), x).detach()
    with torch.no_grad(), virtual_step(made, 0.1, [p.grad for p in made.parameters()]):
        there = engine.features(made, x)
    assert state(made) == before
    assert not torch.equal(here, there)


def test_changed_weights_are_noticed_before_backward() -> None:
    made = network()
    out = engine.features(made, images(3))
    engine.descend([_with_slope(made.stem.weight)], 0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def _with_slope(weight: torch.nn.Parameter) -> torch.nn.Parameter:
    weight.grad = torch.ones_like(weight)
    return weight


def test_two_passes_may_wait_for_their_backward() -> None:
    made, other = network(), network()
    passes = [engine.features(made, images(4, seed=seed)) for seed in range(3)]
    for each in passes:
        each.sum().backward()
    for seed in range(3):
        engine.features(other, images(4, seed=seed)).sum().backward()
    for one, two in zip(made.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_no_number_is_not_hidden() -> None:
    x = images(4)
    x[1, 0, 3, 3] = torch.nan
    assert engine.features(network(), x).isnan().any()
    assert engine.evaluate(network(), x)[1].isnan().any()


@pytest.mark.parametrize(
    ("x", "groups", "words"),
    [
        (images(3).half(), None, "float32 images"),
        (images(3).bfloat16(), None, "use the torch engine"),
        (images(3, (1, 16, 16)), None, "1 channels, but the network takes 3"),
        (images(3), [2, 2], "do not make up 3 images"),
        (images(3), [3, 0], "do not make up 3 images"),
        (images(3)[0], None, r"\(n, channels, height, width\)"),
    ],
)
def test_faults(x: torch.Tensor, groups: list[int] | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        engine.features(network(), x, groups)


def test_no_images() -> None:
    made = network()
    assert engine.features(made, images(0)).shape == (0, made.features)
    assert engine.evaluate(made, images(0)).shape == (0, made.features)


def test_threads_do_not_disturb_each_other() -> None:
    made, expected = [network() for _ in range(4)], network()
    truth = engine.features(expected, images(8)).detach()
    wrong = []

    def work(own: ReducedResNet18) -> None:
        for _ in range(5):
            fresh = copy.deepcopy(own)
            out = engine.features(fresh, images(8))
            out.sum().backward()
            if not torch.equal(out.detach(), truth):
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_given_back() -> None:
    from dualmix.engine.library import Space

    made = network()
    for _ in range(5):
        engine.features(made, images(4)).sum().backward()
    gc.collect()
    assert len(Space._free) <= Space.KEPT


def test_head_and_loss() -> None:
    g = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, generator=g).requires_grad_() for shape in ((9, 33), (13, 33), (13,))
    )
    soft = torch.rand(9, 13, generator=g)
    for y in (torch.randint(13, (9,), generator=g), soft / soft.sum(1, keepdim=True), soft):
        for reduction in ("mean", "none"):
            ours = engine.cross_entropy(engine.linear(x, weight, bias), y, reduction)
            exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
            label = y if y.dim() == 1 else y.double()
            true = F.cross_entropy(F.linear(*exact), label, reduction=reduction)
            torch.testing.assert_close(ours.double(), true, rtol=2e-6, atol=2e-6)
            scale = torch.arange(1.0, 10.0) if reduction == "none" else torch.tensor(3.0)
            found = torch.autograd.grad((ours * scale).sum(), (x, weight, bias))
            wanted = torch.autograd.grad((true * scale).sum(), exact)
            for one, two in zip(found, wanted, strict=True):
                torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=1e-5)


def test_absent_columns() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 2.0]], requires_grad=True)
    engine.cross_entropy(logits, torch.tensor([2])).backward()
    assert logits.grad is not None and logits.grad[0, 1] == 0 and logits.grad.isfinite().all()
    with pytest.raises(InputError, match="outside the 3 columns"):
        engine.cross_entropy(logits, torch.tensor([3]))


def test_matmul_of_any_layout() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(4, 7, 5, generator=g), torch.randn(4, 9, 5, generator=g).transpose(1, 2)
    torch.testing.assert_close(engine.matmul(a, b), a @ b)
    torch.testing.assert_close(engine.matmul(a[0].T, a[0]), a[0].T @ a[0])


def test_step() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last))
    weight.grad = torch.randn(4, 3, 3, 3)
    old = weight.detach().clone()
    engine.descend([weight], 0.1, 0.01)
    torch.testing.assert_close(weight.detach(), old - 0.1 * (weight.grad + 0.01 * old))


def test_row_norms() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 160)).astype(np.float32))
    torch.testing.assert_close(engine.row_norms(rows), rows.norm(dim=1))
