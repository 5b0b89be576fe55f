"""Packages that only some commands need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dualmix.errors import DualmixError


def extra(module: str, name: str, purpose: str) -> Any:
    """Import a package that an extra brings, or say in one sentence how to get it.

    Parameters
    ----------
    module
        What is imported.
    name
        The extra of this package that brings it.
    purpose
        What needs it, as the beginning of a sentence.
    """
    try:
        return import_module(module)
    except ImportError as fault:
        raise DualmixError(
            f"{purpose} needs the package {module.partition('.')[0]}: "
            f"pip install 'dualmix[{name}]' ({fault})."
        ) from fault
