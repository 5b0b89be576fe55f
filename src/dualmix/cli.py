"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix import many, results
from dualmix.errors import DualmixError
from dualmix.terminal import asked_to_stop, make_console

if TYPE_CHECKING:
    from dualmix.config import Composed
    from dualmix.store import Folder

STORE = "runs"
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(words)
    except DualmixError as fault:
        print(f"dualmix: {fault}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _dispatch(words: list[str]) -> int:
    if not words:
        _parser().print_help()
        return 0
    words, overrides, faults, wants_settings = _split(words)
    given = _parser().parse_args(words)
    for plugin in getattr(given, "plugin", None) or ():
        from dualmix.registry import load_plugin

        load_plugin(plugin)
    if wants_settings:
        return _settings(given.preset)
    if hasattr(given, "preset"):
        from dualmix.config import compose

        given.composed = compose(given.preset, overrides, faults)
    if hasattr(given, "workers"):
        given.overrides = many.for_all(given, overrides, faults)
    elif hasattr(given, "data"):
        given.data = _data_settings(given.name, overrides, faults)
    code: int = given.command(given)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dualmix",
        description="Online class-incremental learning: train, resume, compare.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, command: Any, doc: str, **more: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=doc, description=doc, allow_abbrev=False, **more)
        made.set_defaults(command=command)
        return made

    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        "--store",
        default=os.environ.get("DUALMIX_STORE", STORE),
        help=f"folder of runs, or an address such as s3://bucket/runs (default: DUALMIX_STORE, else {STORE}/)",
    )
    plain = argparse.ArgumentParser(add_help=False)
    plain.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    preset = argparse.ArgumentParser(add_help=False)
    preset.add_argument(
        "preset", metavar="PRESET", help="a name from `dualmix methods`, a saved config, or a run's folder"
    )
    preset.add_argument("--plugin", action="append", type=Path, metavar="FILE", help="a file that registers a method")

    run = add(
        "run",
        _run,
        "Train a method on a stream, or go on where it was cut off.",
        parents=[preset, store, plain],
        epilog="Settings are flags too, e.g. --method.memory 2000 --data.name cifar100 --seed 3: "
        "`dualmix run PRESET --help` lists them all.",
    )
    run.add_argument("--fresh", action="store_true", help="start over, whatever is there")
    run.add_argument("--quiet", action="store_true", help="print the result only")
    run.add_argument(
        "--track",
        action="append",
        choices=("tensorboard", "mlflow", "wandb"),
        help="also send numbers there (an extra of that name); again for more",
    )
    run.add_argument("--leash", action="store_true", help=argparse.SUPPRESS)
    add("explain", _explain, "Show every value, its origin and what the paper says.", parents=[preset, plain])
    methods = add("methods", _methods, "List the methods.", parents=[plain])
    methods.add_argument("--plugin", action="append", type=Path, metavar="FILE", help="a file that registers a method")
    show = add("show", _show, "Show a run's scores and learning curve.", parents=[store, plain])
    show.add_argument("run", metavar="RUN", help="a run's folder, its name or a part of it")
    many.add_commands(add, store, plain)
    bench = add(
        "bench",
        _bench,
        "Measure steps, their parts, evaluation, memory and start-up on this machine, as ratios in one run.",
        parents=[plain],
        epilog="Groups: step, profile, evaluation, augmentation, filing, memory, start (all of them by default) and "
        "scale. Nothing else should run on the machine meanwhile; where the spread is larger than the difference it "
        "gives no verdict.",
    )
    bench.add_argument("groups", nargs="*", metavar="GROUP", help="what to measure")
    bench.add_argument("--rounds", type=int, default=15, metavar="N", help="how often (default: 15)")
    bench.add_argument("--methods", action="append", metavar="NAME", help="only these methods' steps")
    bench.add_argument(
        "--against",
        action="append",
        metavar="PACKAGE",
        help="also measure ER by another package, which must be installed: avalanche",
    )
    bench.add_argument("--out", type=Path, metavar="FILE", help="also write the record, which `report --bench` shows")
    for name, default, doc in (
        ("images", 1_000_000, "length of the scale run"),
        ("classes", 10_000, "classes of the scale run"),
        ("batch", 100, "new images of a step in the scale run"),
        ("width", 8, "channels of its network's first stage; the paper's is 20"),
    ):
        bench.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{doc} (default: {default})")
    results.add_commands(add, store, plain)
    _add_data(commands)
    return parser


def _add_data(commands: Any) -> None:
    doc = "Get, list and check data sets."
    data = commands.add_parser("data", help=doc, description=doc, allow_abbrev=False)
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=_Parser)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    for name, command, doc in (
        ("get", _data_get, "Download a data set; a broken transfer goes on where it stopped."),
        ("verify", _data_verify, "Count classes, check shapes and checksums, and say what the files are."),
        ("list", _data_list, "Show which data sets are here, where, and how big."),
    ):
        made = actions.add_parser(
            name,
            help=doc,
            description=doc,
            parents=[shared],
            allow_abbrev=False,
            epilog="Settings are flags too: --data.root DIR (else DUALMIX_DATA, else the platform's cache folder), "
            "--data.path, --data.size, --data.held_out, --data.split_seed.",
        )
        if name == "get":
            made.add_argument("--url", action="append", help="fetch from another address; the checksum stays")
        if name == "list":
            made.set_defaults(name="digits")
        else:
            made.add_argument("name", metavar="NAME", help="a name from `dualmix data list`")
        made.set_defaults(command=command, data=None)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose faults are one sentence and exit code 2."""

    def error(self, message: str) -> Any:
        wrong = re.search(r"(--\w+)?(?:: )?invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            from dualmix.registry import nearest

            known = re.findall("'(.*?)'", wrong[3])
            what = f"{wrong[1]}: there is no" if wrong[1] else "there is no command"
            message = f"{what} {wrong[2]!r}{nearest(wrong[2], known)}"
        raise DualmixError(f"{message} (see `{self.prog} --help`).")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"dualmix {version('dualmix')}")
        parser.exit()


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


def _split(words: list[str]) -> tuple[list[str], dict[str, str], list[str], bool]:
    """Part a command's own words from settings such as ``--method.memory 100``; notice a wish for settings' help."""
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
    return [word for word in rest if not (wants_settings and word in HELP)], settings, faults, wants_settings


def _misspelt(name: str) -> str | None:
    """Return the flag without a value that was meant by a name which is no setting's."""
    from dualmix.config import Common

    if "." in name or name[2:].replace("-", "_") in Common.model_fields:
        return None
    switches = [flag for flag, values in OWN_FLAGS.items() if not values]
    return next(iter(get_close_matches(name, switches, n=1, cutoff=0.75)), None)


def _run(given: argparse.Namespace) -> int:
    from dualmix.data import load
    from dualmix.remote import open_store

    composed: Composed = given.composed
    moved = Path(given.preset)
    store = open_store(given.store, moved if (moved / "config.json").is_file() else None)
    images = load(composed.config.data)
    folder = store.folder(composed, images.fingerprint)
    console = make_console(stderr=True, quiet=given.quiet or given.json)
    for note in images.notes:
        console.print(f"note: {images.name}: {note}")
    if folder.serves(composed) and not given.fresh:
        scores, times = folder.read_json("scores.json"), folder.read_json("times.json")
        console.print(f"done already (--fresh starts over): {folder}", soft_wrap=True)
        return _report(folder, scores, times, given.json)
    from dualmix.progress import Display
    from dualmix.run import Stopped, run
    from dualmix.trackers import Tracking, all_of, trackers

    if folder.done and not given.fresh:
        console.print("done before, but without the probes asked for: training again")

    stop = asked_to_stop()
    parent = os.getppid()
    try:
        with Display(console) as display, Tracking(trackers(given.track or ()), composed) as tracking:
            result = run(
                composed,
                store,
                fresh=given.fresh,
                watch=all_of(display, tracking),
                stop=lambda: stop() or (given.leash and os.getppid() != parent),
            )
    except Stopped as stopped:
        print(f"dualmix: {stopped}.", file=sys.stderr)
        return 130
    result.folder.publish()
    return _report(result.folder, result.scores, result.times, given.json)


def _report(folder: Folder, scores: dict[str, Any], times: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"run": str(folder), "scores": scores, "times": times}))
        return 0
    from dualmix.show import results

    make_console().print(results(str(folder), scores, times))
    return 0


def _explain(given: argparse.Namespace) -> int:
    from dualmix.show import explanation, explanation_rows

    if given.json:
        print(json.dumps(explanation_rows(given.composed), indent=1))
    else:
        make_console().print(explanation(given.composed))
    return 0


def _settings(preset: str) -> int:
    from dualmix.config import compose
    from dualmix.show import settings

    make_console().print(settings(compose(preset)))
    return 0


def _methods(given: argparse.Namespace) -> int:
    from dualmix.registry import presets
    from dualmix.show import method_table

    if given.json:
        print(json.dumps({name: {"doc": p.doc, "paper": p.paper} for name, p in presets().items()}, indent=1))
    else:
        make_console().print(method_table(presets()))
    return 0


def _show(given: argparse.Namespace) -> int:
    from dualmix.remote import open_store
    from dualmix.show import curve, curve_rows

    store = open_store(given.store)
    folder = store.find(given.run)
    others = [path.name for path in store.matches(given.run) if path != folder.path]
    if others and not Path(given.run).is_dir():
        print(
            f"The latest of {len(others) + 1} runs that match {given.run!r}; the one before: {others[0]}.",
            file=sys.stderr,
        )
    if given.json:
        print(json.dumps(curve_rows(folder), indent=1))
    else:
        make_console().print(curve(folder))
    return 0


def _bench(given: argparse.Namespace) -> int:
    from dualmix import bench, growth
    from dualmix.files import write_bytes
    from dualmix.progress import Countdown
    from dualmix.show import bench_table, scale_table

    for name in ("rounds", "images", "classes", "batch", "width"):
        if getattr(given, name) < 1:
            raise DualmixError(f"--{name} must be 1 or more.")
    console = make_console(stderr=True, quiet=given.json)
    found = bench.bench(
        given.groups,
        rounds=given.rounds,
        methods=given.methods or (),
        against=given.against or (),
        say=lambda line: console.print(line, style="dim"),
    )
    stages = []
    if "scale" in given.groups:
        with Countdown(console, given.images, "images") as countdown:
            stages = growth.scale(
                given.images, given.classes, batch=given.batch, width=given.width, watch=countdown.show
            )
    record = bench.record(found, stages, given.against or ())
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(given.out, record.encode())
    if given.json:
        print(record)
    else:
        make_console().print(bench_table(found)) if found else None
        make_console().print(scale_table(stages)) if stages else None
    return 0


def _data_settings(name: str, overrides: dict[str, str], faults: list[str]) -> Any:
    from dualmix.config import compose_data

    return compose_data({"data.name": name, **overrides}, faults)


def _data_get(given: argparse.Namespace) -> int:
    from dualmix.data.catalog import root
    from dualmix.data.fetch import get

    path = get(given.data.name, root(given.data.root), progress=not given.json, urls=given.url)
    print(json.dumps({"name": given.data.name, "path": str(path)}) if given.json else f"{path} is here and whole.")
    return 0


def _data_verify(given: argparse.Namespace) -> int:
    from dualmix.data.verify import verify
    from dualmix.show import verification

    report = verify(given.data)
    if given.json:
        print(json.dumps(asdict(report), indent=1))
    else:
        make_console().print(verification(report))
    return 0 if report.ok else 2


def _data_list(given: argparse.Namespace) -> int:
    from dualmix.data.catalog import root
    from dualmix.data.verify import listing
    from dualmix.show import data_table

    where = root(given.data.root)
    entries = listing(where)
    if given.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        make_console().print(data_table(where, entries))
    return 0


if __name__ == "__main__":
    main()
