"""Studies of many runs: methods side by side, Proposition 1, a search."""

from __future__ import annotations

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
    mean = metrics.interval([100 * share for share in shares])
    return f"{mean.mean:.1f} ± {mean.half:.1f} %" if mean.n > 1 else f"{mean.mean:.1f} %"


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
            f"On the first {tasks} tasks, scored by {kept:g} % of their training images; "
            f"seeds: {chosen.seeds}."
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
