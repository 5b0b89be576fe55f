"""A moving average of a network's weights, to be asked in the network's place.

Mean teacher: Tarvainen and Valpola, 2017, "Mean teachers are better role models: Weight-averaged
consistency targets improve semi-supervised deep learning results", NeurIPS, arXiv:1703.01780."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualmix.learn.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier


class WeightAverage:
    """The average of all weights, which starts as the network, with running statistics of its own.

    Batch-norm's statistics of averaged weights are no average of statistics, so they come from
    passes in the average's place (`inside` with `keep`).

    Parameters
    ----------
    rate
        What each step moves it by: average = (1 - rate) * average + rate * weights.
    answers
        The share of the average in the weights that answer; the rest is the network's own.

    Attributes
    ----------
    tensors
        The average by the names of a network's state. No tensor is ever changed: each step makes
        new ones, so that those of an earlier moment can be kept and put back.
    """

    def __init__(self, model: Classifier, rate: float, answers: float = 1.0) -> None:
        self.rate, self.answers = rate, answers
        self.tensors = {name: tensor.clone() for name, tensor in _averaged(model).items()}

    def load(self, tensors: Mapping[str, Tensor], model: Classifier) -> None:
        """Continue with an average that was kept."""
        self.tensors = {
            name: torch.empty_like(own).copy_(tensors[name])  # in the network's memory format
            for name, own in _averaged(model).items()
        }

    def grow(self, model: Classifier) -> None:
        """Take over the head's rows of classes that came since the last step."""
        for name, now in _averaged(model).items():
            if len(self.tensors[name]) < len(now):
                fresh = now[len(self.tensors[name]) :].clone()
                longer = torch.cat([self.tensors[name], fresh])
                self.tensors = {**self.tensors, name: longer}

    def follow(self, model: Classifier) -> None:
        """Take note of a step of the network."""
        self._move(dict(model.named_parameters()), self.rate)

    def _move(self, towards: Mapping[str, Tensor], rate: float) -> None:
        # three roundings each, not a fused one: the same bytes on every CPU; one tensor after the
        # other, which the caches hold (3 ms for the paper's network, all at once 5 ms)
        with torch.no_grad():
            moved = {
                name: (self.tensors[name] * (1 - rate)).add_(tensor * rate)
                for name, tensor in towards.items()
            }
        self.tensors = {**self.tensors, **moved}

    @contextmanager
    def inside(
        self, model: Classifier, share: float = 1.0, *, keep: bool = False
    ) -> Iterator[None]:
        """Run a network with the average in the place of its weights and running statistics, which
        come back as they were.

        Parameters
        ----------
        share
            Of the average; the rest is the network's own.
        keep
            Keep the running statistics that passes in training mode leave.
        """
        self.grow(model)
        counters = [buffer for name, buffer in model.named_buffers() if name.endswith(COUNTER)]
        kept = [(tensor, tensor.data) for tensor in (*_live(model).values(), *counters)]
        for name, tensor in _live(model).items():
            average = self.tensors[name]
            own = (1 - share) * tensor.data if share < 1 else 0.0
            tensor.data = share * average + own if share < 1 else average.clone()
        for counter in counters:
            counter.data = counter.data.clone()
        try:
            yield
            if keep:
                left = {n: t.data for n, t in _live(model).items() if n.endswith(STATISTICS)}
                self.tensors = {**self.tensors, **left}
        finally:
            for tensor, data in kept:
                tensor.data = data


class Ensemble(WeightAverage):
    """An average in whose place nothing is learned: it follows the running statistics too, and is
    quick at first, when the network is still near to what was drawn.

    After n steps it moves by max(rate, 9 / (n + 9)): by 0.9 at first, by a rate of 0.01 from step
    891 on. Statistics of a slow average belong to other weights by a little; on CIFAR-100 a pass
    over the memory to measure them anew was worth less than a point."""

    def __init__(self, model: Classifier, rate: float) -> None:
        super().__init__(model, rate)
        self.tensors[STEPS] = torch.zeros((), dtype=torch.int64)

    def load(self, tensors: Mapping[str, Tensor], model: Classifier) -> None:
        """Continue with an average that was kept."""
        super().load(tensors, model)
        self.tensors[STEPS] = tensors[STEPS].clone()

    def follow(self, model: Classifier) -> None:
        """Take note of a step of the network."""
        steps = self.tensors[STEPS] + 1
        self._move(_averaged(model), max(self.rate, QUICK / (int(steps) + QUICK)))
        self.tensors = {**self.tensors, STEPS: steps}


STEPS, QUICK = "steps", 9
COUNTER = "num_batches_tracked"
STATISTICS = ("running_mean", "running_var")


def _live(model: Classifier) -> dict[str, Tensor]:
    """Return the tensors of a network that are averaged."""
    statistics = {
        name: buffer for name, buffer in model.named_buffers() if name.endswith(STATISTICS)
    }
    return {**dict(model.named_parameters()), **statistics}


def _averaged(model: Classifier) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in _live(model).items()}
