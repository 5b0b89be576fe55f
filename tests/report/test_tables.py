"""Tables by hand: cells, marks, best, paired tests and commands."""

from __future__ import annotations

import csv
import io
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.cli.flags import split
from dualmix.cli.parser import make_parser
from dualmix.config.compose import compose
from dualmix.paper.grids import jobs
from dualmix.report import commands
from dualmix.report.collect import collect
from dualmix.report.markdown import markdown
from dualmix.report.paired_tests import holm, paired_p, paired_tests
from dualmix.report.summary import paragraphs
from dualmix.report.tables import (
    Cell,
    Table,
    best_of,
    mark,
    paper_tables,
    summarise,
)
from dualmix.report.text_tables import _tex, as_csv, latex
from dualmix.report.words import interval_text
from dualmix.runs.metrics import Interval
from dualmix.runs.records import Collection
from dualmix.store.store import Store

from .makers import accurate, everything, made


def read(root: Path) -> Collection:
    return collect(Store(root))


def cell_of(
    found: Collection,
    table: int,
    label: str,
    data: str = "cifar100",
    memory: int = 1000,
    score: str = "",
) -> Cell:
    (cell,) = [
        cell
        for cell in paper_tables(found)[table - 1].cells()
        if (cell.label, cell.column.data, cell.column.memory) == (label, data, memory)
        and cell.column.score.startswith(score)
    ]
    return cell


def test_a_cell_has_ours_beside_the_papers(tmp_path: Path) -> None:
    """5, 6 and 10: mean 7, deviation sqrt(7), half width 4.303 * sqrt(7 / 3) = 6.57; the paper has
    8.4 ± 0.5.
    """
    accurate(tmp_path, "er", [5, 6, 10])
    cell = cell_of(read(tmp_path), 1, "er")
    assert cell.ours is not None
    assert (cell.ours.mean, cell.ours.half, cell.ours.n) == (
        pytest.approx(7),
        pytest.approx(6.5724, abs=1e-3),
        3,
    )
    assert (cell.paper, cell.mark) == ((8.4, 0.5), "")
    assert (
        cell.command == "dualmix sweep table1 --methods er --data cifar100 --memory 1000 --seeds 3"
    )
    assert (
        interval_text(cell.ours) == "7.0 ± 6.6"
        and interval_text(cell.paper) == "8.4 ± 0.5"
        and interval_text(None) == "–"
        and interval_text(Interval(16.5, 13.4, 120.7, 2)) == "16.5"
    )


def test_runs_of_the_native_engine_are_named(tmp_path: Path) -> None:
    made(tmp_path, "er", 0)
    made(tmp_path, "er", 1, {"model.engine": "native"})
    found = read(tmp_path)
    one, two, three, _ = (table.caption for table in paper_tables(found))
    assert cell_of(found, 1, "er").ours is not None and cell_of(found, 1, "er").ours.n == 2
    assert one.endswith("the rest on torch: M = 1,000: er (seed 1).")
    assert two.count("native engine") == three.count("native engine") == 1
    (tmp_path / "other").mkdir()
    assert "native" not in paper_tables(read(tmp_path / "other"))[0].caption


def test_every_number_of_the_paper_stands_in_its_cell(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert cell_of(found, 1, "mir+dualmix", "tiny_imagenet", 5000).paper == (13.9, 0.4)
    assert cell_of(found, 1, "finetune", "mini_imagenet", 0).paper == (3.2, 0.2)
    assert cell_of(found, 2, "dvc", "cifar100", 2000).paper == (38.8, 1.1)
    assert cell_of(found, 3, "er+adpmix", "cifar100", 5000, "forgetting").paper == (33.3, 2.4)
    assert cell_of(found, 3, "er+adpmix", "cifar100", 5000, "average").paper == (21.3, 2.2)
    assert [len(table.cells()) for table in paper_tables(found)] == [
        6 + 11 * 9,
        7 * 9,
        5 * 6,
        5 * 6,
    ]


def test_what_is_missing_has_the_command_that_makes_it(tmp_path: Path) -> None:
    found = read(tmp_path)
    for table in paper_tables(found):
        for cell in table.cells():
            assert cell.ours is None and not cell.best and not cell.mark
            assert cell.command.startswith(
                f"dualmix sweep {table.name} --methods {cell.label} --data {cell.column.data}"
            )
            assert cell.command.endswith("--seeds 10")


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ((10.0, 1.0), "above"),
        ((9.0, 1.0), ""),
        ((6.0, 1.0), "below"),
        ((7.0, 1.0), ""),
        ((50.0, float("nan")), ""),
    ],
)
def test_a_mark_stands_where_the_intervals_do_not_meet(
    ours: tuple[float, float], expected: str
) -> None:
    assert mark(Interval(ours[0], 1.0, ours[1], 3), (8.0, 0.5)) == expected
    assert mark(None, (8.0, 0.5)) == mark(Interval(9.0, 1.0, 0.1, 3), None) == ""


def test_the_best_is_high_in_accuracy_and_low_in_forgetting(tmp_path: Path) -> None:
    """With `accurate`, forgetting is 100 per cent for all; so `made` gives er+da its own counts."""
    accurate(tmp_path, "er", [10, 12])
    made(tmp_path, "er+da")
    made(tmp_path, "er+da", 1)
    found = read(tmp_path)
    bests = {
        (cell.label, cell.column.score)
        for cell in paper_tables(found)[2].cells()
        if cell.best and cell.column.memory == 1000
    }
    assert bests == {("er+da", "average_accuracy"), ("er+da", "forgetting")}
    papers = {(c.label, c.column.score) for c in paper_tables(found)[2].cells() if c.paper_best}
    assert papers == {("er+dualmix", "average_accuracy"), ("er+dualmix", "forgetting")}


def test_a_best_has_equal_seeds_or_lies_clear() -> None:
    def row(mean: float, half: float, n: int) -> Interval:
        return Interval(mean, 1.0, half, n)

    nan = float("nan")
    assert best_of({"a": row(10, 2, 3), "b": row(11, 2, 3)}, 1) == "b"
    assert best_of({"a": row(10, 2, 3), "b": row(11, 2, 3)}, -1) == "a"
    assert best_of({"a": row(10, 2, 4), "b": row(11, 2, 3)}, 1) is None, "the intervals meet"
    assert best_of({"a": row(10, 2, 4), "b": row(15, 2, 3)}, 1) == "b"
    assert best_of({"a": row(10, nan, 1), "b": row(15, 2, 3)}, 1) is None, "one has no interval"
    assert best_of({"a": row(10, nan, 1), "b": row(15, nan, 1)}, 1) is None, "single seeds"
    assert best_of({"b": row(15, 2, 3)}, 1) is None


def test_a_row_alone_is_not_the_best(tmp_path: Path) -> None:
    made(tmp_path, "er")
    assert not any(cell.best for table in paper_tables(read(tmp_path)) for cell in table.cells())


def test_only_the_preset_on_the_whole_stream_counts(tmp_path: Path) -> None:
    made(tmp_path, "er", 0)
    made(tmp_path, "er", 1, {"stream.first": 10})
    made(tmp_path, "er", 2, {"method.mix.replay": 0.5})
    made(tmp_path, "er", 3, {"model.width": 4})
    made(tmp_path, "er", 4, {"method.memory": 300})
    found = read(tmp_path)
    cell = cell_of(found, 1, "er")
    assert cell.group is not None and cell.group.seeds == (0,)
    whole, short = summarise(found).streams
    assert [group.memory for group in whole.plain] == [300, 1000] and not short.changed
    assert sorted(path for group in whole.changed for path, _ in group.changed) == [
        "method.mix.replay",
        "model.width",
    ]
    assert (short.title, short.first, [g.seeds for g in short.plain]) == (
        "CIFAR-100, first 10 tasks",
        10,
        [(1,)],
    )


def test_data_of_ones_own_come_first(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10, 12])
    accurate(tmp_path, "er", [30], data="digits")
    accurate(tmp_path, "er", [20], {"data.path": "/x/a.npz"}, data="arrays", fingerprint="a" * 64)
    accurate(tmp_path, "er", [21], {"data.path": "/y/b.npz"}, data="arrays", fingerprint="b" * 64)
    summary = summarise(read(tmp_path))
    titles = [stream.title for stream in summary.streams]
    assert sorted(titles[:3]) == ["Digits", "a.npz", "b.npz"]
    assert titles[3:] == ["CIFAR-100"]
    said = markdown(summary)
    assert said.index("## Digits") < said.index("## CIFAR-100") < said.index("## The paper's Table")


def test_an_upper_bound_is_not_the_best_of_a_stream(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [8, 9])
    accurate(tmp_path, "mir", [14])
    made(tmp_path, "iid-offline", table=np.array([[[9, 1], [1, 9]]]))
    said = {one.title: " ".join(one.sentences) for one in paragraphs(summarise(read(tmp_path)))}
    assert "mir with memory 1,000 has the highest" in said["What came out"]
    assert "2 configurations)" in said["What came out"], "those that it is the best of"


def test_the_summary_by_hand(tmp_path: Path) -> None:
    """The paper has er 8.4 ± 0.5 and mir 8.7 ± 0.4; er+dualmix is 10, 11 and 12 above er,
    so 11 ± 4.303 / sqrt(3) = 11 ± 2.48."""
    accurate(tmp_path, "er", [8, 9, 9])
    accurate(tmp_path, "er+dualmix", [18, 20, 21])
    accurate(tmp_path, "mir", [14])
    said = {one.title: " ".join(one.sentences) for one in paragraphs(summarise(read(tmp_path)))}
    assert (
        "7 finished runs of 3 methods: 3 configurations with 1 to 3 seeds" in said["What was run"]
    )
    assert "er+dualmix with memory 1,000 has the highest" in said["What came out"]
    assert "DualMix makes er 11.0 ± 2.5 points more accurate" in said["What came out"]
    assert "of the 186 numbers of the paper" in said["Against the paper"]
    against = said["Against the paper"]
    assert "outside the paper's ± in 2: mir forgetting 100.0 (paper 50.2 ± 1.0)" in against
    assert "and mir 14.0 (paper 8.7 ± 0.4)" in against, "the furthest first"
    for host in ("gss", "aser", "agem"):
        accurate(tmp_path, host, [50], {"method.memory": 1000})
    said = {one.title: " ".join(one.sentences) for one in paragraphs(summarise(read(tmp_path)))}
    _, furthest = said["Against the paper"].split(", furthest: ")
    assert furthest.count("(paper") == 5 and furthest.startswith("mir forgetting 100.0")
    assert furthest.index("gss forgetting 100.0") < furthest.index("agem 50.0"), "48 and 46 off"
    (empty,) = paragraphs(summarise(read_empty(tmp_path / "none")))
    assert empty.sentences == ("No run is finished in this store.",)


def read_empty(root: Path) -> Collection:
    root.mkdir()
    return read(root)


def test_no_number_runs_on_and_settings_of_one_value_stand_together(tmp_path: Path) -> None:
    values = {f"method.mix.{name}": 1 / 3 for name in ("replay", "stream", "view")}
    made(tmp_path, "er+da", 0, values)
    said = markdown(summarise(read(tmp_path)))
    (row,) = [line for line in said.splitlines() if line.startswith("| `er+da` | 1,000")]
    assert row.split("|")[3].strip() == "mix.replay, stream, view 1/3"
    assert "--method.mix.view 0.3333333333333333" in row, "a command is exact"


def test_other_images_get_columns_of_their_own(tmp_path: Path) -> None:
    made(tmp_path, "er", 0)
    made(
        tmp_path, "er", 1, fingerprint="e" * 64, notes=["subset: 5 of 500 training images a class"]
    )
    table = paper_tables(read(tmp_path))[0]
    cells = [cell for cell in table.rows["er"] if cell.ours]
    assert [(cell.column.content.subset, cell.group.seeds) for cell in cells] == [
        (False, (0,)),
        (True, (1,)),
    ]
    assert len(table.columns) == 12


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12))
def test_the_paired_test_is_scipys(differences: list[float]) -> None:
    from scipy.stats import ttest_1samp

    if np.std(differences, ddof=1) > 1e-3:
        assert paired_p(differences) == pytest.approx(
            ttest_1samp(differences, 0).pvalue, rel=1e-6, abs=1e-12
        )


def test_no_test_without_spread_or_with_one_seed() -> None:
    assert paired_p([1.0]) is None
    assert paired_p([2.0, 2.0, 2.0]) is None


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_by_definition(values: list[float]) -> None:
    """A hypothesis is rejected at a level if it and all smaller p pass p_(k) <= level / (m - k +
    1).
    """
    corrected = holm(values)
    for level in (0.01, 0.05, 0.3):
        order = sorted(range(len(values)), key=lambda i: values[i])
        rejected = set()
        for k, i in enumerate(order):
            if values[i] * (len(values) - k) > level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(corrected) if p is not None and p <= level} == rejected


def test_holm_keeps_the_order_of_p_values() -> None:
    """0.01 * 3, 0.03 * 2, and 0.04 * 1 which must not fall below the one before."""
    assert holm([0.01, 0.04, None, 0.03]) == [
        pytest.approx(0.03),
        pytest.approx(0.06),
        None,
        pytest.approx(0.06),
    ]


def test_pairs_are_made_by_seed(tmp_path: Path) -> None:
    """Seeds 0 and 1 are shared: 20 - 10 and 26 - 12, mean 12; the third seed takes no part."""
    accurate(tmp_path, "er", [10, 12])
    accurate(tmp_path, "er+dualmix", [20, 26, 45])
    accurate(tmp_path, "er+da", [50, 50])
    accurate(tmp_path, "er+dualmix", [30], {"method.memory": 2000})
    accurate(tmp_path, "er+dualmix", [30], {"method.lr": 0.5})
    (accuracy, forgetting) = paired_tests(read(tmp_path))
    assert (accuracy.base, accuracy.label, accuracy.memory, accuracy.seeds) == (
        "er",
        "er+dualmix",
        1000,
        (0, 1),
    )
    assert accuracy.difference.mean == pytest.approx(12)
    assert accuracy.difference.half == pytest.approx(12.706 * 2.828427 / 2**0.5, rel=1e-3)
    assert accuracy.p == accuracy.holm == pytest.approx(2 * (0.5 - np.arctan(6) / np.pi))
    assert forgetting.score == "forgetting" and forgetting.difference.mean == pytest.approx(0)


def words_of(command: str) -> list[str]:
    return shlex.split(command.removeprefix("dualmix "))


@pytest.mark.slow
def test_commands_are_understood_by_the_command_line(tmp_path: Path) -> None:
    """Every command of a table names runs of the paper's grid, and that of a group gives the
    group's key back.
    """
    everything(tmp_path)
    made(tmp_path, "er", 7, {"method.memory": 2000, "stream.class_order": "fixed", "order_seed": 3})
    made(tmp_path, "er", 9, {"model.mean": [0.5, 0.5, 0.5], "model.std": [0.2, 0.2, 0.2]})
    found = read(tmp_path)
    for cell in paper_tables(found)[0].cells():
        words_ = words_of(cell.command)
        if words_[0] == "sweep":
            flags = dict(zip(words_[2::2], words_[3::2], strict=True))
            memory = [int(flags["--memory"])] if "--memory" in flags else []
            assert (
                len(
                    jobs(
                        words_[1],
                        methods=[flags["--methods"]],
                        data=[flags["--data"]],
                        memory=memory,
                    )
                )
                == 10
            )
    for group in found.groups:
        command = commands.rerun_command(group)
        if command.startswith("for"):
            listed, command = command.removeprefix("for seed in ").split("; do ")
            assert [int(seed) for seed in listed.split()] == sorted(group.seeds)
            command = command.removesuffix("; done").replace("$seed", str(group.runs[0].seed))
        rest, overrides, faults, _ = split(words_of(command), make_parser())
        assert not faults and rest[0] == "run"
        assert (
            compose(rest[1], overrides).config.key(group.content.fingerprint) == group.runs[0].key
        )


def test_commands_give_back_runs_on_another_engine(tmp_path: Path) -> None:
    """The engine is part of a run's key, so a command without it would train another run."""
    native = {"method.memory": 2000, "model.engine": "native"}
    runs = [made(tmp_path, "er", seed, native) for seed in range(2)]
    table = "dualmix sweep table1 --methods er --data cifar100 --memory 2000 --seeds"
    assert (
        cell_of(read(tmp_path), 1, "er", memory=2000).command == f"{table} 2 --model.engine native"
    )
    runs.append(made(tmp_path, "er", 2, {"method.memory": 2000}))
    (group,) = read(tmp_path).groups
    run = "dualmix run er --data.name cifar100 --method.memory 2000"
    command = commands.rerun_command(group)
    both = f"for seed in 0 1; do {run} --model.engine native --seed $seed; done"
    assert command in (f"{both}; {run} --seed 2", f"{run} --seed 2; {both}")
    assert cell_of(read(tmp_path), 1, "er", memory=2000).command == command
    keys = {path.name.rpartition("-")[2] for path in runs}
    for engine, seed in (("native", 0), ("native", 1), ("torch", 2)):
        told = {"data.name": "cifar100", "method.memory": 2000, "model.engine": engine}
        key = compose("er", {**told, "seed": seed}).config.key(group.content.fingerprint)
        assert any(key.startswith(one) for one in keys)


def test_seeds_with_gaps_are_listed(tmp_path: Path) -> None:
    made(tmp_path, "er", 4)
    made(tmp_path, "er", 2)
    assert cell_of(read(tmp_path), 1, "er").command == (
        "for seed in 2 4; do dualmix run er --data.name cifar100 --method.memory 1000 "
        "--seed $seed; done"
    )


@pytest.fixture
def small(tmp_path: Path) -> Collection:
    accurate(tmp_path, "er", [10, 12, 11], notes=["official content in another order"])
    accurate(tmp_path, "er+dualmix", [29, 30, 31])
    made(tmp_path, "er", 5, {"stream.first": 2})
    (made(tmp_path, "er", 6) / "plan.json").write_text("|")
    return collect(Store(tmp_path))


def test_markdown(small: Collection) -> None:
    said = markdown(summarise(small))
    row = next(line for line in said.splitlines() if line.startswith("| `er+dualmix` | **"))
    assert row.split("|")[2].strip() == "**30.0 ± 2.5** (n 3) ▲<br>17.5 ± 1.0, 11.5 above"
    assert "gss" not in said.partition("<details>")[0], "what was not run is folded away"
    assert "Not run: 103 of 105 cells." in said
    assert "official content in another order" in said
    assert "## CIFAR-100, first 2 tasks" in said and "plan.json cannot be read" in said
    assert "`dualmix sweep table1 --methods er --data cifar100 --memory 1000 --seeds 3`" in said
    assert (
        "| `er+dualmix` - `er` | CIFAR-100 | 1,000 | - | average accuracy | 19.0 ± 2.5 | 3 |"
        in said
    )


def test_settings_are_equal_within_a_pair(tmp_path: Path) -> None:
    for label, per_cent in (("aser", 10), ("aser+dualmix", 17)):
        accurate(tmp_path, label, [per_cent], {"method.bn": "once"})
    accuracy, _ = paired_tests(read(tmp_path))
    assert accuracy.difference.mean == pytest.approx(7)
    assert accuracy.changed == (("method.bn", "once"),)


def test_latex(small: Collection) -> None:
    said = latex(summarise(small))
    assert said.count(r"\begin{tabular}") == said.count(r"\end{tabular}") == 6
    assert r"\textbf{30.0 $\pm$ 2.5 {\scriptsize (3)}}$^{\uparrow}$" in said
    assert "Table 1: Table 1" not in said and r"\caption{Average accuracy on CIFAR-100" in said
    rows = [line for line in said.splitlines() if line.startswith("er & ")]
    assert [row.count("&") for row in rows] == [1, 1, 2, 3, 3], "empty columns are left out"
    assert "gss" not in said, "and rows"


HOSTILE = r"a_b%c\d{e}$f&g#h~i^j<k>|l 中文 ±"


def test_latex_compiles(tmp_path: Path) -> None:
    """Without a warning, but for a second pass that labels ask for; names may hold anything."""
    pdflatex = shutil.which("pdflatex")
    search = shutil.which("kpsewhich") or "false"
    there = subprocess.run([search, "booktabs.sty"], capture_output=True, check=False)
    if pdflatex is None or there.returncode:
        pytest.skip("LATEX NOT COMPILED: no pdflatex with booktabs (texlive-latex-recommended)")
    store = tmp_path / "store"
    everything(store)
    made(store, "er", 8, data="digits", notes=[HOSTILE])
    made(store, "er", 9, {"stream.class_order": "fixed", "method.mix.augment": "crop-0.8"})
    body = latex(summarise(read(store)))
    body = body.replace("Digits", _tex(HOSTILE))
    lines = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\begin{document}", body]
    (tmp_path / "t.tex").write_text("\n".join([*lines, r"\end{document}"]), encoding="utf-8")
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    said = [line for line in ended.stdout.splitlines() if "arning" in line or "Overfull" in line]
    assert [line for line in said if "Label(s) may have changed" not in line] == []
    assert (tmp_path / "t.pdf").read_bytes().startswith(b"%PDF")


def test_csv(small: Collection) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(summarise(small)))))
    assert len(rows) == 105 + 63 + 30 + 30
    (row,) = [
        r
        for r in rows
        if (r["table"], r["method"], r["memory"], r["data"]) == ("table1", "er", "1000", "cifar100")
    ]
    assert (float(row["mean"]), int(row["n"]), row["seeds"]) == (pytest.approx(11), 3, "0 1 2")
    assert (row["paper"], row["paper_half"], row["best"]) == ("8.4", "0.5", "0")
    assert row["notes"] == "official content in another order"


def test_a_spreadsheet_runs_nothing_from_a_cell(tmp_path: Path) -> None:
    made(tmp_path, "er", notes=["=1+1"], name="=er")
    rows = list(csv.DictReader(io.StringIO(as_csv(summarise(collect(Store(tmp_path)))))))
    (row,) = [r for r in rows if r["table"] == "table1" and r["runs"]]
    assert (row["notes"], row["runs"]) == ("'=1+1", "'=er")


def test_tables_are_the_same_whatever_else_is_in_the_store(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10, 12])

    def shown(found: Collection) -> list[str]:
        return [interval_text(cell.ours) for table in paper_tables(found) for cell in table.cells()]

    before = shown(read(tmp_path))
    made(tmp_path, "er", 2, {"stream.first": 2})
    made(tmp_path, "er", 2, {"method.lr": 1.0})
    assert isinstance(paper_tables(read(tmp_path))[0], Table) and shown(read(tmp_path)) == before
