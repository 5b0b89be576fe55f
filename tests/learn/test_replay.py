"""Rehearsal, one step at a time, against plain torch written out by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dualmix.learn.memory import Memory
from dualmix.learn.modes import CHUNK
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Placement
from dualmix.methods import ER, Finetune
from dualmix.rng import Rng
from tests.kit import Chosen

SHAPE = (1, 8, 8)
LR, DECAY = 0.3, 0.05


def batch(rows: int, seed: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, *SHAPE), dtype=np.uint8), rng.integers(0, classes, rows)


def replay(retrieve: Any, capacity: int = 12, classes: int | None = 4, **more: Any) -> Replay:
    """Return a learner whose columns 0..3 are the labels 0..3 and whose memory is filled."""
    model = Classifier(SHAPE, classes=classes, width=4, seed=1)
    model.admit(np.arange(4))
    learner = Replay(
        model, Memory(capacity, SHAPE), Reservoir(), retrieve, Rng(0), **{"lr": LR, **more}
    )
    if capacity:
        x, y = batch(capacity, 50)
        raw = torch.from_numpy(x).permute(0, 2, 3, 1).contiguous()
        learner.memory.write(Placement(np.arange(capacity)), raw, torch.from_numpy(y))
    return learner


def floats(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).float() / 255


def by_hand(
    learner: Replay,
    groups: list[list[tuple[torch.Tensor, torch.Tensor]]],
    *,
    decay: float = 0.0,
    joint: bool = False,
) -> tuple[Classifier, list[float]]:
    """Make one SGD step for each group of (images, columns) on a copy of the network; return it and
    the losses.
    """
    model = copy.deepcopy(learner.model).train()
    losses = []
    for sources in groups:
        parameters = list(model.parameters())
        if joint:
            logits = model(torch.cat([x for x, _ in sources]))
            parts = torch.split(logits, [len(x) for x, _ in sources])
        else:
            parts = [model(x) for x, _ in sources]
        loss = torch.zeros(())
        for z, (_, y) in zip(parts, sources, strict=True):
            loss = loss - torch.log_softmax(z, 1)[torch.arange(len(y)), y].mean()
        with torch.no_grad():
            for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.copy_(p - LR * (g + decay * p))
        losses.append(loss.item())
    return model, losses


def assert_same(got: Classifier, want: Classifier) -> None:
    for (name, a), b in zip(got.state_dict().items(), want.state_dict().values(), strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_one_step_is_two_means_summed_and_plain_sgd(decay: float, joint: bool) -> None:
    slots = [7, 2, 5]
    learner = replay(Chosen(slots), weight_decay=decay, forward="joint" if joint else "separate")
    x, y = batch(5, 1)
    old = (
        floats(learner.memory.x[slots].permute(0, 3, 1, 2).numpy()),
        learner.memory.y[slots].clone(),
    )
    want, losses = by_hand(
        learner, [[(floats(x), torch.from_numpy(y)), old]], decay=decay, joint=joint
    )
    loss = learner.observe(x, y)
    assert_same(learner.model, want)
    assert loss.item() == pytest.approx(losses[0], rel=1e-5)
    assert not loss.requires_grad and loss.shape == ()


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_a_new_batch_that_is_not_learned_is_recognised_as_the_network_stood(forward: Any) -> None:
    """It takes no part in the step, so that its hits are those of an answer before it."""
    learner = replay(Chosen([7, 2, 5]), stream=0.0, forward=forward, iterations=2)
    x, _ = batch(5, 1)
    asked = copy.deepcopy(learner.model).eval()
    said = asked(floats(x)).argmax(1).numpy()
    y = np.where(np.arange(5) < 3, said, (said + 1) % 4)
    want, _ = by_hand(
        learner, [[(learner.memory[np.array([7, 2, 5])].x, learner.memory.y[[7, 2, 5]])]] * 2
    )
    learner.observe(x, y)
    assert int(learner.hits) == 3
    assert_same(learner.model, want)


def test_separate_and_joint_passes_differ_through_the_norms() -> None:
    steps = {}
    for forward in ("separate", "joint"):
        learner = replay(Chosen([7, 2, 5]), forward=forward)
        learner.observe(*batch(5, 1))
        steps[forward] = learner.model
    counts = {name: int(model.backbone.bn.num_batches_tracked) for name, model in steps.items()}
    assert counts == {"separate": 2, "joint": 1}
    assert not torch.allclose(steps["separate"].weight, steps["joint"].weight, atol=1e-5)


@pytest.mark.slow
def test_running_statistics_see_the_stream_first_and_then_the_memory() -> None:
    slots = [7, 2, 5]
    learner = replay(Chosen(slots))
    x, y = batch(5, 1)
    stem = learner.model.backbone.stem.weight.detach().clone()
    old = learner.memory.x[slots].permute(0, 3, 1, 2).numpy().copy()
    learner.observe(x, y)
    mean, var = torch.zeros(4), torch.ones(4)
    for images in (x, old):
        maps = F.conv2d(floats(images), stem, padding=1).transpose(0, 1).flatten(1)
        mean, var = 0.9 * mean + 0.1 * maps.mean(1), 0.9 * var + 0.1 * maps.var(1, unbiased=True)
    torch.testing.assert_close(learner.model.backbone.bn.running_mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(learner.model.backbone.bn.running_var, var, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("joint", [False, True])
def test_iterations_repeat_the_step_with_new_rows(joint: bool) -> None:
    first, second = [1, 2, 3], [9, 4]
    retrieve = Chosen(first, second)
    learner = replay(retrieve, iterations=2, forward="joint" if joint else "separate")
    x, y = batch(5, 1)
    new = floats(x), torch.from_numpy(y)
    olds = [
        (floats(learner.memory.x[s].permute(0, 3, 1, 2).numpy()), learner.memory.y[s].clone())
        for s in (first, second)
    ]
    want, losses = by_hand(learner, [[new, olds[0]], [new, olds[1]]], joint=joint)
    with torch.no_grad():
        before = copy.deepcopy(learner.model).train()(
            torch.cat([new[0], olds[0][0]]) if joint else new[0]
        )[:5]
    loss = learner.observe(x, y)
    assert retrieve.calls == 2
    assert_same(learner.model, want)
    assert loss.item() == pytest.approx(losses[1], rel=1e-4)
    assert int(learner.hits) == int((before.argmax(1).numpy() == y).sum())
    assert learner.memory.seen == 12 + 5


@pytest.mark.parametrize("iterations", [1, 3])
def test_hits_are_counted_before_the_step(iterations: int) -> None:
    """A large step changes the answers: the count is that of the old weights."""
    learner = replay(Chosen([0]), iterations=iterations, lr=1.0)
    x, _ = batch(12, 3)
    with torch.no_grad():
        said = copy.deepcopy(learner.model).train()(floats(x)).argmax(1).numpy()
    right = np.where(np.arange(12) < 5, said, (said + 1) % 4)
    learner.observe(x, right)
    assert int(learner.hits) == 5
    with torch.no_grad():
        assert (
            copy.deepcopy(learner.model).train()(floats(x)).argmax(1).numpy() == right
        ).sum() != 5


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_the_first_batch_has_nothing_to_rehearse(forward: Any) -> None:
    learner = replay(Uniform(10), capacity=0, forward=forward)
    learner.memory = Memory(12, SHAPE)
    x, y = batch(5, 1)
    want, losses = by_hand(learner, [[(floats(x), torch.from_numpy(y))]])
    assert learner.observe(x, y).item() == pytest.approx(losses[0], rel=1e-5)
    assert_same(learner.model, want)
    assert "retrieve" not in learner.rng.state_dict()["generators"]


@pytest.mark.parametrize("forward", ["separate", "joint"])
def test_a_retrieval_may_choose_nothing(forward: Any) -> None:
    learner = replay(Chosen([]), forward=forward)
    x, y = batch(5, 1)
    want, losses = by_hand(learner, [[(floats(x), torch.from_numpy(y))]])
    assert learner.observe(x, y).item() == pytest.approx(losses[0], rel=1e-5)
    assert_same(learner.model, want)


def test_the_memory_is_updated_after_the_step_with_raw_images() -> None:
    seen_at: list[tuple[int, torch.Tensor]] = []

    class Watching(Reservoir):
        def __call__(self, memory: Any, new: Any, model: Any, rng: Any) -> Placement:
            seen_at.append((memory.seen, model.weight.detach().clone()))
            return super().__call__(memory, new, model, rng)

    learner = replay(Uniform(10), capacity=0)
    learner.memory = Memory(12, SHAPE)
    learner.update = Watching()
    before = learner.model.weight.detach().clone()
    x, y = batch(5, 1)
    learner.observe(x / 255, y)
    assert seen_at[0][0] == 0 and not torch.equal(seen_at[0][1], before)
    assert torch.equal(seen_at[0][1], learner.model.weight)
    assert learner.memory.x[:5].permute(0, 3, 1, 2).tolist() == x.tolist()
    assert learner.memory.y[:5].tolist() == y.tolist()


def test_what_is_rehearsed_was_there_before_the_batch() -> None:
    learner = replay(Uniform(100), capacity=0)
    learner.memory = Memory(50, SHAPE)
    sizes: list[int] = []
    draw = learner.retrieve
    learner.retrieve = lambda *a: sizes.append(len(draw(*a))) or draw(*a)
    for seed in range(4):
        learner.observe(*batch(5, seed))
    assert sizes == [5, 10, 15]


def test_finetune_is_rehearsal_of_nothing() -> None:
    ends = []
    for method in (Finetune(lr=LR, weight_decay=DECAY), ER(lr=LR, weight_decay=DECAY, memory=0)):
        learner = method.build(Classifier(SHAPE, classes=4, width=4, seed=1), Rng(0))
        groups = []
        hand = copy.deepcopy(learner.model)
        hand.admit(np.arange(4))
        learner.model.admit(np.arange(4))
        for seed in range(3):
            x, y = batch(5, seed)
            groups.append([(floats(x), torch.from_numpy(y))])
            learner.observe(x, y)
        reference = copy.copy(learner)
        reference.model = hand
        want, _ = by_hand(reference, groups, decay=DECAY)
        assert_same(learner.model, want)
        assert len(learner.memory) == 0
        ends.append(learner.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_er_uses_its_settings() -> None:
    method = ER(
        memory=7,
        memory_batch=3,
        reservoir="ref",
        iterations=2,
        forward="joint",
        lr=0.2,
        weight_decay=0.1,
    )
    learner = method.build(Classifier(SHAPE, width=4), Rng(0))
    assert isinstance(learner, Replay)
    assert (learner.memory.capacity, learner.retrieve, learner.update) == (
        7,
        Uniform(3),
        Reservoir("ref"),
    )
    assert (learner.iterations, learner.forward, learner.lr, learner.weight_decay) == (
        2,
        "joint",
        0.2,
        0.1,
    )


def test_a_grown_head_learns() -> None:
    learner = replay(Chosen([0, 1]), classes=None)
    learner.observe(*batch(5, 0))
    x, _ = batch(5, 1)
    learner.model.admit(np.array([99]))
    want, _ = by_hand(
        learner,
        [
            [
                (floats(x), torch.full((5,), 4)),
                (
                    floats(learner.memory.x[[0, 1]].permute(0, 3, 1, 2).numpy()),
                    learner.memory.y[:2].clone(),
                ),
            ]
        ],
    )
    learner.observe(x, [99] * 5)
    assert_same(learner.model, want)


def test_updates_and_retrievals_draw_apart() -> None:
    """What is kept does not depend on how much is rehearsed."""
    kept = []
    for count in (1, 5):
        learner = ER(memory=6, memory_batch=count).build(
            Classifier(SHAPE, classes=4, width=4), Rng(3)
        )
        for seed in range(8):
            learner.observe(*batch(4, seed))
        kept.append(learner.memory.x.tolist())
    assert kept[0] == kept[1]


def test_predict_is_the_argmax_over_classes_seen_in_evaluation_mode() -> None:
    learner = replay(Chosen([0]), classes=8)
    learner.observe(*batch(5, 0))
    with torch.no_grad():
        learner.model.bias[6] = 1e3
    x, _ = batch(CHUNK + 9, 2)
    model = copy.deepcopy(learner.model).eval()
    with torch.no_grad():
        want = model(floats(x))[:, :4].argmax(1)
    assert learner.predict(x).tolist() == want.tolist()
    assert learner.predict(x[:1]).tolist() == want[:1].tolist()
