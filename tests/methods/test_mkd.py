"""Momentum knowledge distillation: the average, the loss and a whole step by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dualmix
from dualmix.config.fields import Model
from dualmix.errors import TrainingError
from dualmix.learn.arithmetic import TORCH
from dualmix.learn.averaging import WeightAverage
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.methods import ER, Distilling
from dualmix.methods.mkd import distillation
from dualmix.runs.build import build
from dualmix.store import snapshot

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE, LR = (1, 8, 8), 0.1


def learner(classes: int | None = None, name: str = "er", **mkd: Any) -> Replay:
    values = {"weight": 5.5, "augment": "identity", **mkd}
    own = ER(memory=6, memory_batch=2, lr=LR, mkd=Distilling(**values))
    made = build(own, SHAPE, seed=1, classes=classes, model=Model(width=1))
    assert isinstance(made, Replay)
    return made


def batch(seed: int, labels: list[int]) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8), labels


def weights(made: Replay) -> dict[str, np.ndarray]:
    return {name: w.detach().double().numpy().copy() for name, w in made.model.state_dict().items()}


def test_the_average_is_the_sum_of_all_weights_by_their_age() -> None:
    """theta_T after n steps: (1-a)^n theta_0 + sum of a (1-a)^(n-i) theta_i, in numpy."""
    made, rate = learner(classes=3, rate=0.3), 0.3
    history = [weights(made)]
    for step in range(4):
        made.observe(*batch(step, [0, 1]))
        history.append(weights(made))
    assert made.average is not None
    for name, _ in made.model.named_parameters():
        average = made.average.tensors[name]
        hand = (1 - rate) ** 4 * history[0][name]
        for age, then in enumerate(reversed(history[1:])):
            hand = hand + rate * (1 - rate) ** age * then[name]
        np.testing.assert_allclose(average.numpy(), hand, rtol=1e-5, atol=1e-6)
    assert {"weight", "bias", "backbone.stem.weight", "backbone.bn.running_var"} <= set(
        made.average.tensors
    )


def test_rows_of_new_classes_start_as_the_head_starts() -> None:
    made = learner(rate=0.25)
    made.observe(*batch(0, [0, 1]))
    before = made.average.tensors["weight"].clone()
    fresh = copy.deepcopy(made.model)
    fresh.admit(np.array([0, 1, 2]))
    made.observe(*batch(1, [2, 0]))
    now = made.average.tensors["weight"]
    assert len(before) == 2 and len(now) == 3
    hand = 0.75 * torch.cat([before, fresh.weight[2:].detach()]) + 0.25 * made.model.weight
    torch.testing.assert_close(now, hand.detach())


def test_distillation_and_its_gradient_by_hand() -> None:
    rng, t = np.random.default_rng(0), 4.0
    student, teacher = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    p, q = (np.exp(z / t) / np.exp(z / t).sum(1, keepdims=True) for z in (teacher, student))
    logits = torch.tensor(student, requires_grad=True)
    scaled = torch.tensor(teacher) / t
    loss = distillation(logits, TORCH.softmax(scaled), scaled=scaled, temperature=t, by=TORCH)
    assert loss.item() == pytest.approx(t**2 * (p * np.log(p / q)).sum(1).mean())
    loss.backward()
    np.testing.assert_allclose(logits.grad.numpy(), t * (q - p) / 3)


@pytest.mark.parametrize("lam", [5.5, 1.0])
def test_a_step_by_hand(lam: float) -> None:
    """The second step: ER's two means, and both views against the teacher, whose pass leaves no
    trace in the student.
    """
    made = learner(classes=4, weight=lam, augment="flip", rate=0.5)
    made.observe(*batch(0, [0, 1]))
    made.observe(*batch(1, [1, 2]))
    twin = copy.deepcopy(made)
    x, y = batch(2, [3, 2])
    loss = made.observe(x, y)

    slots = twin.retrieve(twin.memory, None, twin.model, twin.rng["retrieve"])
    old = twin.memory[slots]
    new_x, new_y = torch.from_numpy(x).float() / 255, torch.tensor([3, 2])
    columns = twin.model.admit(new_y.numpy())
    both = torch.cat([new_x, old.x])
    views = twin.mixes["mkd view"].lesson.g(both, twin.rng["mkd view"])
    teacher = copy.deepcopy(twin.model)
    teacher.load_state_dict({**teacher.state_dict(), **twin.average.tensors})
    told = (teacher.train()(views).detach() / 4).softmax(1)
    model = twin.model.train()
    total = torch.nn.functional.cross_entropy(model(new_x), columns)
    total = total + torch.nn.functional.cross_entropy(model(old.x), old.y)
    for seen in (views, both):
        said = (model(seen) / 4).log_softmax(1)
        total = total + lam / 2 * 16 * (told * (told.log() - said)).sum(1).mean()
    total.backward()
    assert float(loss) == pytest.approx(total.item(), rel=1e-4)
    for now, then in zip(made.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(now, then - LR * then.grad, rtol=1e-3, atol=1e-5)
    for name, buffer in teacher.named_buffers():
        if "running" in name:
            torch.testing.assert_close(made.average.tensors[name], buffer, msg=name)
    for now, then in zip(made.model.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(now, then, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("answers", "share"), [("student", 0), ("average", 0.5), ("teacher", 1)])
def test_what_answers(answers: str, share: float) -> None:
    made = learner(classes=3, answers=answers, rate=0.1)
    for step in range(3):
        made.observe(*batch(step, [0, 1, 2]))
    kept = weights(made)
    network = made.answers().network
    for name in ("weight", "bias"):
        hand = share * made.average.tensors[name] + (1 - share) * getattr(made.model, name)
        torch.testing.assert_close(getattr(network, name).detach(), hand.detach())
    mixed: dict[str, Tensor] = dict(made.model.state_dict())
    mixed |= {n: share * a + (1 - share) * mixed[n] for n, a in made.average.tensors.items()}
    plain = Classifier(SHAPE, classes=3, width=1)
    plain.load_state_dict(mixed)
    x = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(x), plain.eval()(x), rtol=1e-3, atol=1e-4)
    now = weights(made)
    assert all((kept[name] == now[name]).all() for name in kept)


def test_the_average_is_saved_and_a_bad_batch_does_not_move_it(tmp_path: Any) -> None:
    made = learner(classes=3)
    made.observe(*batch(0, [0, 1]))
    dualmix.save(made, tmp_path / "learner")
    state = snapshot.read(tmp_path / "learner")["learner"]
    assert state["average"].keys() == made.average.tensors.keys()
    again = dualmix.load(tmp_path / "learner")
    for learned in (made, again):
        learned.observe(*batch(1, [1, 2]))
    pairs = zip(made.average.tensors.values(), again.average.tensors.values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    kept, made.lr = made.average.tensors, float("inf")
    with pytest.raises(TrainingError):
        made.observe(*batch(2, [0, 2]))
    assert made.average.tensors is kept


def test_several_steps_are_taken_back_with_the_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two steps fails: the average is that before the first."""
    made = build(
        ER(memory=6, lr=LR, iterations=2, mkd=Distilling(weight=1.0)),
        SHAPE,
        seed=1,
        model=Model(width=1),
    )
    made.observe(*batch(0, [0, 1]))
    kept = {name: tensor.clone() for name, tensor in made.average.tensors.items()}
    follow, steps = WeightAverage.follow, []

    def spoiled(self: WeightAverage, model: Classifier) -> None:
        follow(self, model)
        steps.append(None)
        if len(steps) == 1:
            made.lr = float("inf")

    monkeypatch.setattr(WeightAverage, "follow", spoiled)
    with pytest.raises(TrainingError):
        made.observe(*batch(1, [0, 2]))
    assert len(steps) == 1 and len(made.average.tensors["weight"]) == 2
    assert all(torch.equal(made.average.tensors[name], kept[name]) for name in kept)


@pytest.mark.parametrize("name", ["er+mkd", "mir+mkd", "er-ace+mkd", "der+++mkd"])
def test_it_fits_every_host(name: str) -> None:
    made = dualmix.create(name, SHAPE, memory=6, memory_batch=2, seed=1)
    for step in range(3):
        made.observe(*batch(step, [step, 0]))
    assert list(made.mixes)[-2:] == ["mkd view", "mkd raw"]
    assert [mix.weight for mix in made.mixes.values()][-2:] == [2.75, 2.75]
    assert made.predict(batch(9, [0, 0])[0]).shape == (2,)
