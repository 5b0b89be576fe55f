"""The paper's grids: the runs behind each table and figure."""

from __future__ import annotations

import pytest

from dualmix.errors import ConfigError
from dualmix.paper import grids
from dualmix.paper.numbers import DATA


def test_grids_have_the_runs_of_the_paper() -> None:
    assert len(grids.jobs("table1")) == 3 * 10 * (2 + 3 * 11)
    assert len(grids.jobs("table2", seeds=range(1))) == 3 * 3 * 7
    assert len(grids.jobs("table3", seeds=range(2), memory=[1000])) == 2 * 5
    narrow = grids.jobs(
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
    """As the reference code; the user's word goes first, other hosts have no such setting."""
    rows = {
        "data": DATA,
        "memory": [1000],
        "seeds": [0],
        "methods": ["aser", "aser+dualmix", "mir"],
    }
    found = {
        (job.preset, job.values["data.name"]): job.values.get("method.n_smp_cls")
        for job in grids.jobs("table1", **rows)
    }
    assert {at: n for at, n in found.items() if n} == {
        ("aser", "mini_imagenet"): 3,
        ("aser+dualmix", "mini_imagenet"): 3,
    }
    given = grids.jobs("table1", **{**rows, "methods": ["aser"]}, values={"method.n_smp_cls": 1})
    assert {job.values["method.n_smp_cls"] for job in given} == {1}


def test_figures_are_for_one_memory_and_one_data_set() -> None:
    values = [job.values for job in grids.jobs("figure2", seeds=[0])]
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
        grids.jobs(name, methods=methods)
