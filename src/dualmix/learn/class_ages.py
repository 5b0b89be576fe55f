"""What a learner knows about the age of its classes: when each was first seen, how often, and since
which pause.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Sightings:
    """First sighting and number of sightings of every head column, in steps of the stream.

    Attributes
    ----------
    steps
        Batches seen so far.
    border
        Columns known at the last pause of the stream: later ones belong to the current task.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.border = 0
        self.first: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, columns: NDArray[np.int64]) -> None:
        """Take note of a batch's columns."""
        fresh = max(int(columns.max()) + 1 - len(self.first), 0)
        if fresh:
            self.first = np.append(self.first, np.full(fresh, self.steps))
            self.counts = np.append(self.counts, np.zeros(fresh, dtype=np.int64))
        np.add.at(self.counts, columns, 1)
        self.steps += 1

    def pause(self) -> None:
        """Mark a border: all classes known by now are old."""
        self.border = len(self.first)

    def young(self, window: int) -> NDArray[np.bool_]:
        """Return for each column whether it was first seen within the last `window` steps."""
        return self.steps - self.first <= window

    def current(self) -> NDArray[np.bool_]:
        """Return for each column whether it was first seen after the last border."""
        return np.arange(len(self.first)) >= self.border

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "steps": self.steps,
            "border": self.border,
            "first": self.first.tolist(),
            "counts": self.counts.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.steps, self.border = int(state["steps"]), int(state["border"])
        self.first = np.array(state["first"], dtype=np.int64)
        self.counts = np.array(state["counts"], dtype=np.int64)
