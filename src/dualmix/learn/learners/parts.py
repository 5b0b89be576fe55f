"""What the loops share: taking a batch in, a step of plain SGD, answers in chunks, and the state of
the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dualmix.errors import InputError
from dualmix.learn.class_ages import Sightings
from dualmix.learn.inputs import as_labels, as_pixels
from dualmix.learn.memory import Memory
from dualmix.learn.network import CHUNK, Classifier, folded
from dualmix.learn.types import Batch, ImagesLike, Labels, LabelsLike, State
from dualmix.rng import Rng


@runtime_checkable
class Parts(Protocol):
    """A learner's network, memory, record of sightings and chance."""

    model: Classifier
    memory: Memory
    seen: Sightings
    rng: Rng


class Arrival(NamedTuple):
    """A batch that was taken in: uint8 rows and head columns as the memory stores them, and both
    for the network.
    """

    raw: Tensor
    columns: Tensor
    batch: Batch


def receive(parts: Parts, x: ImagesLike, y: LabelsLike) -> Arrival:
    """Check a batch, give new labels a column and note the sighting; a batch that is refused
    changes nothing.
    """
    raw = as_pixels(x, parts.model.shape)
    columns = parts.model.admit(as_labels(y, len(raw)))
    parts.seen.note(columns.numpy())
    return Arrival(raw, columns, Batch(parts.model.pixels(raw), columns.to(parts.model.device)))


@torch.no_grad()
def descend(parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
    """Take a step of plain SGD: by hand, because it is two lines and torch.optim takes seconds to
    load.
    """
    for parameter in parameters:
        if parameter.grad is not None:
            slope = (
                parameter.grad.add(parameter, alpha=weight_decay)
                if weight_decay
                else parameter.grad
            )
            parameter.add_(slope, alpha=-lr)


def answer(model: Classifier, x: ImagesLike, score: Callable[[Tensor], Tensor]) -> Labels:
    """Return for each image the label with the highest score among those seen so far; nothing
    changes.
    """
    if not model.labels:
        raise InputError("Nothing has been learned yet: observe a batch before predict.")
    raw = as_pixels(x, model.shape)
    seen = len(model.labels)
    with folded(model):
        columns = [score(model.pixels(part))[:, :seen].argmax(1) for part in raw.split(CHUNK)]
    return model.names(torch.cat(columns))


def parts_state(parts: Parts) -> State:
    """Return weights, labels, memory, the classes' ages and the state of chance."""
    return {
        "labels": list(parts.model.labels),
        "model": dict(parts.model.state_dict()),
        "memory": parts.memory.state_dict(),
        "seen": parts.seen.state_dict(),
        "rng": parts.rng.state_dict(),
    }


def load_parts(parts: Parts, state: State) -> None:
    """Take over what `parts_state` returned."""
    parts.model.restore(state["labels"], state["model"])
    parts.memory.load_state_dict(state["memory"])
    parts.seen.load_state_dict(state["seen"])
    parts.rng.load_state_dict(state["rng"])
