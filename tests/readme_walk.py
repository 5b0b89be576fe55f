"""Follow the README word for word in a fresh clone and a fresh environment.

    python tests/readme_walk.py              # HEAD of this repository; some minutes
    python tests/readme_walk.py --all        # also commands that print nothing here: make test

Every ``$ command`` of a console block is run in the clone and every Python block by the clone's own
interpreter. What they print must be what the README prints, within this noise: the text and whole
numbers are equal, numbers with decimals differ by at most `NOISE` (a seed on another machine can be
as good as another seed), times, speeds, memory, keys of runs (a machine without the native engine
has others) and the dots of a chart are free, and a line ``...`` stands for any lines.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NOISE = 25.0
SHELL_ONLY = ("make test",)
"""Commands of the README without a printed output, which take long."""
BLOCK = re.compile(r"```(console|python|text)\n(.*?)```", re.DOTALL)
FREE = re.compile(r"\d+:\d\d(?::\d\d)?|\d+ images/s|\d+ MB|\b[0-9a-f]{12}\b")
DECIMAL = re.compile(r"[+-]?\d+\.\d+")


class Step(NamedTuple):
    """Something to run, and what it should print."""

    command: str
    python: bool
    expected: list[str]


def steps(text: str) -> list[Step]:
    """Return what a document says to run, in its order; a text block is what the block before it
    prints.
    """
    found: list[Step] = []
    for kind, body in BLOCK.findall(text):
        if kind == "console":
            for line in body.splitlines():
                if line.startswith("$ "):
                    found.append(Step(line[2:], False, []))
                else:
                    found[-1].expected.append(line)
        elif kind == "python":
            found.append(Step(body, True, []))
        elif found and found[-1].python:
            found[-1].expected.extend(body.splitlines())
    return found


def differences(expected: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return in words where a printed output is not what was expected, within the noise.

    Examples
    --------
    >>> differences(["er 5 12.5 in 0:07"], ["er 5 14.0 in 0:09"])
    []
    >>> differences(["...", "er 5 12.5"], ["starts", "er 6 12.5"])
    ["expected 'er 5 12.5', but nothing like it was printed"]
    """
    said = [line.rstrip() for line in printed]
    wrong, at, anywhere = [], 0, False
    for line in (line.rstrip() for line in expected):
        if line == "...":
            anywhere = True
            continue
        places = range(at, len(said)) if anywhere else range(at, min(at + 1, len(said)))
        place = next((n for n in places if alike(line, said[n])), None)
        if place is None:
            wrong.append(f"expected {line!r}, but {_instead(said, at, anywhere)}")
            continue
        at, anywhere = place + 1, False
    return wrong


def _instead(said: Sequence[str], at: int, anywhere: bool) -> str:
    if anywhere or at >= len(said):
        return "nothing like it was printed"
    return f"{said[at]!r} was printed"


def alike(expected: str, printed: str) -> bool:
    """Whether a line is what was expected, within the noise."""
    if "│" in expected or "└" in expected:
        return "│" in printed or "└" in printed
    a, b = (FREE.sub("free", " ".join(line.split())) for line in (expected, printed))
    numbers = [[float(n) for n in DECIMAL.findall(line)] for line in (a, b)]
    near = len(numbers[0]) == len(numbers[1]) and all(
        abs(x - y) <= NOISE for x, y in zip(*numbers, strict=True)
    )
    return near and DECIMAL.sub("0", a) == DECIMAL.sub("0", b)


def walk(text: str, clone: Path, everything: bool) -> Iterator[tuple[Step, list[str]]]:
    """Run the steps of a document in a clone, and yield each with what is wrong about it."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("DUALMIX_")
    }
    environment |= {"COLUMNS": "80", "DUALMIX_CACHE": str(clone / ".cache")}
    for step in steps(text):
        if step.command in SHELL_ONLY and not everything:
            continue
        words = [clone / ".venv/bin/python", "-c", step.command] if step.python else step.command
        ended = subprocess.run(
            words,
            cwd=clone,
            env=environment,
            shell=not step.python,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        printed = ended.stdout.splitlines()
        wrong = differences(step.expected, printed)
        if ended.returncode:
            wrong.append(f"exit code {ended.returncode}: {' / '.join(printed[-5:])}")
        yield step, wrong


def main() -> None:
    """Walk through the README, print what was done and leave with 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as work:
        clone = Path(work) / "dualmix"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        text = (clone / "README.md").read_text(encoding="utf-8")
        for step, wrong in walk(text, clone, asked.all):
            name = "python example" if step.python else step.command
            print(f"{'WRONG' if wrong else 'as printed':10} {name}", flush=True)
            for line in wrong:
                print(f"           {line}", flush=True)
            faults += bool(wrong)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
