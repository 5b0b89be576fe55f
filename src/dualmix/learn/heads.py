"""Small networks beside the classifier: a projector of features, and a joint head over the logits
of two views.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix.rng import generator


class Projector(nn.Module):
    """Linear-ReLU-Linear to the unit sphere, with weights as torch's defaults but from our
    generator.
    """

    def __init__(
        self, features: int, outputs: int, *, seed: int, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        rng = generator(seed, "projector")
        bound = 1 / math.sqrt(features)
        self.inner = nn.Parameter(_uniform(rng, bound, features, features))
        self.inner_bias = nn.Parameter(_uniform(rng, bound, features))
        self.outer = nn.Parameter(_uniform(rng, bound, outputs, features))
        self.outer_bias = nn.Parameter(_uniform(rng, bound, outputs))
        self.to(device)

    def forward(self, features: Tensor) -> Tensor:
        """Return one unit vector for each row of features."""
        hidden = F.relu(F.linear(features, self.inner, self.inner_bias))
        return F.normalize(F.linear(hidden, self.outer, self.outer_bias), dim=1)


class JointHead(nn.Module):
    """Linear-ReLU-Linear from the logits of two views of an image, side by side, to logits over the
    same columns.

    It grows with the classifier's head: a new column brings two inputs, one a view, and one output.
    Weights start as torch's defaults would (uniform within 1/sqrt(fan-in)); the fan-in of a
    column's inputs is that of the moment in which it is added."""

    def __init__(self, hidden: int, *, seed: int, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.seed = seed
        self.inner = nn.Parameter(torch.zeros(hidden, 2, 0))
        self.inner_bias = nn.Parameter(torch.zeros(hidden))
        self.outer = nn.Parameter(torch.zeros(0, hidden))
        self.outer_bias = nn.Parameter(torch.zeros(0))
        self.to(device)

    def grow(self, total: int) -> None:
        """Have `total` columns; those that were there stay as they are."""
        hidden, _, known = self.inner.shape
        if total <= known:
            return
        fan_in = 1 / math.sqrt(2 * total)
        fresh = [generator(self.seed, "joint", column) for column in range(known, total)]
        if not known:
            self.inner_bias.data.copy_(_uniform(generator(self.seed, "joint"), fan_in, hidden))
        self.inner = _extended(
            self.inner, torch.stack([_uniform(rng, fan_in, hidden, 2) for rng in fresh], 2), 2
        )
        rows = torch.stack([_uniform(rng, 1 / math.sqrt(hidden), hidden + 1) for rng in fresh])
        self.outer = _extended(self.outer, rows[:, :-1], 0)
        self.outer_bias = _extended(self.outer_bias, rows[:, -1], 0)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        """Return joint logits for the logits (n, K) of two views."""
        hidden = F.relu(F.linear(torch.cat([one, two], 1), self.inner.flatten(1), self.inner_bias))
        return F.linear(hidden, self.outer, self.outer_bias)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over the weights of another joint head, of any number of columns."""
        for name, tensor in state.items():
            setattr(self, name, nn.Parameter(torch.empty_like(tensor, device=self.inner.device)))
        self.load_state_dict(state)


def _extended(known: Tensor, fresh: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.cat([known.detach(), fresh.to(known.device)], dim))


def _uniform(rng: np.random.Generator, bound: float, *shape: int) -> Tensor:
    return torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))
