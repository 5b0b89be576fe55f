"""DVC: two views of every image that must agree, and rehearsal of what the step would disturb most."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix.learn.class_ages import Sightings
from dualmix.learn.heads import JointHead
from dualmix.learn.learners.parts import answer, descend, load_parts, parts_state, receive
from dualmix.learn.losses import concentration, disagreement
from dualmix.learn.memory import Memory
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


class DVC:
    """Dual view consistency: for the new and the rehearsed batch cross-entropy of both views,
    entropy, agreement.

    Parameters
    ----------
    update, retrieve
        Which slots to overwrite after a step, and which to rehearse in it; retrieval may use the
        new batch's gradient.
    augment
        Makes the second view of an image; the first is the image as it came.
    joint
        A head over the logits of both views; it takes no part in answers.
    entropy, consistency
        Weights of the negative entropy of the batch's mean prediction, and of the difference
        between the joint head's probabilities and those of either view.
    iterations
        Steps a stream batch, each with a newly retrieved old batch; the new batch's view is drawn
        once.
    """

    recipe: State

    def __init__(
        self,
        model: Classifier,
        memory: Memory,
        update: Update,
        retrieve: Retrieve,
        augment: Transform,
        joint: JointHead,
        rng: Rng,
        *,
        lr: float,
        consistency: float,
        entropy: float = 1.0,
        weight_decay: float = 0.0,
        iterations: int = 1,
    ) -> None:
        self.model, self.memory, self.update, self.retrieve, self.rng = (
            model,
            memory,
            update,
            retrieve,
            rng,
        )
        self.augment, self.joint, self.entropy, self.consistency = (
            augment,
            joint,
            entropy,
            consistency,
        )
        self.lr, self.weight_decay, self.iterations = lr, weight_decay, iterations
        self.network = nn.ModuleList([model, joint])
        self.seen = Sightings()
        self.hits = torch.zeros((), dtype=torch.int64)
        joint.grow(len(model.weight))

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch and its view, and from a rehearsed one and its view; return the sum
        of both losses.
        """
        raw, columns, new = receive(self, x, y)
        self.joint.grow(len(self.model.weight))
        self.network.train()
        view = self.augment(new.x, self.rng["stream"])
        for iteration in range(self.iterations):
            self.network.zero_grad()
            loss, hits = self._slope(new, view)
            if iteration == 0:
                self.hits = hits
            if len(self.memory):
                old = self.memory[self.retrieve(self.memory, new, self.model, self.rng["retrieve"])]
                loss = loss + self._slope(old, self.augment(old.x, self.rng["augment"]))[0]
            descend(self.network.parameters(), self.lr, self.weight_decay)
        self.memory.write(
            self.update(self.memory, new, self.model, self.rng["update"]), raw, columns
        )
        return loss

    def _slope(self, batch: Batch, view: Tensor) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch's loss to the network, in one pass over both views; return
        loss and hits.
        """
        logits = self.model(torch.cat([batch.x, view]))
        one, two = logits.split(len(batch))
        first, second, joint = one.softmax(1), two.softmax(1), self.joint(one, two).softmax(1)
        loss = (
            F.cross_entropy(logits, batch.y.repeat(2))
            + self.entropy * concentration(first, second, joint)
            + self.consistency * disagreement(joint, first, second)
        )
        loss.backward()
        return loss.detach(), (one.argmax(1) == batch.y).sum()

    def predict(self, x: ImagesLike) -> Labels:
        """Return the most likely label among those seen so far, by the classifier's head on the
        image as it is.
        """
        return answer(self.model, x, self.model)

    def consolidate(self) -> None:
        """Take note of a pause."""
        self.seen.pause()

    def state_dict(self) -> State:
        """Return weights, labels, memory, the classes' ages, the joint head and the state of
        chance.
        """
        return {**parts_state(self), "joint": dict(self.joint.state_dict())}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        load_parts(self, state)
        self.joint.restore(state["joint"])
