"""The commands report, compare and export."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dualmix.report.export import _one_type

from .makers import accurate, counts, made

pytestmark = pytest.mark.usefixtures("shallow")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    accurate(root, "er", [10, 12])
    accurate(root, "er+da", [20], {"method.memory": 500})
    made(root, "er", 3, {"stream.first": 2, "stream.class_order": [0, 1]})
    (made(root, "er", 4) / "facts.json").write_text("?")
    return root


@pytest.mark.parametrize("kind", ["md", "tex", "csv"])
def test_the_ending_says_what_is_written(dualmix_: Command, store: Path, kind: str) -> None:
    code, out, _ = dualmix_("report", "--store", store, "--out", f"deep/er/out.{kind}")
    assert (
        code == 0
        and f"deep/er/out.{kind}: 4 runs" in out
        and "Its facts.json cannot be read" in out
    )
    by_ending = Path(f"deep/er/out.{kind}").read_bytes()
    code, _, _ = dualmix_("report", "--store", store, "--format", kind)
    assert code == 0 and Path(f"report.{kind}").read_bytes() == by_ending


def test_text_needs_no_drawing(
    dualmix_: Command, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("altair", "vl_convert", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    assert dualmix_("report", "--store", store, "--format", "md")[0] == 0
    code, _, err = dualmix_("report", "--store", store)
    assert code == 2 and err.count("\n") == 1
    assert "pip install 'dualmix[report]'" in err and "altair" in err
    assert not Path("report.html").exists()


@pytest.mark.slow
def test_the_page_and_its_figures(dualmix_: Command, store: Path) -> None:
    pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")
    code, out, _ = dualmix_("report", "--store", store, "--figures", "figures", "--json")
    said = json.loads(out)
    assert code == 0 and said["runs"] == 4 and len(said["left_out"]) == 1
    assert Path("report.html").read_text().startswith("<!doctype html>")
    names = {path.name for path in Path("figures").iterdir()}
    name = "curves-cifar-100-memory-1-000-accuracy"
    assert {f"{name}.svg", f"{name}.pdf"} <= names
    assert Path(f"figures/{name}.svg").read_text().startswith("<svg")
    assert Path(f"figures/{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "--out", "x.doc"], "ends in html, md, tex, csv"),
        (["report", "--format", "doc"], "doc"),
        (["report", "--format", "md", "--figures", "x"], "--figures goes with --format html"),
        (["report", "--store", "nowhere"], "There is no store nowhere"),
        (["export", "--store", "nowhere"], "There is no store nowhere"),
        (["compare", "er"], "RUN"),
        (["compare", "er", "magic"], "There is no run 'magic'"),
    ],
)
def test_mistakes_are_one_sentence(
    dualmix_: Command, store: Path, words: list[str], says: str
) -> None:
    words = words if "--store" in words else [*words, "--store", str(store)]
    code, _, err = dualmix_(*words)
    assert code == 2 and says in err and err.count("\n") == 1


def test_many_remarks_are_cut_short_on_the_terminal(dualmix_: Command, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / "store" / f"empty{number:02d}").mkdir(parents=True)
    _, out, _ = dualmix_("report", "--store", tmp_path / "store", "--format", "md")
    assert out.count("has no config.json") == 10 and "left out: 2 more" in out
    assert Path("report.md").read_text().count("has no config.json") == 12


def test_compare_says_what_differs(dualmix_: Command, tmp_path: Path) -> None:
    a = made(tmp_path, "er", 0, table=counts([[5], [2, 8]]))
    b = made(tmp_path, "er+da", 1, {"method.memory": 50}, table=counts([[7], [4, 8]]))
    code, out, _ = dualmix_("compare", a.name, b.name, "--store", tmp_path, "--json")
    said = json.loads(out)
    assert code == 0 and said["names"] == [a.name, b.name] and said["paired"] is False
    assert {(d["name"], d["a"], d["b"]) for d in said["settings"]} == {
        ("method.memory", 1000, 50),
        ("method.mix.replay", 1.0, 0.5),
        ("method.mix.view", 0.0, 0.5),
        ("seed", 0, 1),
    }
    assert {d["name"] for d in said["circumstances"]} == {"preset", "plan"}
    scores = {d["name"]: (d["a"], d["b"]) for d in said["scores"]}
    assert scores["average_accuracy"] == (pytest.approx(0.5), pytest.approx(0.6))
    assert said["by_task"] == [[1, 0.5, 0.7], [2, pytest.approx(0.5), pytest.approx(0.6)]]
    code, out, _ = dualmix_("compare", a.name, b.name, "--store", tmp_path)
    assert code == 0 and "method.mix.view" in out and "+10.0" in out and "different streams" in out
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    code, out, _ = dualmix_("compare", a, a, "--store", tmp_path)
    assert (
        "No settings differ." in out
        and "No circumstances differ." in out
        and "the same rows" in out
    )


def test_compare_needs_results(dualmix_: Command, tmp_path: Path) -> None:
    a, b = made(tmp_path, "er"), made(tmp_path, "er", 1)
    (b / "scores.json").unlink()
    code, _, err = dualmix_("compare", a, b, "--store", tmp_path)
    assert code == 2 and "is not finished" in err


def test_export_has_every_score_and_setting(dualmix_: Command, store: Path) -> None:
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="EXPORT EXTRA MISSING: pip install 'dualmix[export]'"
    )
    code, out, _ = dualmix_("export", "--store", store)
    assert code == 0 and "runs.csv: 4 runs" in out and "runs.parquet: 4 runs" in out
    rows = list(csv.DictReader(Path("runs.csv").read_text().splitlines()))
    assert sorted(float(row["score.average_accuracy"]) for row in rows) == pytest.approx(
        [0.1, 0.12, 0.2, 0.5]
    )
    by_label = {row["label"]: row for row in rows}
    assert (
        by_label["er+da"]["setting.method.memory"] == "500"
        and by_label["er+da"]["time.train_seconds"] == "60.0"
    )
    table = parquet.read_table("runs.parquet").to_pylist()
    assert [row["run"] for row in table] == [row["run"] for row in rows]
    assert {row["setting.method.memory"] for row in table} == {500, 1000}
    assert {row["setting.stream.class_order"] for row in table} == {"shuffled", "[0, 1]"}
    assert [row["as_preset"] for row in table].count(False) == 1


def test_export_without_pyarrow(
    dualmix_: Command, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = dualmix_("export", "--store", store, "--format", "parquet")
    assert code == 2 and "pip install 'dualmix[export]'" in err and err.count("\n") == 1
    assert dualmix_("export", "--store", store, "--format", "csv", "--out", "deep/some")[0] == 0
    assert Path("deep/some.csv").is_file()


def test_a_column_is_of_one_kind() -> None:
    assert _one_type([1, 2.5, None]) == [1.0, 2.5, None] and isinstance(
        _one_type([1, 2.5])[0], float
    )
    assert _one_type([1, "a", None, True]) == ["1", "a", None, "True"]
    assert _one_type([1, None, 3]) == [1, None, 3]


def test_an_empty_store_exports_an_empty_table(dualmix_: Command, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert dualmix_("export", "--store", tmp_path / "store", "--format", "csv")[0] == 0
    assert Path("runs.csv").read_text() == "run\n"


def test_a_spreadsheet_runs_nothing_from_a_table(dualmix_: Command, tmp_path: Path) -> None:
    """A label is anyone's text: it may look like a formula or move a terminal's cursor."""
    for number, label in enumerate(("=cmd|' /C calc'!A0", "@SUM(1)", "a\x1b[2Jb", "er+da")):
        path = made(tmp_path / "store", "er", number)
        saved = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**saved, "label": label}))
    assert dualmix_("export", "--store", tmp_path / "store", "--format", "csv")[0] == 0
    with (Path.cwd() / "runs.csv").open(encoding="utf-8") as file:
        labels = {row["setting.seed"]: row["label"] for row in csv.DictReader(file)}
    assert labels == {"0": "'=cmd|' /C calc'!A0", "1": "'@SUM(1)", "2": "a?[2Jb", "3": "er+da"}


def test_a_table_says_what_is_not_in_it(dualmix_: Command, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (made(store, "er") / "times.json").write_bytes(b"x")
    (made(store, "mir") / "scores.json").unlink()
    (made(store, "gss") / "facts.json").unlink()
    code, out, _ = dualmix_("export", "--store", store, "--format", "csv")
    assert code == 0
    assert [f"{line.split('-')[0]}" for line in out.splitlines()[1:]] == [
        *("left out: gss", "not finished: mir", "note: er"),
    ]
    told = json.loads(dualmix_("export", "--store", store, "--format", "csv", "--json")[1])
    assert [len(told[part]) for part in ("left_out", "unfinished", "remarks")] == [1, 1, 1]


@pytest.mark.parametrize("out", [".", "..", "/", "deep/.."])
def test_a_table_is_not_written_to_a_folder(dualmix_: Command, store: Path, out: str) -> None:
    code, _, err = dualmix_("export", "--store", store, "--format", "csv", "--out", out)
    assert code == 2 and "is a folder" in err and err.count("\n") == 1
