"""The choice of a recommended combination: on seeds of its own, and by the mean over memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.runs.run import run
from dualmix.store.opening import open_store
from studies import recommend
from studies.recommend import (
    BASE,
    BUDGET,
    CANDIDATES,
    Standing,
    choose,
    gain,
    planned,
    report_command,
    shares,
    standing_table,
)

TINY = {"data.name": "digits", "stream.first": 1, "model.width": 1}


@pytest.mark.parametrize("host", ["er", "er+dualmix"])
def test_shares_of_distillation_are_one_mean_beside_it(host: str) -> None:
    values = shares(host, 5.5)
    learner = compose(f"{host}+mkd", {"data.name": "digits", **values}).config.method
    terms = ("stream", "replay", "view", "enmix", "adpmix", "new_view")
    weights = [getattr(learner.mix, name) for name in terms]
    assert sum(weights) + learner.mkd.weight == pytest.approx(1)
    assert learner.mkd.weight / sum(weights) == pytest.approx(5.5)
    assert len({weight for weight in weights if weight}) == 1


def stood(name: str, *by_memory: list[float]) -> Standing:
    return Standing(
        name,
        {
            size: dict(zip((100, 101, 102), values, strict=False))
            for size, values in zip((1000, 2000), by_memory, strict=True)
        },
    )


def test_the_choice_needs_every_run_and_is_the_best_mean_over_memories() -> None:
    base = stood(BASE, [10.0, 11.0, 12.0], [20.0, 20.0, 20.0])
    even = stood("even", [14.0, 15.0, 16.0], [24.0, 24.0, 24.0])
    one_sided = stood("one-sided", [10.0, 10.0, 10.0], [27.0, 27.0, 27.0])
    short = stood("short", [90.0, 90.0], [90.0, 90.0, 90.0])
    assert choose([base, one_sided, even, short], (1000, 2000)) is even
    assert choose([base, one_sided, even, short], (2000,)) is short
    assert choose([short], (1000, 2000)) is None
    difference = gain(even, base, 1000)
    assert (difference.mean, difference.std, difference.n) == (4.0, 0.0, 3)
    assert gain(short, base, 1000).n == 2


def test_only_class_orders_of_its_own_are_trained_within_the_budget(tmp_path: Path) -> None:
    runs = planned(["er+mkd"], (50,), TINY, open_store(str(tmp_path)))
    assert list(runs) == ["er+dualmix", "er+mkd"]
    for some in runs.values():
        configs = [run.composed.config for run in some[50]]
        assert [config.seeds() for config in configs] == [(100, 100), (101, 101), (102, 102)]
        for config in configs:
            method = config.method
            assert (method.memory_batch, method.iterations, method.lr) == (10, 1, 0.1)
            assert not config.model.mean
    with pytest.raises(ConfigError, match="did you mean er\\+mkd"):
        planned(["er+mdk"], (50,), TINY, open_store(str(tmp_path)))
    with pytest.raises(ConfigError, match="seeds 100 to 102 alone"):
        planned([], (50,), {**TINY, "order_seed": 0}, open_store(str(tmp_path)))


def test_every_candidate_is_a_configuration_of_its_own(tmp_path: Path) -> None:
    """Those that differ in the answer alone share their runs; what is reported has its own."""
    runs = planned([], (50,), TINY, open_store(str(tmp_path)))
    judged = [(run.folder.key, CANDIDATES[n].way) for n, by in runs.items() for run in by[50]]
    assert len(judged) == len(set(judged)) == 3 * len(CANDIDATES) and BASE in CANDIDATES
    assert len({key for key, _ in judged}) == 3 * 15
    reported = [compose(c.preset, c.values).config.key("f") for c in CANDIDATES.values()]
    assert len(set(reported)) == len(CANDIDATES)
    chosen = report_command("er+dualmix+ema, ncm", (1000,))
    assert "run er+dualmix+ema --data.name cifar100 --method.memory $m" in chosen
    assert "--method.readout ncm" in chosen


@pytest.mark.slow
def test_a_way_to_answer_is_judged_as_a_run_that_answers_so(tmp_path: Path) -> None:
    values = {**TINY, "stream.first": 2}
    store = open_store(str(tmp_path))
    for name in ("er+dualmix", "er+dualmix+ema, ncm"):
        one = CANDIDATES[name]
        judged, told = one.job(20, 100, values), {**BUDGET, "method.memory": 20, "seed": 100}
        by = one.accuracy(run(compose(judged.preset, judged.values), store).folder)
        alone = run(compose(one.preset, {**values, **told, **one.values}), store)
        assert alone.folder.path.name != name and by == pytest.approx(
            100 * alone.scores["average_accuracy"]
        )


def test_the_table_names_the_choice_and_where_it_is_reported(capsys: pytest.CaptureFixture) -> None:
    from dualmix.cli.terminal import make_console

    standings = [
        stood(BASE, [10.0, 11.0, 12.0], [20.0, 20.0, 20.0]),
        stood("er+mkd", [14.0, 15.0, 16.0], [22.0, 22.0, 22.0]),
    ]
    make_console().print(standing_table(standings, (1000, 2000)))
    said = " ".join(capsys.readouterr().out.split())
    assert "er+mkd 15.0 (3) +4.0 22.0 (3) +2.0" in said
    assert "Choice: er+mkd." in said and "at every memory: no" in said
    assert "for s in 0 1 2; do dualmix run er+mkd --data.name cifar100" in said


@pytest.mark.long
def test_a_choice_from_start_to_end(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--store", str(tmp_path), "--memory", "20", "--candidates", "er+mkd", "--json"]
    words += [word for path, value in TINY.items() for word in (f"--{path}", str(value))]
    with pytest.raises(SystemExit) as left:
        recommend.main([*words, "--workers", "1"])
    plain = json.loads(capsys.readouterr().out)
    assert left.value.code == 0 and plain["choice"] in ("er+mkd", "er+dualmix")
    assert {run["state"] for run in plain["runs"]} == {"done"} and len(plain["runs"]) == 6
