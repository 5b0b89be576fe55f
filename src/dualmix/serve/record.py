"""A record: one batch, or one pause of the stream, as the journal holds it."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Literal
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import InputError, StoreError
from dualmix.learn.inputs import as_labels, as_rows
from dualmix.learn.types import ImagesLike, Shape

_LENGTH = struct.Struct("<I")
_KINDS: dict[str, np.dtype[Any]] = {"uint8": np.dtype("u1"), "float32": np.dtype("<f4")}
LONGEST_TEXT = 200
"""Letters of a label or of an id."""
UNFIT = ("Cc", "Cn", "Co", "Cs", "Zl", "Zp")
"""Kinds of letters that no text may hold: controls, line ends, halves of letters, no letters."""
TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Letters that turn the direction of all that follows."""


@dataclass(frozen=True, slots=True)
class Record:
    """What changes the learner, in the one form that is learned and replayed.

    Attributes
    ----------
    kind
        A batch, or a pause (`consolidate`).
    name
        The request's id; empty: it has none.
    time
        When it was accepted, in seconds since 1970. It is a part of the record, so that a replay
        tells the same story.
    x, y
        Images (n, C, H, W) uint8 or vectors (n, d) float32, and raw labels.
    """

    kind: Literal["observe", "pause"]
    name: str
    time: float
    x: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.uint8))
    y: tuple[int, ...] | tuple[str, ...] = ()

    @property
    def digest(self) -> bytes:
        """What tells this content from any other: 16 bytes."""
        about = json.dumps([self.kind, self.x.shape, str(self.x.dtype), self.y])
        return hashlib.blake2b(about.encode() + self.x.tobytes(), digest_size=16).digest()

    @property
    def size(self) -> int:
        """Bytes of its rows."""
        return self.x.nbytes

    def to_bytes(self) -> bytes:
        """Return the record as the journal holds it."""
        about = json.dumps(
            {
                "kind": self.kind,
                "name": self.name,
                "time": self.time,
                "shape": list(self.x.shape),
                "dtype": str(self.x.dtype),
                "y": list(self.y),
            }
        ).encode()
        rows = np.ascontiguousarray(self.x, _KINDS[str(self.x.dtype)]).tobytes()
        return _LENGTH.pack(len(about)) + about + rows


def as_record(
    shape: Shape, x: ImagesLike, y: Any, name: str = "", now: float | None = None
) -> Record:
    """Return a batch as it is learned, or raise `InputError`: nothing wrong reaches the journal."""
    rows = as_rows(x, shape)
    labels = as_labels(y, len(rows))
    plain = labels.tolist()
    for label in plain:
        if isinstance(label, str):
            check_text(label, "A label")
    if name:
        check_text(name, "An id")
    stored = rows.permute(0, 3, 1, 2).contiguous() if rows.ndim == 4 else rows
    accepted = time.time() if now is None else now
    return Record("observe", name, accepted, stored.numpy(), tuple(plain))


def check_text(text: str, what: str) -> None:
    """Raise `InputError` unless a text can be shown anywhere: in one line, and as it is written."""
    unfit = any(category(letter) in UNFIT or letter in TURNS for letter in text)
    if not 0 < len(text) <= LONGEST_TEXT or not text.strip() or unfit:
        raise InputError(
            f"{what} must be 1 to {LONGEST_TEXT} printable letters: {ascii(text)[:60]} is not."
        )


def parse(payload: bytes) -> Record:
    """Return the record of what `Record.to_bytes` gave.

    Raises
    ------
    StoreError
        It is none: its checksum fits, so that another program or a later version wrote it.
    """
    try:
        (length,) = _LENGTH.unpack_from(payload)
        about = json.loads(payload[4 : 4 + length])
        kind, shape = _KINDS[about["dtype"]], tuple(about["shape"])
        if len(payload) - 4 - length != math.prod(shape) * kind.itemsize:
            raise ValueError("its rows are of another size")
        x = np.frombuffer(payload, kind, offset=4 + length).reshape(shape).copy()
        if about["kind"] not in ("observe", "pause"):
            raise ValueError(f"its kind is {about['kind']!r}")
        return Record(about["kind"], about["name"], about["time"], x, tuple(about["y"]))
    except (ValueError, KeyError, TypeError, struct.error) as fault:
        raise StoreError(
            f"The journal holds a record that this version cannot read ({fault}): serve it with "
            "the version of dualmix that wrote it."
        ) from fault
