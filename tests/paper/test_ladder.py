"""The ladder: each rung changes one thing, and its ends are the presets."""

from __future__ import annotations

import pytest

from dualmix.config.compose import compose, flatten
from dualmix.paper import grids
from dualmix.paper.grids import ONE_MEAN
from dualmix.paper.ladder import LADDER, ROW, RUNGS, WEIGHTINGS, Loss, loss_of, weighting
from dualmix.paper.readings import TERMS


def told(name: str) -> dict[str, object]:
    rung = RUNGS[name]
    record = dict(flatten(compose(rung.preset, rung.settings()).config.record()))
    return {path.removeprefix("method.mix."): value for path, value in record.items()}


def changed(a: str, b: str) -> dict[str, tuple[object, object]]:
    one, other = told(a), told(b)
    return {path: (one[path], other[path]) for path in one if one[path] != other[path]}


def test_both_ends_are_the_presets() -> None:
    for name, preset in (("er", "er"), ("dualmix", "er+dualmix")):
        config = compose(preset, {"data.name": "cifar100"}).config
        assert compose(RUNGS[name].preset, RUNGS[name].settings()).config.key("x") == config.key(
            "x"
        )


def test_each_rung_of_the_ladder_is_on_the_one_before() -> None:
    assert [rung.against for rung in LADDER] == ["", *(rung.name for rung in LADDER[:-1])]


FIFTH = pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("rung", "changes"),
    [
        ("weights", {"stream": (0.5, 1.0), "replay": (0.5, 1.0)}),
        ("new-view", {"new_view": (FIFTH, 0.0), "adpmix": (0.0, FIFTH)}),
        ("enmix", {"mixed": (True, False)}),
        (
            "adpmix-untilted",
            {"adpmix": (FIFTH, 0.0), "new_view": (0.0, FIFTH), "delta": (0.0, 0.05)},
        ),
        ("dualmix", {"delta": (0.05, 0.0)}),
        ("enmix-alpha-0", {"enmix_alpha": (0.0, None)}),
        ("adpmix-alpha-0", {"adpmix_alpha": (0.0, None)}),
        ("alpha-0", {"enmix_alpha": (0.0, None), "adpmix_alpha": (0.0, None)}),
        ("no-augmentation", {"augment": ("identity", "standard")}),
        ("kappa-0", {"kappa": (0.0, 2.0)}),
        ("delta-0.2", {"delta": (0.2, 0.05)}),
        (
            "adpmix-only",
            {
                "stream": (0.0, FIFTH),
                **dict.fromkeys(("replay", "view", "enmix", "adpmix"), (0.25, FIFTH)),
            },
        ),
        (
            "adpmix-half",
            {
                "stream": (0.0, FIFTH),
                **dict.fromkeys(("replay", "view", "enmix"), (pytest.approx(1 / 6), FIFTH)),
                "adpmix": (0.5, FIFTH),
            },
        ),
    ],
)
def test_what_a_rung_changes(rung: str, changes: dict[str, tuple[object, object]]) -> None:
    assert changed(rung, RUNGS[rung].against) == changes


def test_only_the_memory_parts_a_rung_from_its_twin_at_5000() -> None:
    """Only the memory differs, and it is no setting of the mix."""
    assert changed("adpmix-only-5000", "adpmix-only") == {"method.memory": (5000, 1000)}


@pytest.mark.parametrize(
    ("rung", "new", "viewed"),
    [
        ("er", 1 / 2, False),
        ("weights", 1 / 2, False),
        ("views", 1 / 5, True),
        ("new-view", 2 / 5, True),
        ("dualmix", 3 / 10, True),
        ("no-augmentation", 3 / 10, False),
        ("adpmix-only", 1 / 8, True),
        ("adpmix-half-5000", 1 / 4, True),
        ("er+adpmix, one-mean", 3 / 8, True),
        ("er+adpmix, rest-mean", 7 / 12, True),
        ("er+da, rest-mean", 1 / 2, True),
    ],
)
def test_the_share_of_new_images_in_the_loss(rung: str, new: float, viewed: bool) -> None:
    """Worked out by hand from the weights; an image of AdpMix is new by half."""
    assert loss_of(RUNGS[rung]) == Loss(pytest.approx(new), viewed)


def test_views_are_as_many_and_weigh_as_much_as_the_mixes() -> None:
    """Against er+dualmix itself the rung `views` differs in nothing but the mixing."""
    assert changed("views", "dualmix") == {"mixed": (False, True)}


def test_rules_are_the_same_for_every_row() -> None:
    for row, terms in TERMS.items():
        weights = {
            rule: [weighting(row, rule)[f"method.mix.{term}"] for term in terms]
            for rule in WEIGHTINGS
        }
        assert weights["sum"] == [1.0] * len(terms)
        assert sum(weights["one-mean"]) == pytest.approx(1) and len(set(weights["one-mean"])) == 1
        assert weights["rest-mean"][0] == 1 and sum(weights["rest-mean"][1:]) == pytest.approx(1)


def test_adpmix_in_place_of_the_new_batch() -> None:
    """As Eq. 13 has it: AdpMix's images weigh what the new batch's do, which are gone."""
    third = pytest.approx(1 / 3)
    of = {path.removeprefix("method.mix."): w for path, w in weighting(ROW, "in-place").items()}
    memory = dict.fromkeys(("replay", "view", "enmix"), third)
    assert of == {**memory, "adpmix": 1.0, "stream": 0.0, "new_view": 0.0}
    for row in ("er", "er+da", "er+enmix"):
        assert weighting(row, "in-place") == weighting(row, "rest-mean"), "they have no AdpMix"


def test_the_filed_one_mean_and_the_preset_of_da_are_found_again() -> None:
    one = compose("er+da", {"data.name": "cifar100"}).config.key("x")
    rung = RUNGS["er+da, rest-mean"]
    assert compose(rung.preset, rung.settings()).config.key("x") == one
    assert not changed("view", "er+da, one-mean"), "one configuration under two names"


def test_grids() -> None:
    jobs = grids.jobs("ladder")
    assert len(jobs) == 3 * len(RUNGS) and {job.values["seed"] for job in jobs} == {0, 1, 2}
    out = grids.jobs("ladder", seeds=[0], methods=["er+dualmix, sum-5000"])
    assert [job.values["method.memory"] for job in out] == [5000]
    rows = grids.jobs(ONE_MEAN, seeds=[0], memory=[2000])
    assert [job.preset for job in rows] == list(TERMS)
    assert [job.values["method.mix.replay"] for job in rows] == [1 / len(t) for t in TERMS.values()]
