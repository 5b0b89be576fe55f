"""Tables of other papers as grids: every row is a configuration of its own, with its number."""

from __future__ import annotations

import pytest

from dualmix.config.compose import compose
from dualmix.data.catalog import DATASETS
from dualmix.errors import ConfigError
from dualmix.paper import grids
from dualmix.paper.independent import OCL_SURVEY, SCR_PAPER, SOURCES, SURVEY
from dualmix.paper.numbers import DATA


def test_every_row_has_a_number_per_memory_and_composes_to_a_configuration_of_its_own() -> None:
    for source in SOURCES.values():
        keys = {}
        for row in source.rows:
            assert len(row.published) == len(source.memory)
            assert not row.spread or len(row.spread) == len(source.memory)
            for memory in source.memory:
                config = compose(row.preset, source.settings(row, memory)).config
                assert config.method.memory == memory
                keys[config.key("x"), row.score] = row.name
        assert len(keys) == len(source.rows) * len(source.memory)


@pytest.mark.parametrize(
    ("source", "row", "numbers"),
    [
        (SURVEY, "er-ncm", (14.6, 27.6)),
        (SURVEY, "gdumb", (10.4, 22.1)),
        (SCR_PAPER, "scr-100", (26.6, 32.8, 37.8)),
        (SCR_PAPER, "aser", (14.4, 17.5, 21.7)),
        (OCL_SURVEY, "er-linear", (44.9,)),
    ],
)
def test_numbers_are_those_of_the_sources(source, row, numbers) -> None:
    assert next(one.published for one in source.rows if one.name == row) == numbers


def test_grids_by_name() -> None:
    assert len(grids.jobs("survey")) == 3 * 7 * 2
    assert len(grids.jobs("scr-paper", seeds=[0], memory=[2000])) == 5
    narrow = grids.jobs("survey", seeds=[4], methods=["er-labels"], memory=[5000])
    assert [(job.preset, dict(job.values)) for job in narrow] == [
        (
            "er",
            {
                "data.name": "cifar100",
                "method.memory": 5000,
                "method.softmax": "labels",
                "seed": 4,
            },
        )
    ]
    jobs = grids.jobs("ocl-survey")
    assert [job.values["seed"] for job in jobs] == [0, 1, 2, 3, 4], "both scores of one run"
    config = compose(jobs[0].preset, jobs[0].values).config
    assert (config.method.lr, config.method.iterations, config.stream.held_out) == (0.0599, 3, 0.05)
    assert (config.method.reservoir, config.method.train_augment) == ("balanced", "shift-flip")
    assert (config.method.forward, config.model.head) == ("pooled", "growing")
    assert config.probes.linear and config.model.mean == (0.5071, 0.4865, 0.4409)


def test_gdumb_of_the_survey_trains_in_the_last_pause_of_the_stream() -> None:
    job = grids.jobs("survey", seeds=[0], methods=["gdumb"], memory=[1000])[0]
    assert job.values["method.every"] == DATASETS[DATA[0]].tasks


def test_wrong_words_are_answered() -> None:
    with pytest.raises(ConfigError, match="did you mean er-ncm"):
        grids.jobs("survey", methods=["er-ncn"])
    with pytest.raises(ConfigError, match="cifar100 alone"):
        grids.jobs("scr-paper", data=["mini_imagenet"])
    with pytest.raises(ConfigError, match="leave memory out"):
        grids.jobs("ladder", memory=[1000])
    with pytest.raises(ConfigError, match="did you mean ladder"):
        grids.jobs("lader")
