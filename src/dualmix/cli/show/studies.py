"""Studies of many runs: methods side by side, readings of the paper, Proposition 1, a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.show.run import percent
from dualmix.cli.show.settings import value
from dualmix.runs import metrics

if TYPE_CHECKING:
    from dualmix.bench.calibrate import Deviation, Reading
    from dualmix.paper.proposition import Verdict
    from dualmix.sweeps.tune import Search


def comparison(
    title: str, rows: Sequence[tuple[str, Sequence[float], Sequence[float]]]
) -> RenderableType:
    """Return methods side by side: mean and 95 % interval of accuracy and forgetting over seeds."""
    table = Table(box=box.SIMPLE, pad_edge=False, title=title, title_justify="left")
    table.add_column("method", style="bold")
    table.add_column("average accuracy", justify="right")
    table.add_column("forgetting", justify="right")
    table.add_column("seeds", justify="right")
    for name, accuracy, forgetting in rows:
        table.add_row(name, _mean(accuracy), _mean(forgetting), str(len(accuracy)))
    return Group(
        table, Text("mean ± half of the 95 % interval (Student t) over seeds", style="dim")
    )


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
    """Return readings by their distance from the paper's Table 3, with accuracy / forgetting of
    each row.
    """
    from dualmix.paper.tables import ABLATION_ACCURACY, ABLATION_FORGETTING

    names = list(ABLATION_ACCURACY)
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        padding=0,
        title="Table 3 at M=1k, by reading",
        title_justify="left",
    )
    table.add_column("reading", style="bold", no_wrap=True)
    for name in ("off", "any"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in names:
        table.add_column(name.removeprefix("er+"), justify="right", no_wrap=True)
    table.add_column("n", justify="right")
    paper = [
        f"{ABLATION_ACCURACY[name][0][0]:.1f}/{ABLATION_FORGETTING[name][0][0]:.1f}"
        for name in names
    ]
    table.add_row("the paper", "", "", *paper, "10", end_section=True)
    for row in rows:
        cells = [
            f"{mean[0]:.1f}/{mean[1]:.1f}" if (mean := row.mean(name)) else "-" for name in names
        ]
        off = f"{row.points:.1f}" if full else f"{100 * row.gains:.0f}%"
        table.add_row(
            row.reading,
            "-" if math.isnan(row.points if full else row.gains) else off,
            "-" if math.isnan(row.anytime) else f"{100 * row.anytime:.0f}%",
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
        table = Table(
            box=box.SIMPLE,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            title=verdict.stream,
            title_justify="left",
        )
        for name in ("augmentation", "CO", "FG", "bias", "m-bar", "m-bar*", "acc.", "forg.", "n"):
            table.add_column(
                name, justify="left" if name == "augmentation" else "right", no_wrap=True
            )
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
            Text(
                f"CO against final accuracy: {verdict.accuracy.words('augmentations')} (expected: negative)."
            ),
            Text(
                f"CO against forgetting: {verdict.forgetting.words('augmentations')} (expected: positive)."
            ),
            Text(
                f"m-bar against final accuracy: {verdict.mean_variance.words('augmentations')} (Figure 5: negative)."
            ),
            Text(
                f"m-bar* against accuracy: {verdict.sample_spread.words('augmentations')} (Figure 5: negative)."
            ),
        ]
    legend = (
        "Rank correlations with the middle 95 % over resamples. m-bar: deviation over draws, as Eq. 6 is written; "
        "m-bar*: over images. bias: that part of FG; acc., forg.: per cent, of n runs trained with the augmentation."
    )
    return Group(*parts, Text(legend, style="dim"))


def search_table(chosen: Search) -> RenderableType:
    """Return what `dualmix tune` would try."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("now", justify="right")
    table.add_column("from", justify="right")
    table.add_column("to", justify="right")
    for path, tried in chosen.ranges.items():
        spread = f"{tried.high:g}{' (by factors)' if tried.log else ''}"
        table.add_row(path, value(chosen.default[path]), f"{tried.low:g}", spread)
    tasks, kept = chosen.values["stream.first"], 100 * float(chosen.values["stream.validation"])
    return Group(
        table,
        Text(
            f"On the first {tasks} tasks, scored by {kept:g} % of their training images; seeds: {chosen.seeds}."
        ),
    )


def tuning(result: Mapping[str, Any], where: str) -> RenderableType:
    """Return the result of a search: the preset's own values, the best, and the command that uses
    it.
    """
    scored = [trial for trial in result["trials"] if trial["score"] is not None]
    failed = sum(trial["state"] == "fail" for trial in result["trials"])
    head = f"{len(scored)} trials scored" + (f", {failed} failed" if failed else "")
    if not scored:
        return Text(f"{head}\n{where}")
    best = result["best"]
    table = Table(box=box.SIMPLE, pad_edge=False, title=head, title_justify="left")
    table.add_column("setting", style="bold", no_wrap=True)
    columns = [
        trial for trial in scored if trial["number"] == 0 and trial["number"] != best["number"]
    ] + [best]
    for trial in columns:
        table.add_column("best" if trial is best else "as it was", justify="right")
    for path in best["values"]:
        table.add_row(path, *(f"{trial['values'][path]:g}" for trial in columns))
    table.add_row("accuracy", *(percent(trial["score"]) for trial in columns))
    return Group(
        table,
        Text(result["protocol"]["score"] + "."),
        Text(result["command"]),
        Text(where, style="dim"),
    )
