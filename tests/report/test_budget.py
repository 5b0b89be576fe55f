"""Hours behind a store's runs, and what its grids lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualmix.paper.grids import jobs
from dualmix.paper.ladder import RUNGS
from dualmix.report.budget import Lack, Pace, budget
from dualmix.report.collect import collect
from dualmix.report.markdown import markdown
from dualmix.report.matching import told
from dualmix.report.tables import summarise
from dualmix.store.store import Store

from .makers import accurate, counts, made

HOUR = 3599.0
"""Of training: makers add a second of evaluation."""


def lack(root: Path, name: str) -> Lack:
    (one,) = [one for one in budget(collect(Store(root))).lacks if one.name == name]
    return one


def test_hours_are_those_of_all_runs_twins_too(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10.0, 11.0], {"method.memory": 1000}, seconds=HOUR)
    native = {"method.memory": 1000, "model.engine": "native"}
    accurate(tmp_path, "er", [12.0], native, seconds=HOUR / 2 - 0.5)
    found = budget(collect(Store(tmp_path)))
    assert found.spent == pytest.approx(2.5)
    assert found.by_engine == pytest.approx({"native": 0.5, "torch": 2.0})
    assert (
        found.said
        == "The runs of this store took 2.5 hours of a core (0.5 on native, 2.0 on torch)."
    )


def test_a_grid_lacks_the_seeds_that_no_run_has(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10.0, 11.0], {"method.memory": 1000}, seconds=HOUR)
    made(tmp_path, "er", 7, {"method.memory": 1000}, table=counts([[5], [2, 8]]), seconds=HOUR)
    survey = lack(tmp_path, "survey")
    assert (survey.total, survey.there, survey.missing) == (42, 2, 40), "seed 7 is not asked for"
    assert survey.unknown == 6 + 6, "mir and gdumb at two memories, three seeds"
    assert survey.hours == pytest.approx(40 - 12), "an hour for each run of er"
    assert survey.text == "28.0 + ? for 12 runs"
    assert survey.command == "dualmix sweep survey --seeds 3 --missing"
    assert "--data cifar100" in lack(tmp_path, "table1").command


def test_pace_goes_by_steps(tmp_path: Path) -> None:
    """Half of a stream in half an hour tells that the whole takes one."""
    half = {"method.memory": 1000, "stream.first": 2}
    made(tmp_path, "er", 0, half, table=counts([[5], [2, 8]]), seconds=HOUR / 2 - 0.5)
    whole = counts([[5], [2, 8], [1, 2, 8], [1, 1, 2, 8]])
    made(tmp_path, "finetune", 0, table=whole, seconds=HOUR)
    table = lack(tmp_path, "survey")
    assert table.hours == pytest.approx(30.0, rel=1e-3), "five configurations of er, two memories"


def test_pace_is_that_of_the_engine_of_most_runs(tmp_path: Path) -> None:
    """er takes an hour on torch and half of it on the native engine, mir was run on torch alone."""
    native = {"method.memory": 1000, "model.engine": "native"}
    accurate(tmp_path, "er", [10.0], {"method.memory": 1000}, seconds=HOUR)
    accurate(tmp_path, "mir", [10.0], {"method.memory": 1000}, seconds=HOUR)
    assert lack(tmp_path, "survey").command == "dualmix sweep survey --seeds 3 --missing"
    accurate(tmp_path, "er", [10.0, 10.0, 10.0], native, seconds=HOUR / 2 - 0.5)
    survey = lack(tmp_path, "survey")
    assert survey.command == "dualmix sweep survey --seeds 3 --missing --model.engine native"
    assert (survey.there, survey.unknown) == (4, 6), "er's three seeds and one of mir"
    assert survey.hours == pytest.approx(27 / 2 + 5), "of er, five configurations twice; of mir"


def test_a_preset_of_many_passes_takes_as_long_as_its_runs(tmp_path: Path) -> None:
    accurate(tmp_path, "finetune", [3.0])
    table = counts([[5], [2, 8], [1, 2, 8], [1, 1, 2, 8]])
    made(tmp_path, "iid-offline", 0, table=table, seconds=HOUR)
    pace = Pace(collect(Store(tmp_path)))
    (job,) = jobs("table1", methods=["iid-offline"], data=["cifar100"], seeds=[1])
    assert pace.seconds(job) == pytest.approx(HOUR + 1)


def test_equal_configurations_count_once(tmp_path: Path) -> None:
    accurate(tmp_path, "finetune", [3.0])
    distinct = {told(job.preset, job.values) for job in jobs("ladder", seeds=[0])}
    assert len(distinct) < len(RUNGS)
    assert lack(tmp_path, "ladder").total == 3 * len(distinct)


def test_rungs_that_need_no_run_are_not_missing(tmp_path: Path) -> None:
    rung = RUNGS["dualmix"]
    probes = [{"task": 1}, {"task": 2, "tally": {"adpmix gate open": 0}}]
    made(tmp_path, rung.preset, 0, rung.settings(), table=counts([[5], [2, 8]]), probes=probes)
    assert lack(tmp_path, "ladder").there == 4, "dualmix, untilted, and the two deltas"


def test_other_data_ask_for_nothing(tmp_path: Path) -> None:
    made(tmp_path, "er", 0, {"method.memory": 1000}, data="digits", table=counts([[5], [2, 8]]))
    assert not budget(collect(Store(tmp_path))).lacks
    made(tmp_path, "er", 1, {"method.memory": 1000}, notes=["subset: 3 of 4"])
    assert not budget(collect(Store(tmp_path))).lacks, "a subset is not the paper's data"
    text = markdown(summarise(collect(Store(tmp_path))))
    assert "## What it took" in text and "| grid |" not in text


def test_the_text_has_the_table(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10.0], {"method.memory": 1000})
    text = markdown(summarise(collect(Store(tmp_path))))
    assert "| survey | 1 of 42 | 41 |" in text
