"""The front: what `import dualmix` offers, its version, and names that were renamed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import dualmix
from dualmix.settings import setting


def test_an_older_name_works_and_warns_the_line_that_uses_it() -> None:
    with pytest.warns(DeprecationWarning, match=r"dualmix\.value is now dualmix\.setting") as said:
        assert dualmix.value is setting
    assert [warning.filename for warning in said] == [__file__]
    with pytest.warns(DeprecationWarning):
        from dualmix import value  # noqa: F401


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert dualmix.__version__ == project["version"]


def test_dir_lists_the_public_names() -> None:
    assert {*dualmix.__all__, "__version__"} == set(dir(dualmix))
    assert "value" not in dir(dualmix) and "setting" in dir(dualmix)


def test_no_message_steers_a_terminal() -> None:
    fault = dualmix.StoreError("er\x1b[31m\u202e\udc80 is é,\nnot 名.")
    assert str(fault) == "er\\x1b[31m\\u202e\\udc80 is é,\nnot 名."
