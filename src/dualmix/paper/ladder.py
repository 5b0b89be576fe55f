"""What each part of DualMix does: controls that change one thing each, from er to er+dualmix.

The rungs are paired by seed with the one that they change. Weights are those of one rule, one mean
over all images of a step, unless a rung says otherwise: so a gain cannot come from the weights of
one row being fitted and another's not. Nothing here is fitted to a table of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dualmix.config.compose import compose, flatten
from dualmix.paper.independent import check_rows
from dualmix.paper.numbers import DATA
from dualmix.paper.readings import TERMS
from dualmix.sweeps.sweep import Job

SEEDS = 3
MEMORY, UNFITTED = 1000, 5000
"""The ladder's memory, and one to which no weight was fitted."""
ALL_TERMS = (*TERMS["er+dualmix"], "new_view")
GATE = "adpmix gate open"
"""The counter of pairs for which the gate of Eq. 9 was open."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A configuration, and the one that it changes one thing of.

    Attributes
    ----------
    part
        ``ladder`` for the way from er to er+dualmix; else the letter of the question: a (no mixing
        in one mix), b (plain views in place of the mixes), c (no augmentation), e (weights), f (the
        gate), g (the memory to which nothing was fitted), h (hosts above the paper), i (AdpMix in
        place of the new batch).
    changes
        What it changes, in words.
    against
        The name of the rung it is compared with; empty: of none.
    values
        Settings beside the preset's.
    closed
        Another rung from which it differs in the tilt of Eq. 9 alone: a run of that one in which
        the gate never opened (its counter `GATE` is 0) is this one too, to the byte.
    """

    name: str
    part: str
    changes: str
    preset: str
    against: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    memory: int = MEMORY
    closed: str = ""

    def settings(self) -> dict[str, Any]:
        """Return what it is run with, by dotted path."""
        return {"data.name": DATA[0], "method.memory": self.memory, **self.values}


def weighted(weights: Mapping[str, float], **other: Any) -> dict[str, Any]:
    """Return the weight of every term, 0 for those not named, and further settings of the mix."""
    named = {**dict.fromkeys(ALL_TERMS, 0.0), **weights}
    return {f"method.mix.{name}": value for name, value in {**named, **other}.items()}


def alike(*terms: str, **other: Any) -> dict[str, Any]:
    """Return one mean over all images: the new batch, the rehearsed one and further terms."""
    named = ("stream", "replay", *terms)
    return weighted(dict.fromkeys(named, 1 / len(named)), **other)


WEIGHTINGS = {
    "sum": "every term weighs 1",
    "one-mean": "one mean over all images",
    "rest-mean": "everything but the new batch is averaged and weighs as much as it",
    "in-place": "as rest-mean, with AdpMix in the new batch's place",
}
"""What the rows of Table 3 use, as rules for all of them; and Eq. 13 taken at its word, in which
AdpMix's images stand where Eq. 12 has the current task's.
"""


def weighting(row: str, rule: str) -> dict[str, Any]:
    """Return a row of Table 3 under a rule of `WEIGHTINGS`."""
    terms = TERMS[row]
    if rule == "sum":
        return weighted(dict.fromkeys(terms, 1.0))
    if rule == "one-mean":
        return weighted(dict.fromkeys(terms, 1 / len(terms)))
    new = "adpmix" if rule == "in-place" and "adpmix" in terms else "stream"
    rest = [term for term in terms if term not in ("stream", new)]
    return weighted({new: 1.0, **dict.fromkeys(rest, 1 / len(rest))})


LADDER = (
    Rung("er", "ladder", "experience replay as its preset", "er"),
    Rung("weights", "ladder", "one mean over new and rehearsed images", "er", "er", alike()),
    Rung("view", "ladder", "and a view of the rehearsed batch", "er+da", "weights", alike("view")),
    Rung(
        "views",
        "ladder",
        "three views of the rehearsed batch: plain views in place of both mixes",
        "er+dualmix",
        "view",
        alike("view", "enmix", "adpmix", mixed=False),
    ),
    Rung(
        "new-view",
        "ladder",
        "the third is a view of the new batch",
        "er+dualmix",
        "views",
        alike("view", "enmix", "new_view", mixed=False),
    ),
    Rung(
        "enmix",
        "ladder",
        "EnMix in place of the second view",
        "er+dualmix",
        "new-view",
        alike("view", "enmix", "new_view"),
    ),
    Rung(
        "adpmix-untilted",
        "ladder",
        "AdpMix without its tilt of labels in place of the view of the new batch",
        "er+dualmix",
        "enmix",
        alike("view", "enmix", "adpmix", delta=0.0),
        closed="dualmix",
    ),
    Rung(
        "dualmix", "ladder", "labels tilted by Eq. 9: er+dualmix", "er+dualmix", "adpmix-untilted"
    ),
)
"""The way from er to er+dualmix; each rung changes one thing of the one before."""


def _changed(name: str, part: str, changes: str, closed: str = "", **mix: Any) -> Rung:
    values = {f"method.mix.{path}": value for path, value in mix.items()}
    return Rung(name, part, changes, "er+dualmix", "dualmix", values, closed=closed)


CONTROLS = (
    _changed("enmix-alpha-0", "a", "no mixing in EnMix (alpha -> 0)", enmix_alpha=0.0),
    _changed("adpmix-alpha-0", "a", "no mixing in AdpMix (alpha -> 0)", adpmix_alpha=0.0),
    _changed("alpha-0", "a", "no mixing in both (alpha -> 0)", enmix_alpha=0.0, adpmix_alpha=0.0),
    _changed("plain-views", "b", "plain views of the memory in place of both mixes", mixed=False),
    _changed("no-augmentation", "c", "mixing without augmentation", augment="identity"),
    _changed("kappa-0", "f", "the gate is always open (kappa 0)", kappa=0.0),
    _changed("delta-0.1", "f", "labels are tilted twice as far (delta 0.1)", "dualmix", delta=0.1),
    _changed("delta-0.2", "f", "four times as far (delta 0.2)", "dualmix", delta=0.2),
    _changed("open-delta-0.2", "f", "the gate open, four times as far", kappa=0.0, delta=0.2),
)


ROW = "er+dualmix"


def _in_place(memory: int) -> tuple[Rung, ...]:
    """Return readings in which AdpMix takes the new batch's place: as one term of four, and with
    half of the loss, because half of each of its images is new.
    """
    at, ending, against, part = "", "", "dualmix", "i"
    if memory == UNFITTED:
        at, ending, against = f" at M = {memory}", f"-{memory}", f"{ROW}, one-mean-{memory}"
        part = "g"
    changes = "AdpMix in place of the new batch"
    rehearsed = TERMS[ROW][1:-1]
    quarter = weighted(dict.fromkeys((*rehearsed, "adpmix"), 1 / 4))
    half = weighted({**dict.fromkeys(rehearsed, 1 / 6), "adpmix": 1 / 2})
    return (
        Rung(f"adpmix-only{ending}", part, changes + at, ROW, against, quarter, memory),
        Rung(
            f"adpmix-half{ending}",
            part,
            f"{changes}, with half of the loss{at}",
            ROW,
            against,
            half,
            memory,
        ),
    )


def _under(row: str, rule: str, memory: int, part: str) -> Rung:
    at = f" at M = {memory}" if part == "g" else ""
    ending = f"-{memory}" if part == "g" else ""
    return Rung(
        f"{row}, {rule}{ending}",
        part,
        f"{row}: {WEIGHTINGS[rule]}{at}",
        row,
        "" if row == "er" else f"er, {rule}{ending}",
        weighting(row, rule),
        memory,
    )


BY_WEIGHT = tuple(_under(row, rule, MEMORY, "e") for rule in WEIGHTINGS for row in TERMS)
"""Every row of Table 3 under every rule, against er under the same rule."""
OUT_OF_SAMPLE = (
    *(_under(row, rule, UNFITTED, "g") for rule in WEIGHTINGS for row in ("er", "er+da", ROW)),
    *_in_place(UNFITTED),
)
"""The same at a memory to which nothing was fitted; the paper has +0.4 and +4.4 over er there."""


def _read_otherwise(host: str) -> tuple[Rung, ...]:
    name = f"{host}+dualmix"
    fewer = {"method.mix.old": "task", "method.mix.pairs": "fewer"}
    return (
        Rung(name, "h", f"{name} as its preset", name),
        Rung(f"{name}, base", "h", "every term weighs 1", name, name, weighting(ROW, "sum")),
        Rung(f"{name}, fewer", "h", "AdpMix pairs earlier tasks' images only", name, name, fewer),
    )


HOSTS = tuple(rung for host in ("gss", "mir", "aser") for rung in _read_otherwise(host))
"""Hosts that lie above the paper, under two other readings of it: is it the reading or the host?"""
IN_PLACE = _in_place(MEMORY)
RUNGS = {
    rung.name: rung for rung in (*LADDER, *CONTROLS, *IN_PLACE, *BY_WEIGHT, *OUT_OF_SAMPLE, *HOSTS)
}


@dataclass(frozen=True, slots=True)
class Loss:
    """What the loss of a rung is made of.

    Attributes
    ----------
    new
        The share of its weights that new images have. Those that AdpMix mixes are new by half,
        because Beta(alpha, alpha) has the mean 1/2.
    viewed
        Whether rehearsed images are also learned as augmented views, mixed or not.
    """

    new: float
    viewed: bool


def loss_of(rung: Rung) -> Loss:
    """Return what the loss of a rung is made of, from its preset's weights and its own."""
    told = dict(flatten(compose(rung.preset, rung.settings()).config.record()))
    mix = {path.removeprefix("method.mix."): value for path, value in told.items()}
    new = mix["stream"] + mix["new_view"] + mix["adpmix"] * (mix["mixed"] / 2)
    views = mix["view"] + mix["enmix"] + mix["adpmix"]
    share = new / sum(mix[term] for term in ALL_TERMS)
    return Loss(share, views > 0 and mix["augment"] != "identity")


def ladder_jobs(
    *,
    seeds: Sequence[int] = range(SEEDS),
    rungs: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> list[Job]:
    """Return the runs of all rungs or of those named, seeds slowest. Rungs that are the same
    configuration under two names are run once, because a store has one folder for it.
    """
    check_rows("ladder", rungs, RUNGS)
    return [
        Job(rung.preset, {**rung.settings(), **(values or {}), "seed": seed})
        for seed in seeds
        for rung in RUNGS.values()
        if not rungs or rung.name in rungs
    ]
