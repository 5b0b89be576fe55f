"""Figures: every one is drawn from the store, with numbers by hand; a missing one says how to make
it.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")

from altair import ConcatChart
from altair.utils.schemapi import debug_mode

from dualmix.paper.grids import jobs
from dualmix.paper.numbers import ROWS
from dualmix.paper.proposition import verdicts
from dualmix.report.calibration import calibrations
from dualmix.report.charts import COLOURS, DASHES, SHAPES, Figure, axis_about, styles
from dualmix.report.collect import collect
from dualmix.report.curves import ChosenLine, _first_shown, any_curves
from dualmix.report.figures import figures
from dualmix.report.labels import sides_of
from dualmix.report.tables import summarise
from dualmix.runs.records import Collection
from dualmix.store.store import Store

from .makers import accurate, counts, everything, made, record


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    root = tmp_path_factory.mktemp("everything")
    everything(root)
    return collect(Store(root))


@pytest.fixture(scope="module")
def drawn(full: Collection) -> dict[str, Figure]:
    with debug_mode(False):
        return all_figures(full)


def all_figures(collection: Collection) -> dict[str, Figure]:
    tables, claims = summarise(collection), verdicts(collection.runs)
    return {figure.id: figure for figure in figures(tables, claims)}


def rows(spec: dict[str, Any], panel: int = 0) -> list[dict[str, Any]]:
    """Return the data of a specification, or of one of its panels."""
    part = spec["concat"][panel] if "concat" in spec else spec
    layers = [*part.get("layer", [])[-2:0:-1], part, spec]  # a last layer writes end values
    found = next(layer["data"] for layer in layers if "data" in layer)
    return list(found["values"] if "values" in found else spec["datasets"][found["name"]])


def one(root: Path, name: str) -> Figure:
    with debug_mode(False):
        (figure,) = [f for f in figures(summarise(collect(Store(root))), []) if f.id == name]
    return figure


def only(root: Path, name: str) -> list[dict[str, Any]]:
    return rows(one(root, name).views[0].spec)


@pytest.mark.slow
def test_every_figure_is_there_and_valid(full: Collection) -> None:
    """Altair checks each specification against the schema of Vega-Lite as it is made, and those
    that it did not make here.
    """
    drawn = all_figures(full)
    assert [figure.id for figure in drawn.values() if not figure.views] == ["bench"]
    for figure in drawn.values():
        for view in figure.views:
            assert rows(view.spec), figure.id
            if figure.id in ("curves", "errors"):
                ConcatChart.from_dict(view.spec, validate=True)
            assert "https://vega.github.io/schema/vega-lite/v6" in view.spec["$schema"]
            assert "config" not in view.spec
        assert len({view.name for view in figure.views}) == len(figure.views)


def test_an_empty_store_has_no_figure_but_the_commands(tmp_path: Path) -> None:
    for figure in figures(summarise(collect(Store(tmp_path))), []):
        words = shlex.split(figure.command)
        assert not figure.views and not figure.says
        if figure.id == "bench":
            assert words[:3] == ["python", "-m", "benchmarks"]
            continue
        assert words[:2] == ["dualmix", "sweep"]
        flags = list(zip(words[3::2], words[4::2], strict=True))
        methods = [value for flag, value in flags if flag == "--methods"]
        assert jobs(words[2], methods=methods), figure.id


def test_subset_data_are_marked(drawn: dict[str, Figure]) -> None:
    assert [view.name for view in drawn["curves"].views if view.name.endswith(": accuracy")] == [
        "CIFAR-100, memory 1,000: accuracy",
        "CIFAR-100, memory 2,000: accuracy",
        "CIFAR-100, memory 300: accuracy",
        "Mini-ImageNet (subset), memory 1,000: accuracy",
        "CIFAR-100, first 10 tasks, memory 500: accuracy",
    ]


def test_a_host_stands_beside_itself_with_dualmix(tmp_path: Path) -> None:
    """After task 2: 10, 15 and 20 per cent, so 15 ± 4.303 * 5 / sqrt(3) = 15 ± 12.42."""
    accurate(tmp_path, "er", [10, 15, 20])
    accurate(tmp_path, "er+dualmix", [30])
    accurate(tmp_path, "er+da", [40])
    accurate(tmp_path, "mir", [5])
    accurate(tmp_path, "aser", [6], {"method.bn": "once"})
    (spec,) = [v.spec for v in one(tmp_path, "curves").views if v.name.endswith("accuracy")]
    panels = spec["concat"]
    assert [panel["title"] for panel in panels] == ["er", "mir", "aser: bn once"]
    found = rows(spec)
    assert [(r["name"], r["strong"], r["task"], r["mean"], r["n"]) for r in found] == [
        ("er", False, 1, 100.0, 3),
        ("er", False, 2, 15.0, 3),
        ("er+dualmix", True, 1, 100.0, 1),
        ("er+dualmix", True, 2, 30.0, 1),
    ]
    assert found[1]["high"] - found[1]["mean"] == pytest.approx(12.42, abs=0.01)
    assert found[1]["text"] == "15.00 ± 12.42"
    ends = panels[0]["layer"][-1]["data"]["values"]
    assert [(end["text"], end["at"]) for end in ends] == [("15.0", 15.0), ("30.0", 30.0)]
    scales = {str(layer["encoding"]["y"]["scale"]) for p in panels for layer in p["layer"]}
    assert len(scales) == 1, "all panels have the same axis"


def test_end_values_do_not_cover_each_other(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [30])
    accurate(tmp_path, "er+dualmix", [31])
    (spec,) = [v.spec for v in one(tmp_path, "curves").views if v.name.endswith("accuracy")]
    low, high = spec["concat"][0]["layer"][-1]["data"]["values"]
    assert (low["text"], high["text"]) == ("30.0", "31.0")
    pixels = (
        spec["concat"][0]["height"]
        / spec["concat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"][1]
    )
    assert (high["at"] - low["at"]) * pixels >= 12


def test_any_configuration_has_a_curve(full: Collection) -> None:
    chosen = any_curves(summarise(full).streams)
    assert [(len(one.lines), len(one.stream.groups)) for one in chosen] == [
        (len(one.stream.groups),) * 2 for one in chosen
    ]
    names = [line.name for line in chosen[0].lines]
    assert len(set(names)) == len(names)
    assert any(name.startswith("er+da (mix.augment flip), memory 1,000: ") for name in names)
    assert set(chosen[0].shown) <= set(range(len(chosen[0].stream.plain)))
    drawn_ = chosen[0].spec
    assert {row["method"] for row in rows(drawn_)} == {
        line.name for line in chosen[0].lines if line.place in chosen[0].shown
    }


def test_confusion_and_heat_map_by_hand(tmp_path: Path) -> None:
    made(tmp_path, "er", table=counts([[5], [2, 7]]))
    made(tmp_path, "er", 1, table=counts([[7], [4, 7]]))
    assert {(r["after"], r["tested"]): r["accuracy"] for r in only(tmp_path, "heatmap")} == {
        (1, 1): 60.0,
        (2, 1): 30.0,
        (2, 2): 70.0,
    }
    assert {(r["true"], r["predicted"]): r["share"] for r in only(tmp_path, "confusion")} == {
        (1, 1): 30.0,
        (1, 2): 70.0,
        (2, 1): 30.0,
        (2, 2): 70.0,
    }


def test_error_shares_by_hand(tmp_path: Path) -> None:
    """All errors on old images go to the new class and the other way round; a class to come does
    not count as old.
    """
    table = counts([[5], [2, 7], [1, 1, 4]])
    table[1, 1] = [1, 7, 2]
    made(tmp_path, "er", table=table)
    figure = one(tmp_path, "errors")
    new_old, old_new = (rows(figure.views[0].spec, panel) for panel in (0, 1))
    assert [(r["task"], r["mean"]) for r in new_old] == [
        (2, pytest.approx(100 / 3, abs=1e-3)),
        (3, 100.0),
    ]
    assert [(r["task"], r["mean"]) for r in old_new] == [(2, 100.0), (3, 100.0)]
    (said,) = figure.says
    assert "er takes 100 % (1 seed) of its errors on old classes for new ones" in said


def test_figures_4_and_6_share_their_axes(drawn: dict[str, Figure]) -> None:
    view = drawn["errors"].views[0]
    layers = [layer for panel in view.spec["concat"] for layer in panel["layer"]]
    assert {tuple(layer["encoding"]["y"]["scale"]["domain"]) for layer in layers} == {(0, 100)}
    assert {row["name"] for row in rows(view.spec)} == {"er", "er+adpmix"}


def test_probes_by_hand(tmp_path: Path) -> None:
    """Of 100 pairs in task 1 the gate opened for 10, of 50 more in task 2 for 30."""
    probes = [record(1, 1, {}, (100, 10)), record(2, 2, {}, (150, 40))]
    made(tmp_path, "er+adpmix", 0, {"probes.on": True}, probes=probes)
    assert [(r["task"], r["mean"]) for r in only(tmp_path, "gate")] == [(1, 10.0), (2, 60.0)]
    assert one(tmp_path, "gate").says == (
        "er+adpmix, memory 1,000: open for 40 of 150 pairs (26.7 %).",
    )
    assert [(r["task"], r["mean"]) for r in only(tmp_path, "norms")] == [(2, 1.2)]
    assert [(r["task"], r["images"]) for r in only(tmp_path, "memory")] == [(1, 10.0), (2, 20.0)]


def test_a_gate_that_never_opened_is_a_sentence(tmp_path: Path) -> None:
    for seed in (0, 1):
        probes = [record(1, 1, {}, (100, 0)), record(2, 2, {}, (150, 0))]
        made(tmp_path, "er+dualmix", seed, {"probes.on": True}, probes=probes)
    figure = one(tmp_path, "gate")
    assert figure.says[0] == ("The gate never opened in er+dualmix: 0 of 300 pairs in 2 runs.")
    assert not figure.views


def test_a_gate_that_is_always_open_is_a_hundred_per_cent(tmp_path: Path) -> None:
    made(tmp_path, "er+adpmix", 0, {"probes.on": True}, probes=[record(1, 1, {}, (150, 150))])
    assert one(tmp_path, "gate").says[0].endswith("open for 150 of 150 pairs (100.0 %).")


def test_figure_2_has_er_and_its_augmentations(drawn: dict[str, Figure], full: Collection) -> None:
    left = rows(drawn["figure2"].views[0].spec)
    names = [row["name"] for row in left]
    assert set(names) == {
        "none (er)",
        "identity",
        "flip",
        "crop-0.4",
        "crop-0.8",
        "jitter",
        "grey",
        "standard",
    }
    (group,) = [g for g in full.groups if dict(g.changed) == {"method.mix.augment": "flip"}]
    (flip,) = [row for row in left if row["name"] == "flip"]
    assert flip["mean"] == pytest.approx(
        sum(group.values("average_accuracy").values()) / 3, abs=1e-4
    )


def test_figure_5_averages_from_task_2_on(tmp_path: Path) -> None:
    for label, name in (("er+da", "view"), ("er+enmix", "enmix")):
        probes = [
            record(1, 1, {name: 9.0}),
            record(2, 2, {name: 4.0, "other": 50.0}),
            record(3, 3, {name: 2.0}),
        ]
        made(
            tmp_path,
            label,
            0,
            {"probes.on": True},
            table=counts([[5], [2, 7], [1, 1, 4]]),
            probes=probes,
        )
    spec = one(tmp_path, "figure5").views[0].spec
    assert {row["name"]: row["m"] for row in rows(spec)} == {"standard": 1.5, "enmix": 1.5}
    assert {row["name"]: row["m"] for row in rows(spec, 1)} == {"standard": 0.375, "enmix": 0.375}


def test_figure_5_says_how_the_ranks_go_together(tmp_path: Path) -> None:
    """m-bar falls and m-bar* grows with the accuracy of flip, grey, standard: 35, 45, 55 %."""
    for name, co, right in (("flip", 3.0, 2), ("grey", 2.0, 4), ("standard", 1.0, 6)):
        values = {"probes.on": True, "method.mix.augment": name}
        made(
            tmp_path,
            "er+da",
            0,
            values,
            table=counts([[5], [right, 5]]),
            probes=[record(2, 2, {"view": co})],
        )
    figure = one(tmp_path, "figure5")
    assert [panel["title"] for panel in figure.views[0].spec["concat"]] == [
        "rho -1.00",
        "rho +1.00",
    ]
    first, second, expected = figure.says
    assert "(Eq. 6 as written): Spearman's rho -1.00 [" in first
    assert first.endswith("] over 3 augmentations.") and "rho +1.00 [" in second
    assert expected.endswith("a negative rho.")


def test_figure_5_keeps_names_apart(tmp_path: Path) -> None:
    """flip and grey lie on one point, so their names go to both sides of it."""
    for name, co, right in (("flip", 1.0, 2), ("grey", 1.0, 2), ("standard", 2.0, 6)):
        values = {"probes.on": True, "method.mix.augment": name}
        made(
            tmp_path,
            "er+da",
            0,
            values,
            table=counts([[5], [right, 5]]),
            probes=[record(2, 2, {"view": co})],
        )
    sides = {row["name"]: row["side"] for row in rows(one(tmp_path, "figure5").views[0].spec)}
    assert {sides["flip"], sides["grey"]} == {"right", "left"} and sides["standard"] == "right"


@pytest.mark.parametrize("figure", ["figure2", "figure5"])
@pytest.mark.slow
def test_a_shortened_stream_has_a_picture_of_its_own(tmp_path: Path, figure: str) -> None:
    for first in (None, 10, 5):
        for label, change in (
            ("er", {}),
            ("er+da", {"method.mix.augment": "flip"}),
            ("er+da", {}),
            ("er+enmix", {}),
        ):
            values = {"stream.first": first, "probes.on": True, **change}
            if (first, change) != (None, {}) or label == "er":
                made(tmp_path, label, 0, values, probes=[record(2, 2, {"view": 4.0, "enmix": 3.0})])
    made(
        tmp_path,
        "er+da",
        0,
        {"method.mix.augment": "grey", "probes.on": True},
        probes=[record(2, 2, {"view": 4.0})],
    )
    made(tmp_path, "er+da", 0, {"method.mix.augment": "grey", "stream.first": 7, "method.lr": 0.2})
    views = one(tmp_path, figure).views
    assert [view.name for view in views] == [
        "CIFAR-100, memory 1,000",
        "CIFAR-100, first 10 tasks, memory 1,000",
        "CIFAR-100, first 5 tasks, memory 1,000",
    ]
    names = [{row["name"] for row in rows(view.spec)} for view in views]
    whole = {"none (er)"} if figure == "figure2" else set()
    part = whole if figure == "figure2" else {"enmix"}
    assert names == [
        {"flip", "grey"} | whole,
        {"flip", "standard"} | part,
        {"flip", "standard"} | part,
    ]


def test_pairs_are_drawn_and_told(tmp_path: Path) -> None:
    """Differences 9, 10 and 11: 10 ± 4.303 / sqrt(3) = 10 ± 2.48, p 0.003; mir has one seed."""
    accurate(tmp_path, "er", [10, 10, 10])
    accurate(tmp_path, "er+dualmix", [19, 20, 21])
    accurate(tmp_path, "mir", [10])
    accurate(tmp_path, "mir+dualmix", [5])
    figure = one(tmp_path, "paired")
    assert [(r["name"], r["mean"], r["text"]) for r in rows(figure.views[0].spec)] == [
        ("er", 10.0, "10.0 ± 2.5"),
        ("mir", -5.0, "-5.0"),
    ]
    (said,) = figure.says
    assert "accuracy is better for 1 of 2 and forgetting is better for 0 of 2" in said
    assert "tells apart er (average accuracy better)" in said


def test_methods_can_be_told_apart_without_colour() -> None:
    names, scales = styles([*ROWS, "mine"])
    plain = [
        (tuple(dash), shape)
        for dash, shape in zip(
            scales["dash"].to_dict()["range"], scales["shape"].to_dict()["range"], strict=True
        )
    ]
    assert names[: len(ROWS)] == list(ROWS) and len(set(plain)) == len(names)
    assert (
        len(set(COLOURS)) == len(COLOURS)
        and len(SHAPES) == 8
        and len({tuple(d) for d in DASHES}) == len(DASHES)
    )


def test_a_method_looks_the_same_in_every_figure() -> None:
    _, all_ = styles(ROWS)
    _, some = styles(["er+dualmix", "er"])
    for kind in ("color", "dash", "shape"):
        whole, part = all_[kind].to_dict(), some[kind].to_dict()
        look = dict(zip(whole["domain"], map(str, whole["range"]), strict=True))
        assert part["domain"] == ["er", "er+dualmix"]
        assert [look["er"], look["er+dualmix"]] == [str(value) for value in part["range"]]


def test_proposition_is_put_to_the_test_with_runs_that_count(
    full: Collection, tmp_path: Path
) -> None:
    (verdict,) = verdicts(full.runs)
    assert verdict.stream == "CIFAR-100, 20 tasks, er, memory 1,000"
    by_name = {one.name: one for one in verdict.operators}
    assert by_name["flip"].covariance == pytest.approx(8e-3) and by_name["flip"].seeds == 3
    assert verdicts(collect(Store(tmp_path)).runs) == []


def test_damaged_probes_do_not_stop_the_proposition(full: Collection, tmp_path: Path) -> None:
    shutil.copytree(full.root, tmp_path / "store")
    (bad,) = [
        run.name
        for run in full.runs
        if run.seed == 0 and dict(run.changed) == {"method.mix.augment": "flip"}
    ]
    (tmp_path / "store" / bad / "probes.json").write_text("[true]")
    (verdict,) = verdicts(collect(Store(tmp_path / "store")).runs)
    assert {one.name: one.seeds for one in verdict.operators}["flip"] == 3, "its scores count"


def test_readings_are_recognised(full: Collection) -> None:
    whole, short = calibrations(full)
    assert (whole.first, whole.memory, short.first, short.memory) == (None, 1000, 10, 500)
    shared = {"one-batch", "one-mean", "memory-mean", "rest-mean", "replaced", "bare"}
    assert {reading.name for reading, _ in whole.rows} == shared, "some readings agree about a row"
    for found in (whole, short):
        order = [(-len(deviation.rows), deviation.gains) for _, deviation in found.rows]
        assert order == sorted(order), "most rows first, then the nearest"
    assert len({len(deviation.rows) for _, deviation in whole.rows}) > 1
    replaced = {reading.name: deviation for reading, deviation in whole.rows}["replaced"]
    (group,) = [
        g
        for g in full.groups
        if (g.label, g.memory) == ("er+da", 1000) and ("method.mix.replay", 0.0) in g.changed
    ]
    assert replaced.rows["er+da"].accuracy == group.values("average_accuracy")
    assert replaced.seeds == (0,)


def _row(mean: float, half: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def test_an_immense_interval_does_not_set_the_axis() -> None:
    assert axis_about([_row(10, 1), _row(20, 90)]) == (6.25, 23.75)
    assert axis_about([_row(2, 0), _row(22, 90)]) == (0, 29.5)
    assert axis_about([_row(10, 1), _row(20, 5)], whole=True) == (8.25, 25.75)
    assert axis_about([_row(10, 1), _row(20, 0)]) == (8.25, 20.75)
    assert axis_about([_row(10, 1), _row(20, 0)], zero=True) == (0, 20.75)
    assert axis_about([_row(1, 5), _row(2, 1)], whole=True) == (0, 6.075), "no share is negative"
    signed = axis_about([_row(1, 5), _row(2, 1)], whole=True, signed=True)
    assert signed == pytest.approx((-4.075, 6.075)), "a difference is"
    assert axis_about([_row(5, 0), _row(9, 0)]) == pytest.approx((4.7, 9.3))
    low, high = axis_about([_row(5, 0)])
    assert low < 5 < high


def test_the_first_curves_are_the_best_each_with_its_host() -> None:
    labels = ["er", "gss", "er+da", "mir", "er+dualmix", "mir+dualmix", "dvc", "scr"]
    means = [9, 8, 15, 7, 19, 21, 20, 18]
    lines = [
        ChosenLine(place, label, [{"mean": mean}])
        for place, (label, mean) in enumerate(zip(labels, means, strict=True))
    ]
    names = [line.name for line in _first_shown(lines, labels)]
    assert names == ["er", "mir", "er+dualmix", "mir+dualmix", "dvc", "scr"]


def test_the_names_of_points_that_are_near_stand_on_other_sides() -> None:
    assert sides_of(["alone", "far"], [(0, 0), (1, 1)], 200, 200) == ["right", "right"]
    assert sides_of(["left", "near"], [(0, 0), (0.1, 0), (1, 1)][:2], 20, 0) == ["left", "right"]


def test_a_store_without_presets_has_its_maps(tmp_path: Path) -> None:
    """Of each method the configuration with most seeds is shown, and named by its settings."""
    made(tmp_path, "er", values={"method.lr": 0.5}, table=counts([[9], [9, 9]]))
    for seed in (0, 1):
        made(tmp_path, "er", seed, {"method.lr": 0.25}, table=counts([[5], [2, 7]]))
    for name in ("heatmap", "confusion"):
        assert {row["method"] for row in only(tmp_path, name)} == {"er (lr 0.25)"}
        (panel,) = one(tmp_path, name).views[0].spec["concat"]
        assert panel["title"] == ["er", "lr 0.25"]
