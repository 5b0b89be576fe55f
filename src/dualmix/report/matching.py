"""Runs found by what they were told, whatever preset they were started from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dualmix.config.compose import compose, flatten
from dualmix.runs.apart import FREE
from dualmix.runs.records import Collection, Content, Group, Run

APART = {"data.name", "method.memory"}
"""Settings that are free in a table's cell, but are part of a configuration here."""


class Matching:
    """The runs of a store by all settings that can change a result.

    Parameters
    ----------
    prefer
        Of twins, runs of a seed that differ in machinery alone, those count of which this is true;
        none: those that count everywhere.
    """

    def __init__(self, collection: Collection, prefer: Callable[[Run], bool] | None = None) -> None:
        runs = list(collection.runs)
        if prefer is not None:
            runs = sorted((*runs, *collection.twins), key=lambda run: not prefer(run))
        self.runs: dict[str, list[Run]] = {}
        for run in runs:
            self.runs.setdefault(_told(run.settings), []).append(run)

    def groups(self, label: str, preset: str, values: Mapping[str, Any]) -> list[Group]:
        """Return the runs of a configuration, a group per content of the data, one run per seed;
        whole data sets and many seeds first.

        Parameters
        ----------
        label
            What the groups are called.
        preset, values
            The configuration, as a sweep has it.
        """
        if not self.runs:
            return []
        settings = _settings(preset, values)
        by_content: dict[Content, dict[int, Run]] = {}
        for run in self.runs.get(_told(settings), ()):
            by_content.setdefault(run.content, {}).setdefault(run.seed, run)
        memory = settings.get("method.memory")
        groups = [
            Group(label, content, memory, (), tuple(seeds[seed] for seed in sorted(seeds)))
            for content, seeds in by_content.items()
        ]
        return sorted(groups, key=lambda group: (group.content.subset, -len(group.runs)))


def told(preset: str, values: Mapping[str, Any]) -> str:
    """Return all of a configuration that can change a result, as one text: equal for two that are
    the same training and the same answers.
    """
    return _told(_settings(preset, values))


def _settings(preset: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(flatten(compose(preset, values).config.record()))


def _told(settings: Mapping[str, Any]) -> str:
    kept = {
        path: value
        for path, value in settings.items()
        if (path not in FREE or path in APART) and not path.startswith("probes.")
    }
    return json.dumps(kept, sort_keys=True, default=str)
