"""The settings of the mixes, and what ``+da``, ``+enmix``, ``+adpmix`` and ``+dualmix`` add to a
method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dualmix.methods.augmenting import Augmenting
from dualmix.registry import Addition, add_addition
from dualmix.settings import Range, value

if TYPE_CHECKING:
    from dualmix.learn.types import Mix


def _weight(name: str) -> Range:
    return Range(0.1, 2.0, needs=(name,))


class Mixing(Augmenting):
    """Augmented and mixed batches beside the new and the rehearsed one; all off unless a weight is
    above 0.
    """

    view: float = value(
        0.0,
        "weight of the plain augmented view of the rehearsed batch",
        ge=0,
        paper="ER+DA",
        tune=_weight("view"),
    )
    enmix: float = value(
        0.0, "weight of EnMix, Eq. 7", ge=0, paper="no weights are stated", tune=_weight("enmix")
    )
    adpmix: float = value(
        0.0,
        "weight of AdpMix, Eqs. 8-9",
        ge=0,
        paper="no weights are stated",
        tune=_weight("adpmix"),
    )
    stream: float = value(1.0, "weight of the new batch as it came; 0: AdpMix replaces it", ge=0)
    replay: float = value(
        1.0, "weight of the rehearsed batch as it came; 0: EnMix replaces it", ge=0
    )
    augment_stream: bool = value(
        False, "augment the new batch too", paper="only memory data", source="paper"
    )
    alpha: float = value(
        0.2,
        "mixing ratios come from Beta(alpha, alpha)",
        gt=0,
        paper="0.2",
        source="paper",
        tune=Range(0.1, 1.0, log=True, needs=("enmix", "adpmix")),
    )
    alpha_x: float | None = value(None, "alpha of AdpMix; none: alpha", gt=0)
    kappa: float = value(
        2.0,
        "AdpMix tilts labels where ||w_new|| / ||w_old|| is above",
        paper="2.0",
        source="paper",
        ge=0,
        tune=Range(1.0, 4.0, needs=("adpmix",)),
    )
    tau: float = value(
        0.5,
        "AdpMix tilts labels where the old image's share is above",
        paper="0.5",
        source="paper",
        ge=0,
        le=1,
        tune=Range(0.2, 0.8, needs=("adpmix",)),
    )
    delta: float = value(
        0.05,
        "AdpMix tilts labels by delta times the ratio",
        paper="0.05",
        source="paper",
        ge=0,
        tune=Range(0.01, 0.2, log=True, needs=("adpmix",)),
    )
    each: Literal["pair", "batch"] = value("pair", "a mixing ratio for each pair, or one a batch")
    shared: bool = value(False, "EnMix and AdpMix take the same ratios in a step")
    partner: Literal["derangement", "other-class", "permutation"] = value(
        "derangement",
        "EnMix's partner: another image of any class, one of another class, or any",
        paper="other samples (including other classes)",
        source="inferred",
    )
    second_view: bool = value(False, "EnMix's partner is a second view, drawn anew")
    copies: int = value(1, "EnMix images for each rehearsed one", ge=1, le=100)
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
    pairs: Literal["new", "old", "fewer", "all"] | Annotated[int, Field(ge=1)] = value(
        "new", "AdpMix pairs: one a new image, one an old, fewer, all, or a number"
    )
    ratio: Literal["pair", "mean", "batch", "output"] = value(
        "pair",
        "Eq. 9 compares weight norms of the pair's classes or means over all new and old; studies: batch, output",
        paper="||w_new|| / ||w_old||",
    )
    bias: bool = value(False, "count the bias into ||w||", paper="bias omitted", source="paper")
    sightings: int = value(0, "tilt only where the new class was seen this often", ge=0)
    first_task: Literal["enmix", "idle", "both"] = value(
        "enmix",
        "before any class is old (never, where old is all): EnMix alone, neither until a pause, or AdpMix as mixup too",
    )

    def build(self) -> dict[str, Mix]:
        """Return the mixes by name."""
        from dualmix.learn.mixing import AdpMix, EnMix, View

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


def _one_mean(*terms: str) -> dict[str, float]:
    """Weigh the new batch, the rehearsed one and further terms alike: one mean over all images of a
    step.
    """
    return dict.fromkeys(("stream", "replay", *terms), 1 / (2 + len(terms)))


_ONE_BATCH = {"stream": 1.0, "replay": 0.5, "view": 0.5}
"""Originals and views as one rehearsed batch {x, g(x)} (Eq. 2), so that copies as views change
little (Figure 2).
"""


IN_TABLE_1 = dict.fromkeys(("gss", "mir", "aser"), "Table 1, +DualMix")
for _name, _doc, _paper, _weights in (
    ("da", "a plain augmented view of the rehearsed batch", {"er": "Table 3, +DA"}, _ONE_BATCH),
    (
        "enmix",
        "EnMix: mixed augmented views of the rehearsed batch",
        {"er": "Table 3, +EnMix"},
        _one_mean("enmix"),
    ),
    (
        "adpmix",
        "a plain view and AdpMix: old images mixed with new",
        {"er": "Table 3, +AdpMix"},
        _one_mean("view", "adpmix"),
    ),
    (
        "dualmix",
        "a plain view, EnMix and AdpMix",
        {"er": "Tables 1-3, +DualMix", **IN_TABLE_1},
        _one_mean("view", "enmix", "adpmix"),
    ),
):
    add_addition(Addition(_name, "mix", _doc, _paper, _weights, "calibrated"))
