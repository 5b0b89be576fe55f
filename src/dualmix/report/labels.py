"""Names beside the points of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

SIDES: dict[str, dict[str, Any]] = {
    "right": {"dx": 9, "align": "left"},
    "left": {"dx": -9, "align": "right"},
    "above": {"dy": -13},
    "below": {"dy": 13},
}
"""Where Vega-Lite writes a name beside its point."""


def sides_of(
    names: list[str], points: list[tuple[float, float]], width: float, height: float
) -> list[str]:
    """Return for each point of a picture the side on which its name meets no other point and no
    name before it.

    Vega-Lite writes names where it is told to; widths are those of its font of 11 pixels, a little
    too large."""
    low, size = np.min(points, axis=0), np.maximum(np.ptp(points, axis=0), 1e-300)
    places = [(x, y) for x, y in (np.asarray(points) - low) / size * (width, -height)]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    chosen = []
    for name, (x, y) in zip(names, places, strict=True):
        long = 6.5 * len(name)
        boxes = {
            "right": (x + 6, y - 6, x + 9 + long, y + 6),
            "left": (x - 9 - long, y - 6, x - 6, y + 6),
            "above": (x - long / 2, y - 19, x + long / 2, y - 7),
            "below": (x - long / 2, y + 7, x + long / 2, y + 19),
        }
        side = next(
            (s for s, box in boxes.items() if not any(_meet(box, other) for other in taken)),
            "right",
        )
        taken.append(boxes[side])
        chosen.append(side)
    return chosen


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
