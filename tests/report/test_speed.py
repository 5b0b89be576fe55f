"""The benchmark on the page: read back whole, drawn with its limits and verdicts, and shown as a
table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.bench import record
from dualmix.errors import DualmixError
from dualmix.report.collect import collect
from dualmix.report.speed import Row, Speed, read_speed
from dualmix.report.tables import summarise
from dualmix.store.store import Store

from .makers import measured

Command = Callable[..., tuple[int, str, str]]


def filed(path: Path) -> Path:
    path.write_text(record(measured().rows, measured().stages), encoding="utf-8")
    return path


def test_a_record_is_read_back_whole(tmp_path: Path) -> None:
    found = read_speed(filed(tmp_path / "bench.json"))
    assert (found.rows, found.stages) == (measured().rows, measured().stages)
    assert "torch 2." in found.where


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("?", "is no record of `python -m benchmarks --out FILE`"),
        ("[]", "is no record"),
        ("{}", "is no record"),
        ('{"rows": [{"name": 1}], "scale": []}', "is no record"),
        (
            '{"rows": [], "scale": [], "host": {"processor": "p"}, "versions": {"torch": "2"}}',
            "holds no measurement",
        ),
    ],
)
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DualmixError, match=says):
        read_speed(path)
    with pytest.raises(DualmixError, match="cannot be read"):
        read_speed(tmp_path / "nowhere.json")


def test_the_figure_shows_ratios_limits_and_verdicts(tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")
    from dualmix.report.figures import figures

    summary = summarise(collect(Store(tmp_path)))
    (without,) = [figure for figure in figures(summary, []) if figure.id == "bench"]
    assert not without.views and not without.says, "times of runs are no benchmark"
    (figure,) = [figure for figure in figures(summary, [], measured()) if figure.id == "bench"]
    assert "a processor" in figure.caption
    assert figure.says[0] == (
        "A step of er+dualmix takes 2.50 times as long as one of er (2.70 and 1.08 times the bare "
        "step)."
    )
    assert [view.name for view in figure.views] == ["Step", "500 answers", "Memory", "Scale run"]
    step, answers, _, scale = (view.spec for view in figure.views)
    (shown,) = step["datasets"].values()
    assert [(row["name"], row["text"], row["limit"]) for row in shown] == [
        ("er", "1.08 met", 1.12),
        ("er+dualmix", "2.70 unclear", 2.7),
        ("dvc", "5.00", None),
    ]
    assert "1.40 missed" in json.dumps(answers)
    assert {layer["mark"]["type"] for layer in step["layer"]} == {"rule", "point", "tick", "text"}
    (stages,) = scale["datasets"].values()  # both panels share them
    assert [(row["images"], row["ms"], row["mb"]) for row in stages] == [
        (500, 12.3, 310.2),
        (1000, 12.5, 311.0),
    ]


def test_a_group_against_er_says_so() -> None:
    pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")
    from dualmix.report.speed_figure import benchmark

    rows = (
        Row("Figure 7, memory 2,000", "er", 0.1, 0.01),
        Row("Figure 7, memory 2,000", "mir", 0.2, 0.01, 2.0, 1.9, 2.1),
        Row("Figure 7, memory 2,000", "mir+dualmix", 0.4, 0.01, 4.0, 3.9, 4.1),
    )
    figure = benchmark(Speed(rows, (), "a processor"))
    assert figure.says[0] == (
        "A step of mir+dualmix takes 2.00 times as long as one of mir (4.00 and 2.00 times a step "
        "of er)."
    )
    assert [view.name for view in figure.views] == ["Figure 7, memory 2,000"]


@pytest.mark.slow
def test_the_page_has_the_table_and_the_figure(dualmix_: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")
    path = filed(tmp_path / "bench.json")
    (tmp_path / "store").mkdir()
    code, _, _ = dualmix_(
        "report", "--store", tmp_path / "store", "--bench", path, "--figures", "figures"
    )
    page = Path("report.html").read_text(encoding="utf-8")
    assert code == 0 and '<a href="#bench">Cost</a>' in page
    section = re.search('<section id="bench">(.*?)</section>', page, re.S)
    assert section
    for cell in (
        "108.00 ms",
        "1.07–1.09",
        "≤ 1.12",
        "≥ 1.45",
        "missed",
        "unclear",
        "300 MB",
        "12.30",
        "1,000",
    ):
        assert f">{cell}<" in section[1], cell
    assert section[1].count("<tr>") == 1 + len(measured().rows) + 1 + len(measured().stages)
    assert Path("figures/bench-step.svg").read_text().startswith("<svg")
    assert {path.name for path in Path("figures").iterdir()} >= {
        "bench-scale-run.svg",
        "bench-500-answers.pdf",
    }


def test_the_bench_goes_with_the_page_only(dualmix_: Command, tmp_path: Path) -> None:
    path = filed(tmp_path / "bench.json")
    code, _, err = dualmix_("report", "--store", tmp_path, "--bench", path, "--format", "md")
    assert code == 2 and "--bench goes with --format html" in err
    code, _, err = dualmix_("report", "--store", tmp_path, "--bench", tmp_path / "no.json")
    assert code == 2 and err.count("\n") == 1 and "cannot be read" in err


def test_rows_and_stages_are_plain() -> None:
    json.dumps([asdict(row) for row in measured().rows], allow_nan=False)
