"""Steps with a memory of their own: momentum and Adam. Plain SGD is `Arithmetic.descend`.

Adam: Kingma and Ba, 2015, arXiv:1412.6980, Algorithm 1. AdamW, which decays weights apart from the
gradient: Loshchilov and Hutter, 2019, arXiv:1711.05101, Algorithm 2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dualmix.learn.arithmetic import Sound
from dualmix.learn.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

Name = Literal["sgd", "adam", "adamw"]
BETAS = (0.9, 0.999)
EPSILON = 1e-8
LATER = ("mean", "square", "steps")
"""What is kept for each weight, by the names of its moments: ``0.mean``."""


@dataclass(frozen=True, slots=True)
class Optimiser:
    """A step of momentum, Adam or AdamW, in torch's arithmetic on every engine.

    Moments of a head's columns begin when the columns come, each with a count of its own steps, so
    that a late class is corrected as an early one was.

    Parameters
    ----------
    momentum
        Of ``sgd``: the share of the last step that goes on.
    """

    name: Name
    momentum: float = 0.0

    def step(
        self,
        parameters: Iterable[nn.Parameter],
        moments: dict[str, Tensor],
        lr: float,
        weight_decay: float,
        sound: Sound,
    ) -> None:
        """Take a step along the gradient that backward passes left.

        Parameters
        ----------
        moments
            What earlier steps left; tensors are replaced, never changed, so that a batch can be
            taken back.
        sound
            As in `Arithmetic.descend`.
        """
        with torch.no_grad():
            places = [(i, weight) for i, weight in enumerate(parameters) if weight.grad is not None]
            changes: list[tuple[nn.Parameter, Tensor, dict[str, Tensor]]] = []
            for place, weight in places:
                assert weight.grad is not None
                old = {name: _longer(moments, f"{place}.{name}", weight) for name in LATER}
                change, fresh = self._change(weight, weight.grad, old, lr, weight_decay)
                changes.append((weight, change, {f"{place}.{n}": t for n, t in fresh.items()}))
            if not changes:
                return
            goes = sound(torch.stack([torch.linalg.vector_norm(c) for _, c, _ in changes]).sum())
            for weight, change, fresh in changes:
                weight.sub_(change if goes is None else torch.where(goes, change, 0))
                for name, moment in fresh.items():
                    kept = moments.get(name)
                    if goes is not None and kept is not None and kept.shape == moment.shape:
                        moment = torch.where(goes, moment, kept)  # noqa: PLW2901
                    moments[name] = moment

    def _change(
        self, weight: Tensor, slope: Tensor, old: dict[str, Tensor], lr: float, decay: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what is taken off a weight, and its moments."""
        if decay and self.name != "adamw":
            slope = slope.add(weight, alpha=decay)
        if self.name == "sgd":
            mean = old["mean"] * self.momentum + slope
            return lr * mean, {"mean": mean}
        steps = old["steps"] + 1
        mean = old["mean"] * BETAS[0] + slope * (1 - BETAS[0])
        square = old["square"] * BETAS[1] + slope.square() * (1 - BETAS[1])
        first, second = ((1 - beta ** steps.double()).to(mean.dtype) for beta in BETAS)
        deviation = (square / second).sqrt() + EPSILON
        change = lr * (mean / first) / deviation
        if self.name == "adamw":
            change = change + weight * (lr * decay)
        return change, {"mean": mean, "square": square, "steps": steps}


def _longer(moments: dict[str, Tensor], name: str, weight: Tensor) -> Tensor:
    """Return a moment of a weight, zeros where it has grown; steps have one per row, which a column
    that comes late shares.
    """
    shape = weight.shape
    if name.endswith("steps"):
        shape = torch.Size([*shape[:1], *[1] * (len(shape) - 1)])
    kept = moments.get(name)
    if kept is None:
        return weight.new_zeros(shape)
    if kept.shape == shape:
        return kept
    longer = kept.new_zeros(shape)
    longer[tuple(slice(0, size) for size in kept.shape)] = kept
    return longer
