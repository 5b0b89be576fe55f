"""The table by configuration and charts in a terminal: what they say, in 80 columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from dualmix.cli.chart import MARKS, Chart, Line
from dualmix.cli.configuration_table import with_spread
from dualmix.cli.progress import Counting
from dualmix.cli.table import as_csv
from dualmix.report.export import as_cell
from dualmix.runs.configurations import spread
from tests.report.makers import accurate

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    for memory, er, more in ((100, [10, 20, 30], [15, 26, 37]), (200, [40, 42], [50])):
        accurate(root, "er", er, {"method.memory": memory})
        accurate(root, "er+dualmix", more, {"method.memory": memory})
    return root


def printed(thing: RenderableType, width: int = 80, encoding: str = "utf-8") -> list[str]:
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    Console(file=screen, width=width, markup=False).print(thing)
    screen.seek(0)
    lines = screen.read().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def test_engines_have_rows_of_their_own_and_gains_are_on_one_engine(
    dualmix_: Command, tmp_path: Path
) -> None:
    store = tmp_path / "runs"
    scores_of = {"torch": ([10, 20, 30], [15, 25, 35]), "native": ([1, 2, 3], [8, 9, 10])}
    for engine, (er, more) in scores_of.items():
        for label, scores in (("er", er), ("er+dualmix", more)):
            accurate(store, label, scores, {"model.engine": engine})
    code, out, _ = dualmix_("table", "--store", store, "--against", "er", "--json")
    rows = json.loads(out)["rows"]
    gains = {(row["method"], row["engine"]): row.get("difference") for row in rows}
    assert code == 0 and [row["n"] for row in rows] == [3, 3, 3, 3]
    assert gains["er+dualmix", "torch"] == pytest.approx(5)
    assert gains["er+dualmix", "native"] == pytest.approx(7)
    assert "left out" not in dualmix_("table", "--store", store)[1]


def test_the_table_says_what_was_run(dualmix_: Command, store: Path) -> None:
    code, out, err = dualmix_("table", "--store", store, "--against", "er", "--curves")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    rows = [line.split() for line in lines]
    head = "method memory accuracy forgetting over er n time"
    assert head.split() in rows
    assert ["er", "100", "20.0", "±", "24.8", "100.0", "±", "0.0", "-", "3", "1:01"] in rows
    assert ["er", "200", "41.0", "(40.0,", "42.0)", "100.0", "-", "2", "1:01"] in rows
    gain = next(row for row in rows if row[:2] == ["er+dualmix", "100"])
    assert gain[-5:-2] == ["+6.0", "±", "2.5"]
    assert "of two runs both values stand behind the mean" in " ".join(out.split())
    assert any(f"{MARKS[1]} er memory 200 41.0 %" in line for line in lines)
    code, out, _ = dualmix_("table", "--store", store, "--spread", "sd")
    assert "41.0 ± 1.4" in out


def test_the_table_for_programs(dualmix_: Command, store: Path) -> None:
    code, out, _ = dualmix_("table", "er", "--store", store, "--json")
    told = json.loads(out)
    assert code == 0
    assert [(row["memory"], row["n"]) for row in told["rows"]] == [("100", 3), ("200", 2)]
    assert told["rows"][1]["accuracy_by_seed"] == {"0": 40.0, "1": 42.0}
    code, out, _ = dualmix_("table", "er", "--store", store, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["average_accuracy"] for row in rows] == ["20.0", "41.0"]
    assert [row["average_accuracy_ci95"] for row in rows][1] == ""
    code, _, err = dualmix_("table", "--store", store, "--csv", "--json")
    assert code == 2 and "give one of them" in err


def test_csv_holds_no_formula() -> None:
    text = as_csv([{"method": "=1+1", "@x": "\tcmd"}], as_cell)
    assert text == "method,'@x\n'=1+1,'?cmd\n"


def test_an_unknown_method_and_an_empty_store(dualmix_: Command, store: Path) -> None:
    code, _, err = dualmix_("table", "er+dualmx", "--store", store)
    assert code == 2 and "did you mean er+dualmix?" in err
    store.parent.joinpath("none").mkdir()
    code, out, _ = dualmix_("table", "--store", store.parent / "none")
    assert code == 0 and "No finished run yet" in out


def test_spreads() -> None:
    assert with_spread(None) == "-"
    assert with_spread(spread([16.0])) == "16.0"
    assert with_spread(spread([-7.0, 26.0]), signed=True) == "+9.5 (-7.0, +26.0)"
    assert with_spread(spread([7.0, 26.0]), both=False) == "16.5"


def test_a_chart_puts_points_where_they_are() -> None:
    lines = [Line("up", [(1, 0.0), (2, 50.0), (3, 100.0)]), Line("flat", [(1, 50.0), (3, 50.0)])]
    text = printed(Chart("title", "task", lines, rows=5))
    assert text[0] == "title"
    body = text[1:6]
    assert [body[row].split()[0] for row in (0, 4)] == ["100", "0"]
    assert body[0].rstrip().endswith("● up 100.0 %")
    assert body[2].rstrip().endswith("■ flat 50.0 %")
    plot = [line.split("│", 1)[1] for line in body]
    assert plot[4][0] == "●"
    assert "●" in plot[0]
    assert plot[2].index("■") == 0
    assert text[7].split() == ["1", "2", "3", "task"]


def test_labels_of_lines_that_end_together_have_rows_of_their_own() -> None:
    lines = [Line(name, [(1, 0.0), (2, 99.0 + n / 10)]) for n, name in enumerate("abcde")]
    text = printed(Chart("title", "task", lines, rows=6))
    assert [sum(f" {name} 99" in line for line in text) for name in "abcde"] == [1] * 5


def test_a_chart_for_a_terminal_without_unicode() -> None:
    text = "\n".join(printed(Chart("t", "task", [Line("a", [(1, 1.0), (2, 3.0)])]), 60, "ascii"))
    assert "?" not in text
    assert text.isascii()
    assert "o a 3.0 %" in text


def test_one_point_and_no_point() -> None:
    assert printed(Chart("t", "task", [])) == []
    assert any("● a 5.0 %" in line for line in printed(Chart("t", "task", [Line("a", [(1, 5.0)])])))


def test_progress_is_shown_on_a_terminal_only() -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        with Counting(Console(file=screen, force_terminal=terminal, width=60)) as progress:
            progress("runs read", 3, 9)
            if progress._status is not None:
                progress._status._live.refresh()
        assert ("runs read: 3 of 9" in screen.getvalue()) is terminal
