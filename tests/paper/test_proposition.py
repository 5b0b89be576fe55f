"""Proposition 1: rankings by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import rankdata, spearmanr

from dualmix.cli import main
from dualmix.cli.proposition import proposition
from dualmix.config.compose import compose
from dualmix.paper.proposition import (
    RESAMPLES,
    average_ranks,
    bootstrap,
    border,
    rank_correlation,
    spearman,
    verdict,
    verdicts,
)
from dualmix.report.collect import collect
from dualmix.rng import generator
from dualmix.runs.run import run
from dualmix.store.store import Store


def measured(covariance: float, variance: float, bias: float) -> dict[str, float]:
    gap = variance + bias
    return {
        "covariance": covariance,
        "gap": gap,
        "gap_variance": variance,
        "gap_bias": bias,
        "mean_variance": covariance / 2,
        "sample_spread": -covariance,
    }


RECORD: dict[str, Any] = {
    "task": 3,
    "operators": {"a": measured(1, 1, 0), "b": measured(2, 2, 0), "c": measured(3, 3, -2.5)},
}
"""CO ranks a < b < c; FG is 1, 2, 0.5, so that only the pair (a, b) goes with CO and the bias
decides the others.
"""


def test_pairs_of_one_model_are_counted() -> None:
    found = border("run", RECORD)
    assert (found.task, found.agree, found.pairs, found.overruled) == (3, 1, 3, 2)
    assert found.rho == pytest.approx(-0.5)  # ranks 1 2 3 against 2 3 1: 1 - 6 * (1 + 1 + 4) / 24


def test_a_border_without_a_next_task_has_no_gap_to_rank() -> None:
    last = {
        "task": 4,
        "operators": {name: {"covariance": 1.0, "mean_variance": 1.0} for name in "abc"},
    }
    assert border("run", last).pairs == 0
    assert [b.task for b in verdict("s", [("run", [RECORD, last])], {}).borders] == [3]


def test_nothing_is_ranked_where_nothing_varies() -> None:
    def rho(a: list[float], b: list[float]) -> float:
        return float(spearman(np.array(a, dtype=float), np.array(b, dtype=float)))

    assert np.isnan(rho([1, 2, 3], [5, 5, 5]))
    assert np.isnan(rho([1, 2], [1, 2]))
    assert np.isnan(rho([1, 2, 3], [1, float("nan"), 2]))
    assert rho([1, 2, 3, 4], [10, 20, 30, 5]) == pytest.approx(1 - 6 * (1 + 1 + 1 + 9) / 60)


@pytest.mark.parametrize("n", [3, 4, 11, 40])
def test_ranks_and_correlations_are_scipys(n: int) -> None:
    """Small whole numbers have many ties; some rows do not vary at all."""
    rng = np.random.default_rng(n)
    a = rng.integers(0, 1 + n // 2, (300, n)).astype(float)
    b = rng.normal(size=(300, n)).round(1)
    b[:5] = 1.0
    np.testing.assert_array_equal(average_ranks(a), rankdata(a, axis=-1))
    want = [
        np.nan if len(set(x)) < 2 or len(set(y)) < 2 else spearmanr(x, y).statistic
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert 5 <= np.isnan(want).sum() < 200
    np.testing.assert_allclose(spearman(a, b), want, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_interval_is_that_of_resamples_drawn_one_by_one() -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 6)).round(1)
    rng = generator(0, "bootstrap", 6)
    drawn = []
    for _ in range(RESAMPLES):
        rows = rng.integers(0, 6, 6)
        if len(set(x[rows])) > 1 and len(set(y[rows])) > 1:
            drawn.append(spearmanr(x[rows], y[rows]).statistic)
    found = rank_correlation(x.tolist(), y.tolist())
    assert found.rho == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1e-12)


def test_averages_are_set_against_what_training_gave() -> None:
    trained = {
        "a": [(0.1, 0.5), (0.3, 0.7)],
        "b": [(0.15, 0.5)],
        "c": [(0.1, 0.4)],
        "d": [(0.9, 0.0)],
    }
    other = {
        "task": 1,
        "operators": {"a": measured(3, 1, 0), "b": measured(4, 2, 0), "c": measured(5, 3, -2.5)},
    }
    found = verdict("s", [("one", [RECORD]), ("two", [other])], trained)
    assert [one.name for one in found.operators] == ["a", "b", "c"]
    a = found.operators[0]
    assert (a.covariance, a.accuracy, a.forgetting, a.seeds) == (
        2.0,
        pytest.approx(0.2),
        pytest.approx(0.6),
        2,
    )
    assert found.accuracy.rho == pytest.approx(-1.0)
    assert found.forgetting.rho == pytest.approx(-1.0)
    assert found.gap.rho == pytest.approx(-0.5)
    assert found.holds == pytest.approx(1 / 3)
    assert found.accuracy.n == 3
    assert (a.mean_variance, a.sample_spread) == (1.0, -2.0)
    assert (found.mean_variance.rho, found.sample_spread.rho) == (
        pytest.approx(-1.0),
        pytest.approx(1.0),
    )
    assert found.sample_spread.words("augmentations").startswith("Spearman's rho +1.00 [")
    assert found.sample_spread.words("augmentations").endswith("] over 3 augmentations")
    assert (
        verdict("s", [("one", [RECORD])], {}).accuracy.words("augmentations")
        == "no ranking from 0 augmentations"
    )


def test_the_interval_holds_the_middle_of_the_resamples() -> None:
    found = bootstrap(lambda rows: rows.mean(-1), 100)
    assert found.rho == 49.5
    assert found.low is not None and found.high is not None
    assert found.low == pytest.approx(49.5 - 1.96 * 2.89, abs=0.7)
    assert found.high == pytest.approx(49.5 + 1.96 * 2.89, abs=0.7)


SMALL = {"model.width": 4, "method.memory": 20, "stream.first": 2, "stream.batch": 60}
PROBED = {"probes.on": True, "probes.draws": 2, "probes.rows": 9, "probes.past": 20}


@pytest.mark.slow
def test_runs_are_found_in_the_store_by_what_they_were_trained_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["proposition", "--store", str(tmp_path)])
    assert "`dualmix sweep proposition` trains" in capsys.readouterr().err
    names = ["identity", "flip", "enmix"]
    model = run(compose("er", {**SMALL, **PROBED, "probes.operators": names}), store)
    flip = run(compose("er+da", {**SMALL, "method.mix.augment": "flip"}), store)
    run(
        compose("er+da", {**SMALL, "method.mix.augment": "identity", "method.mix.replay": 0.0}),
        store,
    )
    run(compose("er+da", {**SMALL, "method.mix.augment": "identity", "model.width": 2}), store)
    run(compose("er+enmix", {**SMALL, "method.memory": 21}), store)
    (found,) = verdicts(collect(store).runs)
    where = "Digits, first 2 of 5 tasks, er, memory 20"
    assert found.stream == f"{where}, model.width 4, stream.batch 60"
    by_name = {one.name: one for one in found.operators}
    assert set(by_name) == set(names)
    assert by_name["flip"].accuracy == pytest.approx(flip.scores["average_accuracy"])
    assert by_name["identity"].accuracy is None
    assert by_name["enmix"].accuracy is None
    recorded = json.loads((model.folder.path / "probes.json").read_text())
    assert by_name["flip"].covariance == pytest.approx(
        sum(record["operators"]["flip"]["covariance"] for record in recorded) / 2
    )


def test_the_table_has_every_number_whole_in_80_columns() -> None:
    long = {name: measured(1.25e-17, 0, 1) for name in ("augmentation", "crop-0.8", "identity")}
    found = verdict(
        "s", [("run", [{"task": 1, "operators": long}])], {"augmentation": [(0.123, 0.456)] * 10}
    )
    screen = io.StringIO()
    Console(file=screen, width=80).print(proposition([found]))
    lines = [line.split() for line in screen.getvalue().splitlines()]
    (row,) = [line for line in lines if line[-1:] == ["10"]]
    assert row[:6] == ["augmentation", "1.2e-17", "1.0e+00", "1.0e+00", "6.2e-18", "-1.2e-17"]
    assert row[6:] == ["12.3", "45.6", "10"]
    assert "…" not in screen.getvalue()
