"""A run's whole configuration: composed from preset, file and flags, with the origin of every
value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from dualmix.config.plain import read_plain
from dualmix.data.catalog import DATASETS
from dualmix.data.config import Data
from dualmix.data.stream import Stream
from dualmix.errors import ConfigError
from dualmix.learn.augment_names import check_name
from dualmix.registry import Method, get_method, get_preset, nearest, presets
from dualmix.settings import Settings, value

RESULTS_VERSION = 1
"""Raised whenever a change of code or of a default changes the results of an unchanged
configuration.
"""

MethodT = TypeVar("MethodT", bound=Method)


class Model(Settings):
    """The network."""

    width: int = value(
        20,
        "channels of the first stage",
        paper="reduced ResNet-18",
        source="reference",
        ge=1,
        le=512,
    )
    head: Literal["fixed", "growing"] = value(
        "fixed",
        "fixed: a column for every class of the stream from step 0; growing: a column when a class is first seen",
        paper="a single head for all classes",
        source="paper",
    )
    mean: tuple[float, ...] = value(
        (),
        "channel means to subtract from pixels in [0, 1], e.g. [0.5,0.5,0.5]; []: no normalisation",
        source="reference",
    )
    std: tuple[float, ...] = value(
        (), "channel deviations to divide by; []: no normalisation", source="reference"
    )
    precision: Literal["float32", "bfloat16"] = value(
        "float32",
        "bfloat16: the network is run under torch.autocast, its weights, logits and losses stay float32; other "
        "results, and untested on CUDA",
    )

    @model_validator(mode="after")
    def _normalisation_fits(self) -> Model:
        if len(self.mean) != len(self.std) or any(s <= 0 for s in self.std):
            raise ValueError("mean and std need one number a channel each, and std above 0")
        return self


class Probes(Settings):
    """Measurements at task borders, which change nothing in the training."""

    on: bool = value(
        False,
        "measure Eqs. 4-6, head norms, AdpMix's gate and the memory's classes after each task",
    )
    draws: int = value(32, "draws of the augmentation for Eqs. 4-6", ge=2)
    rows: int = value(
        200,
        "images of the memory that Eqs. 4-6 are measured on; fewer make CO and m-bar larger",
        ge=1,
    )
    past: int = value(1000, "past training images that stand for Eq. 3", ge=1)
    operators: tuple[str, ...] = value(
        (),
        "further augmentations to measure on the same model, e.g. [flip,crop-0.8,standard,enmix]",
    )

    @field_validator("operators")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != "enmix":
                check_name(name)
        return names

    @model_validator(mode="after")
    def _measured_at_all(self) -> Probes:
        if self.operators and not self.on:
            raise ValueError("operators are measured only if probes are on: add --probes.on true")
        return self


class Common(Settings):
    """Everything a run depends on but its method."""

    data: Data = Data()
    stream: Stream = Stream()
    model: Model = Model()
    probes: Probes = Probes()
    seed: int = value(
        0, "the seed from which all chance comes", paper="10 runs", source="ours", ge=0, lt=2**32
    )
    order_seed: int | None = value(
        None, "seed of class and sample order; none: seed", source="ours", ge=0, lt=2**32
    )
    run_seed: int | None = value(
        None, "seed of weights, memory and augmentation; none: seed", source="ours", ge=0, lt=2**32
    )
    device: str = value(
        "cpu",
        "where to train: cpu, cuda, cuda:1",
        paper="one GPU",
        source="ours",
        pattern=r"^(cpu|cuda(:\d+)?)$",
    )
    graphs: bool = value(
        False,
        "replay the network's training passes as CUDA graphs; needs device cuda, and untested",
        source="ours",
    )
    threads: int = value(1, "torch threads of the process", source="ours", ge=1, le=1024)
    save_every: int = value(
        500, "steps between snapshots (one is also made after each task)", source="ours", ge=1
    )

    @field_validator("graphs")
    @classmethod
    def _for_cuda(cls, graphs: bool, given: ValidationInfo) -> bool:
        if graphs and given.data.get("device") == "cpu":
            raise ValueError("graphs are for CUDA: add --device cuda, or leave them off")
        return graphs


class Config(Common, Generic[MethodT]):
    """Everything a run depends on."""

    method: SerializeAsAny[MethodT]

    def record(self) -> dict[str, Any]:
        """Return the configuration as plain JSON, which `compose` reads back."""
        plain = self.model_dump(mode="json")
        plain["method"] = {"kind": self.method.kind, **plain["method"]}
        return plain

    def seeds(self) -> tuple[int, int]:
        """Return the order seed and the run seed."""
        return (
            self.seed if self.order_seed is None else self.order_seed,
            self.seed if self.run_seed is None else self.run_seed,
        )

    def key(self, fingerprint: str) -> str:
        """Return the sha256 of all that affects the result, the data's content included.

        A value equal to its default is left out, so that a setting added later does not orphan the
        results there are; in return, changing a default raises `RESULTS_VERSION`."""
        plain = self.model_dump(
            mode="json", exclude_defaults=True, exclude={"seed", "save_every", "data", "probes"}
        )
        plain["kind"] = self.method.kind
        plain["order_seed"], plain["run_seed"] = self.seeds()
        plain["data"] = fingerprint
        plain["results_version"] = RESULTS_VERSION
        return hashlib.sha256(canonical(plain).encode()).hexdigest()


def canonical(plain: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Composed:
    """A configuration, the name it goes by, and where each dotted path's value came from."""

    label: str
    config: Config[Method]
    origins: Mapping[str, str]


def compose(
    base: str, overrides: Mapping[str, Any] | None = None, faults: Sequence[str] = ()
) -> Composed:
    """Build a configuration from a preset, a saved JSON or YAML file or a run's folder, and dotted
    overrides.

    Raises
    ------
    ConfigError
        Lists every fault at once, each with the setting's path and the nearest valid name.

    Examples
    --------
    >>> composed = compose("er", {"method.memory": 200, "seed": 3})
    >>> composed.config.seed, composed.origins["method.memory"], composed.origins["method.lr"]
    (3, 'flag', 'default')
    """
    faults = list(faults)
    schema: type[Common] = Common
    label = base
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    try:
        label, kind, values, origins = _base(base)
        schema = cast(Any, Config)[get_method(kind)]
    except ConfigError as fault:
        faults.append(str(fault))
    known = dict(walk(schema))
    for path, given in (overrides or {}).items():
        clean = path.replace("-", "_")
        if clean in known:
            values[clean] = _literal(given)
            origins[clean] = "flag"
        elif schema is not Common or not clean.startswith("method."):
            faults.append(f"--{path}: no such setting{nearest(clean, known, '--')}")
    config, more = _validated(schema, {path: v for path, v in values.items() if path in known})
    faults += [
        f"{path}: no such setting{nearest(path, known)}" for path in values if path not in known
    ]
    faults += more
    if faults or not isinstance(config, Config):
        raise ConfigError(_list(faults))
    if config.stream.tasks is None:
        tasks = DATASETS[config.data.name].tasks
        config = config.model_copy(
            update={"stream": config.stream.model_copy(update={"tasks": tasks})}
        )
        origins["stream.tasks"] = f"data {config.data.name}"
    return Composed(label, config, {path: origins.get(path, "default") for path in known})


def compose_data(values: Mapping[str, Any], faults: Sequence[str] = ()) -> Data:
    """Build data settings from dotted paths (``data.root`` ...), with every fault at once."""
    known = [f"data.{name}" for name in Data.model_fields]
    wrong = [
        f"--{path}: no such setting{nearest(path, known, '--')}"
        for path in values
        if path not in known
    ]
    config, more = _validated(
        Common, {path: _literal(v) for path, v in values.items() if path in known}
    )
    if config is None or wrong or faults:
        raise ConfigError(_list([*faults, *wrong, *more]))
    return config.data


def walk(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted path and the declaration of every setting, depth first."""
    for name, info in sorted(schema.model_fields.items(), key=lambda field: field[0] != "method"):
        if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from walk(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def lookup(config: BaseModel, path: str) -> Any:
    """Return the value at a dotted path."""
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _base(base: str) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    path = Path(base) / "config.json" if Path(base).is_dir() else Path(base)
    if base.endswith((".yaml", ".yml", ".json")) and not path.is_file():
        raise ConfigError(f"There is no file {base}.")
    if base in presets() or not path.is_file():
        preset = get_preset(base)
        origins = dict.fromkeys(preset.values, f"preset {preset.name}")
        return preset.name, preset.kind, dict(preset.values), origins
    try:
        saved = read_plain(path.read_text(encoding="utf-8"))
        plain = saved.get("config", saved)
        kind = plain["method"].pop("kind")
        label = saved.get("label", kind)
        values = dict(flatten(plain))
    except ConfigError as fault:
        raise ConfigError(f"{path} is not a saved configuration: {fault}.") from fault
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as fault:
        raise ConfigError(
            f"{path} is not a saved configuration: it needs JSON or YAML with method.kind and "
            "settings, as a run's config.json has them."
        ) from fault
    return str(label), str(kind), values, dict.fromkeys(values, f"file {path.name}")


def flatten(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and value of everything in a nested record."""
    for name, inner in plain.items():
        if isinstance(inner, Mapping):
            yield from flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _literal(given: Any) -> Any:
    """Read a flag's text: lists and "none" as YAML has them, everything else as text that pydantic
    converts.
    """
    if isinstance(given, str):
        if given.lower() in ("none", "null"):
            return None
        if given.startswith("["):
            try:
                return read_plain(given)
            except ConfigError:
                return given
    return given


def _validated(schema: type[Common], values: Mapping[str, Any]) -> tuple[Common | None, list[str]]:
    nested: dict[str, Any] = {"method": {}} if issubclass(schema, Config) else {}
    for path, inner in values.items():
        *groups, name = path.split(".")
        at = nested
        for group in groups:
            at = at.setdefault(group, {})
        at[name] = inner
    try:
        return schema.model_validate(nested), []
    except ValidationError as fault:
        seen: dict[str, tuple[list[str], str]] = {}
        for error in fault.errors():
            path = ".".join(str(part) for part in error["loc"] if isinstance(part, str))
            path = next(
                (
                    known
                    for known in sorted(values, key=len, reverse=True)
                    if path.startswith(known)
                ),
                path,
            )
            message, explained = (
                error["msg"].removeprefix("Value error, "),
                error["type"] == "value_error",
            )
            given = "" if explained else f" (given: {error['input']!r})"
            ways, first = seen.setdefault(path, ([], given))
            if given == first:
                ways.append(message[0].lower() + message[1:].rstrip("."))
        return None, [
            f"--{path}: {', or '.join(ways)}{given}" for path, (ways, given) in seen.items()
        ]


def _list(faults: Sequence[str]) -> str:
    if len(faults) == 1:
        return faults[0] + ("" if faults[0].endswith((".", "?")) else ".")
    return f"{len(faults)} faults:\n" + "\n".join(f"  {fault}" for fault in faults)
