"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dualmix.cli import data, results
from dualmix.cli import run as one
from dualmix.cli import sweep as many
from dualmix.cli.flags import split
from dualmix.cli.terminal import plain_warnings
from dualmix.errors import DualmixError

STORE = "runs"
MOVED = {"bench": "python -m benchmarks", "calibrate": "python -m studies.calibrate"}
"""Commands that left the package, and what replaces each in a clone of the repository."""
AddCommands = Callable[[Any, argparse.ArgumentParser, argparse.ArgumentParser], None]
EPILOG = """\
first steps:
  dualmix run er                        train on the embedded digits
  dualmix run er --method.memory 100    change any setting
  dualmix run er --help                 list all settings
  dualmix show er                       the learning curve of a run
  dualmix explain er                    every value, its origin, the paper's word

The same command again goes on where a run was cut off, or says it is done.
Exit codes: 0 done, 2 something to put right (one sentence says what),
130 stopped by Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None, extra: AddCommands | None = None) -> None:
    """Run a command and leave with its exit code.

    Parameters
    ----------
    extra
        Adds commands from outside the package: developers' tools have their own entry points.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    plain_warnings()
    try:
        code = _dispatch(words, extra)
    except DualmixError as fault:
        print(f"dualmix: {fault}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _dispatch(words: list[str], extra: AddCommands | None) -> int:
    if not words:
        _parser().print_help()
        return 0
    words, overrides, faults, wants_settings = split(words)
    given = _parser(extra).parse_args(words)
    for plugin in getattr(given, "plugin", None) or ():
        from dualmix.registry import load_plugin

        load_plugin(plugin)
    if wants_settings:
        return one.list_settings(given.preset)
    given.prepare(given, overrides, faults)
    code: int = given.command(given)
    return code


def _parser(extra: AddCommands | None = None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dualmix",
        description="Online class-incremental learning: train, resume, compare.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )

    def add(
        name: str, command: Any, doc: str, *, prepare: Any = _nothing, **more: Any
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=doc, description=doc, allow_abbrev=False, **more)
        made.set_defaults(command=command, prepare=prepare)
        return made

    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        "--store",
        default=os.environ.get("DUALMIX_STORE", STORE),
        help=f"folder of runs, or an address such as s3://bucket/runs (default: DUALMIX_STORE, else {STORE}/)",
    )
    plain = argparse.ArgumentParser(add_help=False)
    plain.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    one.add_commands(add, store, plain)
    many.add_commands(add, store, plain)
    results.add_commands(add, store, plain)
    data.add_commands(commands, _Parser)
    if extra is not None:
        extra(add, store, plain)
    return parser


def _nothing(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    """Prepare a command that takes no settings."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose faults are one sentence and exit code 2."""

    def error(self, message: str) -> Any:
        wrong = re.search(r"(--\w+)?(?:: )?invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            from dualmix.registry import nearest

            if not wrong[1] and wrong[2] in MOVED:
                raise DualmixError(
                    f"{wrong[2]} is a developers' tool now: run `{MOVED[wrong[2]]}` in a clone of "
                    "the repository."
                )
            known = re.findall("'(.*?)'", wrong[3])
            what = f"{wrong[1]}: there is no" if wrong[1] else "there is no command"
            message = f"{what} {wrong[2]!r}{nearest(wrong[2], known)}"
        raise DualmixError(f"{message} (see `{self.prog} --help`).")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"dualmix {version('dualmix')}")
        parser.exit()
