"""Dual view consistency (DVC).

Y. Gu, X. Yang, K. Wei and C. Deng, 2022, "Not Just Selection, but Exploration: Online
Class-Incremental Continual Learning via Dual View Consistency", CVPR."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dualmix.learn.augment import transform
from dualmix.learn.common import MemoryLearner, gradient_of, take_in, uniform_weights
from dualmix.learn.lazy import F, torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import eval_mode, virtual_step
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import (
    Batch,
    ImagesLike,
    LabelsLike,
    Learner,
    Retrieve,
    Slots,
    State,
    Transform,
    Update,
)
from dualmix.methods.common import Augmenting, Sampling, suited
from dualmix.registry import register
from dualmix.rng import Rng, generator
from dualmix.settings import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

LEAST = 2.0**-52
"""The least share of a class in a logarithm."""


@dataclass(frozen=True)
class MGIRetrieve:
    """Maximal gradient increase: draw candidates uniformly and take those whose gradient grows
    most in a virtual step along the new batch's gradient.

    Parameters
    ----------
    count, candidates
        How many rows to return, out of how many; fewer while the memory holds fewer.
    lr
        Learning rate of the virtual step.
    views
        None: candidates are looked at in evaluation mode and leave no trace. An augmentation: as
        the reference code does, in training mode beside an augmented view of each, and batch-norm's
        statistics take them in once. That code then learns from these views; here the step draws
        its own, as the choice hangs on them by batch-norm only.
    """

    count: int
    candidates: int
    lr: float
    views: Transform | None = None

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Slots:
        """Return distinct filled slots."""
        if new.gradient is None:
            raise ValueError("gradient increase is known only after the new batch's backward pass")
        slots = rng.choice(len(memory), size=min(self.candidates, len(memory)), replace=False)
        old = memory[slots]
        x = old.x if self.views is None else torch.cat([old.x, self.views(old.x, rng)])
        with eval_mode(model) if self.views is None else torch.no_grad():
            now = gradient_sizes(model, x, old.y)
            with virtual_step(model, self.lr, new.gradient):
                growth = gradient_sizes(model, x, old.y) - now
        best = growth.argsort(descending=True, stable=True)[: self.count]
        chosen: Slots = slots[best.cpu().numpy()]
        return chosen


def gradient_sizes(model: Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Return the L1 norm of each row's cross-entropy gradient by the head's weights, for the first
    ``len(y)`` rows.

    That gradient is the outer product of softmax - onehot and the features, and |softmax -
    onehot|_1 = 2 (1 - p_y)."""
    features = model.embed(x)[: len(y)]
    chances = model.arithmetic.linear(features, model.weight, model.bias).softmax(1)
    return 2 * (1 - chances.gather(1, y[:, None]).squeeze(1)) * features.abs().sum(1)


class JointHead:
    """Linear-ReLU-Linear from the logits of two views of an image, side by side, to logits over the
    same columns.

    It grows with the classifier's head: a new column brings two inputs, one per view, and one
    output. Weights start as torch's defaults would (uniform within 1/sqrt(fan-in)); the fan-in of a
    column's inputs is that of the moment in which it is added."""

    def __init__(self, hidden: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        self.seed = seed
        self.weights = torch.nn.ParameterDict(
            {
                "inner": torch.zeros(hidden, 2, 0),
                "inner_bias": torch.zeros(hidden),
                "outer": torch.zeros(0, hidden),
                "outer_bias": torch.zeros(0),
            }
        ).to(device)

    def grow(self, total: int) -> None:
        """Have `total` columns; those that were there stay as they are."""
        hidden, _, known = self.weights["inner"].shape
        if total <= known:
            return
        bound = 1 / math.sqrt(2 * total)
        if not known:
            bias = uniform_weights(generator(self.seed, "joint"), bound, hidden)
            self.weights["inner_bias"].data.copy_(bias)
        fresh = [generator(self.seed, "joint", column) for column in range(known, total)]
        inner = torch.stack([uniform_weights(rng, bound, hidden, 2) for rng in fresh], 2)
        rows = [uniform_weights(rng, 1 / math.sqrt(hidden), hidden + 1) for rng in fresh]
        outer = torch.stack(rows)
        self._extend("inner", inner, 2)
        self._extend("outer", outer[:, :-1], 0)
        self._extend("outer_bias", outer[:, -1], 0)

    def _extend(self, name: str, more: Tensor, dim: int) -> None:
        known = self.weights[name].detach()
        longer = torch.cat([known, more.to(known.device)], dim)
        self.weights[name] = torch.nn.Parameter(longer)

    def __call__(self, one: Tensor, two: Tensor) -> Tensor:
        """Return joint logits for the logits (n, K) of two views."""
        w = self.weights
        views = torch.cat([one, two], 1)
        hidden = F.relu(F.linear(views, w["inner"].flatten(1), w["inner_bias"]))
        return F.linear(hidden, w["outer"], w["outer_bias"])

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the weights of another joint head, of any number of columns."""
        device = self.weights["inner"].device
        for name, tensor in state.items():
            self.weights[name] = torch.nn.Parameter(torch.empty_like(tensor, device=device))
        self.weights.load_state_dict(state)


def negative_entropy(*chances: Tensor) -> Tensor:
    """Return the mean, over several (n, K) tables of probabilities, of sum p log p for the batch's
    mean p.

    It is least where the batch as a whole names all classes alike. Shares below the machine's least
    are raised to it."""
    means = [chance.mean(0).clamp_min(LEAST) for chance in chances]
    return torch.stack([(p * p.log()).sum() for p in means]).mean()


def disagreement(joint: Tensor, *views: Tensor) -> Tensor:
    """Return the mean absolute difference between the joint probabilities (n, K) and those of each
    view.
    """
    return torch.stack([(joint - view).abs().mean() for view in views]).mean()


class DVCLearner(MemoryLearner):
    """For the new and the rehearsed batch: cross-entropy of both views, entropy, agreement.

    With the probabilities p_1 and p_2 of the views and p_j of the joint head, and m their mean over
    the batch, the loss of a batch is

        CE(both views) + entropy * mean of (sum m log m) over 1, 2, j
                       + consistency * (mean |p_j - p_1| + mean |p_j - p_2|) / 2.

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
        Steps per stream batch, each with a newly retrieved old batch; the new batch's view is drawn
        once.
    """

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
        super().__init__(model, memory, update, rng, lr=lr, weight_decay=weight_decay)
        self.retrieve, self.augment, self.joint = retrieve, augment, joint
        self.entropy, self.consistency, self.iterations = entropy, consistency, iterations
        self.network = torch.nn.ModuleList([model, joint.weights])
        joint.grow(len(model.weight))

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Learn from one batch and its view, and from a rehearsed one and its view; return the sum
        of both losses.
        """
        arrival = take_in(self, x, y)
        new = arrival.batch
        self.joint.grow(len(self.model.weight))
        self.network.train()
        view = self.augment(new.x, self.rng["stream"])
        for iteration in range(self.iterations):
            self.network.zero_grad()
            loss, hits = self._backward(new, view)
            if iteration == 0:
                self.hits = hits
            if len(self.memory):
                learned = replace(new, gradient=gradient_of(self.model))
                slots = self.retrieve(self.memory, learned, self.model, self.rng["retrieve"])
                old = self.memory[slots]
                loss = loss + self._backward(old, self.augment(old.x, self.rng["augment"]))[0]
            self.step(loss)
        self.write(arrival, new)
        return loss

    def _backward(self, batch: Batch, view: Tensor) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch's loss to the network, in one pass over both views; return
        loss and hits.
        """
        logits = self.model(torch.cat([batch.x, view]))
        one, two = logits.split(len(batch))
        first, second, joint = one.softmax(1), two.softmax(1), self.joint(one, two).softmax(1)
        loss = (
            self.model.arithmetic.cross_entropy(logits, batch.y.repeat(2))
            + self.entropy * negative_entropy(first, second, joint)
            + self.consistency * disagreement(joint, first, second)
        )
        loss.backward()
        return loss.detach(), (one.argmax(1) == batch.y).sum()

    def state_dict(self) -> State:
        """Return what every learner returns, and the joint head."""
        return {**super().state_dict(), "joint": dict(self.joint.weights.state_dict())}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        self.joint.restore(state["joint"])


@register(
    "dvc",
    paper="Table 1, DVC",
    cite="Gu et al., 2022, CVPR",
    values={
        "method.reservoir": "ref",
        "method.per_sample": False,
        "method.jitter_p": 1.0,
        "method.bn": "ref",
    },
    source="reference",
)
class DVC(Sampling, Augmenting):
    """DVC: two views of new and rehearsed images that must agree; rehearsed is what the step would
    disturb most.
    """

    per_sample: bool = setting(
        True, "g draws for each image; false: once per batch, as the code of DVC does"
    )
    jitter_p: float = setting(
        0.8, "probability of the colour jitter (SCR 0.8, DVC 1)", ge=0, le=1, source="reference"
    )
    consistency: float = setting(
        4.0,
        "weight of the agreement of both views with the joint head (CIFAR-10: 2)",
        source="reference",
        ge=0,
        tune=Range(0.5, 8.0, log=True),
    )
    entropy: float = setting(
        1.0,
        "weight of the spread of a batch's mean prediction",
        source="reference",
        ge=0,
        tune=Range(0.1, 4.0, log=True),
    )
    joint: int = setting(128, "hidden units of the joint head", source="reference", ge=1, le=2**14)
    retrieval: Literal["mgi", "uniform"] = setting(
        "mgi", "rehearse rows whose gradient would grow most, or a uniform draw", source="reference"
    )
    candidates: int = setting(50, "rows among which mgi chooses", source="reference", ge=1)
    bn: Literal["eval", "ref"] = setting(
        "eval",
        "mgi looks at candidates in evaluation mode, or in training mode as the reference code, "
        "which moves batch-norm",
    )

    def transform(self, model: Classifier | None = None) -> Transform:
        """Return the augmentation g, drawn as `per_sample` and `jitter_p` say."""
        return transform(
            self.augment, per_sample=self.per_sample, jitter_p=self.jitter_p, **suited(model)
        )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, retrieval by gradient increase, a joint head on the logits."""
        g = self.transform(model)
        retrieve: Retrieve = Uniform(self.memory_batch)
        if self.retrieval == "mgi":
            views = g if self.bn == "ref" else None
            retrieve = MGIRetrieve(self.memory_batch, self.candidates, self.lr, views)
        return DVCLearner(
            model,
            self.empty_memory(model),
            self.reservoir_update(),
            retrieve,
            g,
            JointHead(self.joint, seed=model.seed, device=model.device),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            consistency=self.consistency,
            entropy=self.entropy,
            iterations=self.iterations,
        )
