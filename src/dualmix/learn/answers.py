"""What a learner predicts from at one moment: a copy that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dualmix.errors import InputError
from dualmix.learn.inputs import as_pixels
from dualmix.learn.lazy import torch
from dualmix.learn.modes import CHUNK
from dualmix.learn.types import ImagesLike, Labels

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier


@dataclass(frozen=True, slots=True)
class Answers:
    """A network of its own (`modes.replica`) and what scores the classes; any thread may ask.

    Parameters
    ----------
    score
        Returns for images in [0, 1] a score for each class.
    """

    network: Classifier
    score: Callable[[Tensor], Tensor]

    def predict(self, x: ImagesLike) -> Labels:
        """Return for each image the label with the highest score among those seen so far."""
        seen = len(self.network.labels)
        if not seen:
            raise InputError("Nothing has been learned yet: observe a batch before predict.")
        raw = as_pixels(x, self.network.shape)
        with torch.no_grad():
            columns = [
                self.score(self.network.pixels(part))[:, :seen].argmax(1)
                for part in raw.split(CHUNK)
            ]
        return self.network.names(torch.cat(columns))
