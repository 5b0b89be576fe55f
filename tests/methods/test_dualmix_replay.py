"""The mixes inside a rehearsal learner: presets, the loss of a step, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.errors import ConfigError
from dualmix.learn.augment import ColourJitter, Crop, identity, standard
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.learn.types import Batch
from dualmix.methods import ER, Mixing
from dualmix.methods.dualmix import AdpMix, EnMix, NewView, View
from dualmix.paper.ladder import GATE
from dualmix.registry import presets
from dualmix.rng import Rng
from dualmix.runs.build import build

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE = (3, 8, 8)
NARROW = Model(width=2)
ALL = {"view": 1.0, "enmix": 1.0, "adpmix": 1.0}
PRESETS = {
    "er+da": {"stream": 1, "replay": 1 / 2, "view": 1 / 2},
    "er+enmix": {"stream": 1 / 3, "replay": 1 / 3, "enmix": 1 / 3},
    "er+adpmix": {"stream": 1 / 4, "replay": 1 / 4, "view": 1 / 4, "adpmix": 1 / 4},
    "er+dualmix": {
        "stream": 1 / 5,
        "replay": 1 / 5,
        "view": 1 / 5,
        "enmix": 1 / 5,
        "adpmix": 1 / 5,
    },
}
"""What each preset mixes in, and with which weight."""
Step = tuple[np.ndarray, np.ndarray]


def stream(steps: int, rows: int = 4, seed: int = 0) -> list[Step]:
    """Two new classes every six steps."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.integers(0, 256, (rows, *SHAPE), dtype=np.uint8),
            rng.integers(0, 2, rows) + 2 * (step // 6),
        )
        for step in range(steps)
    ]


def learner(
    mix: dict[str, Any] | None = None, classes: int | None = None, **options: Any
) -> Replay:
    method = ER(**{"memory": 20, "memory_batch": 5, **options}, mix=Mixing(**mix or {}))
    made = build(method, SHAPE, seed=3, classes=classes, model=NARROW)
    assert isinstance(made, Replay)
    return made


def taught(made: Replay, steps: list[Step]) -> Replay:
    for x, y in steps:
        made.observe(x, y)
    return made


def same_weights(a: Any, b: Any) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


# Without weight


def test_no_weight_is_experience_replay_bit_for_bit() -> None:
    """Written out in plain torch: the new batch, five rows of a reservoir of twenty, one step of
    SGD.
    """
    steps = stream(30)
    options = {"each": "batch", "old": "batch", "pairs": "all", "augment": "flip", "ratio": "mean"}
    mixless = taught(learner(options, classes=10), steps)
    model = Classifier(SHAPE, classes=10, seed=3, width=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory, rng = Memory(20, SHAPE), Rng(3)
    for images, labels in steps:
        raw, columns = (
            torch.from_numpy(images).permute(0, 2, 3, 1).contiguous(),
            model.admit(labels),
        )
        new = Batch(raw.permute(0, 3, 1, 2).float().div(255), columns)
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(new.x), new.y).backward()
        if len(memory):
            old = memory[Uniform(5)(memory, new, model, rng["retrieve"])]
            F.cross_entropy(model(old.x), old.y).backward()
        optimizer.step()
        memory.write(Reservoir("exact")(memory, new, model, rng["update"]), raw, columns)
    assert same_weights(mixless.model, model)
    assert torch.equal(mixless.memory.x, memory.x)
    assert torch.equal(mixless.memory.y, memory.y)
    assert not mixless.tally


@pytest.mark.parametrize("forward", ["separate", "joint", "still"])
def test_no_weight_is_no_mix(forward: str) -> None:
    steps = stream(7)
    with_mixes = taught(learner({"kappa": 1.0, "alpha": 3.0}, forward=forward), steps)
    model = Classifier(SHAPE, seed=3, width=2)
    policies = Memory(20, SHAPE), Reservoir("exact"), Uniform(5), Rng(3)
    without = taught(Replay(model, *policies, lr=0.1, forward=forward), steps)
    assert same_weights(with_mixes.model, without.model)


def test_a_mix_without_weight_draws_nothing() -> None:
    made = taught(learner({"enmix": 0.5}), stream(4))
    assert sorted(made.rng.state_dict()["generators"]) == ["enmix", "retrieve", "update"]
    assert list(made.mixes) == ["enmix"]
    made = taught(learner(), stream(4))
    assert sorted(made.rng.state_dict()["generators"]) == ["retrieve", "update"]


# Presets


@pytest.mark.parametrize("name", PRESETS)
def test_presets_turn_on_what_they_name(name: str) -> None:
    composed = compose(name, {"method.memory": 20, "data.name": "cifar100"})
    plain = compose("er", {"data.name": "cifar100"}).config.method
    mix = composed.config.method.mix
    assert mix == Mixing(**PRESETS[name])
    assert (
        composed.config.method.model_copy(update={"mix": Mixing(), "memory": plain.memory}) == plain
    )
    for weight in ("stream", "replay", *ALL):
        assert composed.origins[f"method.mix.{weight}"] == (
            f"preset {name}" if weight in PRESETS[name] else "default"
        )
    made = build(composed.config.method, SHAPE, model=NARROW)
    assert list(made.mixes) == [term for term in PRESETS[name] if term in ALL]
    taught(made, stream(3))
    assert len(made.predict(stream(1)[0][0])) == 4


def test_a_memory_is_needed_to_mix() -> None:
    assert not any(name.startswith(("finetune+", "iid")) and "+" in name for name in presets())
    with pytest.raises(ConfigError, match=r"'dualmix' cannot be added to 'finetune'"):
        compose("finetune+dualmix")


def test_flags_change_a_preset() -> None:
    mix = compose(
        "er+dualmix", {"method.mix.view": "0", "method.mix.old": "task"}
    ).config.method.mix
    assert (mix.view, mix.enmix, mix.adpmix, mix.old) == (0, 0.2, 0.2, "task")
    with pytest.raises(ConfigError, match=r"^method\.mix\.alpha"):
        compose("er+dualmix", {"method.mix.alpha": "0"})


def test_every_setting_reaches_its_place() -> None:
    """No setting has its default, and no two of one kind are alike, so that none can be mistaken
    for another.
    """
    mix = Mixing(
        view=0.1,
        enmix=0.2,
        adpmix=0.3,
        augment="crop-1.3",
        alpha=0.4,
        kappa=0.6,
        tau=0.7,
        delta=0.8,
        each="batch",
        adpmix_augment="old",
        old="task",
        pairs="fewer",
        ratio="mean",
    ).build()
    g = Crop(scale=(0.2, 0.5))
    assert mix["view"] == View(g=g, weight=0.1)
    assert mix["enmix"] == EnMix(
        g=g,
        weight=0.2,
        alpha=0.4,
        each="batch",
    )
    assert mix["adpmix"] == AdpMix(
        g=g,
        weight=0.3,
        alpha=0.4,
        kappa=0.6,
        tau=0.7,
        delta=0.8,
        each="batch",
        augment="old",
        old="task",
        pairs="fewer",
        ratio="mean",
    )


def test_settings_left_alone_are_those_of_the_classes() -> None:
    found = Mixing(**ALL).build()
    assert found == {
        "view": View(standard()),
        "enmix": EnMix(standard()),
        "new view": NewView(standard(), 0.0),
        "adpmix": AdpMix(standard()),
    }
    assert list(found) == ["view", "enmix", "new view", "adpmix"]
    assert Mixing(augment="jitter").transform() == ColourJitter()
    assert Mixing(alpha=0.7).build()["adpmix"].alpha == 0.7


# What is left alone


class Watched:
    """A retrieval that keeps what it answered."""

    def __init__(self, count: int) -> None:
        self.inner, self.slots = Uniform(count), []

    def __call__(self, *arguments: Any) -> Any:
        self.slots.append(self.inner(*arguments).tolist())
        return np.array(self.slots[-1])


@pytest.mark.parametrize(
    "mix",
    [
        *(dict.fromkeys(terms, 1.0) for terms in PRESETS.values()),
        {**ALL, "stream": 0.0, "replay": 0.0},
    ],
)
def test_mixes_change_neither_what_is_retrieved_nor_what_is_stored(mix: dict[str, Any]) -> None:
    made = [learner(memory=10), learner(mix, memory=10)]
    for each in made:
        each.retrieve = Watched(5)
        taught(each, stream(8))
    assert made[0].retrieve.slots == made[1].retrieve.slots
    assert torch.equal(made[0].memory.x, made[1].memory.x)
    assert torch.equal(made[0].memory.y, made[1].memory.y)
    assert not torch.equal(made[0].model.weight, made[1].model.weight)


def test_the_memory_holds_images_as_they_came() -> None:
    steps = stream(7)
    came = {image.tobytes() for x, _ in steps for image in x}
    made = taught(learner(ALL, memory=10), steps)
    assert {image.permute(2, 0, 1).numpy().tobytes() for image in made.memory.x} <= came


def test_mixes_do_not_disturb_each_others_chance() -> None:
    made = [taught(learner(mix), stream(4)) for mix in (ALL, {"adpmix": 1.0}, {"enmix": 1.0})]
    states = [each.rng.state_dict()["generators"] for each in made]
    assert states[0]["adpmix"] == states[1]["adpmix"]
    assert states[0]["enmix"] == states[2]["enmix"]


def test_mixes_start_with_the_first_rehearsed_batch() -> None:
    made = learner(ALL)
    taught(made, stream(1))
    assert sorted(made.rng.state_dict()["generators"]) == ["update"]
    assert not made.tally
    taught(made, stream(1))
    assert sorted(made.rng.state_dict()["generators"]) == [
        "adpmix",
        "enmix",
        "retrieve",
        "update",
        "view",
    ]


# The loss of a step


class Numbers(torch.nn.Module):
    """The learner's network in float64, with batch-norm written out."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.net = copy.deepcopy(model).double().train()
        self.still = False
        for norm in self.norms():
            norm.forward = lambda x, norm=norm: self.normalise(norm, x)

    def norms(self) -> list[Any]:
        return [module for module in self.net.modules() if isinstance(module, torch.nn.BatchNorm2d)]

    def normalise(self, norm: Any, x: Tensor) -> Tensor:
        if self.still:
            mean, var = norm.running_mean, norm.running_var
        else:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
            size = x.numel() / x.shape[1]
            norm.running_mean = 0.9 * norm.running_mean + 0.1 * mean.detach()
            norm.running_var = 0.9 * norm.running_var + 0.1 * var.detach() * size / (size - 1)
            norm.num_batches_tracked += 1
        shape = (1, -1, 1, 1)
        unit = (x - mean.view(shape)) / (var.view(shape) + norm.eps).sqrt()
        return unit * norm.weight.view(shape) + norm.bias.view(shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.net.backbone(x.double()) @ self.net.weight.T + self.net.bias


def soft_loss(logits: Tensor, y: Tensor) -> Tensor:
    """The mean over rows of -sum y log softmax; hard labels put everything on one class."""
    soft = torch.eye(logits.shape[1], dtype=torch.float64)[y] if y.dim() == 1 else y.double()
    logs = logits - logits.exp().sum(1, keepdim=True).log()
    return -(soft * logs).sum() / len(logits)


WEIGHTS = {"stream": 0.7, "replay": 1.3, "view": 0.5, "enmix": 2.0, "adpmix": 0.9}


@pytest.mark.parametrize(
    "weights", [WEIGHTS, {**WEIGHTS, "stream": 0.0, "view": 0.0}, {**WEIGHTS, "replay": 0.0}]
)
@pytest.mark.parametrize("forward", ["separate", "joint", "still"])
def test_a_step_descends_the_weighted_sum_of_soft_losses(
    forward: str, weights: dict[str, float]
) -> None:
    *steps, (x, y) = stream(8)
    made = taught(
        learner({**weights, "kappa": 0.9, "delta": 0.2}, forward=forward, weight_decay=0.01), steps
    )
    numbers, ages, rng = Numbers(made.model), copy.deepcopy(made.ages), Rng(0)
    rng.load_state_dict(copy.deepcopy(made.rng.state_dict()))
    columns = made.model.admit(y)
    ages.note(columns.numpy())
    new = Batch(torch.from_numpy(x).float() / 255, columns)
    old = made.memory[made.retrieve(made.memory, new, made.model, rng["retrieve"])]
    batches = {"stream": new, "replay": old}
    for name in ("view", "enmix", "adpmix"):
        if weights[name]:
            batches[name] = made.mixes[name](new, old, made.model, ages, rng[name])
    batches = {name: batch for name, batch in batches.items() if weights[name]}
    if forward == "joint":
        logits = numbers(torch.cat([batch.x for batch in batches.values()]))
        parts = dict(
            zip(batches, logits.split([len(batch.x) for batch in batches.values()]), strict=True)
        )
    else:
        parts = {}
        for name, batch in batches.items():
            numbers.still = forward == "still" and name in ("view", "enmix", "adpmix")
            parts[name] = numbers(batch.x)
    total = sum(weights[name] * soft_loss(parts[name], batch.y) for name, batch in batches.items())
    total.backward()
    loss = made.observe(x, y)
    torch.testing.assert_close(loss.double(), total.detach(), atol=1e-5, rtol=1e-5)
    expected = {name: p - 0.1 * (p.grad + 0.01 * p) for name, p in numbers.net.named_parameters()}
    expected |= dict(numbers.net.named_buffers())
    found = made.model.state_dict()
    for name, value in found.items():
        torch.testing.assert_close(
            value.double(), expected[name].detach().double(), atol=2e-5, rtol=1e-4, msg=name
        )
    hits = (parts["stream"].argmax(1) == columns).sum() if weights["stream"] else 0
    assert int(made.hits) == int(hits)


def test_the_weights_of_the_step_before_decide_the_tilt() -> None:
    """AdpMix reads the head's norms before the step: what it is shown is what it gets."""
    norms: list[Tensor] = []

    class Spy:
        weight = 1.0

        def __call__(self, new: Any, old: Any, model: Any, *more: Any) -> None:
            norms.append(model.weight.detach().clone())

    made = taught(learner(classes=4), stream(2))
    before = made.model.weight.detach().clone()
    made.mixes = {"spy": Spy()}
    taught(made, stream(1))
    assert torch.equal(norms[0], before)
    assert not torch.equal(made.model.weight, before)


@pytest.mark.parametrize("mu", [0.0, 0.25, 0.9])
def test_the_gradient_of_a_soft_label_is_that_of_two_hard_ones(mu: float) -> None:
    logits = torch.randn(
        6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    a, b = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 1, 4, 0, 2, 3])
    soft = mu * F.one_hot(a, 5).double() + (1 - mu) * F.one_hot(b, 5).double()
    (one,) = torch.autograd.grad(F.cross_entropy(logits, soft), logits)
    two = mu * F.cross_entropy(logits, a) + (1 - mu) * F.cross_entropy(logits, b)
    torch.testing.assert_close(F.cross_entropy(logits, soft), two)
    (other,) = torch.autograd.grad(two, logits)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one, (logits.softmax(1) - soft).detach() / 6)


@pytest.mark.parametrize("name", ["stream", "replay"])
def test_batches_can_be_replaced_by_mixes(name: str) -> None:
    passes: list[int] = []
    made = taught(learner({**ALL, name: 0.0}), stream(3))
    made.model.register_forward_pre_hook(
        lambda model, given: passes.append(len(given[0])) if model.training else None
    )
    made.observe(*stream(1, rows=3)[0])
    assert passes == {"stream": [5, 5, 5, 3], "replay": [3, 5, 5, 3]}[name]


def test_nothing_with_weight_is_nothing_learned() -> None:
    for forward in ("separate", "joint"):
        made = learner({"stream": 0.0, "replay": 0.0}, forward=forward, classes=4)
        before = copy.deepcopy(made.model)
        assert float(made.observe(*stream(1)[0])) == 0
        assert float(made.observe(*stream(1)[0])) == 0
        assert same_weights(made.model, before)


# Batch-norm


def statistics(made: Replay) -> Tensor:
    return torch.cat(
        [
            buffer.flatten().float()
            for name, buffer in made.model.named_buffers()
            if "running" in name
        ]
    )


def test_still_leaves_the_statistics_of_mixed_batches_out() -> None:
    made = [
        learner(mix, forward="still")
        for mix in ({}, {"view": 1e-30, "enmix": 1e-30, "adpmix": 1e-30})
    ]
    for each in made:
        taught(each, stream(4))
    assert torch.equal(statistics(made[0]), statistics(made[1]))
    moved = taught(learner({"view": 1e-30}), stream(4))
    assert not torch.equal(statistics(made[0]), statistics(moved))
    assert all(module.training for module in made[1].model.modules())


# The stream


@pytest.mark.parametrize("old", ["all", "batch"])
def test_adpmix_works_without_task_ids(old: str) -> None:
    made = taught(learner({"adpmix": 1.0, "old": old}), stream(12))
    assert made.ages.known_before_task == 0
    pairs = int(made.tally["adpmix pairs"])
    assert pairs == 11 * 4 if old == "all" else 0 < pairs < 11 * 4


def test_adpmix_by_task_waits_for_the_first_pause() -> None:
    made = taught(learner({"adpmix": 1.0, "old": "task"}), stream(8))
    assert not made.tally
    made.consolidate()
    taught(made, stream(14)[12:])
    assert int(made.tally["adpmix pairs"]) > 0


def test_tallies_add_up_and_survive_a_save() -> None:
    steps = stream(6)
    made = taught(learner({"adpmix": 1.0, "kappa": 0.5}), steps)
    assert int(made.tally["adpmix pairs"]) == 5 * 4
    assert 0 < int(made.tally["adpmix tilted"]) <= int(made.tally["adpmix gate open"]) <= 5 * 4
    other = learner({"adpmix": 1.0, "kappa": 0.5})
    other.load_state_dict(made.state_dict())
    for each in (made, other):
        each.observe(*steps[0])
    assert {name: float(count) for name, count in made.tally.items()} == {
        name: float(count) for name, count in other.tally.items()
    }
    assert int(other.tally["adpmix pairs"]) == 6 * 4


def test_while_the_gate_stays_closed_the_tilt_does_not_matter() -> None:
    """The ladder files one training under several of its rungs by this: by `GATE`, to the byte."""
    steps = stream(12)

    def tilted_by(delta: float, kappa: float) -> Replay:
        return taught(learner({**ALL, "delta": delta, "kappa": kappa}), steps)

    closed = [tilted_by(delta, kappa=1e6) for delta in (0.05, 0.0, 0.2)]
    assert all(int(made.tally[GATE]) == 0 for made in closed)
    assert all(same_weights(closed[0].model, made.model) for made in closed)
    tilted = [tilted_by(delta, kappa=0.0) for delta in (0.05, 0.2)]
    assert all(int(made.tally[GATE]) > 0 for made in tilted)
    assert not same_weights(tilted[0].model, tilted[1].model)


def test_one_rehearsed_image_and_one_new_image_are_enough() -> None:
    made = taught(learner(ALL, memory_batch=1), stream(6, rows=1))
    assert torch.isfinite(made.model.weight).all()


def test_identity_doubles_the_weight_of_the_memory() -> None:
    """With batch-norm still, the loss of ER with an identical view is that of ER with the memory
    counted twice.
    """
    twice = taught(learner({"view": 1.0, "augment": "identity"}, forward="joint"), stream(1))
    heavy = taught(learner({"replay": 2.0}, forward="joint"), stream(1))
    assert twice.mixes["view"].g is identity
    for each in (twice, heavy):
        each.model.train = lambda mode=True, model=each.model: torch.nn.Module.train(model, False)
        each.model.eval()
        each.observe(*stream(1)[0])
    torch.testing.assert_close(twice.model.weight, heavy.model.weight)
    torch.testing.assert_close(twice.model.backbone.stem.weight, heavy.model.backbone.stem.weight)
