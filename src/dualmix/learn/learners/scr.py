"""SCR: features learned by supervised contrast, classes read out as means of what the memory holds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix.learn.class_ages import Sightings
from dualmix.learn.heads import Projector
from dualmix.learn.learners.parts import answer, descend, load_parts, parts_state, receive
from dualmix.learn.learners.review import review
from dualmix.learn.losses import contrast
from dualmix.learn.memory import Memory
from dualmix.learn.nearest_mean import class_means, feature_sums, nearest
from dualmix.learn.network import Classifier
from dualmix.learn.types import (
    Batch,
    ImagesLike,
    Labels,
    LabelsLike,
    Retrieve,
    State,
    Transform,
    Update,
)
from dualmix.rng import Rng


class SCR:
    """Supervised contrastive replay: two views of the rehearsed and the new batch; no head is
    trained.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it.
    augment
        Makes the second view of an image; the first is the image as it came.
    projector
        Maps features to the sphere on which views are compared; it takes no part in answers.
    temperature
        What similarities are divided by.
    review, memory_batch
        In a pause: one pass over the memory in batches of `memory_batch` rows, gradients times
        `review` (0: none).
    iterations
        Steps a stream batch, each with a newly retrieved old batch.

    Notes
    -----
    `hits` are counted with the means of the rows rehearsed in the step, the only ones at hand
    without a pass over the memory: fewer than `predict` would score."""

    recipe: State

    def __init__(
        self,
        model: Classifier,
        memory: Memory,
        update: Update,
        retrieve: Retrieve,
        augment: Transform,
        projector: Projector,
        rng: Rng,
        *,
        lr: float,
        temperature: float,
        memory_batch: int,
        weight_decay: float = 0.0,
        review: float = 0.0,
        iterations: int = 1,
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = (
            model,
            memory,
            update,
            retrieve,
            rng,
        )
        self.augment, self.projector, self.temperature, self.memory_batch = (
            augment,
            projector,
            temperature,
            memory_batch,
        )
        self.lr, self.weight_decay, self.review, self.iterations = (
            lr,
            weight_decay,
            review,
            iterations,
        )
        self.network = nn.ModuleList([model.backbone, projector])
        self.seen = Sightings()
        self.means: Tensor | None = None
        self.hits = torch.zeros((), dtype=torch.int64)

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Contrast the new batch with a rehearsed one; the first batch has none and is only kept."""
        raw, columns, new = receive(self, x, y)
        self.means = None
        self.network.train()
        loss, self.hits = torch.zeros((), device=new.x.device), torch.zeros_like(self.hits)
        for iteration in range(self.iterations if len(self.memory) else 0):
            old = self.memory[self.retrieve(self.memory, new, self.model, self.rng["retrieve"])]
            both = Batch(torch.cat([old.x, new.x]), torch.cat([old.y, new.y]))
            self.network.zero_grad()
            loss, features = self._contrast(both)
            loss.backward()
            descend(self.network.parameters(), self.lr, self.weight_decay)
            if iteration == 0:
                self.hits = _recognised(features.detach(), both.y, len(old), len(self.model.labels))
        self.memory.write(
            self.update(self.memory, new, self.model, self.rng["update"]), raw, columns
        )
        return loss.detach()

    def _contrast(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss over both views of a batch, a forward pass each, and the features of the
        first.
        """
        first = self.model.embed(batch.x)
        second = self.model.embed(self.augment(batch.x, self.rng["augment"]))
        views = torch.stack([self.projector(first), self.projector(second)], 1)
        return contrast(views, batch.y, self.temperature), first

    def predict(self, x: ImagesLike) -> Labels:
        """Return the class with the nearest mean; the means are taken once for all calls between
        two steps.
        """
        if self.means is None:
            self.means = class_means(self.model, self.memory)
        return answer(self.model, x, nearest(self.model, self.means))

    def consolidate(self) -> None:
        """Take note of a pause, and review the memory if asked to."""
        self.seen.pause()
        if self.review:
            self.means = None
            review(
                self,
                self.network,
                lambda old: self._contrast(old)[0],
                self.memory_batch,
                self.review,
            )

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the projector and the state of chance."""
        return {**parts_state(self), "projector": dict(self.projector.state_dict())}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        load_parts(self, state)
        self.projector.load_state_dict(state["projector"])
        self.means = None


def _recognised(features: Tensor, y: Tensor, old: int, classes: int) -> Tensor:
    """Count the rows behind the first `old` that are nearest to their class's mean over the first
    `old`.
    """
    means = F.normalize(feature_sums(features[:old], y[:old], classes), dim=1)
    return ((features[old:] @ means.T).argmax(1) == y[old:]).sum()
