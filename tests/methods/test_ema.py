"""Temporal ensemble: the average by hand, what answers, and that training does not notice it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dualmix
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.errors import ConfigError, TrainingError
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.methods import ER, Averaging
from dualmix.runs.build import build

pytestmark = pytest.mark.usefixtures("shallow")

SHAPE = (1, 8, 8)


def learner(rate: float, classes: int | None = 3, **own: Any) -> Replay:
    method = ER(memory=6, memory_batch=2, ema=Averaging(rate=rate), **own)
    made = build(method, SHAPE, seed=1, classes=classes, model=Model(width=1))
    assert isinstance(made, Replay)
    return made


def batch(seed: int, labels: list[int]) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8), labels


def floats(made: Replay) -> dict[str, np.ndarray]:
    state = made.model.state_dict()
    return {n: t.double().numpy().copy() for n, t in state.items() if t.is_floating_point()}


def test_the_average_by_hand_with_its_quick_start_and_statistics() -> None:
    """Rates of the first steps by hand: 9/10, 9/11, 0.8 (given, above 9/12), 0.8."""
    made = learner(rate=0.8)
    hand = floats(made)
    for step, rate in enumerate([0.9, 9 / 11, 0.8, 0.8]):
        made.observe(*batch(step, [0, 1]))
        now = floats(made)
        hand = {name: (1 - rate) * hand[name] + rate * now[name] for name in hand}
    assert made.average is not None
    averaged = {name: t for name, t in made.average.tensors.items() if name != "steps"}
    assert averaged.keys() == hand.keys() and "backbone.bn.running_var" in hand
    for name, tensor in averaged.items():
        np.testing.assert_allclose(tensor.numpy(), hand[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert int(made.average.tensors["steps"]) == 4


def test_the_rate_is_the_given_one_from_step_891_on() -> None:
    made = learner(rate=0.01)
    average, model = made.average, made.model
    assert average is not None
    for steps, rate in ((889, 9 / 899), (890, 0.01), (5000, 0.01)):
        before = average.tensors["weight"].double().numpy() + 1
        average.tensors = {
            **average.tensors,
            "weight": average.tensors["weight"] + 1,
            "steps": torch.tensor(steps),
        }
        average.follow(model)
        hand = (1 - rate) * before + rate * model.weight.detach().double().numpy()
        np.testing.assert_allclose(average.tensors["weight"].numpy(), hand, rtol=1e-6, atol=1e-7)


def test_training_does_not_notice_it() -> None:
    plain, averaged = learner(0.0), learner(0.05)
    for step in range(5):
        losses = [float(made.observe(*batch(step, [step % 3, 0]))) for made in (plain, averaged)]
        averaged.predict(batch(9, [0])[0])
        assert losses[0] == losses[1]
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, averaged.model.state_dict()[name]), name
    assert plain.average is None


@pytest.mark.parametrize("readout", ["linear", "ncm"])
def test_the_average_answers(readout: str) -> None:
    made = learner(0.05, readout=readout)
    for step in range(6):
        made.observe(*batch(step, [0, 1, 2]))
    assert made.average is not None
    plain = Classifier(SHAPE, classes=3, width=1)
    own = {name: t for name, t in made.average.tensors.items() if name != "steps"}
    plain.load_state_dict({**made.model.state_dict(), **own})
    x = batch(7, [0, 1, 2, 0])[0]
    features = plain.eval().embed(torch.from_numpy(x).float() / 255).detach().numpy()
    np.testing.assert_allclose(made.embed(x), features, rtol=1e-3, atol=1e-4)
    if readout == "linear":
        hand = features @ plain.weight.detach().numpy().T + plain.bias.detach().numpy()
        np.testing.assert_allclose(made.scores(x), hand, rtol=1e-3, atol=1e-4)


def test_rows_of_new_classes_come_to_the_average() -> None:
    made = learner(0.05, classes=None)
    made.observe(*batch(0, [0, 1]))
    made.observe(*batch(1, [2, 0]))
    assert made.average is not None and len(made.average.tensors["weight"]) == 3
    assert made.predict_proba(batch(2, [0])[0]).shape == (1, 3)


def test_it_is_saved_and_taken_back(tmp_path: Path) -> None:
    made = learner(0.05)
    for step in range(3):
        made.observe(*batch(step, [0, 1]))
    dualmix.save(made, tmp_path / "learner")
    again = dualmix.load(tmp_path / "learner")
    for one in (made, again):
        one.observe(*batch(3, [1, 2]))
    for name, tensor in made.average.tensors.items():
        assert torch.equal(tensor, again.average.tensors[name]), name
    kept, made.lr = made.average.tensors, float("inf")
    with pytest.raises(TrainingError):
        made.observe(*batch(4, [0, 2]))
    assert made.average.tensors is kept and int(kept["steps"]) == 4


@pytest.mark.parametrize("name", ["er+dualmix+ema", "mir+ema", "er-ace+ema", "der+++ema"])
def test_it_fits_every_host(name: str) -> None:
    made = dualmix.create(name, SHAPE, memory=6, memory_batch=2, seed=1)
    for step in range(3):
        made.observe(*batch(step, [step, 0]))
    assert made.average is not None and made.average.rate == 0.01
    assert made.predict(batch(9, [0, 0])[0]).shape == (2,)


def test_two_averages_cannot_answer() -> None:
    with pytest.raises(ConfigError, match=r"give ema.rate 0 or mkd.weight 0"):
        compose("er+ema+mkd")
    with pytest.raises(ConfigError, match=r"give ema.rate 0 or mkd.weight 0"):
        compose("er+mkd", {"method.ema.rate": 0.1})
