"""The benchmark: ratios by hand, no verdict where the spread is larger than the difference, every group runs."""

from __future__ import annotations

import json

import pytest

from dualmix import bench
from dualmix.bench import Row, interleaved, rows
from dualmix.errors import ConfigError


def test_every_round_makes_all_calls_in_an_order_that_rotates() -> None:
    made: list[str] = []
    ticks = iter(range(1000))
    taken = interleaved({name: lambda name=name: made.append(name) for name in "abc"}, 3, lambda: next(ticks))
    assert "".join(made) == "abc" + "abc" + "bca" + "cab"
    assert taken == {name: [1, 1, 1] for name in "abc"}


def test_ratios_are_taken_round_by_round() -> None:
    taken = {"slow": [2.0, 4.0, 6.0, 8.0, 10.0], "floor": [1.0, 2.0, 3.0, 4.0, 5.0]}
    floor, slow = rows("g", taken, "floor", {"slow": 2.1})
    assert (floor.name, floor.seconds, floor.ratio) == ("floor", 3.0, None)
    assert (slow.ratio, slow.low, slow.high) == (2.0, 2.0, 2.0)
    assert slow.spread == pytest.approx((8 - 4) / 2 / 6)
    assert slow.verdict == "met"
    (_, fast) = rows("g", taken, "slow", {"floor": 2.1}, inverse=True)
    assert (fast.ratio, fast.verdict) == (2.0, "missed")


@pytest.mark.parametrize(
    ("low", "high", "limit", "atleast", "says"),
    [
        (1.0, 1.1, 1.12, False, "met"),
        (1.1, 1.2, 1.12, False, "unclear"),
        (1.2, 1.3, 1.12, False, "missed"),
        (1.5, 1.6, 1.45, True, "met"),
        (1.4, 1.5, 1.45, True, "unclear"),
        (1.3, 1.4, 1.45, True, "missed"),
        (1.3, 1.4, None, True, ""),
    ],
)
def test_verdicts(low: float, high: float, limit: float | None, atleast: bool, says: str) -> None:
    assert Row("g", "n", 1.0, 0.1, (low + high) / 2, low, high, limit, atleast).verdict == says


def test_what_is_not_known_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean step"):
        bench.bench(["stpe"])
    with pytest.raises(ConfigError, match=r"did you mean der\+\+"):
        bench.bench(["step"], methods=["der+"])


def test_every_row_of_the_table_to_beat_has_its_limit() -> None:
    limits = {name: limit for name, (_, _, limit) in bench.STEPS.items() if limit}
    expected = {"er": 1.12, "er+dualmix": 3.3, "er+dualmix, joint": 2.4, "agem": 1.2, "mir": 2.7, "aser": 5.0}
    assert limits == expected | {"gss": 7.5, "scr": 2.4, "scr-100": 10.5, "der++": 1.7}


def test_steps_and_other_groups_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MEMORY", 50)
    found = bench.bench(["step", "augmentation", "filing"], rounds=2, methods=["er", "er+dualmix, joint"])
    steps = {row.name: row for row in found if row.group == "step"}
    assert list(steps) == ["floor", "er", "er+dualmix, joint"]
    assert all(row.seconds > 0 for row in found)
    joint = steps["er+dualmix, joint"].ratio
    assert joint is not None and joint > 1.2
    told = json.loads(bench.record(found))
    assert len(told["rows"]) == len(found) and told["versions"]["torch"]


def test_the_scale_run_meets_ever_new_classes() -> None:
    stages = bench.scale(400, 30, stages=4)
    assert [stage.images for stage in stages] == [100, 200, 300, 400]
    assert [stage.classes for stage in stages] == sorted(stage.classes for stage in stages)
    assert stages[-1].classes <= 30
    assert all(stage.step_seconds > 0 and stage.memory_mb > 50 for stage in stages)
