"""When each class was first seen, and which classes were known before the current task."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ClassAges:
    """The age of every head column, in steps of the stream.

    Attributes
    ----------
    steps
        Batches seen so far.
    first
        For each column the step in which it was first seen.
    known_before_task
        Columns known at the last pause of the stream: later ones belong to the current task.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.known_before_task = 0
        self.first: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, columns: NDArray[np.int64]) -> None:
        """Take note of a batch's columns."""
        fresh = max(int(columns.max()) + 1 - len(self.first), 0)
        if fresh:
            self.first = np.append(self.first, np.full(fresh, self.steps))
        self.steps += 1

    def pause(self) -> None:
        """Take note of a pause: all classes known by now are old."""
        self.known_before_task = len(self.first)

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers; "border" is the older name of `known_before_task`."""
        return {
            "steps": self.steps,
            "border": self.known_before_task,
            "first": self.first.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.steps, self.known_before_task = int(state["steps"]), int(state["border"])
        self.first = np.array(state["first"], dtype=np.int64)
