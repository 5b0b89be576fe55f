"""Every method that can be named keeps the contract, and the contract notices the faults it is
there for.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dualmix import registry, testing
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.errors import InputError
from dualmix.learn import backbones
from dualmix.learn.memory import Memory
from dualmix.learn.replay import Replay
from dualmix.learn.sampling import Reservoir, Uniform
from dualmix.methods import ER
from dualmix.registry import Method
from dualmix.settings import setting
from dualmix.testing.states import demand_refusal, flat
from tests.torture.shallow import shallow

pytestmark = pytest.mark.slow

SMALL, SHAPES = (1, 8, 8), ((3, 32, 32), (3, 64, 64), (3, 84, 84))
VARIANTS = {
    "er joint": {"forward": "joint"},
    "er twice": {"iterations": 2},
    "er exact": {"reservoir": "exact"},
}
SMALLER = {"randumb": {"method.length": 64}}
"""Settings that make a learner quick and change nothing that is demanded."""
METHODS: dict[str, Method] = {
    name: compose(name, SMALLER.get(name, {})).config.method for name in registry.presets()
} | {name: ER(**values) for name, values in VARIANTS.items()}
DISTINCT = {
    " = ".join(n for n in METHODS if METHODS[n] == method): method for method in METHODS.values()
}


WHOLE = {name for name in DISTINCT if "+" not in name.replace("der++", "")} - {*VARIANTS}
WHOLE |= {"er+dualmix"}
"""Methods to which `make test` puts every demand: the hosts without a mix, and one with all of
them. To other variants of er and to hosts with DualMix it puts `CORE`; `make contract` puts the
rest.
"""
CORE = ("keeps_the_protocol", "predict_is_pure", "resume_is_exact")
CHOICES, TRIED = "every_choice_works", ("er+dualmix", "dvc")
"""The longest demand, and the methods to which `make test` puts it."""
TRIED_ON_ER = ("+da", "+enmix", "+adpmix", "+mkd", "+ema")


def routine(here: bool) -> Any:
    """Return the marks of a case that `make test` makes or leaves to `make contract`."""
    return () if here else pytest.mark.long


DEMANDS = [
    pytest.param(
        name,
        demand,
        marks=routine(
            (demand != CHOICES or name in TRIED)
            if name in WHOLE
            else demand in CORE and (name.startswith(("er+", "er ")) or name.endswith("+dualmix"))
        ),
    )
    for name in DISTINCT
    for demand in testing.CHECKS
    if not (demand == CHOICES and name.endswith(TRIED_ON_ER) and not name.startswith("er+"))
]
"""Every method and every demand; but each choice is tried on er with each mix and on the others
with all of them.
"""
SIZED = [
    pytest.param(
        name,
        demand,
        shape,
        marks=routine(demand == "keeps_the_protocol" and name in WHOLE),
    )
    for name in DISTINCT
    if name not in VARIANTS
    for demand in testing.CHECKS
    if demand != "every_choice_works"
    for shape in SHAPES
]
"""Every demand at the data sets' sizes."""


DEEP = ("er+dualmix",)
"""Methods that `make test` tries on the whole network; for others one block will do, and `SIZED`
takes one demand to the whole one.
"""


@pytest.mark.parametrize(("name", "demand"), DEMANDS)
def test_method_keeps(name: str, demand: str, request: pytest.FixtureRequest) -> None:
    with shallow(name not in DEEP and not request.node.get_closest_marker("long")):
        testing.CHECKS[demand](DISTINCT[name], SMALL)


def test_every_preset_is_held_against_the_contract() -> None:
    assert {name for names in DISTINCT for name in names.split(" = ")} >= set(registry.presets())


@pytest.mark.parametrize(("name", "demand", "shape"), SIZED)
def test_size_works(name: str, demand: str, shape: tuple[int, int, int]) -> None:
    testing.CHECKS[demand](DISTINCT[name], shape)


KINDS = sorted({preset.kind for preset in registry.presets().values()} | {"er+dualmix"})
NETWORKS = [
    pytest.param(name, demand, marks=routine(demand == "resume_is_exact"))
    for name in KINDS
    for demand in testing.CHECKS
    if demand != CHOICES
]
"""Every method on vectors and with a network that dualmix does not know."""
PLAIN = {"data.name": "cifar100"}
"""Without what suits the digits, an augmentation for images."""


@pytest.mark.parametrize(("name", "demand"), NETWORKS)
def test_vectors_through_an_mlp_work(name: str, demand: str) -> None:
    testing.CHECKS[demand](compose(name, PLAIN).config.method, (12,))


class Own(torch.nn.Module):
    """Convolutions, batch-norm, pooling and a mean over the map, as torchvision's networks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, 4, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(4)
        self.maxpool = torch.nn.MaxPool2d(2)
        self.layer1 = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer1(self.maxpool(self.bn1(self.conv1(x)).relu())).mean((2, 3))


@pytest.mark.parametrize(("name", "demand"), NETWORKS)
def test_a_network_of_ones_own_works(
    name: str, demand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbones, "_MAKERS", dict(backbones._MAKERS))
    backbones.register_backbone("own", images=True)(lambda shape, hidden: Own(shape[0]))
    monkeypatch.setattr("dualmix.testing.trial.Model", partial(Model, name="own"))
    testing.CHECKS[demand](METHODS[name], SMALL)


def test_check_makes_every_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    demands = {
        name: lambda method, shape, name=name: made.append(f"{name} {shape}")
        for name in ("one", "two")
    }
    monkeypatch.setattr(testing, "CHECKS", demands)
    testing.check(ER(memory=500))
    testing.check(ER(memory=500), SMALL)
    assert made == ["one (3, 32, 32)", "two (3, 32, 32)", "one (1, 8, 8)", "two (1, 8, 8)"]


def test_check_turns_a_crash_into_a_sentence() -> None:
    with pytest.raises(
        AssertionError, match=r"Crash fails at 'keeps_the_protocol' with ZeroDivisionError"
    ):
        testing.check(Crash(), SMALL)


class Faulty(ER):
    """A method whose learner has one fault."""

    def make(self) -> type[Replay]:
        raise NotImplementedError

    def build(self, model: Any, rng: Any) -> Any:
        memory = Memory(self.memory, model.shape)
        return self.make()(model, memory, Reservoir("exact"), Uniform(5), rng, lr=0.1)


class Crash(Faulty):
    kind = "crash"

    def build(self, model: Any, rng: Any) -> Any:
        return 1 / 0


def fault(learner: type[Replay]) -> Method:
    """Return a method around a faulty learner, known to the registry so that it can be saved and
    loaded.
    """
    made = type(
        "Made", (Faulty,), {"make": lambda self: learner, "kind": "faulty", "__module__": __name__}
    )
    registry._METHODS["faulty"] = made
    return made(memory=20)


class MovesStatistics(Replay):
    def predict(self, x: Any) -> Any:
        self.model.train()
        with torch.no_grad():
            self.model(torch.as_tensor(np.asarray(x)).float() / 255)
        return super().predict(x)


class DrawsGlobally(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        np.random.rand()  # noqa: NPY002
        return super().observe(x, y)


class DrawsFromPython(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        random.random()
        return super().observe(x, y)


class DrawsFromTorch(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        torch.rand(1)
        return super().observe(x, y)


class ForgetsChance(Replay):
    def state_dict(self) -> Any:
        return {**super().state_dict(), "rng": {"seed": 0, "generators": {}}}


class HidesMomentum(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        self.lr = 0.1 / self.steps
        return super().observe(x, y)


class KeepsReferences(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        loss = super().observe(x, y)
        self.kept = [*getattr(self, "kept", []), torch.as_tensor(x)]
        return loss

    def state_dict(self) -> Any:
        return {**super().state_dict(), "kept": list(getattr(self, "kept", []))}


class WritesIntoBatches(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        loss = super().observe(x, y)
        x[0] = 0
        return loss


class CountsByLabel(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        loss = super().observe(x, y)
        with torch.no_grad():
            self.model.bias[0] += float(len(str(np.asarray(y)[0])))
        return loss


class AdmitsTooSoon(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        self.model.labels.append(len(self.model.labels))
        return super().observe(x, y)


class SavesObjects(Replay):
    def state_dict(self) -> Any:
        return {**super().state_dict(), "extra": np.zeros(2)}


class NamesUnseenColumns(Replay):
    def predict(self, x: Any) -> Any:
        super().predict(x)
        return np.full(len(x), 10**6)


class Answers(Replay):
    def predict(self, x: Any) -> Any:
        if not self.model.labels:
            return np.zeros(len(x), dtype=np.int64)
        return super().predict(x)


class Overfills(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        loss = super().observe(x, y)
        self.memory._filled = self.memory.capacity + 1
        return loss


class IgnoresTheSeed(Replay):
    def observe(self, x: Any, y: Any) -> Any:
        loss = super().observe(x, y)
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            tensor.data.zero_()
        self.memory.x.zero_()
        self.memory.y.zero_()
        return loss


@pytest.mark.parametrize(
    ("learner", "demand"),
    [
        (MovesStatistics, "predict_is_pure"),
        (DrawsGlobally, "global_chance_is_untouched"),
        (DrawsFromPython, "global_chance_is_untouched"),
        (DrawsFromTorch, "global_chance_is_untouched"),
        (ForgetsChance, "resume_is_exact"),
        (HidesMomentum, "resume_is_exact"),
        (HidesMomentum, "an_old_state_can_be_taken_up_again"),
        (KeepsReferences, "the_future_is_unseen"),
        (WritesIntoBatches, "the_future_is_unseen"),
        (CountsByLabel, "label_ids_are_arbitrary"),
        (AdmitsTooSoon, "bad_input_is_refused"),
        (SavesObjects, "the_state_is_plain"),
        (NamesUnseenColumns, "answers_are_classes_seen"),
        (NamesUnseenColumns, "one_class_works"),
        (Answers, "nothing_learned_is_said"),
        (Overfills, "memory_stays_in_bounds"),
        (IgnoresTheSeed, "a_seed_decides_everything"),
    ],
)
def test_contract_notices(learner: type[Replay], demand: str) -> None:
    with shallow(), pytest.raises(AssertionError):
        testing.CHECKS[demand](fault(learner), SMALL)


def test_only_a_memory_of_nothing_may_be_refused() -> None:
    """Settings may demand one image, not more."""

    class Modest(ER):
        memory: int = setting(20, "images", ge=1)

    class Greedy(ER):
        memory: int = setting(20, "images", ge=2)

    registry._METHODS["modest"], Modest.kind = Modest, "modest"
    testing.CHECKS["a_small_memory_works"](Modest(), SMALL)
    with pytest.raises(AssertionError, match="only 0 may be refused"):
        testing.CHECKS["a_small_memory_works"](Greedy(), SMALL)


def test_a_fault_of_another_kind_is_noticed() -> None:
    def value_error() -> None:
        raise ValueError("no sentence")

    def no_sentence() -> None:
        raise InputError("no sentence")

    for action in (value_error, no_sentence, lambda: None):
        with pytest.raises(AssertionError):
            demand_refusal(action, "this")


def test_testing_does_not_need_pytest() -> None:
    for path in Path(testing.__file__).parent.glob("*.py"):
        assert "pytest" not in path.read_text()


def test_a_poisoned_future_does_not_reach_the_past(tmp_path: Path) -> None:
    """Two data sets that differ only in later tasks give the same learner and counts after the
    first task.
    """
    from dualmix.runs.events import Scored
    from dualmix.runs.run import run
    from dualmix.store.store import Store

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 12)
    x = rng.integers(0, 256, (len(y), 8, 8, 1), dtype=np.uint8)
    test_y = np.repeat(np.arange(6), 3)
    test_x = rng.integers(0, 256, (len(test_y), 8, 8, 1), dtype=np.uint8)
    poisoned_x, poisoned_y, poisoned_test = x.copy(), y.copy(), test_x.copy()
    late = y >= 2
    poisoned_x[late] = 255 - poisoned_x[late]
    poisoned_y[late] = rng.permutation(poisoned_y[late])
    poisoned_test[test_y >= 2] = 7
    after: list[Any] = []
    for name, data in {
        "clean": (x, y, test_x),
        "poisoned": (poisoned_x, poisoned_y, poisoned_test),
    }.items():
        np.savez(
            tmp_path / f"{name}.npz",
            x_train=data[0],
            y_train=data[1],
            x_test=data[2],
            y_test=test_y,
        )
        composed = compose(
            "er",
            {
                "method.memory": 10,
                "model.width": 4,
                "stream.tasks": 3,
                "stream.class_order": (0, 1, 2, 3, 4, 5),
                "data.name": "arrays",
                "data.path": tmp_path / f"{name}.npz",
                "data.root": tmp_path / "cache",
            },
        )
        store = Store(tmp_path / "runs" / name)
        seen: dict[int, tuple[Any, list[Any]]] = {}

        def watch(
            event: Any, seen: Any = seen, store: Any = store, composed: Any = composed
        ) -> None:
            if isinstance(event, Scored):
                (folder,) = store.root.iterdir()
                state, _ = type(store.find(str(folder))).open(folder).latest()
                seen[event.task] = flat(state["learner"]), state["counts"].tolist()

        run(composed, store, watch=watch)
        after.append(seen)
    assert after[0][0] == after[1][0]
    assert after[0][1][0] != after[1][1][0]
