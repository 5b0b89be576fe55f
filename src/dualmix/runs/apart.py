"""Which settings tell runs apart: what each has that not all share, under names as short as they
can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualmix.config.compose import Composed, compose, flatten
from dualmix.config.migrate import migrate, migrate_label
from dualmix.config.plain import as_flag
from dualmix.data.catalog import DATASETS
from dualmix.errors import ConfigError, StoreError
from dualmix.registry import find_preset
from dualmix.runs.records import MACHINERY
from dualmix.store.folder import Folder

FREE = (
    "data.name",
    "data.root",
    "data.path",
    "method.memory",
    "seed",
    "save_every",
    "log_every",
    *MACHINERY,
)
"""Settings in which a run may differ from its preset and still stand for it; data and memory are
its column.
"""
TELLING = ("method.memory", *MACHINERY)
"""Settings of these that tell runs apart all the same; the data are told by `name_data`."""
FEW = 3
"""Settings that every run shows; of more, a run shows those in which it is not as its preset."""
Own = Callable[[str, str], Mapping[str, Any]]


class Usual:
    """What presets say on each data set, worked out once.

    Parameters
    ----------
    own
        The settings that stand for a preset on a data set, beside the preset's.
    """

    def __init__(self, own: Own = lambda preset, data: {}) -> None:
        self.own = own
        self.presets: dict[tuple[str, str], str] = {}
        self.settings: dict[tuple[str, str, Any], dict[str, Any]] = {}

    def preset(self, label: str, kind: str) -> str:
        """Return what a run is compared with: the preset of its name, else that of its method."""
        if (label, kind) not in self.presets:
            self.presets[label, kind] = label if find_preset(label) else kind
        return self.presets[label, kind]

    def changed(self, preset: str, settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        """Return the settings in which a run differs from a preset, but for `FREE` and probes."""
        usual = self._usual(preset, settings)
        return tuple(
            (path, value)
            for path, value in sorted(settings.items())
            if path not in FREE and not path.startswith("probes.") and value != usual.get(path)
        )

    def odd(self, preset: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the settings of `MACHINERY` in which a run is not as its preset."""
        usual = self._usual(preset, settings)
        return tuple(path for path in MACHINERY if settings.get(path) != usual.get(path))

    def _usual(self, preset: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        at = (preset, str(settings["data.name"]), settings["data.path"])
        if at not in self.settings:
            values = {"data.path": at[2] or "."} if DATASETS[at[1]].own else self.own(preset, at[1])
            self.settings[at] = dict(
                flatten(compose(preset, {"data.name": at[1], **values}).config.record())
            )
        return self.settings[at]


@dataclass(frozen=True, slots=True)
class Told:
    """A run or a configuration by what it was told.

    Attributes
    ----------
    settings
        Every setting by dotted path.
    changed
        Settings in which it differs from its preset.
    fingerprint
        Of the images; empty where they are not known.
    odd
        Settings of `MACHINERY` in which it differs from its preset.
    """

    label: str
    settings: Mapping[str, Any]
    changed: tuple[tuple[str, Any], ...] = ()
    fingerprint: str = ""
    odd: tuple[str, ...] = ()


def of_composed(composed: Composed, usual: Usual) -> Told:
    """Return what a configuration is told."""
    settings = dict(flatten(composed.config.record()))
    preset = usual.preset(composed.label, composed.config.method.kind)
    changed, odd = usual.changed(preset, settings), usual.odd(preset, settings)
    return Told(composed.label, settings, changed, odd=odd)


def of_folder(folder: Folder, usual: Usual) -> Told | None:
    """Return what the run in a folder was told; nothing where that cannot be read here."""
    try:
        saved = folder.config()
        settings = dict(flatten(migrate(saved["config"], keep_dropped=True)))
        label = migrate_label(str(saved["label"]))
        preset = usual.preset(label, str(settings["method.kind"]))
        changed, odd = usual.changed(preset, settings), usual.odd(preset, settings)
    except (
        StoreError,
        ConfigError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ):
        return None
    return Told(label, settings, changed, odd=odd)


def tell_apart(runs: Sequence[Told]) -> list[dict[str, str]]:
    """Return for each run the settings that not all of them share, as they are typed, by short
    names; a run whose method lacks a setting does not have it.

    Of more than `FEW` settings a run has only those in which it is not as its preset, and its
    memory.

    Examples
    --------
    >>> few = {"method.kind": "er", "data.name": "digits", "data.path": None, "method.memory": 50}
    >>> tell_apart([Told("er", few), Told("er", {**few, "method.memory": 100})])
    [{'memory': '50'}, {'memory': '100'}]
    """
    candidates = dict.fromkeys((*TELLING, *(path for run in runs for path, _ in run.changed)))
    paths = [
        path
        for path in candidates
        if len({as_flag(run.settings[path]) for run in runs if path in run.settings}) > 1
    ]
    data = name_data(runs)
    several = len(set(data)) > 1
    few = len(paths) + several <= FEW
    return [
        {
            **({"data": title} if several else {}),
            **{
                name: _shown(run.settings[path])
                for path, name in zip(paths, short_names(paths), strict=True)
                if path in run.settings
                and (few or path in (*TELLING[:1], *run.odd, *dict(run.changed)))
            },
        }
        for run, title in zip(runs, data, strict=True)
    ]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else as_flag(value)


def shared(runs: Sequence[Told]) -> dict[str, str]:
    """Return the changed settings that all runs share, by dotted path."""
    paths = dict.fromkeys(path for run in runs for path, _ in run.changed)
    values = {
        path: {as_flag(run.settings[path]) for run in runs if path in run.settings}
        for path in paths
    }
    return {path: next(iter(given)) for path, given in values.items() if len(given) == 1}


def name_data(runs: Sequence[Told]) -> list[str]:
    """Return the name of each run's data set, or of the user's own file or folder: as much of its
    path as tells it apart, and a part of its digest where the same path held other images.
    """
    names = distinct_ends(
        str(run.settings["data.path"] or run.settings["data.name"]) for run in runs
    )
    contents: dict[str, set[str]] = {}
    for name, run in zip(names, runs, strict=True):
        contents.setdefault(name, set()).add(run.fingerprint)
    return [
        f"{name} ({run.fingerprint[:6]})" if len(contents[name]) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def distinct_ends(paths: Iterable[str]) -> list[str]:
    """Return as much of the end of each path as tells it apart from the others.

    Examples
    --------
    >>> distinct_ends(["/x/a.npz", "/y/a.npz", "/y/b.npz"])
    ['x/a.npz', 'y/a.npz', 'b.npz']
    """
    return ["/".join(end) for end in _ends([Path(path).parts for path in paths])]


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the ends of dotted paths that are different from each other.

    Examples
    --------
    >>> short_names(["method.lr", "method.augment", "method.mix.augment"])
    ['lr', 'method.augment', 'mix.augment']
    """
    return [".".join(end) for end in _ends([tuple(path.split(".")) for path in paths])]


def _ends(names: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the shortest end of each name that no other name has; a whole name if it is an end of
    another.
    """
    different = set(names)
    for own in names:
        length = 1
        while any(other[-length:] == own[-length:] for other in different if other != own):
            length += 1
        yield own[-length:]


def name_runs(runs: Iterable[Told]) -> list[str]:
    """Return names that say what tells runs apart: method, settings and seed.

    Examples
    --------
    >>> settings = {"data.name": "digits", "data.path": None, "seed": 3}
    >>> name_runs([Told("er", {**settings, "method.memory": m}) for m in (50, 100)])
    ['er memory 50 seed 3', 'er memory 100 seed 3']
    """
    told = list(runs)
    return [
        " ".join((run.label, *(f"{name} {value}" for name, value in apart.items()), _seed(run)))
        for run, apart in zip(told, tell_apart(told), strict=True)
    ]


def _seed(run: Told) -> str:
    return f"seed {run.settings.get('seed', '?')}"
