"""GDumb: keep a balanced memory, and train a fresh network on it when the stream pauses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix.learn.class_ages import Sightings
from dualmix.learn.learners.parts import answer, descend, load_parts, parts_state, receive
from dualmix.learn.learners.review import shuffled
from dualmix.learn.memory import Memory
from dualmix.learn.network import Classifier, glance
from dualmix.learn.types import ImagesLike, Labels, LabelsLike, State, Update
from dualmix.rng import Rng


class GDumb:
    """Greedy sampler and dumb learner: nothing is learned from the stream itself.

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
        Passes over the memory in a training, and rows a step.
    clip
        The norm to which longer gradients are cut; 0: none are.
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
        epochs: int,
        batch: int,
        weight_decay: float = 0.0,
        clip: float = 0.0,
        every: int = 1,
    ) -> None:
        self.model, self.memory, self.update, self.rng = model, memory, update, rng
        self.lr, self.weight_decay, self.clip = lr, weight_decay, clip
        self.epochs, self.batch, self.every = epochs, batch, every
        self.seen = Sightings()
        self.pauses = 0
        self.hits = torch.zeros((), dtype=torch.int64)

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Keep what the memory has room for; return the loss of the network as it was last trained."""
        raw, columns, new = receive(self, x, y)
        with glance(self.model):
            logits = self.model(new.x)
            loss = F.cross_entropy(logits, new.y)
        self.hits = (logits[:, : len(self.model.labels)].argmax(1) == new.y).sum()
        self.memory.write(
            self.update(self.memory, new, self.model, self.rng["update"]), raw, columns
        )
        return loss

    def learn(self) -> None:
        """Train a fresh network on the memory, now; it starts from the same weights each time."""
        self.model.reset()
        self.model.train()
        for _ in range(self.epochs):
            for old in shuffled(self.memory, self.batch, self.rng["learn"]):
                self.model.zero_grad()
                F.cross_entropy(self.model(old.x), old.y).backward()
                if self.clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                descend(self.model.parameters(), self.lr, self.weight_decay)

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far, to the network as it was last
        trained.
        """
        return answer(self.model, x, self.model)

    def consolidate(self) -> None:
        """Train in each `every`-th pause."""
        self.seen.pause()
        self.pauses += 1
        if self.pauses % self.every == 0:
            self.learn()

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the number of pauses and the state of
        chance.
        """
        return {**parts_state(self), "pauses": self.pauses}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        load_parts(self, state)
        self.pauses = int(state["pauses"])
