"""The paper's numbers, checked against statements in its text."""

from __future__ import annotations

from dualmix.paper import numbers


def test_every_table_has_all_its_cells() -> None:
    assert {len(cells) for cells in numbers.ACCURACY.values()} == {9}
    assert {len(cells) for cells in numbers.FORGETTING.values()} == {9}
    assert {len(cells) for cells in numbers.ABLATION_ACCURACY.values()} == {3}
    assert {len(cells) for cells in numbers.ABLATION_FORGETTING.values()} == {3}
    assert (len(numbers.ACCURACY), len(numbers.FORGETTING), len(numbers.ABLATION_ACCURACY)) == (
        11,
        7,
        5,
    )
    assert list(numbers.ABLATION_ACCURACY) == list(numbers.ABLATION_FORGETTING)


def test_numbers_agree_with_what_the_paper_says_about_them() -> None:
    dvc, ours = numbers.FORGETTING["dvc"], numbers.FORGETTING["er+dualmix"]
    lower = [1 - b[0] / a[0] for a, b in zip(dvc, ours, strict=True)]
    assert (round(100 * min(lower[:3]), 1), round(100 * max(lower[:3]), 1)) == (8.7, 18.0)
    assert round(100 * max(lower[6:]), 1) == 38.1


def test_every_row_of_the_tables_is_a_method_of_the_package() -> None:
    from dualmix.registry import presets

    assert {
        *numbers.BOUNDS,
        *numbers.ACCURACY,
        *numbers.FORGETTING,
        *numbers.ABLATION_ACCURACY,
    } <= set(presets())
