"""The package's methods as frozen settings, and the named rows made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from dualmix.registry import Addition, Method, Preset, add_addition, add_preset, register
from dualmix.settings import Settings, value

if TYPE_CHECKING:
    from dualmix.model import Classifier
    from dualmix.rng import Rng
    from dualmix.types import Learner, Mix, Retrieve, Transform, Update


class Descent(Method):
    """What every method that descends a loss has in common."""

    lr: float = value(0.1, "learning rate of plain SGD", paper="0.1", source="paper", gt=0)
    weight_decay: float = value(0.0, "L2 penalty on all weights", paper="-", source="reference", ge=0)


class Mixing(Settings):
    """Augmented and mixed batches beside the new and the rehearsed one; all off unless a weight is above 0."""

    view: float = value(0.0, "weight of the plain augmented view of the rehearsed batch", ge=0, paper="ER+DA")
    enmix: float = value(0.0, "weight of EnMix, Eq. 7", ge=0, paper="no weights are stated")
    adpmix: float = value(0.0, "weight of AdpMix, Eqs. 8-9", ge=0, paper="no weights are stated")
    stream: float = value(1.0, "weight of the new batch as it came; 0: AdpMix replaces it", ge=0)
    replay: float = value(1.0, "weight of the rehearsed batch as it came; 0: EnMix replaces it", ge=0)
    augment: str = value(
        "standard",
        "augmentation g: standard (crop, flip, jitter, grey), identity, flip, jitter, grey, crop or crop-STRENGTH",
        paper="crop, flip, colour jitter, greyscale",
        source="paper",
    )
    per_sample: bool = value(True, "g draws for each image; false: once a batch, as the code of DVC does")
    jitter_p: float = value(0.8, "probability of the colour jitter (SCR 0.8, DVC 1)", ge=0, le=1, source="reference")
    augment_stream: bool = value(False, "augment the new batch too", paper="only memory data", source="paper")
    alpha: float = value(0.2, "mixing ratios come from Beta(alpha, alpha)", gt=0, paper="0.2", source="paper")
    alpha_x: float | None = value(None, "alpha of AdpMix; none: alpha", gt=0)
    kappa: float = value(
        2.0, "AdpMix tilts labels where ||w_new|| / ||w_old|| is above", paper="2.0", source="paper", ge=0
    )
    tau: float = value(
        0.5, "AdpMix tilts labels where the old image's share is above", paper="0.5", source="paper", ge=0, le=1
    )
    delta: float = value(0.05, "AdpMix tilts labels by delta times the ratio", paper="0.05", source="paper", ge=0)
    each: Literal["pair", "batch"] = value("pair", "a mixing ratio for each pair, or one a batch")
    shared: bool = value(False, "EnMix and AdpMix take the same ratios in a step")
    partner: Literal["derangement", "other-class", "permutation"] = value(
        "derangement",
        "EnMix's partner: another image of any class, one of another class, or any",
        paper="other samples (including other classes)",
        source="inferred",
    )
    second_view: bool = value(False, "EnMix's partner is a second view, drawn anew")
    copies: int = value(1, "EnMix images for each rehearsed one", ge=1)
    adpmix_augment: Literal["neither", "old", "both"] = value(
        "both",
        "which images of AdpMix are augmented",
        paper="original data (Sec. 3.3); combined with standard DA (Sec. 4.3)",
    )
    old: Literal["all", "batch", "recent", "task"] = value(
        "all",
        "AdpMix's old rows: all rehearsed; class not in the new batch; not first seen within window; not of this task",
        paper="old classes (memory data)",
    )
    window: int = value(250, "steps for which a class counts as new where old is recent", ge=1)
    pairs: Literal["new", "old", "fewer", "all"] = value(
        "new", "AdpMix pairs: one a new image, one an old, fewer, or all"
    )
    ratio: Literal["pair", "mean", "count"] = value(
        "pair", "Eq. 9 compares the pair's classes, means over all new and old, or (a study) how often they were seen"
    )
    bias: bool = value(False, "count the bias into ||w||", paper="bias omitted", source="paper")
    sightings: int = value(0, "tilt only where the new class was seen this often", ge=0)
    first_task: Literal["enmix", "idle", "both"] = value(
        "enmix", "before any class is old: EnMix alone, neither (until the first pause), or AdpMix as mixup too"
    )

    @field_validator("augment")
    @classmethod
    def _known(cls, name: str) -> str:
        from dualmix.augmentations import check_name

        check_name(name)
        return name

    def build(self) -> dict[str, Mix]:
        """Return the mixes by name."""
        from dualmix.mixing import AdpMix, EnMix, View

        g = self.transform()
        return {
            "view": View(g, self.view),
            "enmix": EnMix(
                g,
                self.enmix,
                self.alpha,
                self.each,
                self.partner,
                self.second_view,
                self.copies,
                self.shared,
                from_first=self.first_task != "idle",
            ),
            "adpmix": AdpMix(
                g,
                self.adpmix,
                self.alpha if self.alpha_x is None else self.alpha_x,
                self.kappa,
                self.tau,
                self.delta,
                self.each,
                self.adpmix_augment,
                self.old,
                self.window,
                self.pairs,
                self.ratio,
                self.bias,
                self.sightings,
                "mixup" if self.first_task == "both" else "idle",
                self.shared,
                from_first=self.first_task != "idle",
            ),
        }

    def transform(self) -> Transform:
        """Return the augmentation g."""
        from dualmix.transforms import transform

        return transform(self.augment, per_sample=self.per_sample, jitter_p=self.jitter_p)


class Rehearsal(Descent):
    """What every method with a memory has in common."""

    memory: int = value(1000, "images the memory holds", paper="1000, 2000 or 5000", source="paper", ge=0)
    memory_batch: int = value(10, "images rehearsed beside a stream batch", paper="10", source="paper", ge=1)
    reservoir: Literal["exact", "ref"] = value(
        "exact",
        "exact: textbook reservoir sampling; ref: the reference code's, slightly too eager",
        paper="reservoir sampling",
        source="ours",
    )
    iterations: int = value(1, "steps a stream batch", paper="1 (online)", source="reference", ge=1)
    forward: Literal["separate", "joint", "still"] = value(
        "separate",
        "one forward pass a batch, one over all, or separate and mixed batches leave batch-norm's statistics alone",
        source="reference",
    )
    mix: Mixing = Mixing()

    def replay(self, model: Classifier, rng: Rng, update: Update, retrieve: Retrieve) -> Learner:
        """Make a rehearsal learner around two policies."""
        from dualmix.learners.replay import Replay
        from dualmix.memory import Memory

        return Replay(
            model,
            Memory(self.memory, model.shape, model.device),
            update,
            retrieve,
            rng,
            lr=self.lr,
            weight_decay=self.weight_decay,
            mixes=self.mix.build(),
            stream=self.mix.stream,
            replay=self.mix.replay,
            iterations=self.iterations,
            forward=self.forward,
            augment_stream=self.mix.transform() if self.mix.augment_stream else None,
        )


@register("er", paper="Tables 1-3, ER", values={"method.reservoir": "ref"})
class ER(Rehearsal):
    """Experience replay: each new batch beside a uniform draw from a reservoir."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Reservoir update, uniform retrieval."""
        from dualmix.policies.reservoir import Reservoir
        from dualmix.policies.uniform import Uniform

        return self.replay(model, rng, Reservoir(self.reservoir), Uniform(self.memory_batch))


@register("finetune", paper="Table 1, Finetune")
class Finetune(Descent):
    """Learn each batch and keep nothing: the lower bound."""

    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Experience replay with a memory of nothing."""
        return ER(lr=self.lr, weight_decay=self.weight_decay, memory=0).build(model, rng)


add_preset(
    Preset(
        "iid-offline",
        "finetune",
        "All classes at once, 70 epochs: the upper bound (variant: --stream.epochs 50 --method.weight_decay 0).",
        "Table 1, iid offline",
        {"stream.tasks": 1, "stream.epochs": 70, "stream.batch": 128, "method.weight_decay": 1e-4},
    )
)
add_preset(
    Preset(
        "iid-online",
        "finetune",
        "All classes at once, one pass in batches of 10: what an online learner could reach without forgetting.",
        "-",
        {"stream.tasks": 1},
    )
)

for _name, _doc, _paper, _weights in (
    ("da", "a plain augmented view of the rehearsed batch", "Table 3, +DA", {"view": 1.0}),
    ("enmix", "EnMix: mixed augmented views of the rehearsed batch", "Table 3, +EnMix", {"enmix": 1.0}),
    ("adpmix", "a plain view and AdpMix: old images mixed with new", "Table 3, +AdpMix", {"view": 1.0, "adpmix": 1.0}),
    (
        "dualmix",
        "a plain view, EnMix and AdpMix",
        "Tables 1-3, +DualMix",
        {"view": 1.0, "enmix": 1.0, "adpmix": 1.0},
    ),
):
    add_addition(Addition(_name, "mix", _doc, _paper, _weights))
