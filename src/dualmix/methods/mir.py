"""Maximally interfered retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from dualmix.methods.common import Rehearsal
from dualmix.registry import register
from dualmix.settings import value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


@register(
    "mir", paper="Tables 1 and 2, MIR", values={"method.reservoir": "ref"}, source="reference"
)
class MIR(Rehearsal):
    """Maximally interfered retrieval: rehearse what the new batch is about to make worse."""

    subsample: int = value(
        50,
        "rows of the memory that are compared, of which the worst are rehearsed",
        source="reference",
        ge=1,
    )
    bn: Literal["ref", "eval"] = value(
        "ref",
        "ref: batch-norm also keeps the compared rows' statistics, as the reference code; eval: it leaves no trace",
        source="reference",
    )

    @model_validator(mode="after")
    def _enough_to_choose_from(self) -> MIR:
        if self.subsample < self.memory_batch:
            raise ValueError(
                f"subsample is {self.subsample}, fewer than the {self.memory_batch} images of memory_batch that are "
                "chosen from it"
            )
        return self

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, retrieval by a virtual step: as long as without weights, whatever the
        new batch weighs.
        """
        from dualmix.learn.policies.interference import Interference

        weighed = self.forward in ("separate", "still") and self.mix.stream
        lr = self.lr / self.mix.stream if weighed else self.lr
        retrieve = Interference(self.memory_batch, self.subsample, lr, self.bn)
        return self.replay(model, rng, self.reservoir_update(), retrieve)
