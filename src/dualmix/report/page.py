"""The page: tables, figures and runs in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.errors import ConfigError, DualmixError, StoreError
from dualmix.folders import cache_folder
from dualmix.paper.numbers import ABLATION_ACCURACY, ABLATION_FORGETTING
from dualmix.paper.proposition import verdicts
from dualmix.paper.readings import TERMS
from dualmix.report import commands
from dualmix.report.budget import LACKING
from dualmix.report.calibration import Calibration, calibrations
from dualmix.report.cells import LEGEND, MARKS, place_text, published
from dualmix.report.gallery import Gallery, gallery
from dualmix.report.speed import Speed
from dualmix.report.summary import paragraphs
from dualmix.report.tables import Summary, Table
from dualmix.report.words import changes, interval_text, p_text, sentence, short, tied
from dualmix.runs.records import Collection, Content, Group, account
from dualmix.store.files import digest, make_folder, read_bytes, write_bytes

if TYPE_CHECKING:
    from dualmix.report.charts import Figure
    from dualmix.report.curves import AnyCurves

BUNDLE = (
    "import sys, vl_convert; sys.stdout.reconfigure(encoding='utf-8'); "
    "print(vl_convert.javascript_bundle('window.vegaEmbed=vegaEmbed;', sys.argv[1]), end='')"
)
"""Prints the JavaScript that draws the figures on the page."""
MOST = 20
"""Configurations of a stream that are shown before those with changed settings are folded away."""


def html(
    summary: Summary,
    *,
    figures_to: Path | None = None,
    speed: Speed | None = None,
    tell: Callable[[str], None] = lambda doing: None,
    today: date | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    figures_to
        A folder that every figure is also written to, as svg and pdf.
    speed
        What a benchmark measured, to be shown too.
    tell
        Is told in words what is being done.
    today
        The day that the page says it was made on.

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
    from dualmix.report.charts import COLOURS, DASHES, FEW, SHAPES
    from dualmix.report.curves import any_curves
    from dualmix.report.figures import figures
    from dualmix.report.ladder import by_question
    from dualmix.report.pairs import verdict

    language = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    with bundled(language) as bundle:
        tell("drawing the figures")
        collection, proposition = summary.collection, verdicts(summary.collection.runs)
        with altair.utils.schemapi.debug_mode(False):  # tests check the specs; checking is slow
            drawn = figures(summary, proposition, speed)
            chosen = any_curves(summary.streams)
        if figures_to is not None:
            tell("writing svg and pdf files")
            _write(drawn, language, figures_to)
        tell("looking for images")
        pictures = gallery(collection)
        tell("writing the page")
        script = bundle()
    readings = calibrations(collection)
    here = files("dualmix.report")
    safe = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    raw = {
        name: here.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    shown = {
        figure.id: [{"name": view.name, "spec": view.spec} for view in figure.views]
        for figure in drawn
    }
    shown |= {one.id: [{"name": one.stream.title, "spec": one.spec}] for one in chosen}
    looks = {"color": COLOURS, "strokeDash": DASHES, "shape": SHAPES}
    return safe.from_string(raw["html"]).render(
        collection=collection,
        version=version("dualmix"),
        today=today or datetime.now(UTC).date(),
        paragraphs=paragraphs(summary),
        nav=_nav(drawn, summary, readings, pictures),
        subsets=[content for content in collection.contents(collection.plain) if content.subset],
        streams=summary.streams,
        chosen={one.id: one for one in chosen},
        most=MOST,
        tables=summary.tables,
        budget=summary.budget,
        lacking=LACKING,
        sources=[source for source in summary.sources if source.filled],
        sources_absent=[source for source in summary.sources if not source.filled],
        blocks=_blocks,
        legend=LEGEND,
        marks=MARKS,
        text=interval_text,
        published=published,
        p_text=p_text,
        changes=changes,
        sentence=sentence,
        tied=tied,
        verdict=verdict,
        paired_tests=summary.paired_tests,
        rungs=by_question(summary.ladder),
        figures=[figure for figure in drawn if figure.views or figure.says],
        absent=[figure for figure in drawn if not figure.views and not figure.says],
        verdicts=proposition,
        speed=speed,
        calibrations=readings,
        terms=list(TERMS),
        paper_row=_paper_row,
        gallery=pictures,
        again=commands.rerun_command,
        css=_markup(raw["css"]),
        js=_markup(raw["js"]),
        bundle=_markup(script),
        figures_gzip=_packed(shown),
        curves_gzip=_packed(
            {"looks": looks, "few": FEW, "lines": {one.id: _lines(one) for one in chosen}}
        ),
        cells_json=_json(_cells(summary)),
        runs_gzip=_packed(_accounts(collection)),
    )


@contextmanager
def bundled(language: str) -> Iterator[Callable[[], str]]:
    """Make the JavaScript that draws, beside what the caller does; the call returns it.

    It takes a second or two and keeps Python's lock, so that another process makes it. It is kept
    in the cache folder, by the version of what made it, below its sha256.
    """
    path = _bundle_path(language)
    if kept := _kept(path):
        yield lambda: kept
        return
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", BUNDLE, language],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        process_group=0,  # Ctrl-C is for us
    ) as bundling:

        def made() -> str:
            bundle, _ = bundling.communicate()
            if bundling.returncode:
                raise DualmixError("vl-convert could not make the page's JavaScript (see above).")
            if path is not None:
                with suppress(StoreError):  # a folder that cannot be written costs a second
                    make_folder(path.parent)
                    write_bytes(path, f"{digest(bundle.encode())}\n{bundle}".encode())
            return bundle

        try:
            yield made
        finally:
            bundling.kill()


def _kept(path: Path | None) -> str | None:
    """Return the JavaScript of a file, if it is there and undamaged."""
    with suppress(StoreError, UnicodeDecodeError):
        told, _, bundle = read_bytes(path).decode().partition("\n") if path else ("", "", "")
        return bundle if told == digest(bundle.encode()) else None
    return None


def _bundle_path(language: str) -> Path | None:
    """Return where the JavaScript is kept; none for a user without a home."""
    given = os.environ.get("DUALMIX_CACHE")
    try:
        folder = Path(given) if given else cache_folder()
    except ConfigError:
        return None
    return folder / "page" / f"vl-convert-{version('vl-convert-python')}-{language}.js"


def _write(drawn: Sequence[Figure], language: str, folder: Path) -> None:
    """Write each figure's views as svg and pdf."""
    from vl_convert import vegalite_to_pdf, vegalite_to_svg

    make_folder(folder)
    for figure in drawn:
        for view in figure.views:
            path = folder / _slug(f"{figure.id} {view.name}")
            pdf = vegalite_to_pdf(view.spec, vl_version=language)
            write_bytes(path.with_suffix(".pdf"), pdf)
            svg = vegalite_to_svg(view.spec, vl_version=language)
            write_bytes(path.with_suffix(".svg"), svg.encode())


def _lines(curves: AnyCurves) -> list[dict[str, Any]]:
    return [{"place": one.place, "name": one.name, "rows": one.rows} for one in curves.lines]


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


def _nav(
    drawn: Sequence[Figure],
    summary: Summary,
    readings: Sequence[Calibration],
    pictures: Gallery,
) -> list[tuple[str, str]]:
    return [
        ("summary", "Summary"),
        *([("configurations", "What was run")] if summary.streams else []),
        *(
            (figure.id, SHORT.get(figure.id, figure.id.capitalize()))
            for figure in drawn
            if figure.views or figure.says
        ),
        ("table1", "The paper's tables"),
        *([("sources", "Other papers")] if any(s.filled for s in summary.sources) else []),
        *([("calibration", "Readings")] if readings else []),
        *([("gallery", "Images")] if pictures.rows else []),
        *([("budget", "What is missing")] if summary.budget.spent else []),
        *([("runs", "All runs")] if summary.collection.runs else []),
        ("left-out", "Left out"),
    ]


SHORT = {
    "paired": "DualMix adds",
    "ladder": "Part by part",
    "ways": "Ways to answer",
    "curves": "Over tasks",
    "errors": "Errors",
    "norms": "Head",
    "figure2": "Augmentations",
    "figure5": "Mean variance",
    "proposition": "Proposition 1",
    "bench": "Cost",
    "heatmap": "Task by task",
}
"""What a figure is called in the list of sections."""


def _blocks(table: Table) -> Iterator[tuple[Content | None, str, int, int]]:
    """Yield the headings over a table's columns: images, title, number of columns, and how many of
    them have a run.
    """
    columns = zip(table.columns, table.filled(), strict=True)
    for (content, title), some in groupby(columns, key=lambda one: (one[0].content, one[0].title)):
        filled = [full for _, full in some]
        yield content, title, len(filled), sum(filled)


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
    for number, stream in enumerate(summary.streams):
        for place, group in enumerate(stream.groups):
            facts = [
                [score.replace("_", " "), interval_text(group.interval(score), 2)]
                for score in ("average_accuracy", "forgetting", "anytime_accuracy")
            ]
            facts += [[path, f"{short(value)} (not the preset's)"] for path, value in group.changed]
            said[f"group-{number}-{place}"] = {
                "title": f"{group.label}, {stream.title}",
                "facts": facts,
                "command": commands.rerun_command(group),
                "runs": [run.name for run in group.runs],
            }
    return said


def _paper_row(row: str) -> str:
    return f"{ABLATION_ACCURACY[row][0][0]:.1f} / {ABLATION_FORGETTING[row][0][0]:.1f}"


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())
