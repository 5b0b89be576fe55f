"""What the command line prints: settings, explanations, scores and learning curves, as tables of 80 columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix import metrics
from dualmix.config import Composed, lookup, walk
from dualmix.progress import clock
from dualmix.registry import Preset, additions, get_preset
from dualmix.store import Folder

if TYPE_CHECKING:
    from dualmix.calibrate import Deviation, Reading
    from dualmix.data.verify import Entry, Report
    from dualmix.proposition import Verdict
    from dualmix.report.compare import Comparison, Difference
    from dualmix.timing import Row, Stage
    from dualmix.tune import Search

BAR = 24
CHOICES = {
    "paper": "the paper's",
    "reference": "reference",
    "inferred": "inferred",
    "calibrated": "calibrated",
    "ours": "ours",
    "yours": "yours",
}


def results(where: str | Path, scores: Mapping[str, Any], times: Mapping[str, Any]) -> RenderableType:
    """Return the scores of a finished run."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, doc in (
        ("average_accuracy", "after the last task, Eq. 14"),
        ("forgetting", "after the last task, Eq. 15"),
        ("forgetting_ref", "the reference code's variant"),
        ("anytime_accuracy", "mean over the tasks of Eq. 14"),
        ("learning_accuracy", "of each task just after it"),
        ("backward_transfer", "change since then"),
        ("online_accuracy", "of each image before it is learned"),
    ):
        table.add_row(name.replace("_", " "), percent(scores.get(name)), doc)
    cost = (
        f"trained {clock(times['train_seconds'])}, tested {clock(times['evaluate_seconds'])}, "
        f"{times['images_per_second']:.0f} images/s, peak memory {times['peak_memory_mb']:.0f} MB"
    )
    return Group(table, Text(cost), Text(str(where), style="dim"))


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash where it is undefined."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def method_table(presets: Mapping[str, Preset]) -> RenderableType:
    """Return the list of methods."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it does")
    table.add_column("in the paper", style="dim")
    extras = additions()
    hosts = {name: preset for name, preset in presets.items() if not name.endswith(tuple(f"+{e}" for e in extras))}
    for name, preset in sorted(hosts.items()):
        table.add_row(name, preset.doc, preset.paper)
    added = Table(box=box.SIMPLE, pad_edge=False)
    added.add_column("added", style="bold", no_wrap=True)
    added.add_column("what it adds")
    added.add_column("fits")
    for name, (extra, fits) in extras.items():
        added.add_row(f"+{name}", extra.doc, ", ".join(fits))
    return Group(
        table,
        added,
        Text("dualmix run METHOD trains one; dualmix explain METHOD shows all its settings.", style="dim"),
    )


def settings(composed: Composed) -> RenderableType:
    """Return every setting of a preset with its value and meaning."""
    table = Table(
        title=f"Settings of {composed.label}",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        caption="Give them as flags: --SETTING VALUE. Lists as [1,2,3], no value as none.",
        caption_justify="left",
    )
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("meaning")
    for path, info in walk(type(composed.config)):
        table.add_row(f"--{path}", _value(lookup(composed.config, path)), info.description or "")
    return table


def explanation_rows(composed: Composed) -> list[dict[str, Any]]:
    """Return, for every setting, its value, its origin, what the paper says and whose choice the value is."""
    rows = []
    for path, info in walk(type(composed.config)):
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        found = lookup(composed.config, path)
        origin, _, name = composed.origins[path].partition(" ")
        choice = extra.get("source", "ours") if origin in ("default", "data") else "yours"
        if origin == "preset":
            choice = get_preset(name).sources.get(path, "ours")
        rows.append(
            {
                "setting": path,
                "value": found if isinstance(found, int | float | str | None) else _value(found),
                "from": composed.origins[path],
                "paper": extra.get("paper", "-"),
                "choice": choice,
                "meaning": info.description or "",
            }
        )
    return rows


def explanation(composed: Composed) -> RenderableType:
    """Return the explanation as a table."""
    table = Table(box=box.SIMPLE, pad_edge=False, title=f"{composed.label}, every value", title_justify="left")
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from")
    table.add_column("the paper says", overflow="fold")
    table.add_column("whose choice", style="dim", no_wrap=True)
    shown = ""
    for row in explanation_rows(composed):
        group, _, name = row["setting"].rpartition(".")
        if group != shown:
            shown = group
            table.add_row(f"{group}." if group else "the run")
        origin = Text(row["from"].partition(" ")[0], style="" if row["from"] == "default" else "yellow")
        table.add_row(f"  {name}", _value(row["value"]), origin, row["paper"], CHOICES[row["choice"]])
    legend = (
        "whose choice: the paper's = stated there; reference = read in the code behind its baselines; inferred = from "
        "two or more facts; calibrated = by its Table 3 (docs/reading-of-the-paper.md)."
    )
    return Group(table, Text(legend, style="dim"))


def curve_rows(folder: Folder) -> dict[str, Any]:
    """Return a run's scores task by task, finished or not."""
    counts = folder.counts()
    tasks = [task["classes"] for task in folder.read_json("plan.json")["tasks"]]
    saved = folder.read_json("config.json")
    head = {"run": str(folder), "label": saved["label"], "done": folder.done, "tasks": len(tasks)}
    if not len(counts):
        return {**head, "finished_tasks": 0}
    summary = metrics.summary(counts, tasks)
    if folder.done:
        summary |= {"times": folder.read_json("times.json")}
    return {**head, "finished_tasks": len(counts), **summary}


def curve(folder: Folder) -> RenderableType:
    """Return a run's learning curve for a terminal."""
    rows = curve_rows(folder)
    state = "done" if rows["done"] else f"{rows['finished_tasks']} of {rows['tasks']} tasks so far"
    title = f"{rows['label']}, {state}"
    if not rows["finished_tasks"]:
        return Text(f"{title}\n{rows['run']}\nNo task is finished yet.")
    table = Table(box=box.SIMPLE, pad_edge=False, title=title, title_justify="left")
    table.add_column("task", justify="right")
    table.add_column("accuracy", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("forgetting", justify="right")
    table.add_column("er(n,o)", justify="right")
    table.add_column("er(o,n)", justify="right")
    top = max(rows["average_accuracy_by_task"])
    for task, accuracy in enumerate(rows["average_accuracy_by_task"]):
        table.add_row(
            str(task + 1),
            percent(accuracy),
            _bar(accuracy, top),
            percent(rows["forgetting_by_task"][task]),
            percent(rows["er_new_old"][task]),
            percent(rows["er_old_new"][task]),
        )
    legend = (
        f"accuracy: average over the tasks so far (the longest bar is {percent(top)}). er(n,o): share of the errors on "
        "new classes that fall on old ones; er(o,n) the other way round."
    )
    parts: list[RenderableType] = [table, Text(legend, style="dim")]
    parts.append(
        results(str(folder), folder.read_json("scores.json"), rows["times"])
        if rows["done"]
        else Text(rows["run"], style="dim")
    )
    return Group(*parts)


def _bar(share: float, top: float) -> str:
    whole, rest = divmod(round(8 * BAR * share / top) if top else 0, 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def comparison(title: str, rows: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> RenderableType:
    """Return methods side by side: mean and 95 % interval of accuracy and forgetting over seeds."""
    table = Table(box=box.SIMPLE, pad_edge=False, title=title, title_justify="left")
    table.add_column("method", style="bold")
    table.add_column("average accuracy", justify="right")
    table.add_column("forgetting", justify="right")
    table.add_column("seeds", justify="right")
    for name, accuracy, forgetting in rows:
        table.add_row(name, _mean(accuracy), _mean(forgetting), str(len(accuracy)))
    return Group(table, Text("mean ± half of the 95 % interval (Student t) over seeds", style="dim"))


def _mean(shares: Sequence[float]) -> str:
    found = metrics.interval([100 * share for share in shares])
    return f"{found.mean:.1f} ± {found.half:.1f} %" if found.n > 1 else f"{found.mean:.1f} %"


def reading_table(readings: Sequence[Reading]) -> RenderableType:
    """Return the readings that can be compared."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("reading", style="bold", no_wrap=True)
    table.add_column("choice", no_wrap=True)
    table.add_column("what it says")
    for reading in readings:
        table.add_row(reading.name, reading.choice, reading.doc)
    return table


def calibration(rows: Sequence[Deviation], *, full: bool) -> RenderableType:
    """Return readings by their distance from the paper's Table 3, with accuracy / forgetting of each row."""
    from dualmix.paper import ABLATION_ACCURACY, ABLATION_FORGETTING

    names = list(ABLATION_ACCURACY)
    table = Table(
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), title="Table 3 at M=1k, by reading", title_justify="left"
    )
    table.add_column("reading", style="bold", no_wrap=True)
    for name in ("off", "any"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in names:
        table.add_column(name.removeprefix("er+"), justify="right", no_wrap=True)
    table.add_column("n", justify="right")
    paper = [f"{ABLATION_ACCURACY[name][0][0]:.1f}/{ABLATION_FORGETTING[name][0][0]:.1f}" for name in names]
    table.add_row("the paper", "", "", *paper, "10", end_section=True)
    for row in rows:
        cells = [f"{mean[0]:.1f}/{mean[1]:.1f}" if (mean := row.mean(name)) else "-" for name in names]
        off = f"{row.points:.1f}" if full else f"{100 * row.gains:.0f} %"
        table.add_row(
            row.reading,
            "-" if math.isnan(row.points if full else row.gains) else off,
            "-" if math.isnan(row.anytime) else f"{100 * row.anytime:.0f} %",
            *cells,
            str(len(row.seeds)),
        )
    measure = (
        "off: root mean square distance of all cells from the paper's, in points"
        if full
        else "off: root mean square distance of each row's gain over er from the paper's, as a factor; the cells "
        "themselves are those of a shortened stream and not the paper's"
    )
    steadier = "any: the gain in anytime accuracy against the paper's in accuracy, steadier than the last task's"
    legend = f"average accuracy / forgetting in per cent, mean over n seeds. {measure}. {steadier}."
    return Group(table, Text(legend, style="dim"))


def proposition(verdicts: Sequence[Verdict]) -> RenderableType:
    """Return how far Proposition 1 holds, stream by stream."""
    parts: list[RenderableType] = []
    for verdict in verdicts:
        table = Table(box=box.SIMPLE, pad_edge=False, title=verdict.stream, title_justify="left")
        for name in ("augmentation", "CO", "FG", "its bias", "m-bar", "m-bar*", "acc. %", "forg. %", "n"):
            table.add_column(name, justify="left" if name == "augmentation" else "right", no_wrap=True)
        for one in verdict.operators:
            table.add_row(
                one.name,
                *(f"{number:.1e}" for number in (one.covariance, one.gap, one.gap_bias)),
                *(f"{number:.1e}" for number in (one.mean_variance, one.sample_spread)),
                percent(one.accuracy).removesuffix(" %"),
                percent(one.forgetting).removesuffix(" %"),
                str(one.seeds),
            )
        borders = verdict.borders
        pairs, failing = sum(b.pairs for b in borders), sum(b.pairs - b.agree for b in borders)
        parts += [
            table,
            Text(f"CO against FG on the same model: {verdict.gap.words('models')}."),
            Text(
                f"  The proposition holds for {percent(verdict.holds)} of {pairs} pairs of augmentations; of the "
                f"{failing} where it fails the bias part of FG decides in {sum(b.overruled for b in borders)}."
            ),
            Text(f"CO against final accuracy: {verdict.accuracy.words('augmentations')} (expected: negative)."),
            Text(f"CO against forgetting: {verdict.forgetting.words('augmentations')} (expected: positive)."),
            Text(f"m-bar against final accuracy: {verdict.mean_variance.words('augmentations')} (Figure 5: negative)."),
            Text(f"m-bar* against accuracy: {verdict.sample_spread.words('augmentations')} (Figure 5: negative)."),
        ]
    legend = (
        "Rank correlations with the middle 95 % over resamples. m-bar: deviation over draws, as Eq. 6 is written; "
        "m-bar*: over images. n: runs trained with the augmentation."
    )
    return Group(*parts, Text(legend, style="dim"))


def bench_table(found: Sequence[Row]) -> RenderableType:
    """Return what the benchmark measured: time, spread, ratio with its quartiles, and whether a limit is kept."""
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for name in ("", "median", "spread", "ratio", "quartiles", "limit", "verdict"):
        table.add_column(name, justify="left" if name in ("", "verdict") else "right", no_wrap=True)
    shown = ""
    for row in found:
        if row.group != shown:
            shown = row.group
            table.add_row(Text(row.group, style="bold"))
        limit = "" if row.limit is None else f"{'>=' if row.atleast else '<='} {row.limit:g}"
        digits = 2 if (row.ratio or 0) < 100 else 0
        ratio = "" if row.ratio is None else f"{row.ratio:.{digits}f}"
        quartiles = "" if row.low is None else f"{row.low:.{digits}f}-{row.high:.{digits}f}"
        median = f"{row.median:.0f} MB" if row.unit == "MB" else f"{1000 * row.median:.2f} ms"
        cells = (median, f"{100 * row.spread:.0f} %", ratio, quartiles, limit, row.verdict)
        table.add_row(f"  {row.name}", *cells)
    legend = (
        "median: of the CPU time of a call, one thread, or of a process's peak memory; spread: half the distance of "
        "the quartiles; ratio: to the first row of the group, round by round, for memory to what it may be (its memory "
        "of images, its network and 300 MB); unclear: the quartiles straddle the limit, so measure longer or in quiet."
    )
    return Group(table, Text(legend, style="dim"))


def scale_table(stages: Sequence[Stage]) -> RenderableType:
    """Return how the cost of a step develops along the scale run."""
    table = Table(box=box.SIMPLE, pad_edge=False, title="Scale run", title_justify="left")
    for name in ("images", "classes", "ms a step", "memory MB"):
        table.add_column(name, justify="right")
    for stage in stages:
        table.add_row(
            f"{stage.images:,}", f"{stage.classes:,}", f"{1000 * stage.step_seconds:.2f}", f"{stage.memory_mb:.0f}"
        )
    return table


def differing(found: Comparison) -> RenderableType:
    """Return what differs between two runs."""
    a, b = found.names
    parts: list[RenderableType] = [Text(f"a: {a}\nb: {b}")]
    for title, rows in (("settings", found.settings), ("circumstances", found.circumstances)):
        if rows:
            parts.append(_two_columns(title, rows))
        else:
            parts.append(Text(f"No {title} differ.\n"))
    scores = Table(box=box.SIMPLE, pad_edge=False, title="scores", title_justify="left")
    for name in ("", "a", "b", "b - a"):
        scores.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in found.scores:
        scores.add_row(row.name.replace("_", " "), percent(row.a), percent(row.b), _points(row.a, row.b))
    curve = Table(box=box.SIMPLE, pad_edge=False, title="average accuracy after each task", title_justify="left")
    for name in ("task", "a", "b", "b - a"):
        curve.add_column(name, justify="right", no_wrap=True)
    for task, one, other in found.by_task:
        curve.add_row(str(task), percent(one), percent(other), _points(one, other))
    order = "the same rows in the same order" if found.paired else "different streams"
    return Group(*parts, scores, curve, Text(f"Both saw {order}.", style="dim"))


def _two_columns(title: str, rows: Sequence[Difference]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, title=f"{title} that differ", title_justify="left")
    table.add_column(title[:-1], style="bold", overflow="fold")
    table.add_column("a", overflow="fold")
    table.add_column("b", overflow="fold")
    for row in rows:
        table.add_row(row.name, *(_value(v) for v in (row.a, row.b)))
    return table


def _points(a: float | None, b: float | None) -> str:
    return "-" if a is None or b is None else f"{100 * (b - a):+.1f}"


def verification(report: Report) -> RenderableType:
    """Return what a check of a data set found."""
    style = "green" if report.ok else "red"
    verdict = [Text(f"{'ok' if report.ok else 'BAD'}: {report.verdict[0]}", style=style)]
    verdict += [Text(f"note: {line}") for line in report.verdict[1:]]
    facts = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("where", report.where)
    if report.classes:
        channels, height, width = report.shape
        facts.add_row("images", f"{report.classes} classes, {height}x{width} pixels, {channels} channels")
        facts.add_row("training", f"{report.train:,} images, {_span(report.train_span)} a class")
        facts.add_row("test", f"{report.test:,} images, {_span(report.test_span)} a class")
        facts.add_row("content", f"sha256 {report.fingerprint}")
    for file in report.files:
        published = {True: "as published", False: "not the published checksum", None: "no published checksum"}
        facts.add_row(file.name, f"{_size(file.size)}, md5 {file.md5}, {published[file.official]}")
    return Group(Text(f"{report.name}"), facts, *verdict)


def data_table(where: Path, entries: Sequence[Entry]) -> RenderableType:
    """Return which data sets are here, where, and how big."""
    table = Table(box=box.SIMPLE, pad_edge=False, title=f"Data in {where}", title_justify="left")
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("decoded", justify="right", no_wrap=True)
    table.add_column("what and where", overflow="fold")
    for entry in entries:
        here = {True: "yes", False: "no", None: "yours"}[entry.present]
        about = f"{entry.doc}\n{entry.where}" if entry.present else entry.doc
        table.add_row(entry.name, here, _size(entry.size), _size(entry.decoded), about)
    hint = "dualmix data get NAME downloads one; dualmix data verify NAME checks one."
    return Group(table, Text(hint, style="dim"))


def _span(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count else "-"


def _value(found: Any) -> str:
    if found is None:
        return "none"
    if isinstance(found, tuple):
        return json.dumps(list(found), separators=(",", ":"))
    return str(found)


def search_table(chosen: Search) -> RenderableType:
    """Return what `dualmix tune` would try."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("now", justify="right")
    table.add_column("from", justify="right")
    table.add_column("to", justify="right")
    for path, tried in chosen.ranges.items():
        spread = f"{tried.high:g}{' (by factors)' if tried.log else ''}"
        table.add_row(path, _value(chosen.default[path]), f"{tried.low:g}", spread)
    tasks, kept = chosen.values["stream.first"], 100 * float(chosen.values["stream.validation"])
    return Group(
        table,
        Text(f"On the first {tasks} tasks, scored by {kept:g} % of their training images; seeds: {chosen.seeds}."),
    )


def tuning(result: Mapping[str, Any], where: str) -> RenderableType:
    """Return the result of a search: the preset's own values, the best, and the command that uses it."""
    scored = [trial for trial in result["trials"] if trial["score"] is not None]
    failed = sum(trial["state"] == "fail" for trial in result["trials"])
    head = f"{len(scored)} trials scored" + (f", {failed} failed" if failed else "")
    if not scored:
        return Text(f"{head}\n{where}")
    best = result["best"]
    table = Table(box=box.SIMPLE, pad_edge=False, title=head, title_justify="left")
    table.add_column("setting", style="bold", no_wrap=True)
    columns = [trial for trial in scored if trial["number"] == 0 and trial["number"] != best["number"]] + [best]
    for trial in columns:
        table.add_column("best" if trial is best else "as it was", justify="right")
    for path in best["values"]:
        table.add_row(path, *(f"{trial['values'][path]:g}" for trial in columns))
    table.add_row("accuracy", *(percent(trial["score"]) for trial in columns))
    return Group(table, Text(result["protocol"]["score"] + "."), Text(result["command"]), Text(where, style="dim"))
