"""The words of a command line, parted into a command's own and settings such as ``--method.memory
100``.
"""

from __future__ import annotations

from difflib import get_close_matches

OWN_FLAGS = {
    "--store": 1,
    "--url": 1,
    "--plugin": 1,
    "--seeds": 1,
    "--workers": 1,
    "--on": 1,
    "--address": 1,
    "--cpus": 1,
    "--gpus": 1,
    "--retries": 1,
    "--data": 1,
    "--memory": 1,
    "--methods": 1,
    "--readings": 1,
    "--rows": 1,
    "--trials": 1,
    "--track": 1,
    "--only": 1,
    "--dry-run": 0,
    "--full": 0,
    "--leash": 0,
    "--fresh": 0,
    "--quiet": 0,
    "--json": 0,
    "--help": 0,
    "--version": 0,
}
"""Flags that are no settings, and how many values each takes."""
SETTINGS_TOO = ("run", "explain", "data", "demo", "sweep", "calibrate", "tune")
"""Commands that take settings as flags beside their own."""
HELP = ("--help", "-h")


def split(words: list[str]) -> tuple[list[str], dict[str, str], list[str], bool]:
    """Part a command's own words from settings; notice a wish for settings' help."""
    if words[0] not in SETTINGS_TOO:
        return words, {}, [], False
    rest: list[str] = []
    settings: dict[str, str] = {}
    faults: list[str] = []
    positional = 0
    left = list(reversed(words))
    while left:
        word = left.pop()
        name, equals, inline = word.partition("=")
        if not word.startswith("--") or name in OWN_FLAGS:
            rest.append(word)
            positional += not word.startswith("-")
            if OWN_FLAGS.get(name) and not equals and left:
                rest.append(left.pop())
        elif meant := _misspelt(name):
            faults.append(f"{name}: no such flag; did you mean {meant}?")
        elif equals:
            settings[name[2:]] = inline
        elif left and not left[-1].startswith("--"):
            settings[name[2:]] = left.pop()
        else:
            faults.append(f"{name}: needs a value (a switch: true or false)")
    wants_settings = words[0] == "run" and positional > 1 and any(word in HELP for word in rest)
    return (
        [word for word in rest if not (wants_settings and word in HELP)],
        settings,
        faults,
        wants_settings,
    )


def _misspelt(name: str) -> str | None:
    """Return the flag without a value that was meant by a name which is no setting's."""
    from dualmix.config.fields import Common

    if "." in name or name[2:].replace("-", "_") in Common.model_fields:
        return None
    switches = [flag for flag, values in OWN_FLAGS.items() if not values]
    return next(iter(get_close_matches(name, switches, n=1, cutoff=0.75)), None)
