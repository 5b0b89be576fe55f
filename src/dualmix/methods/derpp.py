"""Dark experience replay, with labels (DER++).

P. Buzzega et al., 2020, "Dark Experience for General Continual Learning: a Strong, Simple
Baseline", NeurIPS, arXiv:2004.07211.

With two draws (x', z') and (x'', y'') from the memory, z' the logits of the time when x' was new,
the loss of a step is

    CE(new batch) + alpha * mean |f(x') - z'|^2 + beta * CE(f(x''), y'')."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import model_validator

from dualmix.learn.class_ages import ClassAges
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Batch, Learner, Placement, Update
from dualmix.methods.rehearsal import Rehearsal
from dualmix.registry import register
from dualmix.settings import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng


@dataclass(frozen=True)
class WithLogits:
    """Let another update choose slots, and file the logits with which each row was learned, and how
    many there were.
    """

    update: Update

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return the other update's placement with two further columns."""
        if new.logits is None:
            raise ValueError("a batch that took no part in the step has no logits to file")
        placed = self.update(memory, new, model, rng)
        known = torch.full((len(new),), new.logits.shape[1], device=new.logits.device)
        columns = {**placed.columns, "logits": new.logits, "known": known}
        return Placement(placed.slots, columns, placed.marks)


@dataclass(frozen=True)
class DarkReplay:
    """A second draw from the memory that must get the logits it got when it was new: the paper's
    term with the weight alpha.

    Parameters
    ----------
    memory
        Whose rows were placed by `WithLogits`.
    weight
        What the mean squared difference is multiplied by.
    count
        Rows to draw without replacement, or all of them while there are fewer.
    """

    memory: Memory
    weight: float
    count: int
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return rows with their earlier logits."""
        slots = Uniform(self.count)(self.memory, new, model, rng)
        index = torch.from_numpy(slots).to(model.device)
        then, known = (self.memory.columns[name][index] for name in ("logits", "known"))
        return Batch(self.memory[slots].x, then, loss=partial(logit_mse, known=known))


def logit_mse(logits: Tensor, then: Tensor, known: Tensor) -> Tensor:
    """Return the mean squared difference to earlier logits, over the columns that there were at the
    time.

    Parameters
    ----------
    logits, then
        (n, K) logits now and (n, L) logits then, with L at most K.
    known
        (n,) how many columns each row of `then` has; what lies behind them is padding.

    Examples
    --------
    >>> then = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    >>> float(logit_mse(torch.zeros(2, 3), then, torch.tensor([1, 2])))
    2.0
    """
    there = torch.arange(then.shape[1], device=then.device) < known[:, None]
    return ((logits[:, : then.shape[1]] - then).square() * there).sum() / there.sum()


@register("der++", cite="Buzzega et al., 2020, arXiv:2004.07211")
class DERpp(Rehearsal):
    """DER++: experience replay, and a second draw that must get the logits it once got."""

    alpha: float = setting(
        0.3,
        "weight of the squared difference to earlier logits, times mix.replay (0.3: mammoth's, "
        "CIFAR-100)",
        ge=0,
        tune=Range(0.05, 1.0, log=True),
    )
    beta: float = setting(
        0.5,
        "weight of the rehearsed batch, times mix.replay (0.5: mammoth's, CIFAR-100)",
        ge=0,
        tune=Range(0.1, 2.0, log=True),
    )

    @model_validator(mode="after")
    def _logits_to_file(self) -> DERpp:
        if not self.mix.stream:
            raise ValueError(
                "mix.stream is 0, but der++ files the logits with which the new batch is learned"
            )
        return self

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update that files logits, uniform retrieval, a further draw for the logits."""
        memory = self.empty_memory(model)
        dark = DarkReplay(memory, self.alpha * self.mix.replay, self.memory_batch)
        return self.replay(
            model,
            rng,
            WithLogits(self.reservoir_update()),
            Uniform(self.memory_batch),
            memory=memory,
            replay=self.beta * self.mix.replay,
            mixes={"recall": dark, **self.mix.build(model)},
        )
