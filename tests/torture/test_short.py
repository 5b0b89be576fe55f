"""A short share of `python -m tests.torture`: no untyped error, no hang, no wrong answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHARE = {"calls": 100, "files": 12, "words": 10, "kills": 3, "threads": 2}
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_promises_hold(tmp_path: Path) -> None:
    asked = [f"{kind}={count}" for kind, count in SHARE.items()]
    words = [sys.executable, "-m", "tests.torture", *asked, "--json", "--keep", str(tmp_path)]
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=1500, cwd=ROOT, check=False
    )
    assert ended.stdout, ended.stderr
    tallies = {tally["kind"]: tally for tally in json.loads(ended.stdout)}
    assert tallies.keys() == SHARE.keys()
    for kind, tally in tallies.items():
        assert sum(tally["counts"].values()) >= SHARE[kind], kind
        assert tally["counts"].get("right", 0) > 0, kind
        assert tally["failures"] == {}, kind
