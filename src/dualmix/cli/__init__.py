"""The command line: words in, tables out; the only room that prints and that draws with rich.

It may import every room but testing. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dualmix.errors import ConfigError, DualmixError, naming_flags, quoted

if TYPE_CHECKING:
    from dualmix.cli.parser import AddCommands

READER_LEFT, USER_FAULT, OUR_FAULT, INTERRUPTED = 1, 2, 70, 130


def main(arguments: Sequence[str] | None = None, extra: AddCommands | None = None) -> None:
    """Run a command and leave with its exit code.

    Parameters
    ----------
    extra
        Adds commands from outside the package: developers' tools have their own entry points.
    """
    from dualmix.cli.terminal import plain_warnings, prepare_streams, protect_loading, tell

    prepare_streams()
    plain_warnings()
    protect_loading()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with naming_flags():
            code = _dispatch(words, extra)
    except DualmixError as fault:
        tell(str(fault))
        code = USER_FAULT
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_LEFT
    except (OSError, UnicodeError) as fault:
        if _debugging():
            raise
        tell(_sentence(fault))
        code = USER_FAULT
    except Exception as fault:
        if _debugging():
            raise
        if isinstance(fault, MemoryError) or "can't allocate memory" in str(fault):  # torch's words
            tell("this does not fit into the memory of the machine: give smaller numbers.")
            sys.exit(USER_FAULT)
        from dualmix.plugins import is_users

        frames = traceback.extract_tb(fault.__traceback__)
        if own := [frame for frame in frames if is_users(frame.filename)]:
            tell(
                f"{own[-1].filename} fails in line {own[-1].lineno}: {quoted(fault)}. Mend it; "
                "DUALMIX_DEBUG=1 shows the way there."
            )
            sys.exit(USER_FAULT)
        tell(
            f"this is a fault of dualmix and not of yours: {quoted(fault)} "
            f"({frames[-1].filename}:{frames[-1].lineno}). Give the same command with "
            "DUALMIX_DEBUG=1 and report what it prints."
        )
        code = OUR_FAULT
    sys.exit(code)


def _debugging() -> bool:
    return os.environ.get("DUALMIX_DEBUG", "") not in ("", "0")


def _sentence(fault: OSError | UnicodeError) -> str:
    """Say which path or text the system refuses."""
    if isinstance(fault, UnicodeError):
        return (
            f"a name cannot be written in this locale ({fault}): use UTF-8, for example by "
            "LC_ALL=C.UTF-8."
        )
    names = [str(name) for name in (fault.filename, fault.filename2) if name is not None]
    about = " and ".join(names) or type(fault).__name__
    return (
        f"{about}: {fault.strerror or fault}: give another path, or mend its permissions or its "
        "disk."
    )


def _dispatch(words: list[str], extra: AddCommands | None) -> int:
    from dualmix.cli.flags import split
    from dualmix.cli.parser import make_parser
    from dualmix.cli.run import list_settings

    for word in (*words, os.environ.get("DUALMIX_STORE", "")):
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise ConfigError(
                f"{word!a} is no text in this locale: rename what it names, or use UTF-8 (for "
                "example LC_ALL=C.UTF-8)."
            )
        if word.startswith("-") and word.endswith("=--"):
            raise ConfigError(f"{word[:80]}: -- is no value, give another.")  # argparse drops it
    parser = make_parser(extra)
    if not words:
        parser.print_help()
        return 0
    told = split(words, parser)
    given = parser.parse_args(told.own)
    for plugin in getattr(given, "plugin", None) or ():
        from dualmix.registry import load_plugin

        load_plugin(plugin)
    if told.lists_settings:
        return list_settings(given.preset, told.settings)
    given.prepare(given, told.settings, told.faults)
    code: int = given.command(given)
    return code
