"""Prequential accuracy: every batch is a test before it is learned.

Dawid, 1984, "Statistical Theory: The Prequential Approach"; for streams: Gama et al., 2013, "On
evaluating stream learning algorithms", Machine Learning 90."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

POINTS = 400
"""Points of the course over time: above it, each two neighbours become one."""
RECENT = 1000
"""Images of the accuracy of late."""


@dataclass(slots=True)
class OfClass:
    """A class: the batch and the time of its first image (none: before the service), and how many
    of its images came and were recognised before they were learned.
    """

    first_batch: int
    first_seen: float | None
    images: int = 0
    correct: int = 0


class Accuracy:
    """Counts over all images, per class, of late and over time.

    Attributes
    ----------
    course
        Points [time of the last batch, batches, images, correct], the oldest first; every point but
        the last stands for `width` batches.
    """

    def __init__(self) -> None:
        self.images = self.correct = 0
        self.classes: dict[int | str, OfClass] = {}
        self.recent: deque[int] = deque(maxlen=RECENT)
        self.course: list[list[float]] = []
        self.width = 1

    def know(self, label: int | str, batch: int) -> None:
        """Take note of a class that the learner knew before the service began."""
        self.classes[label] = OfClass(batch, None)

    def note(
        self, labels: Sequence[int | str], said: Sequence[Any], batch: int, time: float
    ) -> int:
        """Count a batch; return how many of its images were recognised.

        Parameters
        ----------
        said
            The answer to each image before the batch was learned; none where nothing was known.
        """
        right = 0
        for label, answer in zip(labels, said, strict=True):
            hit = int(answer is not None and answer == label)
            one = self.classes.setdefault(label, OfClass(batch, time))
            one.images += 1
            one.correct += hit
            self.recent.append(hit)
            right += hit
        self.images += len(labels)
        self.correct += right
        self._extend(time, len(labels), right)
        return right

    def _extend(self, time: float, images: int, correct: int) -> None:
        if self.course and self.course[-1][1] < self.width:
            last = self.course[-1]
            last[:] = [time, last[1] + 1, last[2] + images, last[3] + correct]
            return
        if len(self.course) == POINTS:
            pairs = zip(self.course[::2], self.course[1::2], strict=True)
            self.course = [[b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]] for a, b in pairs]
            self.width *= 2
        self.course.append([time, 1, images, correct])

    @property
    def overall(self) -> float | None:
        """The share of all images that was recognised."""
        return self.correct / self.images if self.images else None

    @property
    def late(self) -> float | None:
        """The same of the latest images."""
        return sum(self.recent) / len(self.recent) if self.recent else None

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "images": self.images,
            "correct": self.correct,
            "classes": [[label, asdict(one)] for label, one in self.classes.items()],
            "recent": list(self.recent),
            "course": [list(point) for point in self.course],
            "width": self.width,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.images, self.correct, self.width = state["images"], state["correct"], state["width"]
        self.classes = {label: OfClass(**one) for label, one in state["classes"]}
        self.recent = deque(state["recent"], maxlen=RECENT)
        self.course = [list(point) for point in state["course"]]
