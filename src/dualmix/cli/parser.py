"""The commands and their flags, as one parser."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dualmix.cli import data, results, run, serve, sweep, table
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
  dualmix table                         all that you ran, by configuration
  dualmix explain er                    every value and who chose it

The same command again goes on where a run was cut off, or says it is done.
Exit codes: 0 done, 2 something to put right (one sentence says what),
70 a fault of dualmix itself, 130 stopped by Ctrl-C.
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose faults are one sentence and exit code 2."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"allow_abbrev": False, **named})
        self.register("type", Path, _local)
        self.commands: dict[str, Parser] = {}

    def add_subparsers(self, **named: Any) -> Any:
        """Make room for commands, and remember their parsers by name."""
        made = super().add_subparsers(**named, required=True, parser_class=type(self))
        self.commands = made.choices
        return made

    @property
    def takes_settings(self) -> bool:
        """Whether settings may stand among this command's flags."""
        prepare = self.get_default("prepare")
        return prepare is not None and prepare is not _nothing

    @property
    def flags(self) -> dict[str, bool]:
        """This command's own flags, and whether each takes a value."""
        return {
            flag: action.nargs != 0
            for flag, action in self._option_string_actions.items()
            if flag.startswith("--")
        }

    def error(self, message: str) -> Any:
        """Raise one sentence, with the name that was meant."""
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


def _local(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text} is an address: give a path on this machine")
    return Path(text)


def make_parser(extra: AddCommands | None = None) -> Parser:
    """Return the parser of the whole command line; `extra` adds commands from outside."""
    parser = Parser(
        prog="dualmix",
        description="Online class-incremental learning: train, resume, compare.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(
        name: str, command: Any, doc: str, *, prepare: Any = _nothing, **more: Any
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, help=doc, description=doc, **more)
        made.set_defaults(command=command, prepare=prepare)
        return made

    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        "--store",
        default=os.environ.get("DUALMIX_STORE", STORE),
        help="folder of runs, or an address such as s3://bucket/runs "
        f"(default: DUALMIX_STORE, else {STORE}/)",
    )
    plain = argparse.ArgumentParser(add_help=False)
    plain.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    run.add_commands(add, store, plain)
    sweep.add_commands(add, store, plain)
    table.add_commands(add, store, plain)
    results.add_commands(add, store, plain)
    serve.add_commands(add)
    data.add_commands(commands)
    if extra is not None:
        extra(add, store, plain)
    return parser


def _nothing(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    """Prepare a command that takes no settings."""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"dualmix {version('dualmix')}")
        parser.exit()
