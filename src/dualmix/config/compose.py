"""A run's configuration composed from preset, file and flags, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dualmix.config.fields import Common, Config
from dualmix.config.migrate import migrate, migrate_label, what_became_of
from dualmix.config.plain import read_plain
from dualmix.data.catalog import DATASETS, recommended
from dualmix.data.config import Data
from dualmix.engine.library import available
from dualmix.errors import ConfigError
from dualmix.registry import Method, find_preset, get_method, get_preset, nearest, presets
from dualmix.settings import Settings

NOT_BUILT = "auto: no C compiler built the native engine; install one, then dualmix again"
"""Why ``auto`` is torch on a machine without the engine."""


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

    A flag wins over a preset, that over what the data set recommends (`Dataset.defaults`), and that
    over the setting's own default. A file says all that it wants: nothing is recommended to it.

    Raises
    ------
    ConfigError
        Lists every fault at once, each with the setting's path and the nearest valid name.

    Examples
    --------
    >>> composed = compose("er", {"method.memory": 200, "seed": 3})
    >>> [composed.origins[path] for path in ("seed", "method.weight_decay", "method.lr")]
    ['flag', 'default', 'default for digits']
    """
    if not isinstance(base, str):
        raise ConfigError(f"A configuration goes by a name or a file, not by {base!r:.80}.")
    if not isinstance(overrides, Mapping | None) or not all(
        isinstance(path, str) for path in overrides or ()
    ):
        raise ConfigError(f"Settings are values by dotted path, not {overrides!r:.80}.")
    faults = list(faults)
    schema: type[Common] = Common
    told = _Base(base, "", {}, {}, open=False)
    try:
        told = _base(base)
        schema = cast(Any, Config)[get_method(told.kind)]
    except ConfigError as fault:
        faults.append(str(fault))
    label, values, origins = told.label, told.values, told.origins
    known = dict(walk(schema))
    if told.open:
        data = (overrides or {}).get("data.name", values.get("data.name", Data().name))
        faults += _recommend(str(data), known, values, origins)
    for path, given in (overrides or {}).items():
        clean = path.replace("-", "_")
        if clean in known:
            values[clean] = _literal(given)
            origins[clean] = "flag"
        elif schema is not Common or not clean.startswith("method."):
            faults.append(f"--{path}: no such setting{_meant(clean, known, '--')}")
    config, more = _validated(schema, {path: v for path, v in values.items() if path in known})
    faults += [
        f"{path}: no such setting{_meant(path, known)}" for path in values if path not in known
    ]
    faults += more
    if faults or not isinstance(config, Config):
        raise ConfigError(_list(faults))
    if config.stream.tasks is None:
        tasks = DATASETS[config.data.name].tasks
        config = config.model_copy(
            update={"stream": config.stream.model_copy(update={"tasks": tasks})}
        )
        origins["stream.tasks"] = default_for(config.data.name)
    if config.model.engine == "auto":
        engine = config.model.resolved(config.device)
        config = config.model_copy(
            update={"model": config.model.model_copy(update={"engine": engine})}
        )
        said = "auto, as this machine has it" if available() else NOT_BUILT
        whose = origins["model.engine"]
        origins["model.engine"] = f"{whose}: {said}" if whose.startswith("default") else said
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
    at: Any = config
    for name in path.split("."):
        at = getattr(at, name)
    return at


def default_for(data: str) -> str:
    """Return the origin of a value that a data set recommends."""
    return f"default for {data}"


def _recommend(
    data: str, known: Mapping[str, Any], values: dict[str, Any], origins: dict[str, str]
) -> list[str]:
    """Add what a data set recommends to values that are not there yet, and return the faults.

    A setting that only other methods have is passed over; one that none has is a fault.
    """
    faults = []
    for path, value in recommended(data).items():
        if path in known:
            if path not in values:
                values[path], origins[path] = value, default_for(data)
        elif not any(
            path == other
            for kind in {preset.kind for preset in presets().values()}
            for other, _ in walk(get_method(kind), "method.")
        ):
            faults.append(f"the data set {data} recommends {path}, which no method has")
    return faults


class _Base(NamedTuple):
    """What a configuration starts from: a name, a method and values with their origins.

    Attributes
    ----------
    open
        The data set may recommend what it does not say.
    """

    label: str
    kind: str
    values: dict[str, Any]
    origins: dict[str, str]
    open: bool


def _base(base: str) -> _Base:
    path = Path(base) / "config.json" if Path(base).is_dir() else Path(base)
    if base.endswith((".yaml", ".yml", ".json")) and not path.is_file():
        raise ConfigError(f"There is no file {base}.")
    if find_preset(base) or not path.is_file():
        preset = get_preset(base)
        origins = dict.fromkeys(preset.values, f"preset {preset.name}")
        return _Base(preset.name, preset.kind, dict(preset.values), origins, open=True)
    try:
        saved = _read(path)
        plain = migrate(saved.get("config", saved))
        kind = plain["method"].pop("kind")
        get_method(str(kind), saved.get("plugin"))
        label = migrate_label(str(saved.get("label", kind)))
        values = dict(flatten(plain))
    except ConfigError as fault:
        raise ConfigError(f"{path}: {fault}") from fault
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as fault:
        raise ConfigError(
            f"{path} is not a saved configuration: it needs JSON or YAML with method.kind and "
            "settings, as a run's config.json has them."
        ) from fault
    return _Base(label, str(kind), values, dict.fromkeys(values, f"file {path.name}"), open=False)


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    try:
        return read_plain(text)
    except ConfigError as fault:
        raise ConfigError(f"this is not a saved configuration: {fault}.") from fault


def _meant(path: str, known: Mapping[str, Any], prefix: str = "") -> str:
    return what_became_of(path) or nearest(path, known, prefix)


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
