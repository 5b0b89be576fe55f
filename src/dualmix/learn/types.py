"""The nouns that parts hand to each other, and the protocols of the free parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.class_ages import ClassAges
    from dualmix.learn.memory import Memory
    from dualmix.learn.network import Classifier

Slots = NDArray[np.int64]
"""Positions in the memory table."""

State = dict[str, Any]
"""Nested plain dicts, lists, numbers, strings and tensors: what a snapshot can hold."""

Labels = NDArray[np.int64] | NDArray[np.str_]
"""Raw labels as a user knows them: whole numbers or text."""

LabelsLike: TypeAlias = "Tensor | NDArray[Any] | Sequence[int] | Sequence[str]"
ImagesLike: TypeAlias = "Tensor | NDArray[Any]"

Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
"""Compares logits (n, K) with the batch's ``y``; returns the mean over its rows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Images ``x`` (n, C, H, W) in [0, 1] and labels ``y``: (n,) int64 head columns or (n, K) soft
    rows.

    Attributes
    ----------
    counters
        Counts of how the batch was made, tensors of one number that a learner adds up.
    loss
        The batch's own loss; none: the learner's.
    logits
        What the network said of a new batch when it was learned: for the memory's update.
    gradient, weight
        A new batch's loss is learned times `weight`. `gradient` is the gradient of that product, a
        tensor per parameter, if its backward pass came before retrieval; the next pass overwrites
        it.
    """

    x: Tensor
    y: Tensor
    counters: Mapping[str, Tensor] = field(default_factory=dict)
    loss: Loss | None = None
    logits: Tensor | None = None
    gradient: Sequence[Tensor] | None = None
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True)
class Placement:
    """What an update decides.

    Attributes
    ----------
    slots
        One slot for each incoming row; -1 drops the row.
    columns
        Further columns of the memory's table (a score, logits), one value for each incoming row.
    marks
        What the update must remember about the whole stream; the memory keeps the latest.
    """

    slots: Slots
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    marks: Mapping[str, Tensor] = field(default_factory=dict)


class Update(Protocol):
    """Decides which slots the rows of a new batch overwrite; `Memory` does the writing."""

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row of `new`."""
        ...


class Retrieve(Protocol):
    """Decides which slots to rehearse beside a new batch."""

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return filled slots."""
        ...


class Transform(Protocol):
    """Augments images in [0, 1] with chance from a generator."""

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Return images of the same shape."""
        ...


class Mix(Protocol):
    """Makes an extra batch to learn from out of the new and the rehearsed one."""

    @property
    def weight(self) -> float:
        """What the mean loss of the extra batch is multiplied by."""
        ...

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return the extra batch, or nothing in a step that has none."""
        ...


def is_blind(rule: Retrieve | Mix) -> bool:
    """Whether a rule says, by ``blind = True``, that it neither runs the network nor reads its
    gradient or batch-norm's statistics.

    Then it may be asked before the passes over the batches that came before it, so that they can be
    made together. A rule that says nothing finds all of them made."""
    return bool(getattr(rule, "blind", False))


@runtime_checkable
class Learner(Protocol):
    """What learns from a stream: it sees each batch once and can be asked at any moment.

    Threads may share it: `observe`, `consolidate`, `state_dict` and `load_state_dict` wait for each
    other, and `predict` goes on while a batch is learned, from the state before that batch. After a
    fork a learner hangs in torch where the parent has used two torch threads (torch's own limit).

    Attributes
    ----------
    hits
        How many images of the last batch were recognised before the step that learned them, a
        tensor of one number.
    recipe
        What the learner was made from; `dualmix.build` sets it.
    """

    hits: Tensor
    recipe: State

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch; return its loss as a tensor with one number (read it only when it
        is shown).

        Raises
        ------
        InputError
            The batch cannot be used; the learner is as it was.
        TrainingError
            The loss or its gradient is not finite; the learner is as it was before the batch.
        """
        ...

    def predict(self, x: ImagesLike) -> Labels:
        """Return a raw label for each image; never changes the learner."""
        ...

    def consolidate(self) -> None:
        """Use a pause in the stream."""
        ...

    def state_dict(self) -> State:
        """Return everything that the next `observe` depends on."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        ...
