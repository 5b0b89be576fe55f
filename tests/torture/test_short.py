"""A short share of `python -m tests.torture`: no untyped error, no hang, no wrong answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHARE = {"calls": 200, "files": 24, "words": 20, "kills": 5, "threads": 4}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tallies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    keep = tmp_path_factory.mktemp("torture")
    asked = [f"{kind}={count}" for kind, count in SHARE.items()]
    words = [sys.executable, "-m", "tests.torture", *asked, "--json", "--keep", str(keep)]
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=280, cwd=ROOT, check=False
    )
    assert ended.stdout, ended.stderr
    return {tally["kind"]: tally for tally in json.loads(ended.stdout)}


@pytest.mark.parametrize("kind", SHARE)
def test_promises_hold(tallies: dict[str, Any], kind: str) -> None:
    tally = tallies[kind]
    assert sum(tally["counts"].values()) >= SHARE[kind]
    assert tally["counts"].get("right", 0) > 0
    assert tally["failures"] == {}
