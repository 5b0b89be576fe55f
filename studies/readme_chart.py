"""The picture of the README, drawn from the runs in results/: light and dark.

    python -m studies.readme_chart          # writes docs/curves-light.svg and docs/curves-dark.svg

Average accuracy after each task of Split CIFAR-100 (20 tasks, memory 1000), mean over seeds; the
shade is from the lowest to the highest seed. A test holds the files against this script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualmix.paper.numbers import ABLATION_ACCURACY
from dualmix.report.collect import collect
from dualmix.runs.records import Collection, Group
from dualmix.store.opening import open_store

ROOT = Path(__file__).parents[1]
DATA, MEMORY = "cifar100", 1000
METHODS = ("er", "er+da", "er+enmix", "er+adpmix", "er+dualmix")
STRONG = ("er", "er+dualmix")
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 42, 402, 62, 350
HIGHEST, STEP = 60, 10
APART = 19
"""Pixels from one label to the next."""


@dataclass(frozen=True)
class Theme:
    """Colours of the picture on a light or a dark page."""

    text: str
    faint: str
    grid: str
    lines: dict[str, str]


GREYS = ("er+da", "er+enmix", "er+adpmix")
THEMES = {
    "light": Theme(
        "#1f2328",
        "#59636e",
        "#d1d9e0",
        {"er": "#59636e", "er+dualmix": "#0969da", **dict.fromkeys(GREYS, "#8c959f")},
    ),
    "dark": Theme(
        "#f0f6fc",
        "#9198a1",
        "#3d444d",
        {"er": "#9198a1", "er+dualmix": "#58a6ff", **dict.fromkeys(GREYS, "#6e7681")},
    ),
}


def groups(collection: Collection) -> list[Group]:
    """Return the runs of each method that are its preset, over the whole stream."""
    known = {
        group.label: group
        for group in collection.plain
        if group.content.name == DATA and group.memory == MEMORY
    }
    return [known[name] for name in METHODS]


def draw(drawn: Sequence[Group], theme: Theme) -> str:
    """Return the picture as SVG."""
    tasks = drawn[0].tasks
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" '
        'font-size="15">',
        f"<title>{_sentence(drawn)}</title>",
        _text(LEFT - 30, 22, "Average accuracy on all classes so far, in per cent", theme.text, 17),
        _text(
            LEFT - 30,
            42,
            f"Split CIFAR-100, {tasks} tasks of 5 classes, one pass, memory of {MEMORY} images",
            theme.faint,
        ),
    ]
    for share in range(0, HIGHEST + 1, STEP):
        y = _y(share)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{theme.grid}"/>')
        parts.append(_text(LEFT - 8, y + 4, str(share), theme.faint, anchor="end"))
    for task in (1, *range(5, tasks + 1, 5)):
        x = _x(task, tasks)
        parts.append(_text(x, BOTTOM + 20, str(task), theme.faint, anchor="middle"))
    parts.append(
        _text((LEFT + RIGHT) / 2, BOTTOM + 40, "tasks learned", theme.faint, anchor="middle")
    )
    for group in sorted(drawn, key=lambda g: STRONG.index(g.label) if g.label in STRONG else -1):
        parts += _line(group, theme, tasks)
    labels = _places([_curve(group)[-1] for group in drawn])
    for group, y in zip(drawn, labels, strict=True):
        parts.append(_label(group, y, theme))
    return "\n".join([*parts, "</svg>", ""])


def _line(group: Group, theme: Theme, tasks: int) -> list[str]:
    """Return a method's shade and line."""
    colour, strong = theme.lines[group.label], group.label in STRONG
    curves = [run.scores["average_accuracy_by_task"] for run in group.runs]
    xs = [_x(task, tasks) for task in range(1, tasks + 1)]
    parts = []
    if strong:
        low = [100 * min(at) for at in zip(*curves, strict=True)]
        high = [100 * max(at) for at in zip(*curves, strict=True)]
        edge = [*zip(xs, high, strict=True), *zip(xs[::-1], low[::-1], strict=True)]
        points = " ".join(f"{x:.1f},{_y(y):.1f}" for x, y in edge)
        parts.append(f'<polygon points="{points}" fill="{colour}" opacity="0.18"/>')
    points = " ".join(f"{x:.1f},{_y(y):.1f}" for x, y in zip(xs, _curve(group), strict=True))
    width = 3 if strong else 1.5
    parts.append(
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
        'stroke-linejoin="round"/>'
    )
    return parts


def _label(group: Group, y: float, theme: Theme) -> str:
    name = group.label if group.label == "er" else group.label.removeprefix("er")
    half = group.interval("average_accuracy")
    assert half is not None
    paper = ABLATION_ACCURACY[group.label][0]
    weight = ' font-weight="600"' if group.label in STRONG else ""
    colour = theme.lines[group.label] if group.label in STRONG else theme.faint
    return (
        f'<text x="{RIGHT + 8}" y="{y + 4:.1f}" fill="{colour}"{weight}>{name} '
        f'<tspan>{half.mean:.1f}</tspan><tspan fill="{theme.faint}" font-weight="400"> (paper '
        f"{paper[0]:.1f})</tspan></text>"
    )


def _places(values: Sequence[float]) -> list[float]:
    """Return heights for labels as near to their values as they do not overlap."""
    order = sorted(range(len(values)), key=lambda n: -values[n])
    heights: dict[int, float] = {}
    for above, number in zip((None, *order), order, strict=False):
        least = heights[above] + APART if above is not None else 0.0
        heights[number] = max(_y(values[number]) - APART, least)
    return [heights[number] for number in range(len(values))]


def _curve(group: Group) -> list[float]:
    curves = [run.scores["average_accuracy_by_task"] for run in group.runs]
    return [100 * sum(at) / len(at) for at in zip(*curves, strict=True)]


def _sentence(drawn: Sequence[Group]) -> str:
    ends = ", ".join(f"{group.label} {_curve(group)[-1]:.1f} %" for group in drawn)
    return f"Average accuracy on Split CIFAR-100 after 20 tasks with a memory of 1000: {ends}."


def _x(task: int, tasks: int) -> float:
    return LEFT + (task - 1) / (tasks - 1) * (RIGHT - LEFT)


def _y(share: float) -> float:
    return BOTTOM - share / HIGHEST * (BOTTOM - TOP)


def _text(
    x: float, y: float, text: str, fill: str, size: int = 15, *, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" text-anchor="{anchor}">'
        f"{text}</text>"
    )


def pictures(drawn: Sequence[Group]) -> dict[str, str]:
    """Return the pictures by the names of their files."""
    return {f"curves-{name}.svg": draw(drawn, theme) for name, theme in THEMES.items()}


if __name__ == "__main__":
    filed = collect(open_store(str(ROOT / "results")))
    for name_, picture in pictures(groups(filed)).items():
        (ROOT / "docs" / name_).write_text(picture, encoding="utf-8")
