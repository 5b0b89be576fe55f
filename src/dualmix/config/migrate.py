"""Settings that were renamed or dropped: stored configurations follow, and filed runs keep their
keys.

To change a setting, change its declaration and append one line to `CHANGES`:

    Renamed("method.mix.sightings", "method.mix.recent_tasks"),
    Renamed("method.mix", "method.mixing"),                       # a group, with all that is in it
    Renamed("method.update", "method.update", values=(("ref", "reference"),)),  # a value
    Dropped("method.mix.window", 250),                            # its default, as JSON has it
    RenamedMethod("er", "replay"),

Nothing else is needed: saved files, learners and filed runs are read through this table, and a key
is made of the names under which settings first entered it. Three rules: append at the end and
never edit a line, because changes are applied in order; never use a name again that was given up;
drop a setting only with the default it had, because only a default never was in a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualmix.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Renamed:
    """A setting or group that has another name, or a setting whose values have.

    Attributes
    ----------
    old, new
        Dotted paths, such as ``method.mix.tau``.
    values
        Pairs of a value's old name and its new one; the others stay.
    kinds
        The methods that it holds for; none: all of them.
    """

    old: str
    new: str
    values: Sequence[tuple[Any, Any]] = ()
    kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A setting that is gone, and the default to which all runs since then are fixed."""

    path: str
    default: Any
    kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RenamedMethod:
    """A method that is registered under another name."""

    old: str
    new: str


Change = Renamed | Dropped | RenamedMethod

CHANGES: tuple[Change, ...] = (
    Dropped("graphs", False),
    Dropped("method.mix.alpha_x", None),
    Dropped("method.mix.augment_stream", False),
    Dropped("method.mix.bias", False),
    Dropped("method.mix.copies", 1),
    Dropped("method.mix.first_task", "enmix"),
    Dropped("method.mix.jitter_p", 0.8),
    Dropped("method.mix.partner", "derangement"),
    Dropped("method.mix.per_sample", True),
    Dropped("method.mix.second_view", False),
    Dropped("method.mix.shared", False),
    Dropped("method.mix.sightings", 0),
    Dropped("method.mix.window", 250),
    Dropped("method.jitter_p", 0.8, kinds=("scr",)),
    Dropped("method.per_sample", True, kinds=("scr",)),
)  # fmt: skip


def migrate(record: Mapping[str, Any], *, keep_dropped: bool = False) -> dict[str, Any]:
    """Return a stored configuration, as `Config.record` gave it, under the names of today.

    Parameters
    ----------
    record
        Nested settings with ``method.kind``; settings may be missing.
    keep_dropped
        Keep a dropped setting that holds another value than its default: for showing what a run
        was, where nothing is run.

    Raises
    ------
    ConfigError
        A dropped setting holds another value, or a setting is given under two names.

    Examples
    --------
    >>> migrate({"method": {"kind": "er", "memory": 50}, "graphs": False})
    {'method': {'kind': 'er', 'memory': 50}}
    """
    plain = _copy(record)
    for change in CHANGES:
        if isinstance(change, RenamedMethod):
            if _kind(plain) == change.old:
                plain["method"]["kind"] = change.new
        elif not change.kinds or _kind(plain) in change.kinds:
            if isinstance(change, Renamed):
                _move(plain, change.old, change.new, change.values)
            else:
                _drop(plain, change, keep_dropped)
    return plain


def first_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names that they first had, which is what a key is made of."""
    plain = _copy(record)
    for change in reversed(CHANGES):
        if isinstance(change, RenamedMethod):
            if _kind(plain) == change.new:
                plain["method"]["kind"] = change.old
        elif isinstance(change, Renamed) and (not change.kinds or _kind(plain) in change.kinds):
            back = [(new, old) for old, new in change.values]
            _move(plain, change.new, change.old, back)
    return plain


def migrate_label(label: str) -> str:
    """Return the name that a run goes by, such as ``er+dualmix``, with its method's name of
    today.
    """
    for change in CHANGES:
        if isinstance(change, RenamedMethod) and f"{label}+".startswith(f"{change.old}+"):
            label = change.new + label[len(change.old) :]
    return label


def what_became_of(path: str) -> str:
    """Return "; it is now ..." for a setting's old name, or nothing for any other."""
    now = path
    for change in CHANGES:
        if isinstance(change, Renamed) and f"{now}.".startswith(f"{change.old}."):
            now = change.new + now[len(change.old) :]
        elif isinstance(change, Dropped) and now == change.path:
            return f"; it is gone and is always {change.default!r}"
    return "" if now == path else f"; it is now {now}"


def _kind(plain: Mapping[str, Any]) -> Any:
    method = plain.get("method")
    return method.get("kind") if isinstance(method, Mapping) else None


def _copy(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _copy(inner) if isinstance(inner, Mapping) else inner
        for name, inner in record.items()
    }


def _move(plain: dict[str, Any], old: str, new: str, values: Sequence[tuple[Any, Any]]) -> None:
    """Give the setting or group at a path, if it is there, its other name and value."""
    source, name = _group(plain, old), old.rpartition(".")[2]
    if source is None or name not in source:
        return
    value = next((after for before, after in values if before == source[name]), source[name])
    _remove(plain, old)
    *groups, name = new.split(".")
    target: Any = plain
    for group in groups:
        target = target.setdefault(group, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{old} and {new} do not go together: {group} is no group here.")
    if name in target:
        raise ConfigError(f"{old} and {new} are two names of one setting: give only {new}.")
    target[name] = value


def _drop(plain: dict[str, Any], change: Dropped, keep: bool) -> None:
    """Remove a setting if it is there and holds its default."""
    source, name = _group(plain, change.path), change.path.rpartition(".")[2]
    if source is None or name not in source:
        return
    if source[name] == change.default:
        _remove(plain, change.path)
    elif not keep:
        raise ConfigError(
            f"The setting {change.path} is gone and is always {change.default!r}, but here it is "
            f"{source[name]!r}: only the version of dualmix that saved this can use it."
        )


def _group(plain: dict[str, Any], path: str) -> dict[str, Any] | None:
    """Return the group in which the last name of a path would stand, if it is there."""
    at = plain
    for name in path.split(".")[:-1]:
        inner = at.get(name)
        if not isinstance(inner, dict):
            return None
        at = inner
    return at


def _remove(plain: dict[str, Any], path: str) -> None:
    """Remove a path, and each group that is empty without it, as if it never was; a key has
    ``method`` even where all of it is default.
    """
    group, _, name = path.rpartition(".")
    inner = _group(plain, path) or {}
    del inner[name]
    if not inner and group not in ("", "method"):
        _remove(plain, group)
