"""Supervised contrastive replay (SCR).

Z. Mai et al., 2021, "Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in
Online Class-Incremental Continual Learning", CVPR Workshops, arXiv:2103.13885."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dualmix.learn.common import MemoryLearner, take_in, uniform_weights
from dualmix.learn.lazy import F, torch
from dualmix.learn.memory import Memory
from dualmix.learn.nearest_mean import class_means, feature_sums, nearest, nearest_later
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import (
    Batch,
    ImagesLike,
    LabelsLike,
    Learner,
    Retrieve,
    State,
    Transform,
    Update,
)
from dualmix.methods.common import Augmenting, Sampling
from dualmix.registry import Preset, add_preset, register
from dualmix.rng import Rng, generator
from dualmix.settings import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

CITE = "Mai et al., 2021, arXiv:2103.13885"


class Projector:
    """Linear-ReLU-Linear to the unit sphere, with weights as torch's defaults but from our
    generator.
    """

    def __init__(
        self, features: int, outputs: int, *, seed: int, device: torch.device | str = "cpu"
    ) -> None:
        rng, bound = generator(seed, "projector"), 1 / math.sqrt(features)
        shapes = {
            "inner": (features, features),
            "inner_bias": (features,),
            "outer": (outputs, features),
            "outer_bias": (outputs,),
        }
        self.weights = torch.nn.ParameterDict(
            {name: uniform_weights(rng, bound, *shape) for name, shape in shapes.items()}
        ).to(device)

    def __call__(self, features: Tensor) -> Tensor:
        """Return one unit vector for each row of features."""
        w = self.weights
        hidden = F.relu(F.linear(features, w["inner"], w["inner_bias"]))
        return F.normalize(F.linear(hidden, w["outer"], w["outer_bias"]), dim=1)


def supcon(views: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss with every view as an anchor (P. Khosla et al., 2020,
    "Supervised Contrastive Learning", NeurIPS, arXiv:2004.11362, Eq. 2).

    For an anchor i with positives P(i), the other views of its class, the mean over i of
    ``-1/|P(i)| sum_p log(exp(z_i z_p / t) / sum_{a != i} exp(z_i z_a / t))``.

    Parameters
    ----------
    views
        (n, v, d) unit vectors, v >= 2 views of each of n images.
    y
        (n,) head columns.
    temperature
        What similarities are divided by.
    """
    z = views.flatten(0, 1)
    labels = y.repeat_interleave(views.shape[1])
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    positive = (labels[:, None] == labels) & ~itself
    chance = F.log_softmax((z @ z.T / temperature).masked_fill(itself, -torch.inf), 1)
    return -(torch.where(positive, chance, 0).sum(1) / positive.sum(1)).mean()


class SCRLearner(MemoryLearner):
    """Two views of the rehearsed and the new batch by supervised contrast; no head is trained,
    classes are means of what the memory holds.

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
        Steps per stream batch, each with a newly retrieved old batch.

    Notes
    -----
    `hits` are counted with the means of the rows rehearsed in the step, the only ones at hand
    without a pass over the memory: fewer than `predict` would score."""

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
        super().__init__(model, memory, update, rng, lr=lr, weight_decay=weight_decay)
        self.retrieve, self.augment, self.projector = retrieve, augment, projector
        self.temperature, self.iterations = temperature, iterations
        self.review_share, self.review_batch = review, memory_batch
        self.network = torch.nn.ModuleList([model.backbone, projector.weights])
        self.means: Tensor | None = None

    def observe(self, x: ImagesLike, y: LabelsLike) -> Tensor:
        """Contrast the new batch with a rehearsed one; the first batch is only kept."""
        arrival = take_in(self, x, y)
        new = arrival.batch
        self.means = None
        self.model.train()
        loss, self.hits = torch.zeros((), device=new.x.device), torch.zeros_like(self.hits)
        for iteration in range(self.iterations if len(self.memory) else 0):
            old = self.memory[self.retrieve(self.memory, new, self.model, self.rng["retrieve"])]
            both = Batch(torch.cat([old.x, new.x]), torch.cat([old.y, new.y]))
            self.network.zero_grad()
            loss, features = self._contrast(both)
            loss.backward()
            self.step(loss.detach())
            if iteration == 0:
                self.hits = _recognised(self.model, features.detach(), both.y, len(old))
        self.write(arrival, new)
        return loss.detach()

    def _contrast(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss over both views of a batch, a forward pass each, and the features of the
        first.
        """
        x = torch.cat([batch.x, self.augment(batch.x, self.rng["augment"])])
        first, second = self.model.embed(x, [len(batch)] * 2).split(len(batch))
        views = torch.stack([self.projector(first), self.projector(second)], 1)
        return supcon(views, batch.y, self.temperature), first

    def scorer(self, network: Classifier) -> Callable[[Tensor], Tensor]:
        """Return what scores the classes: the nearest mean; means are taken once for all calls
        between two steps.
        """
        if self.means is None:
            if self.guard.asked:
                return nearest_later(network, self.memory.copy())
            self.means = class_means(network, self.memory)
        return nearest(network, self.means)

    def consolidate(self) -> None:
        """Take note of a pause, and review the memory if asked to."""
        super().consolidate()
        if self.review_share:
            self.means = None
            self.review(lambda old: self._contrast(old)[0], self.review_batch, self.review_share)

    def state_dict(self) -> State:
        """Return what every learner returns, and the projector."""
        return {**super().state_dict(), "projector": dict(self.projector.weights.state_dict())}

    def load_state_dict(self, state: State) -> None:
        """Continue exactly where `state_dict` was taken."""
        super().load_state_dict(state)
        self.projector.weights.load_state_dict(state["projector"])
        self.means = None


def _recognised(model: Classifier, features: Tensor, y: Tensor, old: int) -> Tensor:
    """Count the rows behind the first `old` that are nearest to their class's mean over the first
    `old`.
    """
    by = model.arithmetic
    means = by.unit(feature_sums(features[:old], y[:old], len(model.labels), by))
    return (by.matmul(features[old:], means.T).argmax(1) == y[old:]).sum()


@register(
    "scr",
    paper="Table 1, SCR",
    cite=CITE,
    values={"method.reservoir": "ref"},
    source="reference",
)
class SCR(Sampling, Augmenting):
    """SCR: two views of new and rehearsed images by supervised contrast, answers by the nearest
    class mean.
    """

    memory: int = setting(
        1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=1
    )
    temperature: float = setting(
        0.1,
        "what similarities are divided by (the reference's command line: 0.07)",
        source="reference",
        gt=0,
        tune=Range(0.05, 0.5, log=True),
    )
    projection: int = setting(
        128, "length of the vectors that are compared", source="reference", ge=1, le=2**14
    )
    review: float = setting(
        0.0,
        "in each pause one pass over the memory with gradients times this; 0: none (SCR's own "
        "tables: 0.1)",
        source="inferred",
        ge=0,
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval, a projector on the features."""
        features = model.features
        return SCRLearner(
            model,
            self.empty_memory(model),
            self.reservoir_update(),
            Uniform(self.memory_batch),
            self.transform(model),
            Projector(features, self.projection, seed=model.seed, device=model.device),
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            temperature=self.temperature,
            memory_batch=self.memory_batch,
            review=self.review,
            iterations=self.iterations,
        )


_OWN_TABLES = {"method.reservoir": "ref", "method.memory_batch": 100, "method.review": 0.1}
add_preset(
    Preset(
        "scr-100",
        "scr",
        "SCR as in its own tables: 100 rehearsed images per step and a review of the memory in "
        "each pause.",
        "-",
        _OWN_TABLES,
        dict.fromkeys(_OWN_TABLES, "reference"),
        CITE,
    )
)
