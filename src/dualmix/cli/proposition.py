"""What the paper's Proposition 1 comes to, stream by stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.text import percent

if TYPE_CHECKING:
    from dualmix.paper.proposition import Verdict


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
                f"  The proposition holds for {percent(verdict.holds)} of {pairs} pairs of "
                f"augmentations; of the {failing} where it fails the bias part of FG decides in "
                f"{sum(b.overruled for b in borders)}."
            ),
            *(
                Text(f"{what}: {correlation.words('augmentations')} ({expected}).")
                for what, correlation, expected in (
                    ("CO against final accuracy", verdict.accuracy, "expected: negative"),
                    ("CO against forgetting", verdict.forgetting, "expected: positive"),
                    ("m-bar against final accuracy", verdict.mean_variance, "Figure 5: negative"),
                    ("m-bar* against accuracy", verdict.sample_spread, "Figure 5: negative"),
                )
            ),
        ]
    legend = (
        "Rank correlations with the middle 95 % over resamples. m-bar: deviation over draws, as "
        "Eq. 6 is written; m-bar*: over images. bias: that part of FG; acc., forg.: per cent, of n "
        "runs trained with the augmentation."
    )
    return Group(*parts, Text(legend, style="dim"))
