"""Studies of many runs: readings of the paper, Proposition 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.text import percent

if TYPE_CHECKING:
    from dualmix.bench.calibrate import Deviation, Reading
    from dualmix.paper.proposition import Verdict


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
