"""Gradient-based sample selection (GSS-greedy).

R. Aljundi et al., 2019, "Gradient based sample selection for online continual learning", NeurIPS,
arXiv:1903.08671."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix import engine
from dualmix.learn.lazy import F, torch
from dualmix.learn.memory import Memory
from dualmix.learn.modes import in_float32
from dualmix.learn.sampling import Uniform
from dualmix.learn.types import Batch, Learner, Placement, Slots
from dualmix.methods.rehearsal import Host
from dualmix.registry import register
from dualmix.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng

FIRST = 0.1
"""The score of rows that come before there is anything to compare them with."""


@dataclass(frozen=True)
class GSSUpdate:
    """GSS-greedy (the paper's Algorithm 2): a row's score is its gradient's closest cosine to
    gradients of parts of the memory.

    A full memory changes only where the new batch as a whole points away from every part (closest
    cosine below 0): then as many slots as there are new rows are drawn, the more alike the
    likelier, and each new row takes its slot with probability (old + 1) / (old + new + 2), by their
    scores. So the first part that the batch does not point away from settles the matter, and the
    gradients of further parts are not taken. Gradients are of all weights, in evaluation mode.

    Parameters
    ----------
    part
        Rows of the memory that make one gradient to compare with.
    parts
        The greatest number of such gradients.
    """

    part: int = 10
    parts: int = 10

    def __call__(
        self, memory: Memory, new: Batch, model: Classifier, rng: np.random.Generator
    ) -> Placement:
        """Return a slot for each row, -1 where it is dropped, and the rows' scores."""
        slots = np.full(len(new), -1)
        free = memory.capacity - len(memory)
        if free:
            slots[:free] = np.arange(len(memory), len(memory) + min(len(new), free))
            if not len(memory):
                return Placement(
                    slots, {"score": torch.full((len(new),), FIRST, device=model.device)}
                )
            known = [*self.directions(memory, model, rng)]
            return Placement(
                slots, {"score": closest(each_gradient(model, new), torch.stack(known))}
            )
        if not memory.capacity:
            return Placement(slots)
        known, whole = [], gradient(model, new)[None]
        for direction in self.directions(memory, model, rng):
            known.append(direction)
            if closest(whole, direction[None]) >= 0:
                return Placement(slots)
        scores = closest(each_gradient(model, new), torch.stack(known))
        kept = memory.columns["score"].cpu().numpy()
        drawn = draw(kept - kept.min(), len(new), rng)
        ours, theirs = scores.cpu().numpy()[: len(drawn)] + 1, kept[drawn] + 1
        slots[: len(drawn)] = np.where(rng.random(len(drawn)) * (ours + theirs) < theirs, drawn, -1)
        return Placement(slots, {"score": scores})

    def directions(
        self, memory: Memory, model: Classifier, rng: np.random.Generator
    ) -> Iterator[Tensor]:
        """Yield the gradients of disjoint random parts of the memory, each taken only when it is
        asked for.
        """
        size = min(self.part, len(memory))
        order = rng.permutation(len(memory))[: size * min(self.parts, len(memory) // size)]
        return (gradient(model, memory[slots]) for slots in order.reshape(-1, size))


def gradient(model: Classifier, batch: Batch) -> Tensor:
    """Return the gradient of a batch's mean loss in evaluation mode, flat."""
    with in_float32(model), torch.enable_grad():
        loss = model.arithmetic.cross_entropy(model(batch.x), batch.y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([part.flatten() for part in gradients])


def each_gradient(model: Classifier, batch: Batch) -> Tensor:
    """Return the gradient of each row's loss in evaluation mode, one flat row each."""
    if model.engine == "native":
        return _each_gradient_natively(model, batch)
    from torch.func import functional_call, grad, vmap

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    weights = {n: weight.detach() for n, weight in model.named_parameters() if weight.requires_grad}
    with in_float32(model):
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, batch.x, batch.y)
    return torch.cat([gradients[name].flatten(1) for name in weights], 1)


def _each_gradient_natively(model: Classifier, batch: Batch) -> Tensor:
    """Return what `each_gradient` does, where the head's part is written out: the logits' gradient
    is softmax - onehot.
    """
    head: list[Tensor] = []
    backbone: Any = model.backbone  # the native engine runs one kind only

    def features_gradient(features: Tensor) -> Tensor:
        logits = F.linear(features, model.weight.detach(), model.bias.detach())
        error = logits.softmax(1) - F.one_hot(batch.y, logits.shape[1])
        head[:] = [torch.einsum("nk,nf->nkf", error, features), error]
        return error @ model.weight.detach()

    with torch.no_grad():
        if model.frozen:
            features_gradient(model.embed(batch.x))
            return torch.cat([part.flatten(1) for part in head], 1)
        parts = engine.each_gradient(backbone, model.normalised(batch.x), features_gradient)
    return torch.cat([part.flatten(1) for part in (*head, *parts)], 1)


def closest(gradients: Tensor, known: Tensor) -> Tensor:
    """Return each gradient's greatest cosine to a known one."""
    return (F.normalize(gradients) @ F.normalize(known).T).amax(1)


def draw(weights: NDArray[np.floating], count: int, rng: np.random.Generator) -> Slots:
    """Draw distinct places one after the other, as likely as their weights; weight 0 only when all
    else is out.

    A place waits for an exponential time of rate `weight`: the first to ring are the draw.
    """
    rings = -weights / rng.exponential(size=len(weights))
    return np.lexsort((rng.random(len(weights)), rings))[:count]


@register("gss", paper="Tables 1 and 2, GSS", cite="Aljundi et al., 2019, arXiv:1903.08671")
class GSS(Host):
    """Gradient-based sample selection: keep rows whose gradients point in different directions."""

    part: int = setting(
        GSSUpdate.part,
        "rows of the memory that make one gradient to compare with (gss_batch_size)",
        source="reference",
        ge=1,
    )
    parts: int = setting(
        GSSUpdate.parts,
        "gradients to compare with (gss_mem_strength, 10 in the reference code)",
        source="reference",
        ge=1,
    )

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Update by gradient diversity, uniform retrieval."""
        return self.replay(model, rng, GSSUpdate(self.part, self.parts), Uniform(self.memory_batch))
