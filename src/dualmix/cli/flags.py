"""The words of a command line, parted into a command's own and settings such as ``--method.memory
100``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from dualmix.cli.parser import Parser

HELP = ("--help", "-h")


class Words(NamedTuple):
    """A command line in parts.

    Attributes
    ----------
    own
        What the command's parser understands.
    settings
        Values by dotted path.
    faults
        A sentence for each flag that cannot be a setting.
    lists_settings
        Whether the settings of a preset are to be listed (``run PRESET --help``).
    """

    own: list[str]
    settings: dict[str, str]
    faults: list[str]
    lists_settings: bool


def split(words: list[str], parser: Parser) -> Words:
    """Part a command's own words from settings, by what the command's parser knows."""
    command = parser
    for word in words:
        command = command.commands.get(word, command)
    if words[0] not in parser.commands or not command.takes_settings:
        return Words(words, {}, [], False)
    own: list[str] = []
    settings: dict[str, str] = {}
    faults: list[str] = []
    positional = 0
    left = list(reversed(words))
    while left:
        word = left.pop()
        name, equals, inline = word.partition("=")
        if not word.startswith("--") or name in command.flags:
            own.append(word)
            positional += not word.startswith("-")
            if command.flags.get(name) and not equals and left:
                own.append(left.pop())
        elif meant := _misspelt(name, command):
            faults.append(f"{name}: no such flag; did you mean {meant}?")
        elif equals:
            settings[name[2:]] = inline
        elif left and not left[-1].startswith("--"):
            settings[name[2:]] = left.pop()
        else:
            faults.append(f"{name}: needs a value (a switch: true or false)")
    lists = words[0] == "run" and positional > 1 and any(word in HELP for word in own)
    kept = [word for word in own if not (lists and word in HELP)]
    return Words(kept, settings, faults, lists)


def _misspelt(name: str, command: Parser) -> str | None:
    """Return the flag without a value that was meant by a name which is no setting's."""
    from dualmix.config.fields import Common

    if "." in name or name[2:].replace("-", "_") in Common.model_fields:
        return None
    switches = [flag for flag, takes_value in command.flags.items() if not takes_value]
    return next(iter(get_close_matches(name, switches, n=1, cutoff=0.75)), None)
