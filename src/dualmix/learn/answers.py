"""What a learner answers from at one moment: a copy that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import InputError
from dualmix.learn.inputs import as_rows
from dualmix.learn.lazy import torch
from dualmix.learn.modes import CHUNK
from dualmix.learn.types import ImagesLike, Labels

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

NOT_FINITE = (
    "What the model computes from these rows is not finite: scale the rows; if they are ordinary, "
    "training diverged, so go back to an earlier save and use a smaller learning rate."
)


@dataclass(frozen=True, slots=True)
class Answers:
    """A network of its own (`modes.replica`) and what scores the classes; any thread may ask.

    Parameters
    ----------
    score
        Returns for images in [0, 1], or vectors, a score for each class.
    steps
        Batches that had been learned.
    """

    network: Classifier
    score: Callable[[Tensor], Tensor]
    steps: int = 0

    def predict(
        self, x: ImagesLike, *, at_least: float = 0.0, unknown: int | str | None = None
    ) -> Labels:
        """Return for each row the label with the highest score among those seen so far, as
        `MemoryLearner.predict` says.
        """
        number = isinstance(at_least, int | float | np.number) and not isinstance(at_least, bool)
        if not number or not 0 <= at_least <= 1:
            raise InputError(f"at_least is a probability from 0 to 1, not {at_least!r:.40}.")
        if not at_least:
            return self.network.names(torch.cat([part.argmax(1) for part in self._parts(x)]))
        said = self._probabilities(x)
        return self._or_unknown(said.argmax(1), (said.amax(1) >= at_least).numpy(), unknown)

    def scores(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return a score per row and class (logits of a head), classes in the order of
        `classes_`.
        """
        return torch.cat(self._parts(x)).cpu().numpy()

    def predict_proba(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return the softmax of the scores: a probability per row and class."""
        return self._probabilities(x).numpy()

    def top_k(self, x: ImagesLike, k: int) -> tuple[Labels, NDArray[np.float32]]:
        """Return the `k` most likely labels of each row, the likeliest first, and their
        probabilities; fewer where fewer classes are known.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number from 1 on, not {k!r}.")
        said = self._probabilities(x)
        best, columns = said.topk(min(int(k), said.shape[1]), dim=1)
        return self.network.names(columns), best.numpy()

    def embed(self, x: ImagesLike) -> NDArray[np.float32]:
        """Return the features of each row."""
        raw = as_rows(x, self.network.shape)
        with torch.no_grad():
            parts = [self.network.embed(self.network.pixels(part)) for part in raw.split(CHUNK)]
        if any(bool(part.isnan().any()) for part in parts):
            raise InputError(NOT_FINITE)
        return torch.cat(parts).cpu().numpy()

    def _parts(self, x: ImagesLike) -> list[Tensor]:
        seen = len(self.network.labels)
        if not seen:
            raise InputError("Nothing has been learned yet: observe a batch before predict.")
        raw = as_rows(x, self.network.shape)
        with torch.no_grad():
            parts = [self.score(self.network.pixels(part))[:, :seen] for part in raw.split(CHUNK)]
        if any(bool(part.isnan().any()) for part in parts):
            raise InputError(NOT_FINITE)
        return parts

    def _probabilities(self, x: ImagesLike) -> Tensor:
        said = torch.cat(self._parts(x)).float().softmax(1).cpu()
        if bool(said.isnan().any()):
            raise InputError(NOT_FINITE)
        return said

    def _or_unknown(self, columns: Tensor, sure: Any, unknown: int | str | None) -> Labels:
        labels = self.network.labels
        text = isinstance(labels[0], str)
        answer = ("unknown" if text else -1) if unknown is None else unknown
        whole = (
            isinstance(answer, int) and not isinstance(answer, bool) and -(2**63) <= answer < 2**63
        )
        if not (isinstance(answer, str) if text else whole):
            raise InputError(
                f"unknown is {answer!r}, but labels are {'text' if text else 'whole numbers'}: "
                "give an answer of that kind."
            )
        if answer in labels:
            raise InputError(f"unknown is {answer!r}, which is a class too: give another answer.")
        named = self.network.names(columns)
        result: Labels = np.where(sure, named, np.asarray(answer, dtype=None if text else np.int64))
        return result
