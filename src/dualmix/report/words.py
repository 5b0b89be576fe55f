"""Settings, numbers and lists in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal

from dualmix.config.plain import as_flag
from dualmix.paper.numbers import Published
from dualmix.runs import metrics

Score = Literal["average_accuracy", "forgetting"]
SCORE_NAMES: dict[Score, str] = {"average_accuracy": "accuracy", "forgetting": "forgetting"}
STREAM = "stream.first"
"""The length of a stream, which a place names by itself."""


def short(value: Any) -> str:
    """Return a setting's value to read; the commands have it in full.

    Examples
    --------
    >>> short(1 / 3), short(1.0), short("crop-0.8")
    ('1/3', '1', 'crop-0.8')
    """
    if not isinstance(value, float):
        return as_flag(value)
    text = f"{value:.4g}"
    if math.isfinite(value) and float(text) != value:
        near = Fraction(value).limit_denominator(9)
        text = str(near) if math.isclose(near, value, rel_tol=1e-12) else text
    return text


def changes(changed: Iterable[tuple[str, Any]], *, stream: bool = False) -> str:
    """Return what differs from a preset; settings of one kind with one value stand together.

    Parameters
    ----------
    stream
        Whether to name the length of the stream too.

    Examples
    --------
    >>> changes([("method.mix.enmix", 0.25), ("method.mix.view", 0.25), ("method.lr", 0.5)])
    'mix.enmix, view 0.25; lr 0.5'
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for path, value in changed:
        if path == STREAM and not stream:
            continue
        kind, _, name = path.removeprefix("method.").rpartition(".")
        alike.setdefault((kind, short(value)), []).append(name)
    return "; ".join(
        f"{f'{kind}.' if kind else ''}{', '.join(names)} {value}"
        for (kind, value), names in alike.items()
    )


def listed(parts: Sequence[str]) -> str:
    """Return parts as a list in a sentence.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def sentence(text: str) -> str:
    """Return a text that begins with a capital.

    Examples
    --------
    >>> sentence("two runs")
    'Two runs'
    """
    return text[:1].upper() + text[1:]


def tied(text: str) -> str:
    """Return a sentence whose numbers keep their ± and their % on their line.

    Examples
    --------
    >>> tied("5 ± 1 %") == "5\\u00a0±\\u00a01\\u00a0%"
    True
    """
    return text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def interval_text(interval: metrics.Interval | Published | None, digits: int = 1) -> str:
    """Return mean ± half width, the mean alone of one or two runs, or a dash."""
    if interval is None:
        return "–"
    if isinstance(interval, metrics.Interval):
        mean, half = interval.mean, interval.shown
    else:
        mean, half = interval
    return f"{mean:.{digits}f}" if half is None else f"{mean:.{digits}f} ± {half:.{digits}f}"


def seeds_text(places: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Return places with their seeds, without the places that have none.

    Examples
    --------
    >>> seeds_text([("er", (0, 2)), ("mir", ()), ("scr", (1,))])
    'er (seeds 0, 2); scr (seed 1)'
    """
    return "; ".join(f"{name} ({seeds_of(seeds)})" for name, seeds in places if seeds)


def seeds_of(seeds: Sequence[int]) -> str:
    """Return seeds as words.

    Examples
    --------
    >>> seeds_of([0, 2])
    'seeds 0, 2'
    """
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def p_text(p: float | None) -> str:
    """Return a p value, or a dash where there is none."""
    if p is None:
        return "–"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
