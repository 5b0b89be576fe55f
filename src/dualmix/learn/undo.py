"""What a learner was before a batch, so that a batch that goes wrong can be taken back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from dualmix.learn.lazy import torch

if TYPE_CHECKING:
    from dualmix.learn.common import MemoryLearner

APART = "guard"
"""The attribute of a learner that no batch changes."""


class Undo:
    """The state of a learner at one moment.

    It is cheap, since it is made for every batch: labels, ages and chance are small; of the network
    it copies batch-norm's statistics; the memory notes what `write` overwrites from here on. Of a
    learner's further attributes it keeps the values, and of records and lists a copy.

    Parameters
    ----------
    weights
        Copy the weights too: for whatever takes more than one step.
    """

    def __init__(self, learner: MemoryLearner, *, weights: bool) -> None:
        self.learner, model = learner, learner.model
        self.attributes: dict[str, Any] = {
            name: copy.copy(value) if isinstance(value, dict | list) else value
            for name, value in vars(learner).items()
            if name != APART
        }
        self.names = {*self.attributes, APART}
        self.fresh: set[str] | None = None
        self.labels = len(model.labels)
        self.ages = dict(vars(learner.ages))
        self.average = learner.average.tensors if learner.average else {}
        self.chance = learner.rng.state_dict()
        modules = {module for root in {model, learner.network} for module in root.modules()}
        self.parameters = [
            (module._parameters, dict(module._parameters))
            for module in modules
            if module._parameters
        ]
        self.buffers = [
            (buffer, buffer.clone())
            for module in modules
            for buffer in module._buffers.values()
            if buffer is not None
        ]
        self.weights = [
            (weight, weight.detach().clone())
            for _, owned in self.parameters
            for weight in owned.values()
            if weights and weight is not None
        ]
        self.rows = learner.memory.journal = []

    def seal(self) -> None:
        """Take note that the batch is over: what is set by hand from now on is not taken back."""
        now = vars(self.learner)
        self.attributes = {
            name: value
            for name, value in self.attributes.items()
            if isinstance(value, dict | list) or now.get(name) is not value
        }
        self.fresh = now.keys() - self.names

    def back(self) -> None:
        """Make the learner what it was."""
        learner, model = self.learner, self.learner.model
        fresh = vars(learner).keys() - self.names if self.fresh is None else self.fresh
        for name in fresh & vars(learner).keys():
            delattr(learner, name)
        vars(learner).update(self.attributes)
        for label in model.labels[self.labels :]:
            del model._columns[label]
        del model.labels[self.labels :]
        vars(learner.ages).update(self.ages)
        if learner.average:
            learner.average.tensors = self.average
        learner.rng.load_state_dict(self.chance)
        for now, before in self.parameters:
            for name in {*now, *before}:  # one by one: predictions look into them
                if name not in before:
                    del now[name]
                elif now.get(name) is not before[name]:
                    now[name] = before[name]
        with torch.no_grad():
            for tensor, kept in (*self.buffers, *self.weights):
                tensor.copy_(kept)
        learner.memory.put_back(self.rows)
