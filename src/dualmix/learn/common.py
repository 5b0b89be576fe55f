"""What the training loops share: taking a batch in, a step of plain SGD, initial weights, passes
over the memory, answers, and a base class with the parts and the state of a learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dualmix.errors import InputError
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.inputs import as_labels, as_pixels
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import CHUNK, fused_bn
from dualmix.learn.types import Batch, ImagesLike, Labels, LabelsLike, State, Update
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
    raw = as_pixels(x, parts.model.shape)
    columns = parts.model.admit(as_labels(y, len(raw)))
    parts.ages.note(columns.numpy())
    return Arrival(raw, columns, Batch(parts.model.pixels(raw), columns.to(parts.model.device)))


def sgd_step(parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
    """Take a step of plain SGD: by hand, because it is two lines and torch.optim takes seconds to
    load.
    """
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                gradient = (
                    parameter.grad.add(parameter, alpha=weight_decay)
                    if weight_decay
                    else parameter.grad
                )
                parameter.add_(gradient, alpha=-lr)


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


def predict_labels(model: Classifier, x: ImagesLike, score: Callable[[Tensor], Tensor]) -> Labels:
    """Return for each image the label with the highest score among those seen so far; nothing
    changes.
    """
    if not model.labels:
        raise InputError("Nothing has been learned yet: observe a batch before predict.")
    raw = as_pixels(x, model.shape)
    seen = len(model.labels)
    with fused_bn(model):
        columns = [score(model.pixels(part))[:, :seen].argmax(1) for part in raw.split(CHUNK)]
    return model.names(torch.cat(columns))


class MemoryLearner:
    """The parts and the state of a learner with a memory; a method adds `observe`.

    Parameters
    ----------
    update
        Which slots of the memory the rows of a new batch overwrite.
    lr, weight_decay
        Of plain SGD.

    Attributes
    ----------
    network
        All that is trained.
    """

    recipe: State

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
        self.ages = ClassAges()
        self.hits = torch.zeros((), dtype=torch.int64)

    def step(self) -> None:
        """Take a step along the gradient that backward passes left in the network."""
        sgd_step(self.network.parameters(), self.lr, self.weight_decay)

    def write(self, arrival: Arrival, new: Batch) -> None:
        """Keep of a new batch what the update chooses."""
        placement = self.update(self.memory, new, self.model, self.rng["update"])
        self.memory.write(placement, arrival.raw, arrival.y)

    def review(self, loss: Callable[[Batch], Tensor], size: int, share: float) -> None:
        """Take a step for each batch of one pass over the memory, its gradient times `share`.

        The review trick: Mai et al., 2022, arXiv:2101.10423."""
        self.network.train()
        for old in memory_batches(self.memory, size, self.rng["review"]):
            self.network.zero_grad()
            (share * loss(old)).backward()
            self.step()

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far, by the head."""
        return predict_labels(self.model, x, self.model)

    def consolidate(self) -> None:
        """Take note of a pause: classes known by now are old from here on."""
        self.ages.pause()

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages and the state of chance."""
        return {
            "labels": list(self.model.labels),
            "model": dict(self.model.state_dict()),
            "memory": self.memory.state_dict(),
            "seen": self.ages.state_dict(),
            "rng": self.rng.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.model.restore(state["labels"], state["model"])
        self.memory.load_state_dict(state["memory"])
        self.ages.load_state_dict(state["seen"])
        self.rng.load_state_dict(state["rng"])
