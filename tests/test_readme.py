"""The README's examples run as printed, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_runs(number: int, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()


def test_the_first_example_is_short_and_knows_no_task() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 10
    assert "task" not in BLOCKS[0].lower()
    assert "observe" in BLOCKS[0]
    assert "predict" in BLOCKS[0]


def test_both_commands_stand_on_the_first_screen() -> None:
    first = README.splitlines()[:24]
    assert any("make demo" in line for line in first)
    assert any("make test" in line for line in first)


def test_every_command_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    from dualmix.cli import main

    with pytest.raises(SystemExit):
        main(["--help"])
    known = set(re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE))
    used = set(re.findall(r"^    dualmix (\w+)", README, re.MULTILINE))
    assert used
    assert used <= known
