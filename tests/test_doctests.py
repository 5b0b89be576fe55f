"""The examples in docstrings run and give what they print."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import dualmix

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(dualmix.__path__, "dualmix.")
    if not found.name.rpartition(".")[2].startswith("_")  # __main__, and the engine's libraries
)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.slow
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
