"""The runs of a store in the order of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Container

from dualmix.paper.grids import own
from dualmix.paper.numbers import rank
from dualmix.runs import collect as runs
from dualmix.runs.records import Collection
from dualmix.store.store import Store


def collect(
    store: Store,
    *,
    only: Container[str] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Collection:
    """Read every run of a store, or those of some folders' names; what cannot be used is listed
    with the reason.
    """
    return runs.collect(store, rank=rank, own=own, only=only, progress=progress)
