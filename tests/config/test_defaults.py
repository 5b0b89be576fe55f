"""Keys leave defaults out, so a default that changes must raise RESULTS_VERSION; this test
remembers them.

`defaults.json` holds every setting under the name that it first had, also those that are gone: so
the default with which `config.migrate` drops one is the default it had. New settings are added by
``python -m tests.config.test_defaults``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dualmix.config.compose import compose, flatten, walk
from dualmix.config.fields import RESULTS_VERSION
from dualmix.config.migrate import migrate
from dualmix.registry import get_method, presets

FILE = Path(__file__).with_name("defaults.json")
REMEMBERED = json.loads(FILE.read_text(encoding="utf-8"))


def current() -> dict[str, dict[str, Any]]:
    kinds = {preset.kind for preset in presets().values()}
    kinds = sorted(kind for kind in kinds if get_method(kind).__module__.startswith("dualmix."))
    return {
        kind: {
            path: json.loads(json.dumps(info.get_default(call_default_factory=True), default=str))
            for path, info in walk(type(compose(kind).config))
        }
        for kind in kinds
    }


def remembered() -> dict[str, dict[str, Any]]:
    """Return all defaults that the file holds, by the names of today."""
    defaults = {}
    for kind, values in REMEMBERED["defaults"].items():
        nested: dict[str, Any] = {"method": {"kind": kind}}
        for path, value in values.items():
            *groups, name = path.split(".")
            group = nested
            for inner in groups:
                group = group.setdefault(inner, {})
            group[name] = value
        today = migrate(nested)
        kind_now = today["method"].pop("kind")
        defaults[kind_now] = dict(flatten(today))
    return defaults


def test_a_changed_default_raises_the_version() -> None:
    assert REMEMBERED["results_version"] == RESULTS_VERSION, (
        "a new version: set it in defaults.json and remove the rest of it"
    )
    then, now = remembered(), current()
    for kind, values in then.items():
        gone = values.keys() - now[kind].keys()
        assert not gone, f"{kind}: add to CHANGES in config/migrate.py what became of {gone}"
        changed = {p: (old, now[kind][p]) for p, old in values.items() if old != now[kind][p]}
        assert not changed, f"{kind}: a changed default needs a new RESULTS_VERSION: {changed}"
    assert then == now, "new settings: python -m tests.config.test_defaults"


if __name__ == "__main__":
    known = remembered()
    for kind_, values_ in current().items():
        added = {p: v for p, v in values_.items() if p not in known.get(kind_, {})}
        REMEMBERED["defaults"].setdefault(kind_, {}).update(added)
    FILE.write_text(json.dumps(REMEMBERED, indent=1, sort_keys=True) + "\n", encoding="utf-8")
