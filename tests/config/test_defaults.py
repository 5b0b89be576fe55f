"""Keys leave defaults out, so a default that changes must raise RESULTS_VERSION; this test
remembers them.

After such a change raise the version and write the file anew: python
tests/config/test_defaults.py. A setting that is dropped changes no key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dualmix.config.compose import RESULTS_VERSION, compose, walk
from dualmix.registry import get_method, presets

FILE = Path(__file__).with_name("defaults.json")


def current() -> dict[str, Any]:
    kinds = {preset.kind for preset in presets().values()}
    kinds = sorted(kind for kind in kinds if get_method(kind).__module__.startswith("dualmix."))
    return {
        "results_version": RESULTS_VERSION,
        "defaults": {
            kind: {
                path: json.loads(
                    json.dumps(info.get_default(call_default_factory=True), default=str)
                )
                for path, info in walk(type(compose(kind).config))
            }
            for kind in kinds
        },
    }


def test_a_changed_default_raises_the_version() -> None:
    remembered, now = json.loads(FILE.read_text(encoding="utf-8")), current()
    if remembered["results_version"] == now["results_version"]:
        for kind, defaults in remembered["defaults"].items():
            changed = {p: (old, now["defaults"][kind].get(p)) for p, old in defaults.items()}
            assert all(old == new for old, new in changed.values()), changed
    assert remembered == now, (
        "new settings: write the file anew with python tests/config/test_defaults.py"
    )


if __name__ == "__main__":
    FILE.write_text(json.dumps(current(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
