"""The page: tables, figures and runs in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from dualmix.bench.calibrate import TERMS
from dualmix.errors import DualmixError
from dualmix.paper.proposition import check
from dualmix.paper.tables import ABLATION_ACCURACY, ABLATION_FORGETTING
from dualmix.report import commands, tables
from dualmix.report import text_tables as words
from dualmix.report.gallery import gallery
from dualmix.report.readings import calibrations
from dualmix.report.speed import Speed
from dualmix.runs.records import Collection, Content, Group, account
from dualmix.store.files import make_folder

LEVEL = 0.05
GLOBALS = "window.vegaEmbed=vegaEmbed;"


def html(found: Collection, *, figures_to: Path | None = None, speed: Speed | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    figures_to
        A folder that every figure is also written to, as svg and pdf.
    speed
        What a benchmark measured, to be shown too.

    Raises
    ------
    DualmixError
        The packages that draw are not installed.
    """
    try:
        import altair
        import jinja2
        import vl_convert
    except ImportError as fault:
        raise DualmixError(
            f"The page needs {fault.name}, which is not installed: pip install 'dualmix[report]' "
            "(--format md, tex and csv do without)."
        ) from fault
    from dualmix.report.figures import figures

    proved = check(found.runs)
    with altair.utils.schemapi.debug_mode(
        False
    ):  # the specs were checked by the tests; checking takes most of the time
        drawn = figures(found, proved, speed)
    language = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    pdf = {
        view.name + figure.id: vl_convert.vegalite_to_pdf(view.spec, vl_version=language)
        for figure in drawn
        for view in figure.views
    }
    if figures_to is not None:
        make_folder(figures_to)
        for figure in drawn:
            for view in figure.views:
                at = figures_to / _slug(f"{figure.id} {view.name}")
                at.with_suffix(".pdf").write_bytes(pdf[view.name + figure.id])
                svg = vl_convert.vegalite_to_svg(view.spec, vl_version=language)
                at.with_suffix(".svg").write_text(svg, encoding="utf-8")
    shown = {
        figure.id: [
            {
                "name": view.name,
                "spec": view.spec,
                "pdf": base64.b64encode(pdf[view.name + figure.id]).decode(),
            }
            for view in figure.views
        ]
        for figure in drawn
    }
    paper, fights = tables.tables(found), tables.contests(found)
    plain, changed = tables.others(found)
    here = files("dualmix.report")
    safe = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    raw = {
        name: here.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    return safe.from_string(raw["html"]).render(
        found=found,
        version=version("dualmix"),
        nav=_nav(drawn, plain, changed),
        subsets=[content for content in found.contents(found.plain) if content.subset],
        tables=paper,
        blocks=_blocks,
        legend=words.LEGEND,
        marks=words.MARKS,
        text=tables.text,
        p_text=words.p_text,
        verdict=_verdict,
        contests=fights,
        missing_pairs=commands.sweep("table1", ["er", "er+dualmix"]),
        figures=drawn,
        verdicts=proved,
        speed=speed,
        calibrations=calibrations(found),
        terms=list(TERMS),
        paper_row=_paper_row,
        gallery=gallery(found),
        plain=plain,
        changed=changed,
        again=commands.again,
        flag=commands.flag,
        css=_markup(raw["css"]),
        js=_markup(raw["js"]),
        bundle=_markup(vl_convert.javascript_bundle(GLOBALS, language)),
        figures_gzip=_packed(shown),
        cells_json=_json(_cells(paper, fights, plain, changed)),
        runs_gzip=_packed(_accounts(found)),
    )


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


def _accounts(found: Collection) -> dict[str, Any]:
    """Return everything about every run."""
    return {
        run.name: {
            **account(run),
            "command": commands.again(
                Group(run.label, run.content, run.memory, run.changed, (run,))
            ),
        }
        for run in found.runs
    }


def _nav(
    drawn: Sequence[Any], plain: Sequence[Group], changed: Sequence[Group]
) -> list[tuple[str, str]]:
    figures = [(figure.id, figure.id.replace("figure", "Fig. ").capitalize()) for figure in drawn]
    optional = [("others", "Others")] * bool(plain) + [("configurations", "Configurations")] * bool(
        changed
    )
    return [
        *((f"table{number}", f"Table {number}") for number in (1, 2, 3)),
        ("paired", "Pairs"),
        *figures,
        ("calibration", "Calibration"),
        ("gallery", "Gallery"),
        *optional,
        ("runs", "Runs"),
        ("left-out", "Left out"),
    ]


def _blocks(table: tables.Table) -> Iterator[tuple[Content | None, str, int]]:
    """Yield the headings over a table's columns: images, title and number of columns."""
    for (content, title), some in groupby(
        table.columns, key=lambda column: (column.content, column.title)
    ):
        yield content, title, len(list(some))


def _cells(
    paper: Sequence[tables.Table],
    fights: Sequence[tables.Contest],
    plain: Sequence[Group],
    changed: Sequence[Group],
) -> dict[str, Any]:
    """Return what the panel says about each cell that can be clicked."""
    said: dict[str, Any] = {}
    for table in paper:
        for cell in table.cells():
            ours = f"{tables.text(cell.ours, 2)} (n {cell.ours.n})" if cell.ours else "missing"
            facts = [["ours, %", ours], ["the paper, %", tables.text(cell.paper)]]
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
                "title": f"{words.where(cell)}: {score}",
                "facts": facts,
                "command": cell.command,
                "runs": names,
            }
    for number, fight in enumerate(fights):
        facts = [
            ["difference, points", tables.text(fight.difference, 2)],
            ["seeds", " ".join(map(str, fight.seeds))],
        ]
        facts += [["p", words.p_text(fight.p)], ["p after Holm", words.p_text(fight.holm)]]
        title = f"{fight.label} against {fight.base}, {fight.content.title}: {fight.score.replace('_', ' ')}"
        said[f"paired-{number}"] = {
            "title": title,
            "facts": facts,
            "command": fight.command,
            "runs": [],
        }
    for name, groups in (("other", plain), ("changed", changed)):
        for number, group in enumerate(groups):
            facts = [
                [score.replace("_", " "), tables.text(group.interval(score), 2)]
                for score in ("average_accuracy", "forgetting")
            ]
            facts += [[path, f"{value} (not the preset's)"] for path, value in group.changed]
            said[f"{name}-{number}"] = {
                "title": f"{group.label}, {group.content.title}",
                "facts": facts,
                "command": commands.again(group),
                "runs": [run.name for run in group.runs],
            }
    return said


def _verdict(fight: tables.Contest) -> str:
    if fight.holm is None:
        return "too few seeds"
    if fight.holm >= LEVEL:
        return "not told apart"
    better = (fight.difference.mean > 0) == (fight.score == "average_accuracy")
    return f"{'better' if better else 'worse'} with DualMix"


def _paper_row(row: str) -> str:
    return f"{ABLATION_ACCURACY[row][0][0]:.1f} / {ABLATION_FORGETTING[row][0][0]:.1f}"


def _slug(words_: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in words_.lower()).split())
