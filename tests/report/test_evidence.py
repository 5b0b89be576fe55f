"""Ours beside other papers, the ladder paired by seed, and Table 3 by one rule."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dualmix.config.compose import compose
from dualmix.paper.independent import OCL_SURVEY, SURVEY
from dualmix.paper.ladder import LADDER, RUNGS, weighting
from dualmix.report.budget import budget
from dualmix.report.collect import collect
from dualmix.report.erring import erring, gap_difference
from dualmix.report.evidence import Beside, SourceTable, Step, ladder_steps, source_tables
from dualmix.report.ladder import by_question, ladder
from dualmix.report.markdown import markdown
from dualmix.report.shares import share_sentences, shares
from dualmix.report.summary import paragraphs
from dualmix.report.tables import paper_tables, summarise
from dualmix.report.ways import ways
from dualmix.runs import metrics
from dualmix.runs.records import Collection, Content, Group
from dualmix.store.store import Store

from .makers import accurate, counts, made


def read(root: Path) -> Collection:
    return collect(Store(root))


def source(found: Collection, name: str) -> SourceTable:
    (table,) = [t for t in source_tables(found) if t.source.name == name]
    return table


def beside(table: SourceTable, row: str, memory: int) -> Beside:
    (cell,) = [c for cells in table.cells for c in cells if (c.row.name, c.memory) == (row, memory)]
    return cell


def run_rung(root: Path, name: str, accuracies: list[float], preset: str = "") -> None:
    rung = RUNGS[name]
    accurate(root, preset or rung.preset, accuracies, rung.settings())


def step_of(found: Collection, name: str) -> Step:
    (step,) = [one for one in ladder_steps(found).steps if one.rung.name == name]
    return step


def test_ours_stands_beside_theirs_by_settings_not_by_label(tmp_path: Path) -> None:
    ncm = {"method.memory": 1000, "method.readout": "ncm"}
    accurate(tmp_path, "er", [14.0, 15.0, 16.0], ncm)
    accurate(tmp_path, "er", [20.0, 21.0, 20.5], {"method.memory": 5000})
    accurate(tmp_path, "er", [50.0], {"method.memory": 1000, "method.lr": 0.05})
    table = source(read(tmp_path), "survey")
    cell = beside(table, "er-ncm", 1000)
    assert (cell.ours.mean, cell.ours.n, cell.theirs, cell.mark) == (15.0, 3, (14.6, 0.0), "")
    assert cell.distance == "0.4 above"
    assert beside(table, "er", 5000).mark == "above"
    assert beside(table, "er", 1000).ours is None, "another learning rate is another row"
    assert (table.filled, table.total) == (2, 14)


def test_a_linear_probe_is_read_from_the_probes(tmp_path: Path) -> None:
    settings = OCL_SURVEY.settings(OCL_SURVEY.rows[0], 2000)
    probes = [{"task": 1}, {"task": 2, "linear": {"accuracy": 0.45}}]
    for seed in range(2):
        made(tmp_path, "er", seed, settings, table=counts([[5], [2, 8]]), probes=probes)
    table = source(read(tmp_path), "ocl-survey")
    assert beside(table, "er-linear", 2000).ours.mean == pytest.approx(45)
    assert beside(table, "er", 2000).ours.mean == pytest.approx(50)
    assert beside(table, "er", 2000).theirs == (28.15, 1.22)


def test_a_way_to_answer_stands_in_for_a_run_that_trains_alike(tmp_path: Path) -> None:
    shares = {0: 0.145, 1: 0.155, 2: None}
    for seed, share in shares.items():
        probes = [{"task": 1}, {"task": 2, "answers": {"weights, ncm": share} if share else {}}]
        values = {"method.memory": 1000}
        made(tmp_path, "er", seed, values, table=counts([[5], [2, 8]]), probes=probes)
    cell = beside(source(read(tmp_path), "survey"), "er-ncm", 1000)
    assert (cell.ours.mean, cell.seeds) == (15.0, (0, 1))
    assert beside(source(read(tmp_path), "survey"), "er-labels", 1000).ours is None
    assert beside(source(read(tmp_path), "scr-paper"), "er-ncm", 1000).ours is None, "20 tasks"
    accurate(tmp_path, "er", [20.0], {"method.memory": 1000, "method.readout": "ncm"})
    cell = beside(source(read(tmp_path), "survey"), "er-ncm", 1000)
    assert cell.ours.mean == pytest.approx(17.75), "a run of its own goes first"
    lack = next(one for one in budget(read(tmp_path)).lacks if one.name == "survey")
    assert lack.there == 3 + 2, "three of er, two of er-ncm"
    native = {"method.memory": 1000, "model.engine": "native"}
    probes = [{"task": 1}, {"task": 2, "answers": {"weights, ncm": 0.35}}]
    made(tmp_path, "er", 2, native, table=counts([[5], [2, 8]]), probes=probes)
    cell = beside(source(read(tmp_path), "survey"), "er-ncm", 1000)
    assert cell.seeds == (0, 1, 2), "a twin that was asked stands in too"


def test_rungs_are_paired_by_the_seeds_that_both_have(tmp_path: Path) -> None:
    run_rung(tmp_path, "er", [10.0, 12.0, 14.0, 30.0])
    run_rung(tmp_path, "weights", [11.0, 14.0, 17.0])
    found = read(tmp_path)
    step = step_of(found, "weights")
    assert step.seeds == (0, 1, 2)
    assert (step.difference.mean, step.difference.n, step.accuracy.mean) == (2.0, 3, 14.0)
    assert step.difference.std == pytest.approx(1.0)
    assert (step.anytime_difference.mean, step.anytime_difference.std) == (
        pytest.approx(1.0),
        pytest.approx(0.5),
    ), "the first task is known to 100 % by all: half of the difference after the second"
    assert step_of(found, "er").difference is None and step_of(found, "views").accuracy is None


def test_a_run_counts_for_every_rung_that_is_its_configuration(tmp_path: Path) -> None:
    run_rung(tmp_path, "er+da, one-mean", [18.0])
    run_rung(tmp_path, "er", [9.0])
    found = read(tmp_path)
    assert step_of(found, "view").accuracy.mean == 18.0
    assert step_of(found, "er, sum").accuracy.mean == step_of(found, "er, rest-mean").accuracy.mean


def test_the_figure_says_what_is_missing(tmp_path: Path) -> None:
    assert not ladder(ladder_steps(read_empty(tmp_path))).views
    run_rung(tmp_path, "er", [10.0, 12.0, 14.0])
    alone = ladder(ladder_steps(read(tmp_path)))
    assert not alone.views and not alone.says, "nothing is paired yet"
    run_rung(tmp_path, "weights", [11.0, 14.0, 17.0])
    figure = ladder(ladder_steps(read(tmp_path)))
    assert [view.name for view in figure.views] == ["From er to er+dualmix", "Which way they err"]
    assert "over er: weights +2.0 ± 2.5 (3 seeds)." in figure.says
    change = figure.views[0].spec["concat"][0]["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert change[0] < 2.0 - 2.5, "the whole interval is seen, below 0 too"
    steps = ladder_steps(read(tmp_path)).steps
    run = sum(step.accuracy is not None for step in steps)
    assert run > 1 and figure.says[-1] == f"{len(steps) - run} of {len(steps)} rungs were not run."
    assert "--seeds 3" in figure.command


def test_rungs_are_paired_on_the_engine_of_most_runs(tmp_path: Path) -> None:
    native = {"model.engine": "native"}
    run_rung(tmp_path, "er", [10.0, 12.0])
    rung = RUNGS["weights"]
    accurate(tmp_path, rung.preset, [11.0, 14.0], {**rung.settings(), **native})
    figure = ladder(ladder_steps(read(tmp_path)))
    assert "over er: weights +1.5 (2 seeds)." in figure.says
    assert "on the torch engine, but for weights (seeds 0, 1); er, one-mean" in figure.caption
    accurate(tmp_path, "er", [20.0], {**RUNGS["er"].settings(), **native})
    found = ladder_steps(read(tmp_path))
    assert found.engine == "native", "3 of 5 runs"
    figure = ladder(found)
    assert "over er: weights -3.5 (2 seeds)." in figure.says, "seed 0 against the native 20.0"
    assert "on the native engine, but for er (seed 1); er, sum (seed 1)" in figure.caption
    assert {run.engine for run in read(tmp_path).runs if run.label == "er"} == {"torch", "native"}


def gated(root: Path, seed: int, accuracy: float, pairs_open: int | None) -> None:
    """File a run of er+dualmix in which the gate opened for so many pairs; none: not counted."""
    tally = {} if pairs_open is None else {"adpmix pairs": 100, "adpmix gate open": pairs_open}
    probes = [{"task": 1, "tally": {}}, {"task": 2, "tally": tally}]
    table = counts([[100], [0, round(2 * accuracy)]], images=100)
    rung = RUNGS["dualmix"]
    made(root, rung.preset, seed, rung.settings(), table=table, probes=probes)


def test_a_closed_gate_makes_rungs_the_same_training(tmp_path: Path) -> None:
    for seed, (accuracy, pairs_open) in enumerate([(19.0, 0), (20.0, 7), (18.0, None), (17.0, 0)]):
        gated(tmp_path, seed, accuracy, pairs_open)
    run_rung(tmp_path, "enmix", [16.0])
    found = read(tmp_path)
    untilted = step_of(found, "adpmix-untilted")
    assert untilted.closed_seeds == (0, 3), "seed 1 was tilted, of seed 2 nothing is known"
    assert (untilted.accuracy.mean, untilted.difference.mean, untilted.seeds) == (18.0, 3.0, (0,))
    further = step_of(found, "delta-0.2")
    assert (further.difference.mean, further.difference.n) == (0.0, 2)
    assert step_of(found, "kappa-0").accuracy is None, "its gate is open"
    assert not step_of(found, "dualmix").closed_seeds
    (twin,) = [one for one in shares(ladder_steps(found)) if "delta-0.2" in one.names]
    assert twin.names[0] == "adpmix-untilted", "of seeds 0 and 3 both: dualmix itself has four"
    caption = ladder(ladder_steps(found)).caption
    assert "Not trained again: adpmix-untilted (seeds 0, 3); delta-0.1 (seeds 0, 3)" in caption
    run_rung(tmp_path, "delta-0.2", [25.0])
    found = read(tmp_path)
    assert step_of(found, "delta-0.2").closed_seeds == (3,), "a run of its own goes first"
    assert step_of(found, "delta-0.2").difference.mean == 3.0


def test_forgetting_beside_the_share_of_new_images(tmp_path: Path) -> None:
    """Of two tasks, the first known to 100 % and then to less, the loss is what is forgotten."""
    left = {"views": 90, "enmix": 40, "view": 70, "er": 20}
    for name, kept in left.items():
        rung = RUNGS[name]
        table = counts([[100], [kept, 50]], images=100)
        made(tmp_path, rung.preset, 0, rung.settings(), table=table)
    host = RUNGS["mir+dualmix"]
    made(tmp_path, host.preset, 0, host.settings(), table=counts([[100], [1, 50]], images=100))
    found = shares(ladder_steps(read(tmp_path)))
    assert [(one.names[0], one.viewed) for one in found] == [
        ("views", True),
        ("view", True),
        ("enmix", True),
        ("er", False),
    ]
    assert found[0].names == ("views", "plain-views"), "one training under two names"
    assert "er, sum" in found[3].names
    assert [one.new for one in found] == pytest.approx([1 / 5, 1 / 3, 2 / 5, 1 / 2], abs=1e-6)
    assert [one.forgetting.mean for one in found] == pytest.approx([10, 30, 60, 80])
    said, leaning = share_sentences(found)
    assert "memory 1,000: Spearman's rho +1.00" in said and "over 3 trainings" in said
    assert leaning.startswith("er(o,n) - er(n,o) against the share") and "memory 1,000" in leaning
    text = markdown(summarise(read(tmp_path)))
    assert said in text and "| 1,000 | 33.3 | yes | `view`, `er+da, one-mean` |" in text
    figure = ladder(ladder_steps(read(tmp_path)))
    assert figure.views[-1].name == "Forgetting by the share of new images"
    order = figure.views[-1].spec["layer"][1]["encoding"]["y"]["sort"]
    assert order == ["views (20 %)", "view (33 %)", "enmix (40 %)", "er (50 %)"]


def read_empty(root: Path) -> Collection:
    root.mkdir(exist_ok=True)
    return read(root)


@pytest.mark.slow
def test_the_whole_ladder_is_drawn(tmp_path: Path) -> None:
    done = set()
    for place, name in enumerate(RUNGS):
        key = compose(RUNGS[name].preset, RUNGS[name].settings()).config.key("x")
        if key in done:
            continue
        done.add(key)
        run_rung(tmp_path, name, [10.0 + place / 2, 11.0 + place / 2, 12.0])
    figure = ladder(ladder_steps(read(tmp_path)))
    assert len(figure.views) == 7 and not any("not run" in one for one in figure.says)
    first = figure.says.index("er+dualmix with one thing changed, in points of accuracy:")
    assert len([one for one in figure.says[:first] if one.startswith("over ")]) == len(LADDER) - 1
    assert any(one.startswith("over mir+dualmix: mir+dualmix, base") for one in figure.says)
    assert not any(", sum" in one for one in figure.says), "the table has every weighting"
    asked = by_question(ladder_steps(read(tmp_path)))
    assert list(asked) == [view.name for view in figure.views[:-2]]
    assert figure.views[-2].name == "Which way they err"
    leans = figure.views[-2].spec["concat"][1]["layer"][1]["encoding"]["y"]["sort"]
    assert leans[:8] == [rung.name for rung in LADDER] and "no-augmentation" in leans
    assert [step.rung.name for run in asked.values() for step in run] == [*RUNGS]


def test_questions_of_which_nothing_can_be_compared_are_not_asked(tmp_path: Path) -> None:
    run_rung(tmp_path, "er", [10.0])
    assert not by_question(ladder_steps(read(tmp_path)))
    run_rung(tmp_path, "weights", [11.0])
    (title,) = by_question(ladder_steps(read(tmp_path)))
    assert title == "From er to er+dualmix", "er is a rung of other questions too, but alone there"


def test_the_summary_names_changes_that_are_clear_of_0(tmp_path: Path) -> None:
    """Differences of one point's spacing have an interval of 4.303 / sqrt(3) = 2.48 over three
    seeds: 2.0 is not clear of 0, 3.0 and -3.0 are."""
    for name, values in {
        "er": [10.0, 11.0, 12.0],
        "weights": [11.0, 13.0, 15.0],
        "view": [13.0, 16.0, 19.0],
        "views": [9.0, 13.0, 17.0],
    }.items():
        run_rung(tmp_path, name, values)
    said = " ".join(s for p in paragraphs(summarise(read(tmp_path))) for s in p.sentences)
    assert "of 3 changes 2 have an interval clear of 0, in points of accuracy: view (" in said
    assert ") +3.0 ± 2.5 and views (" in said and ") -3.0 ± 2.5." in said
    single = tmp_path / "single"
    single.mkdir()
    run_rung(single, "er", [10.0])
    run_rung(single, "weights", [19.0])
    said = " ".join(s for p in paragraphs(summarise(read(single))) for s in p.sentences)
    assert "clear of 0" not in said, "one seed has no interval"


def test_both_measures_rank_with_the_share_of_new_images(tmp_path: Path) -> None:
    run_rung(tmp_path, "view", [10.0])
    (one,) = shares(ladder_steps(read(tmp_path)))
    at = [
        replace(one, new=new, gap=metrics.interval([gap]), forgetting=metrics.interval([lost]))
        for new, gap, lost in ((0.2, -30.0, 50.0), (0.3, 0.0, 40.0), (0.4, 20.0, 30.0))
    ]
    forgetting, gap = share_sentences(at)
    assert "Spearman's rho -1.00" in forgetting and gap.startswith("er(o,n) - er(n,o)")
    assert "Spearman's rho +1.00" in gap


def erred(*runs: tuple[list[float | None], list[float | None]]) -> Group:
    """Return runs of seeds 0, 1 and so on with er(o,n) and er(n,o) after each task."""
    told = [{"er_old_new": [None, *old], "er_new_old": [None, *new]} for old, new in runs]
    some = tuple(SimpleNamespace(seed=seed, scores=one) for seed, one in enumerate(told))
    return Group("er", Content("cifar100", "", ()), 1000, (), some)


def test_which_way_they_err_by_hand() -> None:
    """Means over the tasks: 70 and 30, 60 and 40; a task without errors of a kind is left out."""
    group = erred(([0.8, 0.6], [0.2, 0.4]), ([0.6, 0.6], [0.4, None]))
    found = erring(group)
    assert found.old_for_new.mean == pytest.approx(65)
    assert found.new_for_old.mean == pytest.approx(35)
    assert (found.gap.mean, found.gap.std) == pytest.approx((30, math.sqrt(200)))
    base = erred(([0.5], [0.5]), ([0.9], [0.1]), ([1.0], [0.0]))
    less = gap_difference(group, base)
    assert (less.mean, less.n) == (pytest.approx(((40 - 0) + (20 - 80)) / 2), 2)
    assert erring(erred(([None], [None]))) is None, "one task, or no error at all"
    assert gap_difference(erred(([None], [None])), base) is None
    assert erring(replace(base, runs=(SimpleNamespace(seed=0, scores={}),))) is None


def test_table_3_is_shown_twice_and_counted_once(tmp_path: Path) -> None:
    accurate(tmp_path, "er+da", [14.0], {"method.memory": 1000})
    mean = {"method.memory": 1000, **weighting("er+da", "one-mean")}
    accurate(tmp_path, "er+da", [18.0], mean)
    found = read(tmp_path)
    *_, fitted, by_rule = paper_tables(found)
    assert "fitted to this table at M = 1,000" in fitted.caption and not fitted.rule
    assert (by_rule.number, by_rule.rule) == ("Table 3", "one-mean")
    means = [
        next(cell.ours.mean for cell in table.rows["er+da"] if cell.ours)
        for table in (fitted, by_rule)
    ]
    assert means == pytest.approx([14, 18])
    summary = summarise(found)
    against = " ".join(s for p in paragraphs(summary) for s in p.sentences)
    assert re.search(r"\b2 of the \d+ numbers", against), "not 4: one rule's are no others"
    text = markdown(summary)
    assert "## The paper's Table 3: the parts of DualMix, by one rule" in text
    missing = by_rule.rows["er+enmix"][0].command
    assert missing == "dualmix sweep table3-one-mean --methods er+enmix --data cifar100 " + (
        "--memory 1000 --seeds 10"
    )


def test_markdown_has_ladder_and_sources_where_they_were_run(tmp_path: Path) -> None:
    accurate(tmp_path, "finetune", [3.0])
    text = markdown(summarise(read(tmp_path)))
    assert "What each part" not in text and SURVEY.title not in text
    run_rung(tmp_path, "er", [10.0, 12.0, 14.0])
    run_rung(tmp_path, "weights", [11.0, 14.0, 17.0])
    text = markdown(summarise(read(tmp_path)))
    row = "| `weights` | one mean over new and rehearsed images | `er` | 14.0 ± 7.5 (n 3) |"
    assert f"{row} 2.0 ± 2.5 (n 3) |" in text
    assert "| experience replay (`er`) | 12.0 ± 5.0 (n 3)<br>7.6, 4.4 above | –<br>17.0 |" in text
    assert "Not run: 13 of 14 cells. `dualmix sweep survey --seeds 3`" in text


def test_commands_name_rows_that_the_grids_have(tmp_path: Path) -> None:
    import shlex

    from dualmix.paper.grids import jobs

    for step in ladder_steps(read_empty(tmp_path)).steps:
        words = shlex.split(step.command)
        assert jobs("ladder", methods=[words[words.index("--methods") + 1]], seeds=[0])
    for table in source_tables(read_empty(tmp_path)):
        for cell in (c for cells in table.cells for c in cells):
            words = shlex.split(cell.command)
            row, memory = (words[words.index(flag) + 1] for flag in ("--methods", "--memory"))
            assert len(jobs(words[2], methods=[row], memory=[int(memory)], seeds=[0])) == 1


def test_commands_name_the_engine_of_the_runs(tmp_path: Path) -> None:
    rung = RUNGS["weights"]
    accurate(tmp_path, rung.preset, [11.0], {**rung.settings(), "model.engine": "native"})
    accurate(tmp_path, "er", [11.0], {"method.memory": 5000, "model.engine": "native"})
    accurate(tmp_path, "er", [11.0], {"method.memory": 1000})
    found = read(tmp_path)
    assert step_of(found, "weights").command.endswith("'weights' --model.engine native")
    assert step_of(found, "er").command.endswith("'er'")
    survey = source(found, "survey")
    assert beside(survey, "er", 5000).command.endswith("--seeds 3 --model.engine native")
    assert beside(survey, "er", 1000).command.endswith("--seeds 3")


def test_the_ways_to_answer_stand_side_by_side(tmp_path: Path) -> None:
    assert not ways(read_empty(tmp_path)).says
    for seed, shift in enumerate((0.0, 0.01, 0.02)):
        answers = {"weights, head": 0.2 + shift, "average, ncm": 0.3 + shift}
        probes = [{"task": 1}, {"task": 2, "answers": answers}]
        made(tmp_path, "er+ema", seed, {}, table=counts([[5], [2, 8]]), probes=probes)
    accurate(tmp_path, "er", [10.0])
    figure = ways(read(tmp_path))
    assert len(figure.views) == 1
    (said,) = figure.says
    assert said.endswith("er+ema (3 runs): weights, head 21.0 ± 2.5; average, ncm 31.0 ± 2.5."), (
        "a Student interval of 3 values one point apart is 4.303 / sqrt(3) = 2.48"
    )
    for seed in range(3):
        probes = [{"task": 1}, {"task": 2, "answers": {"weights, head": 0.4, "average, ncm": 0.1}}]
        made(tmp_path, "mir+ema", seed, {}, table=counts([[5], [2, 8]]), probes=probes)
    lucky = [{"task": 1}, {"task": 2, "answers": {"weights, head": 0.9}}]
    made(tmp_path, "der+++ema", 0, {}, table=counts([[5], [2, 8]]), probes=lucky)
    (said,) = ways(read(tmp_path)).says
    assert "mir+ema, the best of 3 (3 runs): weights, head 40.0" in said, "one run is no best"
