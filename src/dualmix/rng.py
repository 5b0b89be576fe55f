"""Named random generators from one seed: the only source of chance in the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Rng:
    """Independent numpy generators by name, all derived from one seed.

    Drawing from one name never disturbs another, so adding a part to a learner does not change what
    the others draw.

    Examples
    --------
    >>> rng = Rng(0)
    >>> first = rng["retrieve"].integers(100, size=3)
    >>> _ = Rng(0)["update"].random()
    >>> bool((Rng(0)["retrieve"].integers(100, size=3) == first).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            self._generators[name] = generator(self.seed, name)
        return self._generators[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the seed and the state of every generator used so far, as plain numbers and
        strings.
        """
        return {
            "seed": self.seed,
            "generators": {
                name: g.bit_generator.state for name, g in sorted(self._generators.items())
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.seed = int(state["seed"])
        self._generators = {}
        for name, saved in state["generators"].items():
            self[name].bit_generator.state = saved


def generator(seed: int, name: str, *more: int) -> np.random.Generator:
    """Return a fresh generator for a purpose, keyed by the seed, the purpose's name and any further
    numbers.
    """
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, *name.encode(), 0, *more]))
    )
