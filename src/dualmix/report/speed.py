"""What `dualmix bench --out` filed, read back for the page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dualmix.bench.timing import Row, Stage
from dualmix.errors import DualmixError


@dataclass(frozen=True, slots=True)
class Speed:
    """A benchmark's rows, the stages of its scale run, and in a sentence what they were measured
    on.
    """

    rows: tuple[Row, ...]
    stages: tuple[Stage, ...]
    where: str


def read(path: Path) -> Speed:
    """Read a benchmark's record.

    Raises
    ------
    DualmixError
        There is no such file, or it is not such a record.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        found = Speed(
            tuple(
                Row(**{name: value for name, value in row.items() if name != "verdict"})
                for row in told["rows"]
            ),
            tuple(Stage(**stage) for stage in told["scale"]),
            f"{told['host']['processor']}, torch {told['versions']['torch']}, one thread",
        )
    except OSError as fault:
        raise DualmixError(
            f"{path} cannot be read ({fault.strerror}): `dualmix bench --out FILE` makes one."
        ) from fault
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise DualmixError(
            f"{path} is no record of `dualmix bench --out` ({type(fault).__name__}: {fault})."
        ) from fault
    if not found.rows and not found.stages:
        raise DualmixError(f"{path} holds no measurement: `dualmix bench --out FILE` makes them.")
    return found
