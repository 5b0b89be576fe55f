"""The commands that let a learner out: serve, export-model, hub."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from dualmix.cli.terminal import tell
from dualmix.errors import ConfigError

LEARNER = "learner.safetensors"
"""What a finished run's folder calls its learner."""


def add_commands(add: Any) -> None:
    """Add these commands to the command line."""
    _add_serve(add)
    model = add(
        "export-model",
        _export,
        "Write a learner's predictor as ONNX or TorchScript: folded batch-norm, classes inside.",
    )
    model.add_argument("learner", type=Path, metavar="LEARNER", help="a file, or a run's folder")
    model.add_argument("--to", choices=("onnx", "torchscript"), required=True)
    model.add_argument("--out", type=Path, help="file (default: LEARNER.onnx, LEARNER.pt)")
    model.add_argument(
        "--quantize",
        action="store_true",
        help="8 bits, if that leaves labels of the memory's rows as they are",
    )
    model.add_argument(
        "--agreement",
        type=_percent,
        metavar="PERCENT",
        help="labels that --quantize must leave as they are (99)",
    )
    model.add_argument(
        "--plugin", action="append", type=Path, metavar="FILE", help="a file that registers methods"
    )
    hub = add("hub", None, "Push a learner to a Hugging Face hub, or pull one.")
    acts = hub.add_subparsers(title="actions", metavar="ACTION")
    push = acts.add_parser("push", help="put a learner and its card on the hub")
    push.set_defaults(command=_push)
    push.add_argument("learner", type=Path, metavar="LEARNER", help="a file, or a run's folder")
    push.add_argument("name", metavar="USER/NAME")
    push.add_argument("--public", action="store_true", help="a new repository is private otherwise")
    push.add_argument("--message", help="of the commit")
    pull = acts.add_parser("pull", help="fetch a learner, checked before it is written")
    pull.set_defaults(command=_pull)
    pull.add_argument("name", metavar="USER/NAME")
    pull.add_argument("--out", type=Path, help="file (default: NAME.safetensors)")
    pull.add_argument("--revision", help="branch, tag or commit")
    for act in (push, pull):
        act.add_argument(
            "--plugin", action="append", type=Path, metavar="FILE", help="registers methods"
        )


def _add_serve(add: Any) -> None:
    serve = add(
        "serve",
        _serve,
        "Serve a learner that goes on learning: observe, predict, metrics and a page, by HTTP.",
        prepare=_keep,
        epilog="A preset takes settings as `run` does, e.g. --method.memory 500 --model.width 20 "
        "--seed 1. The same command again goes on where the service was ended or killed.",
    )
    serve.add_argument(
        "learner",
        metavar="LEARNER",
        help="a file of dualmix.save, a finished run's folder, or with --shape a preset",
    )
    serve.add_argument(
        "--shape", type=_shape, help="of a new learner's rows: 3x32x32, or 768 for vectors"
    )
    serve.add_argument(
        "--classes", type=int, help="columns of a new learner's fixed head; none: the head grows"
    )
    serve.add_argument(
        "--plugin", action="append", type=Path, metavar="FILE", help="a file that registers methods"
    )
    serve.add_argument(
        "--journal", type=Path, help="folder of journal and snapshots (default: LEARNER.journal)"
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="0: any that is free (%(default)s)")
    serve.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="name under which a proxy on this machine offers the service (may be given again)",
    )
    serve.add_argument(
        "--token-file", type=Path, help="file with the token (else: DUALMIX_TOKEN, else none)"
    )
    serve.add_argument(
        "--queue", type=_count, default=64, help="batches that may wait (%(default)s)"
    )
    serve.add_argument("--snapshot-every", type=_count, default=1000, help="batches (%(default)s)")
    serve.add_argument(
        "--keep-journal", action="store_true", help="keep the journal of all that was ever learned"
    )
    serve.add_argument(
        "--body-limit", type=_positive, default=16.0, metavar="MB", help="(%(default)s)"
    )
    serve.add_argument(
        "--time-limit",
        type=_positive,
        default=30.0,
        metavar="SECONDS",
        help="for headers, a body, an answer (%(default)s)",
    )
    serve.add_argument(
        "--connections", type=_count, default=128, help="at the same time (%(default)s)"
    )
    serve.add_argument(
        "--most-classes", type=_count, default=10_000, help="of a head that grows (%(default)s)"
    )
    serve.add_argument(
        "--most-rows", type=_count, default=256, help="of a batch to learn (%(default)s)"
    )
    serve.add_argument(
        "--gather",
        type=_positive,
        default=0.0,
        metavar="MS",
        help="milliseconds that a single image waits for others, to be looked at together",
    )
    serve.add_argument(
        "--fit",
        choices=("squeeze", "crop", "pad"),
        help="how pictures get to the learner's size (default: the run's --data.fit, else squeeze)",
    )
    serve.add_argument("--threads", type=_count, default=1, help="torch threads (%(default)s)")


def _keep(given: argparse.Namespace, overrides: dict[str, str], faults: list[str]) -> None:
    given.overrides, given.faults = overrides, faults


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def _percent(text: str) -> float:
    number = _positive(text)
    if number > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0 and up to 100")
    return number


def _shape(text: str) -> tuple[int, ...]:
    sides = text.lower().replace(",", "x").split("x")
    if len(sides) not in (1, 3) or not all(side.strip().isdecimal() for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape such as 3x32x32 or 768")
    return tuple(int(side) for side in sides)


def _serve(given: argparse.Namespace) -> int:
    from dualmix.runs.extras import extra

    for module in ("fastapi", "uvicorn"):
        extra(module, "serve", "`dualmix serve`")
    import torch

    from dualmix.serve.gate import read_token
    from dualmix.serve.server import Place, serve
    from dualmix.serve.service import Limits

    torch.set_num_threads(given.threads)
    start, origin, name, fit = _preset(given) if given.shape else _file(given)
    place = Place(
        host=given.host,
        port=given.port,
        names=tuple(given.name),
        token=read_token(given.token_file, os.environ.get("DUALMIX_TOKEN")),
        body=int(given.body_limit * 2**20),
        seconds=given.time_limit,
        connections=given.connections,
        fit=given.fit or fit,
        gather=given.gather / 1000,
        limits=Limits(
            queue=given.queue,
            queue_bytes=max(256 * 2**20, int(8 * given.body_limit * 2**20)),
            classes=given.most_classes,
            rows=given.most_rows,
            snapshot_every=given.snapshot_every,
        ),
        keep=given.keep_journal,
    )
    serve(start, given.journal or Path(f"{name}.journal"), origin, place, tell)
    return 0


def _preset(given: argparse.Namespace) -> tuple[Any, str, str, Any]:
    """Return what makes a new learner, as `dualmix.create` makes it, and what tells it from others.

    What the data set of a run recommends is left out: here rows come from elsewhere."""
    from dualmix.config.compose import compose, lookup
    from dualmix.serve.server import origin_of

    aside = [path for path in given.overrides if not path.startswith(("method.", "model.", "seed"))]
    faults = [
        f"--{path}: a service takes settings of method, model and seed only" for path in aside
    ]
    composed = compose(given.learner, given.overrides, [*given.faults, *faults])
    config, chosen = composed.config, {"method": {}, "model": {"statistics": "unbiased"}}
    for path, origin in composed.origins.items():
        *groups, name = path.split(".")
        if groups and groups[0] in chosen and not origin.startswith("default"):
            at: Any = chosen
            for group in groups:
                at = at.setdefault(group, {})
            at[name] = lookup(config, path)

    def start() -> Any:
        from dualmix.config.fields import Model
        from dualmix.runs.build import build

        return build(
            type(config.method)(**chosen["method"]),
            given.shape,
            classes=given.classes,
            seed=config.seed,
            model=Model(**chosen["model"]),
        )

    told = sorted((path, str(value)) for path, value in given.overrides.items())
    origin = origin_of("preset", given.learner, told, given.shape, given.classes)
    return start, origin, given.learner, "squeeze"


def _file(given: argparse.Namespace) -> tuple[Any, str, str, Any]:
    """Return what loads a learner, and what tells it from others."""
    from dualmix.registry import presets
    from dualmix.serve.server import origin_of
    from dualmix.store.files import read_bytes, read_json

    if given.overrides or given.faults or given.classes:
        flags = [f"--{path}" for path in given.overrides] or given.faults or ["--classes"]
        raise ConfigError(
            f"{flags[0]} is for a new learner: give --shape and a preset, or leave it out."
        )
    path, fit = Path(given.learner), "squeeze"
    name = str(path)
    if path.name == LEARNER and (path.parent / "config.json").is_file():
        path = path.parent
    if path.is_dir():
        name = path.resolve().name  # a run's folder is a store's: nothing is put into it
        if (path / "config.json").is_file():
            fit = read_json(path / "config.json").get("data", {}).get("fit", fit)
        path = path / LEARNER
    elif not path.exists() and given.learner in presets():
        raise ConfigError(
            f"{given.learner} is a preset: give the --shape of its rows too, for example --shape "
            "3x32x32."
        )
    content = read_bytes(path)

    def start() -> Any:
        from dualmix.runs.build import load

        return load(content)

    return start, origin_of("file", content), name, fit


def _export(given: argparse.Namespace) -> int:
    from dualmix.export.export import AGREEMENT, export
    from dualmix.runs.build import load

    path = _learner_file(given.learner)
    out = given.out or path.with_suffix({"onnx": ".onnx", "torchscript": ".pt"}[given.to])
    agreement = AGREEMENT if given.agreement is None else given.agreement / 100
    made = export(load(path), out, given.to, quantize=given.quantize, agreement=agreement)
    print(f"{out}: {made.bytes:,} bytes (the learner: {path.stat().st_size:,})")
    print(
        f"{'in 32 bits, ' if given.quantize else ''}compared with the learner on {made.rows} rows: "
        f"{100 * made.equal:.1f} % of labels equal, scores within {made.difference:.1g}"
    )
    if (eight := made.quantized) is not None:
        print(
            f"8 bits, on the {eight.rows} rows of the memory that they were not calibrated with: "
            f"{100 * eight.equal:.1f} % of labels as in 32 bits (95 % interval "
            f"{100 * eight.low:.1f} to {100 * eight.high:.1f}), accuracy {100 * eight.before:.1f} "
            f"to {100 * eight.after:.1f} %; the learner has rehearsed these rows, so that new ones "
            "may change more often"
        )
    return 0


def _push(given: argparse.Namespace) -> int:
    from dualmix.export.hub import push

    path = _learner_file(given.learner)
    print(push(path, given.name, public=given.public, message=given.message))
    return 0


def _pull(given: argparse.Namespace) -> int:
    from dualmix.export.hub import pull

    out = given.out or Path(given.name.rpartition("/")[2] + ".safetensors")
    learner = pull(given.name, out, revision=given.revision)
    print(f"{out}: {learner!r}")
    return 0


def _learner_file(path: Path) -> Path:
    return path / LEARNER if path.is_dir() else path
