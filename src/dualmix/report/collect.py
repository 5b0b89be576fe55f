"""The runs of a store in the order of the paper's tables."""

from __future__ import annotations

from dualmix.paper.grids import own
from dualmix.paper.numbers import rank
from dualmix.runs import collect as runs
from dualmix.runs.records import Collection
from dualmix.store.store import Store


def collect(store: Store) -> Collection:
    """Read every run of a store; what cannot be used is listed with the reason."""
    return runs.collect(store, rank=rank, own=own)
