"""The scores of a run, and its learning curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualmix.cli.chart import MOST, Chart, Line
from dualmix.cli.text import clock, percent
from dualmix.errors import StoreError
from dualmix.runs import filing, metrics, reader
from dualmix.runs.steps import Stage
from dualmix.store.folder import Folder

BAR = 24


def results(
    where: str | Path, scores: Mapping[str, Any], times: Mapping[str, Any]
) -> RenderableType:
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


def curve_rows(folder: Folder) -> dict[str, Any]:
    """Return a run's scores task by task, finished or not.

    Raises
    ------
    StoreError
        Its files are damaged, were changed or do not fit each other.
    """
    done, label = folder.done, folder.config()["label"]
    try:
        if done:
            plan, summary, _ = reader.results(folder)
            summary |= {"times": filing.results(folder)[1]}
            finished = tasks = len(plan["tasks"])
        else:
            counts = folder.counts()
            plan = folder.read_json("plan.json")
            finished, tasks = len(counts), len(plan["tasks"])
            classes = [task["classes"] for task in plan["tasks"]]
            summary = metrics.summary(counts, classes) if finished else {}
    except (LookupError, TypeError, ValueError, OverflowError, StoreError) as fault:
        said = str(fault).removesuffix(".")
        raise StoreError(f"{folder.path.name} cannot be shown: {said}.") from fault
    head = {"run": str(folder), "label": label, "done": done, "tasks": tasks}
    return {**head, "finished_tasks": finished, **summary}


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
        f"accuracy: average over the tasks so far (the longest bar is {percent(top)}). er(n,o): "
        "share of the errors on new classes that fall on old ones; er(o,n) the other way round."
    )
    parts: list[RenderableType] = [table, Text(legend, style="dim")]
    parts.append(
        results(str(folder), rows, rows["times"])
        if rows["done"]
        else Text(rows["run"], style="dim")
    )
    return Group(*parts)


def side_by_side(folders: Sequence[Folder], names: Sequence[str]) -> RenderableType:
    """Return the learning curves of several runs: a chart, and the numbers below it."""
    curves = [curve_rows(folder).get("average_accuracy_by_task", []) for folder in folders]
    if not any(curves):
        return Text("No task of these runs is finished yet.")
    lines = [
        Line(name, [(task, 100 * share) for task, share in enumerate(by_task, start=1)])
        for name, by_task in zip(names, curves, strict=True)
    ]
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("task", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for task in range(max(map(len, curves))):
        table.add_row(str(task + 1), *(percent(c[task] if task < len(c) else None) for c in curves))
    parts: list[RenderableType] = [Chart("average accuracy of the tasks so far", "task", lines)]
    if len(lines) > MOST:
        parts.append(Text(f"The chart has the first {MOST} runs.", style="dim"))
    return Group(*parts, table)


def step_charts(runs: Mapping[str, Sequence[Stage]]) -> RenderableType:
    """Return loss and online accuracy over the steps of runs as charts."""
    loss = [Line(name, [(s.step, s.loss) for s in stages]) for name, stages in runs.items()]
    share = [
        Line(name, [(s.step, 100 * s.online_accuracy) for s in stages])
        for name, stages in runs.items()
    ]
    return Group(
        Chart("loss of the batch", "step", loss, unit="", marked=False),
        Text(),
        Chart("online accuracy since the point before", "step", share, marked=False),
    )


def _bar(share: float, top: float) -> str:
    whole, rest = divmod(round(8 * BAR * share / top) if top else 0, 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()
