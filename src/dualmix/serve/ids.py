"""Ids of requests that were accepted, so that a batch that is sent again counts once."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import torch

MOST = 100_000
"""Ids that are remembered, the latest ones: a batch may be sent again until so many others with an
id have come after it."""


class Known(NamedTuple):
    """What an id stands for: the digest of its content and the number of its record."""

    digest: bytes
    number: int


class Ids:
    """The latest ids, in the order in which they were accepted; only a hash of each is kept."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._known: dict[bytes, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Known | None:
        """Return what an id stands for, if it is remembered."""
        return self._known.get(_hashed(name))

    def add(self, name: str, digest: bytes, number: int) -> None:
        """Remember an id, and forget the oldest where there are too many."""
        if name:
            self._known[_hashed(name)] = Known(digest, number)
            while len(self._known) > self.most:
                del self._known[next(iter(self._known))]

    def state_dict(self, before: int) -> dict[str, Any]:
        """Return the ids of the records before a number: those after it are in the journal."""
        kept = [(key, known) for key, known in self._known.items() if known.number < before]
        raw = b"".join(key + known.digest for key, known in kept)
        hashes = np.frombuffer(raw, np.uint8).reshape(len(kept), 32).copy()
        numbers = torch.tensor([known.number for _, known in kept], dtype=torch.int64)
        return {"hashes": torch.from_numpy(hashes), "numbers": numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        hashes, numbers = state["hashes"].numpy(), state["numbers"].tolist()
        self._known = {
            row[:16].tobytes(): Known(row[16:].tobytes(), number)
            for row, number in zip(hashes, numbers, strict=True)
        }


def _hashed(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
