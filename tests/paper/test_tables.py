"""The paper's numbers, checked against statements in its text, and its grids."""

from __future__ import annotations

import pytest

from dualmix.errors import ConfigError
from dualmix.paper import tables as paper


def test_every_table_has_all_its_cells() -> None:
    assert {len(cells) for cells in paper.ACCURACY.values()} == {9}
    assert {len(cells) for cells in paper.FORGETTING.values()} == {9}
    assert {len(cells) for cells in paper.ABLATION_ACCURACY.values()} == {3}
    assert {len(cells) for cells in paper.ABLATION_FORGETTING.values()} == {3}
    assert (len(paper.ACCURACY), len(paper.FORGETTING), len(paper.ABLATION_ACCURACY)) == (11, 7, 5)
    assert list(paper.ABLATION_ACCURACY) == list(paper.ABLATION_FORGETTING)


def test_numbers_agree_with_what_the_paper_says_about_them() -> None:
    dvc, ours = paper.FORGETTING["dvc"], paper.FORGETTING["er+dualmix"]
    lower = [1 - b[0] / a[0] for a, b in zip(dvc, ours, strict=True)]
    assert (round(100 * min(lower[:3]), 1), round(100 * max(lower[:3]), 1)) == (8.7, 18.0)
    assert round(100 * max(lower[6:]), 1) == 38.1


def test_a_row_is_found_by_name_data_and_memory() -> None:
    assert paper.published("er+adpmix", "cifar100", 1000) == ((16.6, 1.2), (38.7, 1.8))
    assert paper.published("er+dualmix", "tiny_imagenet", 2000) == ((9.4, 1.4), (22.7, 2.0))
    assert paper.published("finetune", "mini_imagenet", 0) == ((3.2, 0.2), None)
    assert paper.published("scr", "cifar100", 5000) == ((17.5, 0.4), None)
    assert paper.published("er+adpmix", "mini_imagenet", 1000) == (None, None)
    assert paper.published("er", "digits", 1000) == (None, None)
    assert paper.published("er", "cifar100", 123) == (None, None)


def test_grids_have_the_runs_of_the_paper() -> None:
    assert len(paper.jobs("table1")) == 3 * 10 * (2 + 3 * 11)
    assert len(paper.jobs("table2", seeds=range(1))) == 3 * 3 * 7
    assert len(paper.jobs("table3", seeds=range(2), memory=[1000])) == 2 * 5
    narrow = paper.jobs(
        "table1",
        data=["cifar100"],
        memory=[2000],
        seeds=[3],
        methods=["er"],
        values={"device": "cuda"},
    )
    assert [(job.preset, dict(job.values)) for job in narrow] == [
        ("er", {"data.name": "cifar100", "method.memory": 2000, "device": "cuda", "seed": 3})
    ]


def test_aser_draws_more_rows_a_class_on_mini_imagenet() -> None:
    """As the reference code; what the user says goes first, and other hosts have no such setting."""
    rows = {
        "data": paper.DATA,
        "memory": [1000],
        "seeds": [0],
        "methods": ["aser", "aser+dualmix", "mir"],
    }
    found = {
        (job.preset, job.values["data.name"]): job.values.get("method.n_smp_cls")
        for job in paper.jobs("table1", **rows)
    }
    assert {at: n for at, n in found.items() if n} == {
        ("aser", "mini_imagenet"): 3,
        ("aser+dualmix", "mini_imagenet"): 3,
    }
    given = paper.jobs("table1", **{**rows, "methods": ["aser"]}, values={"method.n_smp_cls": 1})
    assert {job.values["method.n_smp_cls"] for job in given} == {1}


def test_figures_are_for_one_memory_and_one_data_set() -> None:
    values = [job.values for job in paper.jobs("figure2", seeds=[0])]
    assert {(v["data.name"], v["method.memory"]) for v in values} == {("cifar100", 1000)}
    assert [v.get("method.mix.augment") for v in values] == [
        None,
        "identity",
        "flip",
        "crop-0.4",
        "crop-0.8",
        "crop-1.3",
    ]


@pytest.mark.parametrize(
    ("name", "methods", "says"), [("tabel1", [], "table1"), ("table3", ["er+en"], "er\\+enmix")]
)
def test_a_wrong_name_is_answered_with_the_nearest(
    name: str, methods: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {says}"):
        paper.jobs(name, methods=methods)


def test_every_row_of_the_tables_is_a_method_of_the_package() -> None:
    from dualmix.registry import presets

    assert {*paper.BOUNDS, *paper.ACCURACY, *paper.FORGETTING, *paper.ABLATION_ACCURACY} <= set(
        presets()
    )
