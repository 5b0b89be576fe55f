"""The runs of a store in the order of the paper's tables."""

from __future__ import annotations

from dualmix.paper.tables import ABLATION_ACCURACY, ACCURACY, BOUNDS, own
from dualmix.runs import collect as runs
from dualmix.runs.records import Collection
from dualmix.store.folder import Store

ROWS = (
    *BOUNDS,
    "iid-online",
    *dict.fromkeys(
        row for name in ACCURACY for row in (ABLATION_ACCURACY if name == "er" else (name,))
    ),
)
"""Methods in the order of the paper's tables."""


def rank(label: str) -> int:
    """Return a method's place in the paper's tables."""
    return ROWS.index(label) if label in ROWS else len(ROWS)


def collect(store: Store) -> Collection:
    """Read every run of a store; what cannot be used is listed with the reason."""
    return runs.collect(store, rank=rank, own=own)
