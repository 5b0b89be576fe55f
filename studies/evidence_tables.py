"""The tables of results in the documents, made from the filed runs.

    python -m studies.evidence_tables       # writes them into docs/ between their marks

A table stands between `<!-- NAME: made by python -m studies.evidence_tables -->` and
`<!-- end -->`. A test holds the documents against this script, so that no table is older than its
runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualmix.paper.ladder import LADDER, WEIGHTINGS, weighting
from dualmix.paper.numbers import (
    ABLATION_ACCURACY,
    ABLATION_FORGETTING,
    ACCURACY,
    BOUNDS,
    DATA,
    Published,
)
from dualmix.paper.numbers import MEMORY as SIZES
from dualmix.paper.readings import TERMS
from dualmix.report.blocks import design, design_sentences
from dualmix.report.budget import LACKING
from dualmix.report.collect import collect
from dualmix.report.erring import erring
from dualmix.report.evidence import Step, on_engine
from dualmix.report.ladder import PARTS
from dualmix.report.markdown import (
    blocks_table,
    budget_table,
    ladder_table,
    paper_table,
    rows_of,
    share_table,
    source_table,
    with_seeds,
)
from dualmix.report.matching import Matching
from dualmix.report.shares import share_sentences, shares
from dualmix.report.speed import read_speed
from dualmix.report.tables import Cell, Summary, summarise
from dualmix.report.ways import WAYS, scored
from dualmix.report.words import tied
from dualmix.runs import metrics
from dualmix.store.opening import open_store
from studies.recommend import BASE, CANDIDATES, OWN, SEEDS, Candidate, Standing, gain

ROOT = Path(__file__).parents[1]
PAGES = ("docs/results.md", "docs/what-dualmix-does.md")
MARKED = re.compile(r"(<!-- ([\w-]+): made by [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
CHOICE = {"stream.first": 10, "model.engine": "native"}
"""What `studies.recommend` was told beside a memory of 1000."""


def tables(summary: Summary) -> dict[str, list[str]]:
    """Return the lines of each table, by name."""
    steps = summary.ladder.steps
    views = {
        name: [step for step in steps if step.rung.part in parts]
        for name, parts in zip(RUNGS, PARTS.values(), strict=True)
    }
    return {
        **{table.name: paper_table(table) for table in summary.tables},
        **{table.source.name: source_table(table) for table in summary.sources},
        **{name: ladder_table(some) for name, some in views.items()},
        "errors": errors_table([step for step in steps if step.rung.name in ERRING]),
        "shares": shares_block(summary),
        "blocks": blocks_block(summary),
        "choice": choice_table(summary),
        "rules": rules_table(summary),
        "ways": ways_table(summary),
        "more": more_table(summary),
        "best": best_table(summary),
        "agreement": agreement_table(summary),
        "formula": formula_table(summary),
        "gains": gains_table(summary),
        "figures46": figures46_table(summary),
        "costs": costs_table("step"),
        "figure7": costs_table("Figure 7, memory 2,000"),
        "budget": [f"{summary.budget.said} {LACKING}", "", *budget_table(summary.budget)],
    }


RUNGS = ("ladder", "controls", "weightings", "unfitted", "hosts")
"""Names of the views of the ladder, in the order of `PARTS`."""


def errors_table(steps: Sequence[Step]) -> list[str]:
    """Return which way the rungs err that were run."""
    heads = ["rung", "what it changes", "er(o,n), %", "er(n,o), %", "gap, points", "against"]
    rows = [
        [
            f"`{step.rung.name}`",
            step.rung.changes,
            with_seeds(step.errs.old_for_new),
            with_seeds(step.errs.new_for_old),
            with_seeds(step.errs.gap),
            f"`{step.rung.against}`" if step.gap_difference else "-",
            with_seeds(step.gap_difference),
        ]
        for step in steps
        if step.errs
    ]
    return rows_of([*heads, "difference of the gap"], rows)


def blocks_block(summary: Summary) -> list[str]:
    """Return what the trainings with views tell together."""
    found = design(summary.ladder)
    if found is None:
        return []
    head, *said = design_sentences(found)
    return [*blocks_table(found), "", head, "", *(f"- {one}" for one in said)]


def shares_block(summary: Summary) -> list[str]:
    """Return the trainings by their share of new images, and how they rank."""
    trained = shares(summary.ladder)
    said = [line for one in share_sentences(trained) for line in ("", f"- {one}")][1:]
    return [*share_table(trained), "", *said]


ERRING = (
    *(rung.name for rung in LADDER),
    "alpha-0",
    "kappa-0",
    "no-augmentation",
    "er+adpmix, one-mean",
    "er, one-mean-5000",
    "er+da, one-mean-5000",
    "er+dualmix, one-mean-5000",
)
"""Rungs whose errors the document shows: the ladder, the paper's own row, and a larger memory."""


def choice_table(summary: Summary) -> list[str]:
    """Return what each candidate of the fair gain had on the class orders that are chosen by."""
    matching = on_engine(summary.collection, "native")
    standings = [_standing(one, matching) for one in CANDIDATES.values()]
    base = next(one for one in standings if one.name == BASE)
    rows = []
    for one in standings:
        by_seed = one.accuracy[MEMORY]
        if by_seed:
            orders = ", ".join(f"{by_seed[seed]:.1f}" for seed in sorted(by_seed))
            over = gain(one, base, MEMORY) if one is not base else None
            mean = metrics.interval(list(by_seed.values()))
            rows.append([f"`{one.name}`", orders, f"{mean.mean:.1f}", with_seeds(over)])
    rows.sort(key=lambda row: (-row[1].count(","), -float(row[2])))
    return rows_of(["candidate", "class orders 100 to 102", "mean", f"over `{BASE}`, points"], rows)


MEMORY = 1000


def _standing(one: Candidate, matching: Matching) -> Standing:
    job = one.job(MEMORY, SEEDS[0], CHOICE)
    groups = matching.groups(one.name, job.preset, job.values)
    runs = [run for run in groups[0].runs if run.seed in SEEDS] if groups else []
    shares = {
        run.seed: run.scores["average_accuracy"]
        if one.way == OWN
        else run.probes[-1]["answers"][one.way]
        for run in runs
    }
    return Standing(one.name, {MEMORY: {seed: 100 * share for seed, share in shares.items()}})


def ways_table(summary: Summary) -> list[str]:
    """Return every way to answer of the recommended combination, on the whole stream, and what it
    gains over er+dualmix: over the head under the weights of the same training.
    """
    rows = []
    for group in summary.collection.groups:
        found = scored(group)
        if group.label == "recommended" and group.content.name == DATA[0] and found:
            told = [run.probes[-1].get("answers", {}) for run in group.runs if run.probes]
            gains = [100 * (one[WAYS[-1]] - one[WAYS[0]]) for one in told if one]
            ways = [with_seeds(found[way]) for way in WAYS]
            forgetting = with_seeds(group.interval("forgetting"))
            over = f"**{with_seeds(metrics.interval(gains))}**"
            rows.append([f"{group.memory:,}", *ways, over, forgetting])
    return rows_of(["memory", *WAYS, "gain, points", "forgetting (average, ncm)"], rows)


def rules_table(summary: Summary) -> list[str]:
    """Return how far each rule of the weights is from the paper's Table 3: the root mean square of
    the distances of its rows, in points.
    """
    matching = on_engine(summary.collection, summary.ladder.engine)
    rows = []
    for rule in ("presets", *WEIGHTINGS):
        cells = []
        for memory in SIZES:
            off = [
                one for row in TERMS if (one := _distance(matching, row, rule, memory)) is not None
            ]
            told = (
                f"{math.sqrt(sum(one[at] ** 2 for one in off) / len(off)):.1f}" if off else "–"
                for at in range(3)
            )
            cells.append(f"{' / '.join(told)} ({len(off)} of {len(TERMS)} rows)")
        rows.append([f"`{rule}`", *cells])
    return rows_of(["weights", *(f"M {memory:,}" for memory in SIZES)], rows)


def _distance(
    matching: Matching, row: str, rule: str, memory: int
) -> tuple[float, float, float] | None:
    """Return how far a row is from the paper: in accuracy, in forgetting by Eq. 15, and in
    forgetting by the reference code's formula.
    """
    weights = {} if rule == "presets" else weighting(row, rule)
    groups = matching.groups(row, row, {"data.name": DATA[0], "method.memory": memory, **weights})
    if not groups:
        return None
    at = SIZES.index(memory)
    (left, _), (lost, _) = ABLATION_ACCURACY[row][at], ABLATION_FORGETTING[row][at]
    theirs = {"average_accuracy": left, "forgetting": lost, "forgetting_ref": lost}
    ours = {score: groups[0].interval(score) for score in theirs}
    first, second, third = (one.mean - theirs[score] for score, one in ours.items() if one)
    return first, second, third


def more_table(summary: Summary) -> list[str]:
    """Return the presets on the whole stream that the paper's tables do not have."""
    rows = [
        [
            f"`{group.label}`",
            "-" if group.memory is None else f"{group.memory:,}",
            with_seeds(group.interval("average_accuracy")),
            with_seeds(group.interval("forgetting")),
        ]
        for group in summary.collection.plain
        if group.content.name == DATA[0]
        and group.label not in {*ACCURACY, *BOUNDS, *ABLATION_ACCURACY}
    ]
    return rows_of(["method", "memory", "accuracy", "forgetting"], rows)


def best_table(summary: Summary) -> list[str]:
    """Return how well the tasks were known when they were known best, ours above the paper's.

    Eq. 14's accuracy plus 19/20 of Eq. 15's forgetting, or plus all of the reference code's, is the
    mean over 20 tasks of the best accuracy that each had up to the end. So the paper's follows from
    its tables, by either formula.
    """
    matching = Matching(summary.collection)
    rows = []
    for row in BEST:
        cells = []
        for at, memory in enumerate(SIZES):
            groups = matching.groups(row, row, {"data.name": DATA[0], "method.memory": memory})
            accuracy, forgetting = (
                groups[0].values(score) if groups else {}
                for score in ("average_accuracy", "forgetting")
            )
            ours = [accuracy[seed] + KEPT * forgetting[seed] for seed in accuracy]
            left, lost = ABLATION_ACCURACY[row][at][0], ABLATION_FORGETTING[row][at][0]
            theirs = f"{left + KEPT * lost:.1f} or {left + lost:.1f}"
            cells.append(f"{with_seeds(metrics.interval(ours) if ours else None)}<br>{theirs}")
        rows.append([f"`{row}`", *cells])
    return rows_of(["method", *(f"M {memory:,}" for memory in SIZES)], rows)


BEST = tuple(ABLATION_ACCURACY)
KEPT = 19 / 20
"""Of 20 tasks all but the last can be forgotten."""


def figures46_table(summary: Summary) -> list[str]:
    """Return the errors of Figures 4 (er) and 6 (er+adpmix) at each memory, and those of er+da,
    which has no AdpMix, by its preset and by the rule of er+adpmix.
    """
    matching = Matching(summary.collection)
    rows = []
    for memory in SIZES:
        for name, row, values in (
            ("`er`", "er", {}),
            ("`er+da`", "er+da", {}),
            ("`er+da`, one mean", "er+da", weighting("er+da", "one-mean")),
            ("`er+adpmix`", "er+adpmix", {}),
        ):
            told = {"data.name": DATA[0], "method.memory": memory, **values}
            groups = matching.groups(row, row, told)
            if groups and (errs := erring(groups[0])):
                shown = (errs.old_for_new, errs.new_for_old, errs.gap)
                rows.append([f"{memory:,}", name, *map(with_seeds, shown)])
    return rows_of(["memory", "method", "er(o,n), %", "er(n,o), %", "gap, points"], rows)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far our means are from published numbers, in points.

    Attributes
    ----------
    pairs
        Our mean, and the published number with what stands behind its plus-minus sign; 0: nothing.
    """

    pairs: Sequence[tuple[float, Published]]

    @property
    def cells(self) -> list[str]:
        """The mean difference, its root mean square, and how many lie inside the published ±."""
        off = [ours - mean for ours, (mean, _) in self.pairs]
        if not off:
            return ["–", "–", "–"]
        inside = sum(abs(ours - mean) <= within for ours, (mean, within) in self.pairs)
        spread = any(within for _, (_, within) in self.pairs)
        return [
            f"{sum(off) / len(off):+.1f}",
            f"{math.sqrt(sum(one**2 for one in off) / len(off)):.1f}",
            f"{inside} of {len(off)}" if spread else "no ± published",
        ]


AGREEMENT = ("mean difference, points", "root mean square, points", "inside the published ±")


def agreement_table(summary: Summary) -> list[str]:
    """Return how far we are from all published numbers, table by table."""
    rows = []
    for name, title in (("table1", "Table 1"), ("table2", "Table 2")):
        for mixed, words in ((False, "without DualMix"), (True, "with DualMix")):
            cells = _paper_cells(summary, name, mixed)
            pairs = [(cell.ours.mean, cell.paper) for cell in cells if cell.ours and cell.paper]
            filled = f"{len(pairs)} of {len(cells)}"
            rows.append([f"{title}, methods {words}", filled, *Agreement(pairs).cells])
    for table in summary.sources:
        others = [cell for some in table.cells for cell in some]
        pairs = [(cell.ours.mean, cell.theirs) for cell in others if cell.ours]
        filled = f"{len(pairs)} of {len(others)}"
        rows.append([table.source.title, filled, *Agreement(pairs).cells])
    return rows_of(["numbers of", "with runs", *AGREEMENT], rows)


def _paper_cells(summary: Summary, name: str, mixed: bool) -> list[Cell]:
    """Return the cells of one of the paper's tables, of methods with DualMix or of all others."""
    return [
        cell
        for table in summary.tables
        if table.name == name
        for cell in table.cells()
        if cell.paper and cell.column.data == DATA[0] and ("+" in cell.label) == mixed
    ]


def formula_table(summary: Summary) -> list[str]:
    """Return how far each formula of forgetting is from the paper's Table 2, over the rows without
    mixes, to which nothing was fitted.
    """
    groups = [
        (cell.group, cell.paper)
        for cell in _paper_cells(summary, "table2", mixed=False)
        if cell.group and cell.paper
    ]
    rows = []
    for formula, score in FORMULAS.items():
        pairs = [(ours.mean, paper) for group, paper in groups if (ours := group.interval(score))]
        rows.append([formula, *Agreement(pairs).cells])
    return rows_of(["formula", *AGREEMENT], rows)


FORMULAS = {"Eq. 15": "forgetting", "the reference code's": "forgetting_ref"}


def gains_table(summary: Summary) -> list[str]:
    """Return what DualMix adds to each host of Table 1, seed by seed, above the difference of the
    paper's means.
    """
    matching = Matching(summary.collection)
    rows = []
    for host in (name for name in ACCURACY if f"{name}{MIXED}" in ACCURACY):
        cells = []
        for at, memory in enumerate(SIZES):
            told = {"data.name": DATA[0], "method.memory": memory}
            plain, mixed = (
                groups[0].values("average_accuracy") if groups else {}
                for groups in (matching.groups(row, row, told) for row in (host, f"{host}{MIXED}"))
            )
            ours = [mixed[seed] - plain[seed] for seed in sorted(plain.keys() & mixed.keys())]
            (theirs, _), (without, _) = ACCURACY[f"{host}{MIXED}"][at], ACCURACY[host][at]
            gain = with_seeds(metrics.interval(ours) if ours else None)
            cells.append(f"{gain}<br>{theirs - without:.1f}")
        rows.append([f"`{host}`", *cells])
    return rows_of(["host", *(f"M {memory:,}" for memory in SIZES)], rows)


MIXED = "+dualmix"


def costs_table(group: str) -> list[str]:
    """Return the ratios of a group of the filed benchmark."""
    rows = [
        [
            row.name,
            f"{row.ratio:.2f}",
            f"{row.low:.2f}-{row.high:.2f}",
            *([f"{row.limit:g}", row.verdict] if row.limit else ["-", ""]),
        ]
        for row in read_speed(ROOT / "results" / "steps.json").rows
        if row.group == group and row.ratio is not None
    ]
    heads = ["", "ratio", "quartiles", "limit", ""]
    limited = any(row[3] != "-" for row in rows)
    width = len(heads) if limited else 3
    return rows_of(heads[:width], [row[:width] for row in rows])


def written(text: str, made: Mapping[str, Sequence[str]]) -> str:
    """Return a document with its tables as they are now."""
    return MARKED.sub(
        lambda found: "\n".join([found[1], *map(_tied, made[found[2]]), "", found[3]]),
        text,
    )


def _tied(line: str) -> str:
    """Return a line whose numbers keep their interval and their seeds on one line."""
    return tied(line).replace("(n ", "(n\N{NO-BREAK SPACE}").replace(" (n", "\N{NO-BREAK SPACE}(n")


def main() -> None:
    """Write the tables into the documents."""
    made = tables(summarise(collect(open_store(str(ROOT / "results")))))
    for name in PAGES:
        path = ROOT / name
        path.write_text(written(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
