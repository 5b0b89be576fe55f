"""Where methods and presets are found by name: the package's own, a plugin file's, an installed
package's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from zlib import crc32

from dualmix.errors import ConfigError, quoted
from dualmix.plugins import PREFIX, code_of, load_entry, read_codes
from dualmix.settings import Settings, Source

if TYPE_CHECKING:
    from dualmix.learn.network import Classifier
    from dualmix.learn.types import Learner
    from dualmix.rng import Rng


class Method(Settings):
    """The frozen settings of a method; `build` makes the learner."""

    kind: ClassVar[str]
    trains: ClassVar[bool] = True
    """Whether it trains the network; if not, vectors are its features as they are."""

    @abstractmethod
    def build(self, model: Classifier, rng: Rng) -> Learner:
        """Make a learner around a fresh network, with all its chance from `rng`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named row: a method, the values that the row fixes, and what it is.

    Attributes
    ----------
    values
        Dotted paths of a run's configuration (``method.lr``, ``stream.epochs``) and their values.
    paper
        Where the row stands in the paper, or "-".
    sources
        Whose choice the values are, by the same paths; those left out are ours.
    cite
        Authors, year and arXiv id of the papers it comes from.
    """

    name: str
    kind: str
    doc: str
    paper: str = "-"
    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    cite: str = ""


@dataclass(frozen=True, slots=True)
class Addition:
    """What ``+name`` behind a preset's name adds to it.

    Attributes
    ----------
    group
        The group of settings that a method must have for the addition to fit.
    paper
        Where the paper shows it, by the preset it is added to.
    values
        Settings of that group and the values they are set to.
    source
        Whose choice these values are.
    cite
        Authors, year and arXiv id of the paper it comes from.
    """

    name: str
    group: str
    doc: str
    paper: Mapping[str, str]
    values: Mapping[str, Any]
    source: Source = "ours"
    cite: str = ""


_METHODS: dict[str, type[Method]] = {}
_PRESETS: dict[str, Preset] = {}
_ADDITIONS: dict[str, Addition] = {}
M = TypeVar("M", bound=type[Method])


def register(
    name: str,
    *,
    paper: str = "-",
    cite: str = "",
    values: Mapping[str, Any] | None = None,
    source: Source = "ours",
) -> Callable[[M], M]:
    """Make a method known by name, with a preset of the same name.

    Parameters
    ----------
    name
        What users type; the first paragraph of the class's docstring is shown beside it.
    paper
        Where the method stands in the DualMix paper.
    cite
        Authors, year and arXiv id of the method's own paper.
    values
        What the preset sets apart from the method's own defaults.
    source
        Whose choice these values are.
    """

    def enter(method: M) -> M:
        known = _METHODS.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (
            method.__module__,
            method.__qualname__,
        ):
            raise ConfigError(
                f"Method {name!r} is already defined in {known.__module__}: choose another name."
            )
        if name in _PRESETS and _PRESETS[name].kind != name:
            raise ConfigError(
                f"{name!r} is already a preset of {_PRESETS[name].kind!r}: choose another name."
            )
        method.kind = name
        _METHODS[name] = method
        doc = " ".join((method.__doc__ or "").strip().split("\n\n")[0].split())
        sources = dict.fromkeys(values or {}, source)
        add_preset(Preset(name, name, doc, paper, values or {}, sources, cite))
        return method

    return enter


def add_preset(preset: Preset) -> None:
    """Make a preset known."""
    _PRESETS[preset.name] = preset


def add_addition(addition: Addition) -> None:
    """Make an addition known to all presets that it fits."""
    _ADDITIONS[addition.name] = addition


def presets() -> dict[str, Preset]:
    """Return all presets by name, each also with every addition that fits it."""
    _load_installed()
    known = dict(_PRESETS)
    for host in _PRESETS.values():
        for extra in _ADDITIONS.values():
            if _takes(host, extra):
                joined = _joined(host, extra)
                known[joined.name] = joined
    return known


def _takes(host: Preset, extra: Addition) -> bool:
    """Whether an addition fits a preset: its method has the group, and the preset is no combination
    by itself.
    """
    groups = {f"method.{one.group}." for one in _ADDITIONS.values()}
    combined = any(path.startswith(tuple(groups)) for path in host.values)
    return extra.group in _METHODS[host.kind].model_fields and not combined


def _joined(host: Preset, extra: Addition) -> Preset:
    """Return a preset with an addition to it."""
    doc = f"{host.doc.removesuffix('.')} and {extra.doc}."
    if host.name in _PRESETS:
        doc = f"{host.name} with {extra.doc}."
    values = {f"method.{extra.group}.{name}": given for name, given in extra.values.items()}
    return Preset(
        f"{host.name}+{extra.name}",
        host.kind,
        doc,
        extra.paper.get(host.name, "-"),
        {**host.values, **values},
        {**host.sources, **dict.fromkeys(values, extra.source)},
        "; ".join(text for text in (host.cite, extra.cite) if text),
    )


def additions() -> dict[str, tuple[Addition, list[str]]]:
    """Return all additions by name, each with the presets that it fits."""
    _load_installed()
    return {
        extra.name: (
            extra,
            sorted(p.name for p in _PRESETS.values() if _takes(p, extra)),
        )
        for extra in _ADDITIONS.values()
    }


def get_addition(name: str, method: type[Method]) -> tuple[str, dict[str, Any]]:
    """Return the group of a method's settings that an addition sets, and the values it sets
    there.
    """
    extra = _ADDITIONS.get(name)
    if extra is None:
        raise ConfigError(
            f"Nothing called {name!r} can be added to {method.kind!r}{nearest(name, _ADDITIONS)}"
        )
    if extra.group not in method.model_fields:
        hosts = ", ".join(additions()[name][1])
        raise ConfigError(
            f"{name!r} cannot be added to {method.kind!r}, only to rehearsal methods: {hosts}."
        )
    return extra.group, dict(extra.values)


def check_additions(names: Sequence[str], method: type[Method]) -> None:
    """Raise `ConfigError` where an addition does not fit a method, or two set the same group."""
    first: dict[str, str] = {}
    for name in names:
        group, _ = get_addition(name, method)
        if group in first:
            raise ConfigError(
                f"+{first[group]} and +{name} set the same settings ({group}): add one of them."
            )
        first[group] = name


def find_preset(name: str) -> Preset | None:
    """Return a preset, also one with several additions, which stand in one order whatever order
    they are typed in; nothing where there is none.

    Examples
    --------
    >>> find_preset("er+mkd+dualmix").name, find_preset("er+da+enmix")
    ('er+dualmix+mkd', None)
    """
    _load_installed()
    if name in _PRESETS:
        return _PRESETS[name]
    host, extras = split_name(name)
    if host not in _PRESETS or not extras:
        return None
    try:
        check_additions(extras, _METHODS[_PRESETS[host].kind])
    except ConfigError:
        return None
    preset = _PRESETS[host]
    if not all(_takes(preset, _ADDITIONS[extra]) for extra in extras):
        return None
    for extra in sorted(extras, key=list(_ADDITIONS).index):
        preset = _joined(preset, _ADDITIONS[extra])
    return preset


def get_preset(name: str) -> Preset:
    """Return a preset, or name the nearest one."""
    preset = find_preset(name)
    if preset is None:
        host, extras = split_name(name)
        if host in _METHODS:
            check_additions(extras, _METHODS[host])
        raise ConfigError(
            f"There is no method {name!r}{nearest(name, presets())} (`dualmix methods` lists all)."
        )
    return preset


def get_method(kind: str, plugin: Any = None) -> type[Method]:
    """Return a method's settings class, or name the nearest one, or the plugin file or package that
    defined it when a run or a learner was filed.
    """
    _load_installed()
    if kind not in _METHODS and isinstance(plugin, str) and plugin:
        raise ConfigError(
            f"The method {kind!r} is not loaded, which {plugin} defines: add `--plugin {plugin}` "
            "(or call dualmix.registry.load_plugin), or install that package."
        )
    if kind not in _METHODS:
        raise ConfigError(
            f"There is no method {kind!r}{nearest(kind, _METHODS)} (a plugin's methods need "
            "`--plugin`, or dualmix.registry.load_plugin)."
        )
    return _METHODS[kind]


def split_name(name: str) -> tuple[str, list[str]]:
    """Return the method and the additions that a name joins by plus; a method's own name may hold a
    plus.

    Examples
    --------
    >>> split_name("er+dualmix"), split_name("der+++da"), split_name("der++")
    (('er', ['dualmix']), ('der++', ['da']), ('der++', []))
    """
    _load_installed()
    hosts = [kind for kind in _METHODS if f"{name}+".startswith(f"{kind}+")]
    host = max(hosts, key=len, default=name.partition("+")[0])
    return host, name[len(host) :].removeprefix("+").split("+") if name != host else []


class _Source(SourceFileLoader):
    """Compiles a file as it is: Python's cached bytecode does not notice an edit of the same length
    within a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_plugin(path: Path | str) -> None:
    """Run a user's own file so that what it registers is known. It is code: load only files that
    you trust.
    """
    if not isinstance(path, str | Path) or not Path(path).is_file():
        raise ConfigError(f"There is no plugin file {path}.")
    path = Path(path)
    _load_installed()
    name = f"{PREFIX}{path.stem}_{crc32(str(path.resolve()).encode()):08x}"
    loader = _Source(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ConfigError(f"The plugin {path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except (Exception, SystemExit) as fault:
        raise ConfigError(f"The plugin {path} cannot be loaded: {quoted(fault)}.") from fault
    for method in _METHODS.values():
        if method.__module__ == name:
            code_of(method)  # now, before the file is edited
    read_codes(name)


def nearest(name: str, valid: Iterable[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" for the valid name most like a wrong one, or nothing."""
    known = list(valid)
    swapped = [one for one in known if sorted(one) == sorted(name)]
    close = swapped or get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


@cache
def _installed(read: Callable[..., Iterable[EntryPoint]]) -> tuple[EntryPoint, ...]:
    """Return the methods of other packages; reading their metadata is slow, so it is done once."""
    return tuple(read(group="dualmix.methods"))


def _load_installed() -> None:
    importlib.import_module("dualmix.methods")

    for point in _installed(entry_points):
        if point.name not in _METHODS:
            load_entry(point, "method")
