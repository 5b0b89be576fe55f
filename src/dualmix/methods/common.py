"""What methods have in common: descent of a loss, and rehearsal with mixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationInfo, field_validator

from dualmix.methods.mixing import Mixing
from dualmix.registry import Method
from dualmix.settings import Range, value

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner, Retrieve, Update
    from dualmix.rng import Rng

Forward = Literal["separate", "joint", "pooled", "still"]
FORWARD = (
    "one forward pass a batch; one over all (joint), also with one weighted mean over all rows (pooled); "
    "or separate and mixed batches leave batch-norm's statistics alone (still)"
)


class Descent(Method):
    """What every method that descends a loss has in common."""

    lr: float = value(
        0.1,
        "learning rate of plain SGD",
        paper="0.1",
        source="paper",
        gt=0,
        tune=Range(0.003, 0.3, log=True),
    )
    weight_decay: float = value(
        0.0, "L2 penalty on all weights", paper="-", source="reference", ge=0
    )


class Remembering(Descent):
    """What every method with a memory has in common."""

    memory: int = value(
        1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=0
    )
    memory_batch: int = value(
        10,
        "images rehearsed beside a stream batch",
        paper="10",
        source="paper",
        ge=1,
        tune=Range(5, 50, log=True, asked=True),
    )
    iterations: int = value(1, "steps a stream batch", paper="1 (online)", source="reference", ge=1)


class Sampling(Remembering):
    """What every method has in common whose memory is a reservoir."""

    reservoir: Literal["exact", "ref", "balanced"] = value(
        "exact",
        "exact: textbook reservoir sampling; ref: the reference code's, slightly too eager; balanced: by class (CBRS)",
        paper="reservoir sampling",
        source="ours",
    )

    def reservoir_update(self) -> Update:
        """Make the update that the setting `reservoir` names."""
        from dualmix.learn.policies.balanced import Balanced
        from dualmix.learn.policies.reservoir import Reservoir

        return Balanced() if self.reservoir == "balanced" else Reservoir(self.reservoir)


class Host(Remembering):
    """What every method has in common that rehearses beside the new batch: mixes and tricks attach
    to it.
    """

    forward: Forward = value("separate", FORWARD, source="reference")
    softmax: Literal["all", "labels", "separated"] = value(
        "all",
        "one softmax over all columns; over the labels in a batch (labels trick); one for old, one for new classes",
        source="reference",
    )
    readout: Literal["linear", "ncm"] = value(
        "linear",
        "answers by the head, or by the nearest class mean of the memory's features",
        source="reference",
    )
    review: float = value(
        0.0,
        "in each pause one pass over the memory with gradients times this; 0: none",
        source="reference",
        ge=0,
    )
    mix: Mixing = Mixing()

    @field_validator("readout")
    @classmethod
    def _has_rows(cls, readout: str, given: ValidationInfo) -> str:
        if readout == "ncm" and given.data.get("memory") == 0:
            raise ValueError(
                "the nearest class mean needs a memory: give memory 1 or more, or readout linear"
            )
        return readout

    def replay(
        self, model: Classifier, rng: Rng, update: Update, retrieve: Retrieve, **own: Any
    ) -> Learner:
        """Make a rehearsal learner around two policies, with what the method sets by its own
        instead of by settings.
        """
        from dualmix.learn.learners.replay import Replay
        from dualmix.learn.learners.tricks import Tricks
        from dualmix.learn.memory import Memory

        shared = {
            "memory": Memory(self.memory, model.shape, model.device),
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "mixes": self.mix.build(),
            "stream": self.mix.stream,
            "replay": self.mix.replay,
            "iterations": self.iterations,
            "forward": self.forward,
            "augment_stream": self.mix.transform() if self.mix.augment_stream else None,
            "tricks": Tricks(self.softmax, self.readout, self.review, self.memory_batch),
        }
        return Replay(model, update=update, retrieve=retrieve, rng=rng, **{**shared, **own})


class Rehearsal(Sampling, Host):
    """A host whose memory is a reservoir."""
