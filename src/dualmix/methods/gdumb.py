"""Greedy sampler and dumb learner (GDumb).

A. Prabhu, P. Torr and P. Dokania, 2020, "GDumb: A Simple Approach that Questions Our Progress in
Continual Learning", ECCV.

The learner is that of the reference code behind the DualMix paper's baselines, not that of GDumb's
own paper, which trains longer, with a cyclic learning rate and cutmix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dualmix.learn.common import MemoryLearner, memory_batches, take_in
from dualmix.learn.lazy import torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import eval_mode
from dualmix.learn.types import Batch, ImagesLike, LabelsLike, Learner, Placement, State, Update
from dualmix.methods.common import Descent
from dualmix.registry import register
from dualmix.rng import Rng
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier


@dataclass(frozen=True)
class Greedy:
    """Greedy sampler: keep a row while its class has fewer than capacity // classes seen; when
    full, a row of the largest class goes.

    A class with no row at all is always let in, also where there are more classes than slots. Of
    several largest classes the one seen first makes room, with any of its rows. While there is a
    slot for each class none falls below its share by making room: it has as many rows as were
    offered, or its share, whichever is less."""

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped."""
        slots = np.full(len(new), -1)
        if not memory.capacity:
            return Placement(slots)
        share = max(memory.capacity // len(model.labels), 1)
        owners = memory.y[: len(memory)].tolist()
        counts = memory.counts(len(model.labels))
        for row, column in enumerate(new.y.tolist()):
            if counts[column] >= share:
                continue
            slot = len(owners)
            if slot < memory.capacity:
                owners.append(column)
            else:
                largest = int(counts.argmax())
                slot = int(rng.choice(np.flatnonzero(np.array(owners) == largest)))
                counts[largest] -= 1
                owners[slot] = column
            slots[row] = slot
            counts[column] += 1
        return Placement(slots)


class GDumbLearner(MemoryLearner):
    """Dumb learner: nothing is learned from the stream itself, a fresh network is trained on the
    memory when the stream pauses.

    `predict` always answers from the network as it was last trained. Classes that came since then
    can be named, but their columns are untrained; before the first training all are, so that
    answers are then worth nothing.

    Parameters
    ----------
    update
        Which slots to overwrite.
    every
        Pauses of the stream from one training to the next: 1 trains in each, the number of tasks
        only after the last.
    epochs, batch
        Passes over the memory in a training, and rows per step.
    clip
        The norm to which longer gradients are cut; 0: none are.
    """

    def __init__(
        self,
        model: Classifier,
        memory: Memory,
        update: Update,
        rng: Rng,
        *,
        lr: float,
        epochs: int,
        batch: int,
        weight_decay: float = 0.0,
        clip: float = 0.0,
        every: int = 1,
    ) -> None:
        super().__init__(model, memory, update, rng, lr=lr, weight_decay=weight_decay)
        self.epochs, self.batch, self.clip, self.every = epochs, batch, clip, every
        self.pauses = 0

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Keep what the memory has room for; return the loss of the network as last trained."""
        arrival = take_in(self, x, y)
        new = arrival.batch
        with eval_mode(self.model):
            logits = self.model(new.x)
            loss = self.model.arithmetic.cross_entropy(logits, new.y)
        self.hits = (logits[:, : len(self.model.labels)].argmax(1) == new.y).sum()
        self.write(arrival, new)
        return loss

    def consolidate(self) -> None:
        """Train in each `every`-th pause."""
        super().consolidate()
        self.pauses += 1
        if self.pauses % self.every == 0:
            self.learn()

    def learn(self) -> None:
        """Train a fresh network on the memory, now; it starts from the same weights each time."""
        self.model.reset()
        self.moments = {}
        self.model.train()
        for _ in range(self.epochs):
            for old in memory_batches(self.memory, self.batch, self.rng["learn"]):
                self.model.zero_grad()
                loss = self.model.arithmetic.cross_entropy(self.model(old.x), old.y)
                loss.backward()
                if self.clip:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                self.step(loss.detach())

    def state_dict(self) -> State:
        """Return what every learner returns, and the number of pauses."""
        return {**super().state_dict(), "pauses": self.pauses}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        self.pauses = int(state["pauses"])


@register("gdumb", cite="Prabhu et al., 2020, ECCV")
class GDumb(Descent):
    """GDumb: a class-balanced memory, and a fresh network trained on it in each pause of the
    stream.

    Epochs, batch, clipping and the constant learning rate follow the reference code, not GDumb's
    own paper.
    """

    weight_decay: float = setting(1e-4, "L2 penalty on all weights", source="reference", ge=0)
    memory: int = setting(1000, "images the memory holds", ge=1)
    epochs: int = setting(
        30,
        "passes over the memory in a training (the reference code's; GDumb's own paper trains "
        "longer, with a cyclic rate and cutmix)",
        source="reference",
        ge=1,
        le=1000,
    )
    batch: int = setting(16, "images per step of a training", source="reference", ge=1)
    clip: float = setting(
        10.0, "norm to which longer gradients are cut; 0: none are", source="reference", ge=0
    )
    every: int = setting(
        1,
        "pauses from one training to the next; as many as there are tasks trains only at the end, "
        "and forgetting, which needs scores before that, then says nothing",
        ge=1,
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Greedy balance, training in pauses."""
        return GDumbLearner(
            model,
            Memory(self.memory, model.shape, model.device),
            Greedy(),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            epochs=self.epochs,
            batch=self.batch,
            clip=self.clip,
            every=self.every,
        )
