"""Settings of methods that rehearse beside the new batch: tricks and mixes attach to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationInfo, field_validator

from dualmix.learn.augment import check_name, transform
from dualmix.learn.losses import Softmax
from dualmix.learn.replay import Forward, Replay, Tricks
from dualmix.learn.types import Learner, Retrieve, Update
from dualmix.methods.common import Remembering, Sampling, suited
from dualmix.methods.dualmix import Mixing
from dualmix.methods.ema import Averaging
from dualmix.methods.mkd import Distilling
from dualmix.settings import setting

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.rng import Rng

FORWARD = (
    "one forward pass per batch; one over all (joint), also with one weighted mean over all rows "
    "(pooled); or separate and mixed batches leave batch-norm's statistics alone (still)"
)


class Host(Remembering):
    """What every method has in common that rehearses beside the new batch."""

    forward: Forward = setting("separate", FORWARD, source="reference")
    softmax: Softmax = setting(
        "all",
        "one softmax over all columns; over the labels in a batch (labels trick); one for old, one "
        "for new classes",
        source="reference",
    )
    readout: Literal["linear", "ncm"] = setting(
        "linear",
        "answers by the head, or by the nearest class mean of the memory's features",
        source="reference",
    )
    review: float = setting(
        0.0,
        "in each pause one pass over the memory with gradients times this; 0: none",
        source="reference",
        ge=0,
    )
    train_augment: str = setting(
        "none",
        "augmentation by name through which the new and the rehearsed batch are learned, drawn "
        "anew in each step; the memory keeps the originals; none: as they are",
        paper="-",
        source="ours",
    )
    mix: Mixing = Mixing()
    mkd: Distilling = Distilling()
    ema: Averaging = Averaging()

    @field_validator("train_augment")
    @classmethod
    def _known_augmentation(cls, name: str) -> str:
        if name != "none":
            check_name(name)
        return name

    @field_validator("readout")
    @classmethod
    def _has_rows(cls, readout: str, given: ValidationInfo) -> str:
        if readout == "ncm" and given.data.get("memory") == 0:
            raise ValueError(
                "the nearest class mean needs a memory: give memory 1 or more, or readout linear"
            )
        return readout

    @field_validator("ema")
    @classmethod
    def _one_average(cls, ema: Averaging, given: ValidationInfo) -> Averaging:
        mkd = given.data.get("mkd")
        if ema.rate and mkd is not None and mkd.weight:
            raise ValueError(
                "+ema and +mkd both answer by an average of their own: give ema.rate 0 or "
                "mkd.weight 0"
            )
        return ema

    def replay(
        self, model: Classifier, rng: Rng, update: Update, retrieve: Retrieve, **own: Any
    ) -> Learner:
        """Make a rehearsal learner around an update and a retrieval; `own` is what the method sets
        itself instead of by settings.
        """
        teacher = self.mkd.average(model)
        mixes = own.pop("mixes", None) or self.mix.build(model)
        named = self.train_augment
        seen = None if named == "none" else transform(named, **suited(model))
        shared = {
            "memory": self.empty_memory(model),
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "mixes": {**mixes, **self.mkd.build(teacher, model)},
            "stream": self.mix.stream,
            "replay": self.mix.replay,
            "iterations": self.iterations,
            "forward": self.forward,
            "tricks": Tricks(self.softmax, self.readout, self.review, self.memory_batch, seen),
        }
        learner = Replay(model, update=update, retrieve=retrieve, rng=rng, **{**shared, **own})
        learner.average = teacher or self.ema.average(model)
        return learner


class Rehearsal(Sampling, Host):
    """A host whose memory is a reservoir."""
