"""Values as users write them: YAML or JSON text to plain values, and values back to flags."""

from __future__ import annotations

import json
from typing import Any

import yaml

from dualmix.errors import ConfigError

LONGEST = 4_000_000
"""Characters of a file of settings."""
MOST = 100_000
"""Values in a file of settings, those that aliases repeat counted each time."""


def read_plain(text: str) -> Any:
    """Return what YAML or JSON text says, if it is made of mappings, lists, text, numbers, truth
    values and nothing else.

    Raises
    ------
    ConfigError
        It is no YAML, too long or too deep, or it holds what no setting can be.
    """
    if len(text) > LONGEST:
        raise ConfigError(f"it is longer than {LONGEST:,} characters")
    try:
        plain = yaml.safe_load(text)
        _count(plain, {}, set())
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise ConfigError(f"it is no YAML or JSON: {' '.join(str(fault).split())}") from fault
    return plain


def _count(plain: Any, counted: dict[int, int], open_: set[int]) -> int:
    """Return how many values a value holds, and refuse what is no plain value.

    An alias names an object that is there already, so that 26 lines can stand for more values than
    a machine holds. Each object is looked at once and counted as often as it is named.
    """
    if plain is None or isinstance(plain, bool | int | float):
        return 1
    if isinstance(plain, str):
        _check_text(plain)
        return 1
    if not isinstance(plain, dict | list):
        kind = type(plain).__name__
        raise ConfigError(f"it holds a {kind} ({plain!r:.40}): put text in quotation marks")
    if id(plain) in counted:
        return counted[id(plain)]
    if id(plain) in open_:
        raise ConfigError("a value in it holds itself")
    open_.add(id(plain))
    if isinstance(plain, dict):
        for name in plain:
            if not isinstance(name, str):
                raise ConfigError(f"it holds the name {name!r:.40}, which is no text")
            _check_text(name)
    inner = plain.values() if isinstance(plain, dict) else plain
    total = 1 + sum(_count(value, counted, open_) for value in inner)
    if total > MOST:
        raise ConfigError(f"it holds more than {MOST:,} values")
    open_.remove(id(plain))
    counted[id(plain)] = total
    return total


def _check_text(text: str) -> None:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConfigError(f"the text {text!a:.40} holds what no name or path can hold")


def as_flag(value: Any) -> str:
    """Return a value as it is typed behind its flag.

    Examples
    --------
    >>> as_flag(None), as_flag((1, 2)), as_flag(True), as_flag(0.5), as_flag("er")
    ('none', '[1,2]', 'true', '0.5', 'er')
    """
    if value is None:
        return "none"
    if isinstance(value, bool | list | tuple | dict):
        return json.dumps(value, separators=(",", ":"))
    return str(value)
