"""Dual view consistency, one step at a time, against plain torch written out by hand; the joint
head as it grows.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dualmix.learn.augment import Crop
from dualmix.learn.common import gradient_of
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Batch
from dualmix.methods import DVC as Settings
from dualmix.methods.dvc import (
    LEAST,
    DVCLearner,
    JointHead,
    MGIRetrieve,
    disagreement,
    gradient_sizes,
    negative_entropy,
)
from dualmix.rng import Rng
from tests.kit import SHAPE, Chosen, assert_same, batch, filled, floats, images, network, stored

pytestmark = pytest.mark.usefixtures("shallow")

LR, DECAY, STEP = 0.3, 0.05, 0.5


def darker(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return x * (0.25 + 0.5 * rng.random())


def factors(name: str) -> Any:
    rng = Rng(0)[name]
    return lambda: 0.25 + 0.5 * rng.random()


def learner(retrieve: Any, classes: int | None = 4, **more: Any) -> DVCLearner:
    given = {"lr": LR, "consistency": 3.0, "entropy": 0.7, **more}
    return DVCLearner(
        network(classes),
        filled(12),
        Reservoir(),
        retrieve,
        darker,
        JointHead(5, seed=2),
        Rng(0),
        **given,
    )


def loss_by_hand(got: DVCLearner, x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    n, p = len(x), dict(got.joint.weights.named_parameters())
    z = got.model(torch.cat([x, x * factor]))
    inner = p["inner"]
    hidden = torch.relu(z[:n] @ inner[:, 0].T + z[n:] @ inner[:, 1].T + p["inner_bias"])
    joint = torch.exp(hidden @ p["outer"].T + p["outer_bias"])
    joint = joint / joint.sum(1, keepdim=True)
    chances = torch.exp(z) / torch.exp(z).sum(1, keepdim=True)
    cross = -sum(torch.log(chances[i, y[i % n]]) for i in range(2 * n)) / (2 * n)
    entropy, apart = torch.zeros(()), torch.zeros(())
    for table in (chances[:n], chances[n:], joint):
        mean = table.sum(0) / n
        entropy = entropy + sum(q * torch.log(q) for q in mean) / 3
    for table in (chances[:n], chances[n:]):
        apart = apart + (joint - table).abs().sum() / joint.numel() / 2
    return cross + got.entropy * entropy + got.consistency * apart


def step_by_hand(got: DVCLearner, sources: list[tuple[torch.Tensor, torch.Tensor, float]]) -> float:
    parameters = list(got.network.parameters())
    loss = sum(loss_by_hand(got, *source) for source in sources)
    slopes = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for p, g in zip(parameters, slopes, strict=True):
            p.copy_(p - LR * (g + got.weight_decay * p))
    return loss.item()


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("classes", [4, None, 7])
def test_one_step_by_hand(classes: int | None, decay: float) -> None:
    slots = [7, 2, 5]
    got = learner(Chosen(slots), classes, weight_decay=decay)
    x, y = batch(5, 1)
    want = copy.deepcopy(got)
    want.network.train()
    sources = [
        (floats(x), torch.from_numpy(y), factors("stream")()),
        (*stored(got.memory, slots), factors("augment")()),
    ]
    loss = step_by_hand(want, sources)
    with torch.no_grad():
        both = torch.cat([floats(x), floats(x) * sources[0][2]])
        said = copy.deepcopy(got.model).train()(both)[:5].argmax(1)
    answer = got.observe(x, y)
    assert answer.item() == pytest.approx(loss, rel=1e-5) and not answer.requires_grad
    assert int(got.hits) == int((said.numpy() == y).sum())
    assert_same(got.network, want.network)
    assert got.memory.seen == 17


def test_iterations_share_the_new_view_and_retrieve_anew() -> None:
    groups = [[1, 2, 3], [9, 4]]
    got = learner(Chosen(*groups), iterations=2)
    x, y = batch(5, 1)
    want = copy.deepcopy(got)
    want.network.train()
    new, old = factors("stream")(), factors("augment")
    for slots in groups:
        loss = step_by_hand(
            want, [(floats(x), torch.from_numpy(y), new), (*stored(got.memory, slots), old())]
        )
    assert got.observe(x, y).item() == pytest.approx(loss, rel=1e-4)
    assert_same(got.network, want.network, atol=1e-5)


def test_an_empty_memory_leaves_the_new_batch_alone() -> None:
    got = learner(Uniform(3))
    got.memory = Memory(12, SHAPE)
    x, y = batch(5, 1)
    want = copy.deepcopy(got)
    want.network.train()
    step_by_hand(want, [(floats(x), torch.from_numpy(y), factors("stream")())])
    got.observe(x, y)
    assert_same(got.network, want.network)


def test_retrieval_sees_the_gradient_of_the_new_batch() -> None:
    found = []

    def retrieve(memory: Any, new: Any, model: Any, rng: Any) -> np.ndarray:
        place = [name for name, _ in model.named_parameters()].index("weight")
        found.append(new.gradient[place].clone())
        return np.array([0])

    got = learner(retrieve)
    want = copy.deepcopy(got)
    want.network.train()
    x, y = batch(5, 1)
    loss = loss_by_hand(want, floats(x), torch.from_numpy(y), factors("stream")())
    (slope,) = torch.autograd.grad(loss, [want.model.weight])
    got.observe(x, y)
    torch.testing.assert_close(found[0], slope, rtol=1e-4, atol=1e-6)


def test_answers_come_from_the_classifier() -> None:
    got = learner(Uniform(3), classes=7)
    got.observe(*batch(5, 1))
    x = images(20, 4)
    with torch.no_grad():
        want = copy.deepcopy(got.model).eval()(floats(x))[:, :4].argmax(1)
    assert got.predict(x).tolist() == want.tolist()


def test_the_joint_head_starts_as_torch_would() -> None:
    head = JointHead(64, seed=2)
    head.grow(10)
    assert {name: tuple(p.shape) for name, p in head.weights.named_parameters()} == {
        "inner": (64, 2, 10), "inner_bias": (64,), "outer": (10, 64), "outer_bias": (10,)
    }  # fmt: skip
    for name, fan in {"inner": 20, "inner_bias": 20, "outer": 64, "outer_bias": 64}.items():
        assert 0.7 / math.sqrt(fan) < head.weights[name].abs().max() <= 1 / math.sqrt(fan), name
    other = JointHead(64, seed=3)
    other.grow(10)
    assert not torch.allclose(head.weights["inner"], other.weights["inner"])


def test_a_grown_joint_head_does_for_the_known_columns_what_it_did() -> None:
    head = JointHead(6, seed=2)
    head.grow(3)
    one, two = torch.randn(4, 3, generator=torch.manual_seed(0)), torch.ones(4, 3)
    before = head(one, two)
    head.grow(3)
    head.grow(5)
    nothing = torch.zeros(4, 2)
    after = head(torch.cat([one, nothing], 1), torch.cat([two, nothing], 1))
    assert after.shape == (4, 5)
    torch.testing.assert_close(after[:, :3], before)
    assert 0.5 / math.sqrt(10) < head.weights["inner"][:, :, 3:].abs().max() <= 1 / math.sqrt(10)
    whole = JointHead(6, seed=2)
    whole.grow(5)
    for name in ("outer", "outer_bias"):
        assert torch.equal(whole.weights[name], head.weights[name])


def test_new_classes_in_one_batch_grow_both_heads_and_are_learned() -> None:
    got = learner(Chosen([0, 1]), classes=None)
    x, _ = batch(5, 1)
    got.observe(x, [90, 91, 0, 90, 92])
    assert (
        got.joint.weights["inner"].shape[2]
        == len(got.joint.weights["outer"])
        == len(got.model.weight)
        == 7
    )
    before = copy.deepcopy(got.joint)
    got.observe(x, [90, 91, 0, 90, 92])
    for own, was in zip(got.joint.weights.parameters(), before.weights.parameters(), strict=True):
        assert not torch.equal(own, was)


def test_a_smaller_joint_head_can_be_taken_up_again() -> None:
    got = learner(Chosen([0, 1]), classes=None)
    kept = copy.deepcopy(got.state_dict())
    got.observe(batch(2, 1)[0], [90, 91])
    got.load_state_dict(kept)
    assert got.joint.weights["inner"].shape[2] == 4
    assert_same(got.network, learner(Chosen([0]), classes=None).network)


def test_settings_reach_the_loop() -> None:
    given = {
        "memory": 7,
        "memory_batch": 3,
        "reservoir": "ref",
        "iterations": 2,
        "lr": 0.2,
        "weight_decay": 0.1,
    }
    method = Settings(
        **given,
        consistency=2.0,
        entropy=0.5,
        joint=9,
        candidates=11,
        bn="ref",
        augment="crop",
        per_sample=False,
    )
    got = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert isinstance(got, DVCLearner)
    g = Crop(per_sample=False)
    assert (got.memory.capacity, got.retrieve, got.update) == (
        7,
        MGIRetrieve(3, 11, 0.2, g),
        Reservoir("ref"),
    )
    assert (got.iterations, got.lr, got.weight_decay, got.augment) == (2, 0.2, 0.1, g)
    assert (got.consistency, got.entropy, len(got.joint.weights["inner"])) == (2.0, 0.5, 9)
    assert Settings(bn="eval").build(Classifier(SHAPE, width=4), Rng(0)).retrieve == MGIRetrieve(
        10, 50, 0.1
    )
    assert Settings(retrieval="uniform").build(
        Classifier(SHAPE, width=4), Rng(0)
    ).retrieve == Uniform(10)


# Losses


def test_negative_entropy_by_hand() -> None:
    """Batch means (3/4, 1/4), (1/2, 1/2) and (1, 0): a mean of three sums of p log p."""
    tables = [[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
    want = (
        0.75 * math.log(0.75) + 0.25 * math.log(0.25) + math.log(0.5) + LEAST * math.log(LEAST)
    ) / 3
    assert float(negative_entropy(*map(torch.tensor, tables))) == pytest.approx(want)
    assert float(negative_entropy(torch.full((2, 4), 0.25))) == pytest.approx(-math.log(4))


def test_negative_entropy_of_a_certain_batch_has_a_finite_gradient() -> None:
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    negative_entropy(p).backward()
    assert torch.isfinite(p.grad).all()


def test_disagreement_by_hand() -> None:
    joint, one, two = (
        torch.tensor([[0.5, 0.5], [1.0, 0.0]]),
        torch.tensor([[0.25, 0.75], [1.0, 0.0]]),
        torch.ones(2, 2) / 2,
    )
    # first view: (1/4 + 1/4 + 0 + 0) / 4, second: (0 + 0 + 1/2 + 1/2) / 4
    assert float(disagreement(joint, one, two)) == pytest.approx((0.125 + 0.25) / 2)


# Retrieval


def taught(seed: int = 1) -> Classifier:
    """Return a network in training mode with the gradient of a batch in place."""
    model = network(seed=seed).train()
    x, y = batch(6, seed)
    F.cross_entropy(model(floats(x)), torch.from_numpy(y)).backward()
    return model


def new_batch(model: Classifier, memory: Memory) -> Batch:
    return Batch(*stored(memory, [0]), gradient=gradient_of(model))


def stepped(model: Classifier) -> Classifier:
    real = copy.deepcopy(model)
    with torch.no_grad():
        for own, p in zip(model.parameters(), real.parameters(), strict=True):
            p.copy_(own - STEP * own.grad)
    return real


def sizes_by_rows(model: Classifier, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """The sum of absolute gradients of the head's weights, one row at a time by autograd
    (evaluation mode).
    """
    model = copy.deepcopy(model).eval()
    found = []
    for image, column in zip(x, y, strict=True):
        (slope,) = torch.autograd.grad(
            F.cross_entropy(model(image[None]), column[None]), [model.weight]
        )
        found.append(float(slope.abs().sum()))
    return found


def test_sizes_are_those_of_real_gradients() -> None:
    model = taught().eval()
    x, y = stored(filled(8), range(8))
    got = gradient_sizes(model, x, y)
    assert got.tolist() == pytest.approx(sizes_by_rows(model, x, y), rel=1e-4)
    assert torch.equal(gradient_sizes(model, torch.cat([x, x + 1]), y), got) or torch.allclose(
        gradient_sizes(model, torch.cat([x, x + 1]), y), got, rtol=1e-4
    )


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_whose_gradient_grows_most_in_a_real_step(seed: int) -> None:
    model, memory = taught(seed), filled(20, seed=60 + seed)
    x, y = stored(memory, range(20))
    growth = np.array(sizes_by_rows(stepped(model), x, y)) - np.array(sizes_by_rows(model, x, y))
    candidates = np.random.default_rng(seed).choice(20, size=12, replace=False)
    want = sorted(candidates, key=lambda slot: -growth[slot])[:4]
    before = copy.deepcopy(model.state_dict())
    slopes = [p.grad.clone() for p in model.parameters()]
    new = new_batch(model, memory)
    got = MGIRetrieve(4, 12, STEP)(memory, new, model, np.random.default_rng(seed))
    assert got.tolist() == want
    assert model.training
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
    assert all(torch.equal(a, p.grad) for a, p in zip(slopes, model.parameters(), strict=True))


def test_as_the_reference_statistics_take_candidates_in_once() -> None:
    """Both looks are in training mode over two views; only the look before the step is kept by
    batch-norm.
    """
    model, memory = taught(), filled(20)
    rng = np.random.default_rng(3)
    slots = rng.choice(20, size=12, replace=False)
    factor = rng.random()
    x, y = stored(memory, slots)
    both = torch.cat([x, x * factor])
    now, later = copy.deepcopy(model), stepped(model)

    def sizes(net: Classifier) -> torch.Tensor:
        with torch.no_grad():
            features = net.embed(both)[:12]
            p = F.linear(features, net.weight, net.bias).softmax(1)
        return (p - F.one_hot(y, 4)).abs().sum(1) * features.abs().sum(1)

    want = slots[(sizes(later) - sizes(now)).argsort(descending=True)[:4].numpy()]
    policy = MGIRetrieve(4, 12, STEP, lambda x, rng: x * rng.random())
    got = policy(memory, new_batch(model, memory), model, np.random.default_rng(3))
    assert got.tolist() == want.tolist()
    for (name, a), b in zip(model.state_dict().items(), now.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7, msg=name)


def test_fewer_rows_than_asked_for_are_all_returned() -> None:
    model, memory = taught(), filled(3)
    got = MGIRetrieve(10, 50, STEP)(
        memory, new_batch(model, memory), model, np.random.default_rng(0)
    )
    assert sorted(got.tolist()) == [0, 1, 2]


def test_gradient_increase_needs_the_gradient_of_the_new_batch() -> None:
    model, memory = taught(), filled(3)
    with pytest.raises(ValueError, match="after the new batch's backward pass"):
        MGIRetrieve(2, 3, STEP)(memory, Batch(*stored(memory, [0])), model, Rng(0)["retrieve"])
