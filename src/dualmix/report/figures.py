"""The figures of the page, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from dualmix.paper.proposition import Verdict
from dualmix.report.charts import Figure
from dualmix.report.curves import curves
from dualmix.report.diagnostics import (
    confusion_by_task,
    gate,
    heat_map,
    memory_classes,
    norms,
    proposition_1,
)
from dualmix.report.ladder import ladder
from dualmix.report.pairs import pairs
from dualmix.report.paper_figures import errors, figure2, figure5
from dualmix.report.speed import Speed
from dualmix.report.speed_figure import benchmark, no_benchmark
from dualmix.report.tables import Summary
from dualmix.report.ways import ways


def figures(
    summary: Summary, verdicts: Sequence[Verdict], speed: Speed | None = None
) -> list[Figure]:
    """Return all figures in the order of the page."""
    collection = summary.collection
    return [
        pairs(summary.paired_tests),
        ladder(summary.ladder),
        ways(collection),
        curves(collection),
        errors(collection),
        gate(collection),
        norms(collection),
        figure2(collection),
        figure5(collection),
        proposition_1(verdicts),
        benchmark(speed) if speed else no_benchmark(),
        heat_map(collection),
        confusion_by_task(collection),
        memory_classes(collection),
    ]
