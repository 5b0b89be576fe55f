"""Runs are told apart by the settings that differ, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualmix.config.compose import compose
from dualmix.runs.apart import (
    Told,
    Usual,
    name_data,
    name_runs,
    of_composed,
    of_folder,
    shared,
    tell_apart,
)
from dualmix.store.store import Store
from tests.report.makers import made


def runs(*given: tuple[str, dict[str, object]]) -> list[Told]:
    usual = Usual()
    return [of_composed(compose(label, values), usual) for label, values in given]


def test_what_presets_differ_in_is_not_told() -> None:
    few = {"method.memory": 50}
    assert name_runs(runs(("er", few), ("er+dualmix", few), ("mir", few))) == [
        "er seed 0",
        "er+dualmix seed 0",
        "mir seed 0",
    ]


def test_a_grid_is_told_by_its_axes_also_where_a_value_is_the_default() -> None:
    axes = [{"method.memory": m, "method.lr": lr} for m in (50, 1000) for lr in (0.05, 0.5)]
    assert name_runs(runs(*(("er", {**at, "seed": 7}) for at in axes))) == [
        "er memory 50 lr 0.05 seed 7",
        "er memory 50 lr 0.5 seed 7",
        "er memory 1000 lr 0.05 seed 7",
        "er memory 1000 lr 0.5 seed 7",
    ]


def test_of_many_settings_only_ones_own_are_told() -> None:
    changes = ({}, {"method.lr": 0.5}, {"model.width": 4}, {"stream.batch": 3}, {"threads": 2})
    names = [{}, {"lr": "0.5"}, {"width": "4"}, {"batch": "3"}]
    assert tell_apart(runs(*(("er", change) for change in changes[:4]))) == [
        {"lr": lr, "width": width, "batch": batch}
        for lr, width, batch in (
            ("0.03", "8", "10"),
            ("0.5", "8", "10"),
            ("0.03", "4", "10"),
            ("0.03", "8", "3"),
        )
    ]
    assert tell_apart(runs(*(("er", change) for change in changes)))[:4] == names


def test_what_all_share_is_told_once() -> None:
    told = runs(("er", {"stream.first": 2}), ("mir", {"stream.first": 2, "method.lr": 0.5}))
    assert shared(told) == {"stream.first": "2"}
    assert tell_apart(told) == [{"lr": "0.03"}, {"lr": "0.5"}]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/a.npz", "/x/b.npz"], ["a.npz", "b.npz"]),
        (["/x/a.npz", "/y/a.npz"], ["x/a.npz", "y/a.npz"]),
        (["/x/a.npz", "/x/a.npz"], ["a.npz", "a.npz"]),
    ],
)
def test_files_are_told_apart_by_name(paths: list[str], names: list[str]) -> None:
    told = runs(*(("er", {"data.name": "arrays", "data.path": path}) for path in paths))
    assert name_data(told) == names


def test_other_images_under_the_same_path_are_told_by_their_digest() -> None:
    (run,) = runs(("er", {"data.name": "arrays", "data.path": "/x/a.npz"}))
    told = [Told(run.label, run.settings, (), mark) for mark in ("abcdef01", "98765432")]
    assert name_data(told) == ["a.npz (abcdef)", "a.npz (987654)"]


def test_a_folder_is_told_like_its_configuration(tmp_path: Path) -> None:
    path = made(tmp_path, "er+da", 3, {"method.memory": 300, "method.mix.augment": "flip"})
    folder = Store(tmp_path).at(path)
    told = of_folder(folder, Usual())
    assert told is not None
    assert told.changed == (("method.mix.augment", "flip"),)
    (path / "config.json").write_text("{}")
    assert of_folder(Store(tmp_path).at(path), Usual()) is None


def test_the_data_count_among_the_settings_that_are_told() -> None:
    """Beside a folder's three settings of its own, what they would be for arrays tells nothing."""
    own = {"data.size": 8, "data.fit": "pad", "data.skip": True}
    both = {"method.kind": "er", "data.path": None, "method.memory": 50}
    other = {"data.size": None, "data.fit": "squeeze", "data.skip": False}
    pictures = Told("er", {**both, "data.name": "folder", **own}, tuple(own.items()))
    arrays = Told("er", {**both, "data.name": "arrays", **other})
    folder, rest = tell_apart([pictures, arrays])
    assert folder.keys() == {"data", "size", "fit", "skip"} and rest.keys() == {"data"}
