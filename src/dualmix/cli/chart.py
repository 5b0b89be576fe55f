"""Lines in a terminal: several series over one axis, each with its mark, its end labelled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console, ConsoleOptions
from rich.text import Text

MARKS, PLAIN_MARKS = "●■▲◆○□△◇", "ox+*#@%&"
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue", "bright_cyan", "bright_yellow")
MOST = len(MARKS)
"""Lines of one chart; more cannot be told apart."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of braille's dots by row and column."""
WIDEST, LONGEST = 100, 28
"""Cells of a chart's width, and letters of a line's name."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its name and its points from left to right."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart for a console; it takes the width and the characters that the console has.

    Parameters
    ----------
    title
        What the height says, above the chart.
    across
        What the width says, below it.
    unit
        Behind numbers of the height.
    marked
        Whether every point has its mark, rather than the last one only.
    """

    title: str
    across: str
    lines: Sequence[Line]
    unit: str = " %"
    rows: int = 12
    marked: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = [line for line in self.lines if line.points][:MOST]
        if not lines:
            return
        fine = options.encoding.lower().startswith("utf")
        low, high, ticks = _scale([y for line in lines for _, y in line.points])
        names = [_end(line, self.unit) for line in lines]
        left = max(len(_number(tick)) for tick in ticks) + 1
        width = min(options.max_width, WIDEST) - left - max(map(len, names)) - 5
        canvas = _Canvas(max(width, 10), self.rows, low, high, lines, fine)
        for number, line in enumerate(lines):
            canvas.draw(number, line, marked=self.marked)
        labels = canvas.labels(lines, names)
        at = {canvas.row(tick): _number(tick) for tick in ticks}
        yield Text(self.title, style="bold")
        bar = "│" if fine else "|"
        for row in range(self.rows):
            text = Text(f"{at.get(row, ''):>{left}} {bar}", no_wrap=True)
            text.append_text(canvas.text(row))
            if row in labels:
                number, name = labels[row]
                text.append(f" {canvas.marks[number]} {name}", COLOURS[number])
            yield text
        floor = ("└" + "─" * canvas.width) if fine else ("+" + "-" * canvas.width)
        yield Text(f"{'':>{left}} {floor}")
        yield Text(f"{'':>{left}}  {canvas.axis(self.across)}")


def _end(line: Line, unit: str) -> str:
    name = line.name if len(line.name) <= LONGEST else f"{line.name[: LONGEST - 3]}..."
    last = line.points[-1][1]
    return f"{name} {last:.1f}{unit}" if unit else f"{name} {_number(round(last, 3))}"


def _number(value: float) -> str:
    return f"{value:g}"


def _scale(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return the ends of an axis that holds all values, and the round numbers on it."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:
        last += 1
    ticks = [round(number * step, 10) for number in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


class _Canvas:
    """Cells of a chart: braille dots for lines, a mark for a point."""

    def __init__(
        self, width: int, rows: int, low: float, high: float, lines: Sequence[Line], fine: bool
    ) -> None:
        self.width, self.rows, self.low, self.high, self.fine = width, rows, low, high, fine
        self.marks = MARKS if fine else PLAIN_MARKS
        xs = [x for line in lines for x, _ in line.points]
        self.first, self.last = min(xs), max(xs)
        self.xs = sorted(set(xs))
        self.dots: dict[tuple[int, int], tuple[int, int]] = {}
        self.points: dict[tuple[int, int], int] = {}

    def column(self, x: float) -> float:
        """Return where a value lies across, in cells."""
        span = self.last - self.first
        return (x - self.first) / span * (self.width - 1) if span else (self.width - 1) / 2

    def height(self, y: float) -> float:
        """Return where a value lies from above, in cells."""
        return (self.high - y) / (self.high - self.low) * (self.rows - 1)

    def row(self, y: float) -> int:
        """Return the row of cells of a value."""
        return round(self.height(y))

    def draw(self, number: int, line: Line, *, marked: bool) -> None:
        """Draw a line, and its marks above all lines."""
        places = [(self.column(x), self.height(y)) for x, y in line.points]
        for (x0, y0), (x1, y1) in pairwise(places):
            steps = max(1, math.ceil(2 * abs(x1 - x0)), math.ceil(4 * abs(y1 - y0)))
            for step in range(steps + 1):
                share = step / steps
                self._dot(number, x0 + share * (x1 - x0), y0 + share * (y1 - y0))
        for x, y in places if marked else places[-1:]:
            self.points[round(y), round(x)] = number

    def _dot(self, number: int, x: float, y: float) -> None:
        across, down = math.floor(2 * (x + 0.5)), math.floor(4 * (y + 0.5))
        at = (min(down // 4, self.rows - 1), min(across // 2, self.width - 1))
        bits, _ = self.dots.get(at, (0, number))
        self.dots[at] = bits | DOTS[down % 4][across % 2], number

    def text(self, row: int) -> Text:
        """Return a row of the chart."""
        text = Text()
        for column in range(self.width):
            at = (row, column)
            if at in self.points:
                text.append(self.marks[self.points[at]], COLOURS[self.points[at]])
            elif at in self.dots:
                bits, number = self.dots[at]
                text.append(chr(0x2800 + bits) if self.fine else ".", COLOURS[number])
            else:
                text.append(" ")
        return text

    def labels(self, lines: Sequence[Line], names: Sequence[str]) -> dict[int, tuple[int, str]]:
        """Return the name beside each line's end, one per row, as near as there is room."""
        wanted = sorted((self.height(line.points[-1][1]), n) for n, line in enumerate(lines))
        rows: list[int] = []
        for height, _ in wanted:
            rows.append(max(round(height), rows[-1] + 1 if rows else 0))
        over = max(0, rows[-1] - self.rows + 1)
        for index in reversed(range(len(rows))):
            limit = rows[index + 1] - 1 if index + 1 < len(rows) else rows[index] - over
            rows[index] = min(rows[index], limit)
        return {row: (n, names[n]) for row, (_, n) in zip(rows, wanted, strict=True)}

    def axis(self, across: str) -> str:
        """Return the numbers below, as many as there is room for, and what they are."""
        cells = [" "] * self.width
        free = 0
        step = max(1, math.ceil(len(self.xs) * 6 / self.width))
        for x in dict.fromkeys((*self.xs[::step], self.xs[-1])):
            name = _number(x)
            start = min(round(self.column(x)), self.width - len(name))
            if start >= free:
                cells[start : start + len(name)] = name
                free = start + len(name) + 1
        return f"{''.join(cells)} {across}"
