"""The page: tables, figures and runs in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.errors import DualmixError
from dualmix.paper.numbers import ABLATION_ACCURACY, ABLATION_FORGETTING
from dualmix.paper.proposition import verdicts
from dualmix.paper.readings import TERMS
from dualmix.report import commands
from dualmix.report.calibration import calibrations
from dualmix.report.gallery import gallery
from dualmix.report.speed import Speed
from dualmix.report.tables import PairedTest, Summary, Table, interval_text
from dualmix.report.text_tables import LEGEND, MARKS, p_text, place_text
from dualmix.runs.records import Collection, Content, Group, account
from dualmix.store.files import make_folder

if TYPE_CHECKING:
    from dualmix.report.charts import Figure

LEVEL = 0.05
BUNDLE = (
    "import sys, vl_convert; sys.stdout.reconfigure(encoding='utf-8'); "
    "print(vl_convert.javascript_bundle('window.vegaEmbed=vegaEmbed;', sys.argv[1]), end='')"
)
"""Prints the JavaScript that draws the figures on the page."""


def html(
    summary: Summary,
    *,
    figures_to: Path | None = None,
    speed: Speed | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> str:
    """Return the page.

    Parameters
    ----------
    figures_to
        A folder that every figure is also written to, as svg and pdf.
    speed
        What a benchmark measured, to be shown too.
    progress
        Is told what is done, how many of it and of how many.

    Raises
    ------
    DualmixError
        The packages that draw are not installed.
    """
    try:
        import altair
        import jinja2
        import vl_convert  # noqa: F401
    except ImportError as fault:
        raise DualmixError(
            f"The page needs {fault.name}, which is not installed: pip install 'dualmix[report]' "
            "(--format md, tex and csv do without)."
        ) from fault
    from dualmix.report.figures import figures

    language = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", BUNDLE, language], stdout=subprocess.PIPE, encoding="utf-8"
    ) as bundling:  # it takes a second or two and keeps Python's lock: a process, not a thread
        collection, proposition = summary.collection, verdicts(summary.collection.runs)
        with altair.utils.schemapi.debug_mode(False):  # tests check the specs; checking is slow
            drawn = figures(collection, proposition, speed)
        shown = _rendered(drawn, language, figures_to, progress)
        bundle, _ = bundling.communicate()
    if bundling.returncode:
        raise DualmixError("vl-convert could not make the page's JavaScript (see above).")
    here = files("dualmix.report")
    safe = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    raw = {
        name: here.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    return safe.from_string(raw["html"]).render(
        collection=collection,
        version=version("dualmix"),
        nav=_nav(drawn, summary),
        subsets=[content for content in collection.contents(collection.plain) if content.subset],
        tables=summary.tables,
        blocks=_blocks,
        legend=LEGEND,
        marks=MARKS,
        text=interval_text,
        p_text=p_text,
        verdict=_verdict,
        paired_tests=summary.paired_tests,
        missing_pairs=commands.sweep_command("table1", ["er", "er+dualmix"]),
        figures=drawn,
        verdicts=proposition,
        speed=speed,
        calibrations=calibrations(collection),
        terms=list(TERMS),
        paper_row=_paper_row,
        gallery=gallery(collection),
        plain=summary.others,
        changed=summary.changed,
        again=commands.rerun_command,
        flag=commands.flag,
        css=_markup(raw["css"]),
        js=_markup(raw["js"]),
        bundle=_markup(bundle),
        figures_gzip=_packed(shown),
        cells_json=_json(_cells(summary)),
        runs_gzip=_packed(_accounts(collection)),
    )


def _rendered(
    drawn: Sequence[Figure],
    language: str,
    figures_to: Path | None,
    progress: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """Return each figure's views with their pdf, and write them to a folder if one is given."""
    from vl_convert import vegalite_to_pdf, vegalite_to_svg

    if figures_to is not None:
        make_folder(figures_to)
    shown: dict[str, Any] = {}
    for number, figure in enumerate(drawn):
        progress("figures drawn", number, len(drawn))
        shown[figure.id] = []
        for view in figure.views:
            pdf = vegalite_to_pdf(view.spec, vl_version=language)
            shown[figure.id].append(
                {"name": view.name, "spec": view.spec, "pdf": base64.b64encode(pdf).decode()}
            )
            if figures_to is not None:
                path = figures_to / _slug(f"{figure.id} {view.name}")
                path.with_suffix(".pdf").write_bytes(pdf)
                svg = vegalite_to_svg(view.spec, vl_version=language)
                path.with_suffix(".svg").write_text(svg, encoding="utf-8")
    return shown


def _markup(content: str) -> Any:
    from markupsafe import Markup

    return Markup(content.replace("</script", "<\\/script"))  # noqa: S704


def _json(plain: Any) -> Any:
    """Return JSON that cannot end the script it stands in."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return _markup(text.replace("<", "\\u003c"))


def _packed(plain: Any) -> str:
    """Return JSON compressed, for the page to unpack when it is needed."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _accounts(collection: Collection) -> dict[str, Any]:
    """Return everything about every run."""
    return {
        run.name: {
            **account(run),
            "command": commands.rerun_command(
                Group(run.label, run.content, run.memory, run.changed, (run,))
            ),
        }
        for run in collection.runs
    }


def _nav(drawn: Sequence[Figure], summary: Summary) -> list[tuple[str, str]]:
    return [
        *((f"table{number}", f"Table {number}") for number in (1, 2, 3)),
        ("paired", "Pairs"),
        *((figure.id, figure.id.replace("figure", "Fig. ").capitalize()) for figure in drawn),
        ("calibration", "Calibration"),
        ("gallery", "Gallery"),
        *([("others", "Others")] if summary.others else []),
        *([("configurations", "Configurations")] if summary.changed else []),
        ("runs", "Runs"),
        ("left-out", "Left out"),
    ]


def _blocks(table: Table) -> Iterator[tuple[Content | None, str, int]]:
    """Yield the headings over a table's columns: images, title and number of columns."""
    for (content, title), some in groupby(
        table.columns, key=lambda column: (column.content, column.title)
    ):
        yield content, title, len(list(some))


def _cells(summary: Summary) -> dict[str, Any]:
    """Return what the panel says about each cell that can be clicked."""
    said: dict[str, Any] = {}
    for table in summary.tables:
        for cell in table.cells():
            ours = f"{interval_text(cell.ours, 2)} (n {cell.ours.n})" if cell.ours else "missing"
            facts = [["ours, %", ours], ["the paper, %", interval_text(cell.paper)]]
            facts += (
                [["against the paper", f"{cell.mark}: the intervals do not meet"]]
                if cell.mark
                else []
            )
            if cell.column.content:
                facts.append(["data", "; ".join(cell.column.content.notes) or "whole set"])
            score = cell.column.score.replace("_", " ")
            names = [run.name for run in cell.group.runs] if cell.group else []
            said[cell.id] = {
                "title": f"{place_text(cell)}: {score}",
                "facts": facts,
                "command": cell.command,
                "runs": names,
            }
    for number, test in enumerate(summary.paired_tests):
        facts = [
            ["difference, points", interval_text(test.difference, 2)],
            ["seeds", " ".join(map(str, test.seeds))],
        ]
        facts += [["p", p_text(test.p)], ["p after Holm", p_text(test.holm)]]
        methods, score = f"{test.label} against {test.base}", test.score.replace("_", " ")
        said[f"paired-{number}"] = {
            "title": f"{methods}, {test.content.title}: {score}",
            "facts": facts,
            "command": test.command,
            "runs": [],
        }
    for name, groups in (("other", summary.others), ("changed", summary.changed)):
        for number, group in enumerate(groups):
            facts = [
                [score.replace("_", " "), interval_text(group.interval(score), 2)]
                for score in ("average_accuracy", "forgetting")
            ]
            facts += [[path, f"{value} (not the preset's)"] for path, value in group.changed]
            said[f"{name}-{number}"] = {
                "title": f"{group.label}, {group.content.title}",
                "facts": facts,
                "command": commands.rerun_command(group),
                "runs": [run.name for run in group.runs],
            }
    return said


def _verdict(test: PairedTest) -> str:
    if test.holm is None:
        return "too few seeds"
    if test.holm >= LEVEL:
        return "not told apart"
    better = (test.difference.mean > 0) == (test.score == "average_accuracy")
    return f"{'better' if better else 'worse'} with DualMix"


def _paper_row(row: str) -> str:
    return f"{ABLATION_ACCURACY[row][0][0]:.1f} / {ABLATION_FORGETTING[row][0][0]:.1f}"


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())
