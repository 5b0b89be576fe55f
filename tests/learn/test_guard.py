"""Threads that share a learner, and batches that diverge."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dualmix
from dualmix.config.fields import Model
from dualmix.errors import TrainingError
from dualmix.learn.answers import Answers
from dualmix.learn.common import MemoryLearner, take_in
from dualmix.learn.guard import AT_ONCE
from dualmix.registry import get_method
from tests.kit import SHAPE, batch, images, wait_until

pytestmark = pytest.mark.usefixtures("shallow")


def learner(name: str = "er", **settings: Any) -> Any:
    method = get_method(name)(**{"memory": 9, "lr": 0.05, **settings})
    return dualmix.build(method, SHAPE, seed=3, model=Model(width=2))


def flat(state: Any, path: str = "") -> dict[str, Any]:
    if isinstance(state, dict):
        return {k: v for n, part in state.items() for k, v in flat(part, f"{path}/{n}").items()}
    bytes_ = state.numpy().tobytes() if isinstance(state, torch.Tensor) else state
    return {path: bytes_}


class Held:
    """A retrieval that waits in the middle of a step until it is let go."""

    def __init__(self, retrieve: Any) -> None:
        self.retrieve, self.reached, self.go = retrieve, threading.Event(), threading.Event()

    def __call__(self, *given: Any) -> Any:
        self.reached.set()
        assert self.go.wait(120)
        return self.retrieve(*given)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(call()), daemon=True)
    thread.start()
    return thread, ended


@pytest.mark.parametrize("name", ["er", "scr"])
@pytest.mark.slow
def test_predictions_go_on_while_a_batch_is_learned(name: str) -> None:
    """The batch is held in the middle of its step; the answers are those of before."""
    shared, alone = learner(name), learner(name)
    x, stream = images(12, 99), [batch(5, seed) for seed in range(6)]
    answers = []
    for b in stream:
        alone.observe(*b)
        answers.append(alone.predict(x).tolist())
    plain = shared.retrieve
    shared.observe(*stream[0])
    assert shared.predict(x).tolist() == answers[0]

    shared.retrieve = Held(plain)
    thread, _ = in_thread(lambda: shared.observe(*stream[1]))
    assert shared.retrieve.reached.wait(120)
    assert shared.predict(x).tolist() == answers[0]
    shared.retrieve.go.set()
    thread.join()

    # None has asked since: the first one waits for the batch, and no other does.
    shared.retrieve = Held(plain)
    thread, _ = in_thread(lambda: shared.observe(*stream[2]))
    assert shared.retrieve.reached.wait(120)
    asking, said = in_thread(lambda: shared.predict(x).tolist())
    wait_until(lambda: shared.guard.asked, "the prediction has not met the batch")
    assert not said
    shared.retrieve.go.set()
    thread.join()
    asking.join()
    assert said == [answers[2]]
    for step in (3, 4, 5):
        shared.retrieve = Held(plain)
        thread, _ = in_thread(lambda step=step: shared.observe(*stream[step]))
        assert shared.retrieve.reached.wait(120)
        assert shared.predict(x).tolist() == answers[step - 1]
        shared.retrieve.go.set()
        thread.join()
    assert shared.predict(x).tolist() == answers[5]
    assert flat(shared.state_dict()) == flat(alone.state_dict())


def test_a_state_is_a_copy_and_waits_for_the_batch() -> None:
    shared = learner()
    shared.observe(*batch(5, 0))
    before = shared.state_dict()
    kept = copy.deepcopy(before)
    shared.retrieve = Held(shared.retrieve)
    thread, _ = in_thread(lambda: shared.observe(*batch(5, 1)))
    assert shared.retrieve.reached.wait(120)
    asking, said = in_thread(shared.state_dict)
    asking.join(0.2)
    assert not said
    shared.retrieve.go.set()
    thread.join()
    asking.join()
    assert flat(said[0]) == flat(shared.state_dict()) != flat(kept)
    assert flat(before) == flat(kept)


def test_a_plugins_own_methods_are_guarded() -> None:
    """What a subclass defines is ordered as well, and its own predict waits."""

    class Own(MemoryLearner):
        def observe(self, x: Any, y: Any) -> torch.Tensor:
            arrival = take_in(self, x, y)
            reached.set()
            assert go.wait(120)
            self.write(arrival, arrival.batch)
            return torch.zeros(())

        def predict(self, x: Any) -> Any:
            return super().predict(x)

    reached, go = threading.Event(), threading.Event()
    made = learner()
    own = Own(made.model, made.memory, made.update, made.rng, lr=0.1)
    thread, _ = in_thread(lambda: own.observe(*batch(5, 0)))
    assert reached.wait(120)
    asking, said = in_thread(lambda: own.predict(images(2, 1)))
    second, done = in_thread(lambda: own.observe(*batch(5, 1)))
    second.join(0.2)
    assert not said and not done and own.ages.steps == 1
    go.set()
    for one in (thread, asking, second):
        one.join()
    assert len(said[0]) == 2 and own.ages.steps == 2


def test_a_learner_can_be_copied() -> None:
    first = learner()
    first.observe(*batch(5, 0))
    second = copy.deepcopy(first)
    for one in (first, second):
        one.observe(*batch(5, 1))
    assert flat(first.state_dict()) == flat(second.state_dict())
    assert first.guard.lock is not second.guard.lock


def test_weights_that_are_changed_by_hand_count() -> None:
    one = learner()
    one.observe(*batch(8, 0))
    x = images(6, 5)
    one.predict(x)
    with torch.no_grad():
        one.model.weight.zero_()
        one.model.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 0.0])[: len(one.model.bias)])
    assert set(one.predict(x).tolist()) == {one.model.labels[2]}


LOOPS: list[tuple[str, dict[str, Any]]] = [
    ("er", {}),
    ("er", {"iterations": 3}),
    ("er", {"readout": "ncm", "review": 0.5}),
    ("mir", {}),
    ("gss", {}),
    ("aser", {"bn": "ref"}),
    ("der++", {}),
    ("scr", {}),
    ("scr", {"iterations": 2}),
    ("dvc", {}),
    ("dvc", {"iterations": 2}),
    ("agem", {"acts": "always"}),
    ("gdumb", {}),
]


@pytest.mark.parametrize(("name", "settings"), LOOPS)
@pytest.mark.slow
def test_a_batch_that_diverges_is_taken_back(name: str, settings: dict[str, Any]) -> None:
    one, twin = learner(name, **settings), learner(name, **settings)
    for seed in range(3):
        for each in (one, twin):
            each.observe(*batch(5, seed))
    before, hits = flat(one.state_dict()), int(one.hits)
    one.predict(images(3, 1))
    x, _ = batch(5, 7)
    lr = one.lr
    one.lr = 1e35
    with pytest.raises(TrainingError, match=r"at step \d+ .*smaller learning rate") as said:
        for _ in range(3):  # gdumb learns in pauses, and one step of others may still be finite
            if name != "gdumb":
                before, hits = flat(one.state_dict()), int(one.hits)
                one.observe(x, [20, 21, 0, 1, 22])
            else:
                one.consolidate()
    assert "\n" not in str(said.value)
    assert flat(one.state_dict()) == before and int(one.hits) == hits
    if one.iterations > 1 or name == "gdumb":
        one.lr = lr
        for each in (one, twin):
            each.observe(*batch(5, 8))
            each.consolidate()
        assert flat(one.state_dict()) == flat(twin.state_dict())


def test_a_step_whose_loss_alone_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    one = learner()
    one.observe(*batch(5, 0))
    before = flat(one.state_dict())
    plain = one._plain
    one.stream_loss = lambda logits, y: plain(logits, y) + torch.tensor(np.inf)
    with pytest.raises(TrainingError, match="a loss of inf"):
        one.observe(*batch(5, 1))
    assert flat(one.state_dict()) == before
    one.stream_loss = plain
    one.observe(*batch(5, 1))


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.slow
def test_a_flag_that_is_read_late(iterations: int) -> None:
    """As on CUDA: weights stay where they are from the first bad step on, and what else the batch
    and the next did is taken back when it is noticed.
    """
    late, plain = learner(iterations=iterations), learner(iterations=iterations)
    late.read_late = True
    for seed in range(4):
        for one in (late, plain):
            one.observe(*batch(5, seed))
    assert flat(late.state_dict()) == flat(plain.state_dict())
    before = flat(late.state_dict())
    lost = late.stream_loss
    late.stream_loss = lambda logits, y: lost(logits, y) * torch.tensor(np.nan)
    weights = [weight.clone() for weight in late.model.backbone.parameters()]
    late.observe(*batch(5, 30, classes=9))
    if iterations == 1:
        now = late.model.backbone.parameters()
        assert all(torch.equal(a, b) for a, b in zip(weights, now, strict=True))
    late.stream_loss = lost
    late.observe(*batch(5, 31, classes=9))
    with pytest.raises(TrainingError, match="step 5 "):
        late.observe(*batch(5, 32))
    assert flat(late.state_dict()) == before
    for seed in (40, 41):
        for one in (late, plain):
            one.observe(*batch(5, seed))
    late.stream_loss = lambda logits, y: lost(logits, y) * torch.tensor(np.nan)
    good = flat(plain.state_dict())
    late.observe(*batch(5, 42))
    with pytest.raises(TrainingError, match="step 7 "):
        late.predict(images(2, 0))
    assert flat(late.state_dict()) == good


def test_a_refused_batch_keeps_the_weights_room() -> None:
    """A head that was grown and taken back grows again to the same rows."""
    one, twin = learner(), learner()
    for each in (one, twin):
        each.observe(*batch(5, 0))
    one.lr = float("nan")
    with pytest.raises(TrainingError):
        one.observe(images(3, 1), [50, 51, 52])
    one.lr = twin.lr
    for each in (one, twin):
        each.observe(images(3, 2), [60, 61, 50])
    assert flat(one.state_dict()) == flat(twin.state_dict())


def test_only_a_few_predictions_compute_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads that predict would leave a batch beside them an eighth of Python's lock."""
    shared, x = learner(), images(2, 1)
    shared.observe(*batch(5, 0))
    inside, most, plain = [0], [0], Answers.predict

    def counted(self: Answers, given: Any, **options: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        go.wait(120)
        inside[0] -= 1
        return plain(self, given, **options)

    go = threading.Event()
    monkeypatch.setattr(Answers, "predict", counted)
    threads = [in_thread(lambda: shared.predict(x)) for _ in range(8)]
    wait_until(lambda: inside[0] == AT_ONCE, "no prediction began")
    go.set()
    for thread, ended in threads:
        thread.join(120)
        assert len(ended) == 1
    assert most[0] == AT_ONCE
