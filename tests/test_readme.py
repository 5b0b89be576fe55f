"""The README is short, its example prints what it says, its numbers are those of results/, and its
commands exist; the same for the pages in docs/.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dualmix.cli.parser import make_parser
from dualmix.report.collect import collect
from dualmix.report.tables import summarise
from dualmix.runs.configurations import configurations
from dualmix.store.opening import open_store
from dualmix.sweeps.sweep import read_grid
from tests.readme_walk import alike, differences, steps

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "docs/start.md",
    "docs/stream.md",
    "docs/own.md",
    "docs/data.md",
    "docs/runs.md",
    "docs/metrics.md",
)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^(?:    |\$ (?:\.venv/bin/)?)(dualmix [^#\n]+)", re.MULTILINE)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def printed(code: str, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import torch\ntorch.set_num_threads(1)\n{code}"],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_example_prints_what_the_readme_prints(tmp_path: Path) -> None:
    (example,) = [step for step in steps(README) if step.python]
    assert len(example.expected) >= 5
    assert differences(example.expected, printed(example.command, tmp_path).splitlines()) == []


def test_the_examples_of_ones_own_are_short() -> None:
    blocks = PYTHON.findall(text("docs/own.md"))
    assert len(blocks) >= 9 and all(len(block.splitlines()) <= 20 for block in blocks)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if PYTHON.search(text(page))])
def test_examples_of_the_pages_run(page: str, tmp_path: Path) -> None:
    said = printed("\n".join(PYTHON.findall(text(page))), tmp_path)
    assert said.strip() and "False" not in said, said  # what an example claims is printed as True


def test_the_example_is_short_and_knows_no_task() -> None:
    (block,) = PYTHON.findall(README)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    assert "task" not in block.lower()
    assert "observe" in block
    assert "predict" in block


def test_a_screen_and_a_half_that_names_the_paper_first() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert "arxiv.org/abs/2303.07864" in "\n".join(lines[:12])
    assert "shared/data" not in README
    for picture in re.findall(r'(?:srcset|src)="([^"]+)"', README):
        assert (ROOT / picture).is_file()


WITH_COMMANDS = ("cluster", "extend", "reproduce", "serve")


@pytest.mark.parametrize(
    "page", ["README.md", *PAGES, *(f"docs/{name}.md" for name in WITH_COMMANDS)]
)
def test_every_command_and_flag_is_known(page: str) -> None:
    parser = make_parser()
    commands = COMMAND.findall(text(page))
    assert commands or page in ("docs/metrics.md", "docs/own.md", "docs/stream.md")
    for command in commands:
        words = shlex.split(command.split(" > ")[0])[1:]
        known = parser
        for word in words:
            known = known.commands.get(word, known)
        assert known is not parser and not known.commands, command
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            own = flag in known.flags or flag == "--help"
            assert own or (known.takes_settings and re.fullmatch(r"--[\w.]+", flag)), command


def test_the_grid_of_the_page_is_a_grid(tmp_path: Path) -> None:
    (grid,) = re.findall(r"```yaml\n(.*?)```", text("docs/runs.md"), re.DOTALL)
    (tmp_path / "grid.yaml").write_text(grid)
    assert len(read_grid(tmp_path / "grid.yaml")) == 2 * 3 * 2


def test_the_tables_of_the_documents_are_those_of_the_results() -> None:
    from studies.evidence_tables import MARKED, PAGES, tables, written

    made = tables(summarise(collect(open_store(str(ROOT / "results")))))
    named = [found[2] for page in PAGES for found in MARKED.finditer(text(page))]
    assert set(made) == set(named), "each table stands in a document"
    for page in PAGES:
        assert text(page) == written(text(page), made), "python -m studies.evidence_tables"


def test_a_table_that_is_older_than_its_runs_is_found() -> None:
    from studies.evidence_tables import written

    old = "a\n<!-- t: made by x -->\n| 1 |\n<!-- end -->\nb\n"
    new = "a\n<!-- t: made by x -->\n\n| 2 |\n\n<!-- end -->\nb\n"
    assert written(old, {"t": ["| 2 |"]}) == new == written(new, {"t": ["| 2 |"]})


def test_the_pictures_and_the_table_are_those_of_the_results() -> None:
    from studies.readme_chart import METHODS, groups, pictures

    filed = collect(open_store(str(ROOT / "results")))
    said = re.search(r"(\d+) finished runs", text("results/README.md"))
    assert said and len(filed.runs) + len(filed.twins) == int(said[1])
    drawn = groups(filed)
    for name, picture in pictures(drawn).items():
        assert text(f"docs/{name}") == picture, "python -m studies.readme_chart"
    rows, _ = configurations(drawn, "er")
    for name, row in zip(METHODS, rows, strict=True):
        accuracy, forgetting = row.spreads.values()
        assert accuracy is not None and forgetting is not None
        cells = next(line for line in README.splitlines() if line.startswith(f"| {name} |"))
        assert f"| {accuracy.n} | {accuracy.mean:.1f} ± {accuracy.half:.1f} |" in cells
        assert f"| {forgetting.mean:.1f} ± {forgetting.half:.1f} |" in cells
    gain = rows[-1].against
    assert gain is not None
    assert f"{gain.mean:.1f} ± {gain.half:.1f} points over er (n = {gain.n})" in README


def test_the_demo_shown_is_the_demo_there_is() -> None:
    from dualmix.cli import demo

    (shown,) = [step for step in steps(README) if step.command == "make demo"]
    for line in demo.TITLE.splitlines():
        assert line in shown.expected
    for label, values in demo.ROWS:
        memory = str(values.get("method.memory", "-"))
        rows = [line.split() for line in shown.expected if line.split()[:2] == [label, memory]]
        assert len(rows) == 1
        assert rows[0][-2] == str(demo.SEEDS)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("er 50 12.5 ± 3.1 5 0:05", "er  50 20.5 ±  9.1 5 0:59", True),
        ("er 50 12.5 ± 3.1 5 0:05", "er 51 12.5 ± 3.1 5 0:05", False),
        ("er 12.5", "er 40.5", False),
        ("er 12.5", "mir 12.5", False),
        (" 50 │ ●   ", " 60 │   ● ", True),
        ("trained 0:03, 12 images/s", "trained 1:00:03, 99 images/s", True),
        ("runs/er-digits-s0-8254c40180ab", "runs/er-digits-s0-b60c4fb75cc2", True),
        ("runs/er-digits-s0-8254c40180ab", "runs/er-digits-s1-8254c40180ab", False),
    ],
)
def test_what_counts_as_the_same_line(expected: str, got: str, same: bool) -> None:
    assert alike(expected, got) is same
