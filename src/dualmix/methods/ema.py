"""Temporal ensemble: what ``+ema`` adds to a rehearsal method.

A. Soutif-Cormerais, A. Carta and J. van de Weijer, 2023, "Improving Online Continual Learning
Performance and Stability with Temporal Ensembles", CoLLAs, arXiv:2306.16817.

After every step a moving average of the weights takes a part of them,

    theta_E = (1 - a) * theta_E + a * theta,

and answers in their place. Training never looks at it, so that a step is the host's own, and an
average over the last 1 / a steps does not lean to the batches that came last. The rate a = 0.01,
and that the running statistics of batch-norm are averaged too, are read in its authors' code. Ours:
the rate is higher in the first steps (`learn.averaging.Ensemble`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualmix.learn.averaging import Ensemble
from dualmix.registry import Addition, add_addition
from dualmix.settings import Range, Settings, setting

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier

CITE = "Soutif-Cormerais et al., 2023, arXiv:2306.16817"
RATE = 0.01


class Averaging(Settings):
    """A moving average of the weights that answers; off unless its rate is above 0."""

    rate: float = setting(
        0.0,
        f"what each step moves the average of the weights by that answers ({RATE:g} in its "
        "authors' code); 0: the weights themselves answer",
        ge=0,
        le=1,
        tune=Range(0.003, 0.1, log=True, needs=("rate",)),
    )

    def average(self, model: Classifier) -> Ensemble | None:
        """Return the average, or nothing where it is off."""
        return Ensemble(model, self.rate) if self.rate else None


add_addition(
    Addition(
        "ema",
        "ema",
        "answers by a moving average of its weights",
        {},
        {"rate": RATE},
        "ours",
        CITE,
    )
)
