"""Which runs of a grid need no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dualmix.paper.grids import jobs
from dualmix.paper.independent import SURVEY
from dualmix.paper.ladder import RUNGS
from dualmix.report.collect import collect
from dualmix.report.known import Known
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Job

from .makers import made

AT = {"data.name": "cifar100", "method.memory": 1000}
PROBES = [
    {"task": 1},
    {"task": 2, "tally": {"adpmix gate open": 0}, "answers": {"weights, ncm": 1}},
]


def seeds(root: Path, job: Job, images: str = "") -> set[int]:
    known = Known(
        collect(Store(root)),
        lambda content: content.fingerprint == images if images else not content.subset,
    )
    return known.seeds(job)


@pytest.mark.parametrize("machinery", [{"model.engine": "native"}, {"threads": 4}, {}])
def test_a_run_is_known_from_another_engine_and_number_of_threads(
    tmp_path: Path, machinery: dict[str, Any]
) -> None:
    made(tmp_path, "er", 1, {**AT, **machinery})
    assert seeds(tmp_path, Job("er", AT)) == {1}
    assert seeds(tmp_path, Job("er", {**AT, "model.engine": "native"})) == {1}
    assert seeds(tmp_path, Job("er", {**AT, "method.memory": 2000})) == set()
    assert seeds(tmp_path, Job("er", {**AT, "method.lr": 0.2})) == set()


def test_runs_on_other_images_do_not_count(tmp_path: Path) -> None:
    made(tmp_path, "er", 0, AT, fingerprint="a" * 64)
    made(tmp_path, "er", 1, AT, fingerprint="b" * 64, notes=["subset: 3 of 4"])
    assert seeds(tmp_path, Job("er", AT)) == {0}
    assert seeds(tmp_path, Job("er", AT), images="b" * 64) == {1}
    assert seeds(tmp_path, Job("er", AT), images="c" * 64) == set()


def test_a_run_without_the_probes_that_are_asked_for_does_not_count(tmp_path: Path) -> None:
    made(tmp_path, "er", 0, AT)
    asked = {**AT, "probes.on": True, "probes.linear": True}
    assert seeds(tmp_path, Job("er", asked)) == set()
    made(tmp_path, "er", 1, {**AT, "probes.on": True}, probes=PROBES)
    assert seeds(tmp_path, Job("er", asked)) == set(), "no linear probe"
    made(tmp_path, "er", 2, asked, probes=PROBES)
    assert seeds(tmp_path, Job("er", asked)) == {2}
    assert seeds(tmp_path, Job("er", AT)) == {0, 1, 2}, "probes change nothing in the training"


def test_the_twin_with_the_probes_counts(tmp_path: Path) -> None:
    made(tmp_path, "er", 0, AT)
    asked = {**AT, "probes.on": True}
    made(tmp_path, "er", 0, {**asked, "model.engine": "native"}, probes=PROBES)
    assert seeds(tmp_path, Job("er", asked)) == {0}


def test_the_same_training_under_another_name_counts(tmp_path: Path) -> None:
    dualmix, ncm = RUNGS["dualmix"], next(row for row in SURVEY.rows if row.way)
    delta = Job("er+dualmix", RUNGS["delta-0.2"].settings())
    made(tmp_path, dualmix.preset, 0, dualmix.settings(), probes=PROBES)
    assert seeds(tmp_path, delta) == {0}, "its gate never opened"
    assert seeds(tmp_path, Job("er+dualmix", RUNGS["kappa-0"].settings())) == set()
    made(tmp_path, "er", 2, {**AT, "probes.on": True, "probes.answers": True}, probes=PROBES)
    assert seeds(tmp_path, Job("er", SURVEY.settings(ncm, 1000))) == {2}, "it was asked for it"
    subset = {"fingerprint": "b" * 64, "notes": ["subset: 3 of 4"]}
    made(tmp_path, dualmix.preset, 1, dualmix.settings(), probes=PROBES, **subset)
    assert seeds(tmp_path, delta) == {0}, "what a subset's gate did says nothing of the whole set"


def test_a_job_that_needs_no_run_still_needs_its_probes(tmp_path: Path) -> None:
    made(tmp_path, "er+dualmix", 0, RUNGS["dualmix"].settings(), probes=PROBES)
    (job,) = jobs("ladder", methods=["delta-0.2"], seeds=[0], values={"probes.on": True})
    assert seeds(tmp_path, job) == set()
