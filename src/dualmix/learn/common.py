"""What the training loops share: taking a batch in, initial weights, passes over the memory,
answers, and a base class with the parts and the state of a learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import ConfigError
from dualmix.learn.answers import Answers
from dualmix.learn.averaging import WeightAverage
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.guard import GUARDED, Guard, pausing, reading, replacing
from dualmix.learn.inputs import as_labels, as_rows
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import replica
from dualmix.learn.optimisers import Optimiser
from dualmix.learn.types import Batch, ImagesLike, Labels, LabelsLike, Learner, State, Update
from dualmix.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dualmix.learn.network import Classifier


@runtime_checkable
class Parts(Protocol):
    """A learner that has a network, a memory, the ages of its classes and chance."""

    model: Classifier
    memory: Memory
    ages: ClassAges
    rng: Rng


class Arrival(NamedTuple):
    """A batch that was taken in: uint8 rows and head columns as the memory stores them, and both
    for the network.
    """

    raw: Tensor
    y: Tensor
    batch: Batch


def take_in(parts: Parts, x: ImagesLike, y: LabelsLike) -> Arrival:
    """Check a batch, give new labels a column and note the classes' ages; a batch that is refused
    changes nothing.
    """
    raw = as_rows(x, parts.model.shape)
    parts.memory.check(raw)
    columns = parts.model.admit(as_labels(y, len(raw)))
    parts.ages.note(columns.numpy())
    return Arrival(raw, columns, Batch(parts.model.pixels(raw), columns.to(parts.model.device)))


def gradient_of(model: nn.Module) -> list[Tensor]:
    """Return the gradient that backward passes left in a network, a tensor per parameter; nothing
    before the first pass.
    """
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


def uniform_weights(rng: np.random.Generator, bound: float, *shape: int) -> Tensor:
    """Draw initial weights within a bound: torch's own come from its global generator."""
    return torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))


def memory_batches(memory: Memory, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield one pass over the memory in batches of `size` rows, no row twice; what is left over is
    dropped unless it is all there is.
    """
    order = rng.permutation(len(memory))
    whole = len(order) // size * size
    for start in range(0, whole or len(order), size):
        yield memory[order[start : start + size]]


class MemoryLearner:
    """The parts and the state of a learner with a memory; a method adds `observe`.

    Threads may share a learner: calls that change it come one after the other, `state_dict` returns
    copies, and `predict` goes on while a batch is learned, from the weights before that batch. What
    a subclass defines is guarded alike; a `predict` of its own waits for the batch, so rather
    define `scorer`. A process that forks must not have used two torch threads (torch's own limit:
    the child hangs).

    A step whose loss or gradient is not finite raises `TrainingError` before it is taken, and the
    learner is as it was before the batch. Elsewhere than on the CPU nothing is read back in the
    step: the device itself leaves weights alone from the first such step on, and the host, which
    looks at a step while the next but one begins, raises then or at the next call that needs the
    state, and goes back to before that batch.

    Parameters
    ----------
    update
        Which slots of the memory the rows of a new batch overwrite.
    lr, weight_decay
        Of each step.

    Attributes
    ----------
    optimiser, moments
        What takes the steps and what earlier ones left to it; none: plain SGD, which keeps nothing.
    network
        All that is trained.
    iterations
        Steps per batch; above 1 the weights are copied before each, to be taken back.
    average
        A moving average of the weights, which follows every step and answers; none: the weights
        answer.
    """

    recipe: State
    iterations: int = 1
    average: WeightAverage | None = None

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name in GUARDED.keys() & vars(cls).keys():
            setattr(cls, name, GUARDED[name](vars(cls)[name]))

    def __init__(
        self,
        model: Classifier,
        memory: Memory,
        update: Update,
        rng: Rng,
        *,
        lr: float,
        weight_decay: float = 0.0,
    ) -> None:
        self.model, self.memory, self.update, self.rng = model, memory, update, rng
        self.network: nn.Module = model
        self.lr, self.weight_decay = lr, weight_decay
        self.optimiser: Optimiser | None = None
        self.moments: dict[str, Tensor] = {}
        self.ages = ClassAges()
        self.hits = torch.zeros((), dtype=torch.int64)
        self.guard = Guard()
        self.read_late = model.device.type != "cpu"

    def step(self, loss: Tensor | None = None) -> None:
        """Take a step along the gradient that backward passes left in the network, unless it or the
        loss is not finite.
        """
        if self.average is not None:
            self.average.grow(self.model)
        parameters = self.network.parameters()

        def sound(length: Tensor) -> Tensor | None:
            return self.guard.sound(self, loss, length)

        if self.optimiser is None:
            self.model.arithmetic.descend(parameters, self.lr, self.weight_decay, sound)
        else:
            self.optimiser.step(parameters, self.moments, self.lr, self.weight_decay, sound)
        if self.average is not None:
            self.average.follow(self.model)

    def write(self, arrival: Arrival, new: Batch) -> None:
        """Keep of a new batch what the update chooses."""
        placement = self.update(self.memory, new, self.model, self.rng["update"])
        self.memory.write(placement, arrival.raw, arrival.y)

    def review(self, loss: Callable[[Batch], Tensor], size: int, share: float) -> None:
        """Take a step for each batch of one pass over the memory, its gradient times `share`.

        The review trick: Mai et al., 2022, arXiv:2101.10423."""
        self.model.train()
        for old in memory_batches(self.memory, size, self.rng["review"]):
            self.network.zero_grad()
            lost = share * loss(old)
            lost.backward()
            self.step(lost.detach())

    def scorer(self, network: Classifier) -> Callable[[Tensor], Tensor]:
        """Return what scores the classes for images in [0, 1]: the head.

        Parameters
        ----------
        network
            A copy of the network as it is now; what is returned must share nothing else with the
            learner.
        """
        return network

    def answers(self) -> Answers:
        """Return what the learner predicts from, as a copy."""
        network = self._replica()
        return Answers(network, self.scorer(network), self.ages.steps)

    def _replica(self) -> Classifier:
        if self.average is None:
            return replica(self.model)
        with self.average.inside(self.model, self.average.answers):
            return replica(self.model)

    def predict(
        self, x: ImagesLike, *, at_least: float = 0.0, unknown: int | str | None = None
    ) -> Labels:
        """Return the most likely label among those seen so far; nothing changes.

        Parameters
        ----------
        at_least
            The probability below which the answer is `unknown`; 0: there is always a label.
        unknown
            The answer where no class is likely enough; none: -1, or "unknown" where labels are
            text.
        """
        with self.guard.answering(self) as now:
            return now.predict(x, at_least=at_least, unknown=unknown)

    def scores(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return a score per row and class (logits of a head), classes in the order of
        `classes_`; nothing changes.
        """
        with self.guard.answering(self) as now:
            return now.scores(x)

    def predict_proba(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return a probability per row and class, classes in the order of `classes_`: the softmax
        of `scores`; nothing changes.
        """
        with self.guard.answering(self) as now:
            return now.predict_proba(x)

    def top_k(self, x: ImagesLike, k: int = 5) -> tuple[Labels, NDArray[np.float32]]:
        """Return the `k` most likely labels per row, the likeliest first, and their probabilities;
        nothing changes.
        """
        with self.guard.answering(self) as now:
            return now.top_k(x, k)

    def embed(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return the network's features of each row; nothing changes."""
        with self.guard.answering(self) as now:
            return now.embed(x)

    @property
    def classes_(self) -> Labels:
        """The labels seen so far, in the order in which they came."""
        labels: Labels = np.asarray(self.model.labels)
        return labels

    def __repr__(self) -> str:
        made = getattr(self, "recipe", None)
        name = made["kind"] if made else type(self).__name__
        known, rows = len(self.model.labels), len(self.memory)
        return (
            f"<{name} for {'x'.join(map(str, self.model.shape))}: {known} classes after "
            f"{self.ages.steps} batches, memory {rows} of {self.memory.capacity}>"
        )

    @pausing
    def consolidate(self) -> None:
        """Take note of a pause: classes known by now are old from here on."""
        self.ages.pause()

    @reading
    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the state of chance and the
        optimiser's moments.
        """
        moments = {} if self.optimiser is None else {"moments": dict(self.moments)}
        averaged = {} if self.average is None else {"average": dict(self.average.tensors)}
        return {
            **moments,
            "labels": list(self.model.labels),
            "model": dict(self.model.state_dict()),
            "memory": self.memory.state_dict(),
            "seen": self.ages.state_dict(),
            "rng": self.rng.state_dict(),
            **averaged,
        }

    @replacing
    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.model.restore(state["labels"], state["model"])
        self.memory.load_state_dict(state["memory"])
        self.ages.load_state_dict(state["seen"])
        self.rng.load_state_dict(state["rng"])
        moments = state.get("moments", {})
        self.moments = {name: moment.to(self.model.device) for name, moment in moments.items()}
        if self.average is not None:
            self.average.load(state["average"], self.model)


def with_answers(learner: Learner) -> MemoryLearner:
    """Return a learner that has probabilities, as every one has that derives from `MemoryLearner`.

    Raises
    ------
    ConfigError
        It is one of its maker's own, which answers labels only.
    """
    if not isinstance(learner, MemoryLearner):
        raise ConfigError(
            f"{type(learner).__name__} answers labels only, and probabilities are needed: derive "
            "it from dualmix.learn.common.MemoryLearner."
        )
    return learner
