"""Rows by configuration: means, spreads and paired gains against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualmix.runs.collect import collect
from dualmix.runs.configurations import configurations, plain, spread
from dualmix.store.store import Store
from tests.report.makers import accurate, made


def test_spread_of_one_two_and_three() -> None:
    assert spread([]) is None
    one, two, three = spread([4.0]), spread([4.0, 6.0]), spread([4.0, 6.0, 8.0])
    assert one is not None and two is not None and three is not None
    assert (one.mean, one.std, one.half, one.n) == (4.0, None, None, 1)
    assert (two.mean, two.half, two.low, two.high) == (5.0, None, 4.0, 6.0)
    assert two.std == pytest.approx(2**0.5)
    assert three.half == pytest.approx(4.302653 * 2 / 3**0.5)  # t of 2 degrees, by table


def test_rows_and_gains(tmp_path: Path) -> None:
    for memory, er, more in ((100, [10, 20, 30], [15, 26, 37]), (200, [40], [50])):
        accurate(tmp_path, "er", er, {"method.memory": memory})
        accurate(tmp_path, "er+dualmix", more, {"method.memory": memory})
    accurate(tmp_path, "finetune", [2, 4])
    rows, common = configurations(collect(Store(tmp_path)).groups, "er")
    assert common == {}
    by = {(row.label, row.settings.get("memory")): row for row in rows}
    assert set(by) == {
        ("er", "100"),
        ("er", "200"),
        ("er+dualmix", "100"),
        ("er+dualmix", "200"),
        ("finetune", None),
    }
    row = by["er+dualmix", "100"]
    accuracy = row.spreads["average_accuracy"]
    assert accuracy is not None and row.against is not None
    assert (accuracy.mean, accuracy.n, row.values) == (26.0, 3, {0: 15.0, 1: 26.0, 2: 37.0})
    assert row.against.mean == pytest.approx(6.0)
    assert row.against.std == pytest.approx(1.0)
    assert row.curve == pytest.approx((100.0, 26.0))
    assert row.seconds == 61.0
    assert by["er", "100"].against is None
    record = plain(by["er+dualmix", "200"])
    assert (record["memory"], record["average_accuracy"], record["n"]) == ("200", 50.0, 1)
    assert record["average_accuracy_ci95"] is None


def test_a_gain_needs_the_same_stream_and_settings(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10, 20], {"stream.first": 1})
    accurate(tmp_path, "er+da", [30, 40])
    accurate(tmp_path, "er+da", [50], {"stream.first": 1, "method.mix.augment": "flip"})
    rows, _ = configurations(collect(Store(tmp_path)).groups, "er")
    gains = {row.settings["first"]: row.against for row in rows if row.label == "er+da"}
    assert gains["none"] is None
    assert gains["1"] is not None
    assert (gains["1"].mean, gains["1"].n) == (40.0, 1)


def test_only_some_folders_are_read_and_progress_is_told(tmp_path: Path) -> None:
    names = [made(tmp_path, "er", seed).name for seed in range(3)]
    told: list[tuple[str, int, int]] = []
    some = collect(Store(tmp_path), only=names[1:], progress=lambda *one: told.append(one))
    assert [run.name for run in some.runs] == sorted(names[1:])
    assert told == [("runs read", 0, 2), ("runs read", 1, 2)]


def test_two_files_have_two_titles(tmp_path: Path) -> None:
    for name in ("a", "b"):
        values = {"data.path": f"/some/{name}.npz"}
        made(tmp_path, "er", 0, values, data="arrays", fingerprint=name * 64)
    groups = collect(Store(tmp_path)).groups
    assert sorted(group.content.title for group in groups) == ["a.npz", "b.npz"]
    rows, _ = configurations(groups)
    assert sorted(row.settings["data"] for row in rows) == ["a.npz", "b.npz"]
