"""The figures of the page, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from dualmix.paper.proposition import Verdict
from dualmix.report.charts import Figure
from dualmix.report.diagnostics import (
    confusion,
    gate,
    heat_map,
    memory_classes,
    norms,
    proposition_1,
)
from dualmix.report.paper_figures import error_shares, figure2, figure5, figure7, over_tasks
from dualmix.report.speed import Speed
from dualmix.report.speed_figure import benchmark
from dualmix.runs.records import Collection


def figures(
    found: Collection, verdicts: Sequence[Verdict], speed: Speed | None = None
) -> list[Figure]:
    """Return all figures in the order of the page; the last is the benchmark's, where one is given."""
    drawn = [
        over_tasks(
            found,
            "accuracy",
            "Accuracy over tasks",
            "average_accuracy_by_task",
            "average accuracy, %",
        ),
        over_tasks(
            found,
            "forgetting",
            "Forgetting over tasks",
            "forgetting_by_task",
            "average forgetting, %",
        ),
        figure2(found),
        error_shares(found, "figure4", "Figure 4: which way ER errs", "er"),
        figure5(found),
        error_shares(found, "figure6", "Figure 6: which way ER+AdpMix errs", "er+adpmix"),
        figure7(found),
        heat_map(found),
        confusion(found),
        norms(found),
        gate(found),
        memory_classes(found),
        proposition_1(verdicts),
    ]
    return drawn if speed is None else [*drawn, benchmark(speed)]
