"""Images: labelled pictures, divided for training and testing, that know their content by a
fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dualmix.data.source import printable
from dualmix.errors import DataError

Pixels = NDArray[np.uint8]
Rows: TypeAlias = NDArray[Any]
"""Pictures as `Pixels`, or vectors: float32 (n, d)."""
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder hands to the cache: plain arrays in memory, not yet checked.

    ``test_rows`` are the rows that a seeded draw took for testing out of the undivided set, or None
    where the source itself divides training from testing; the cache keeps them so that two machines
    can compare."""

    train_x: Rows
    train_y: Labels
    test_x: Rows
    test_y: Labels
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    test_rows: Labels | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """A data set: uint8 pictures ``(n, H, W, C)``, or float32 vectors ``(n, d)``, and labels
    ``0..K-1``, for training and for testing.

    Attributes
    ----------
    name
        The data set's name in the catalogue.
    train_x, train_y, test_x, test_y
        Read-only arrays; out of the cache they are memory-mapped and shared between processes.
    classes
        Class names; the index is the label.
    fingerprint
        sha256 of the content (pixels, labels, class names, shapes): equal only where the data are.
    notes
        Remarks that belong to every figure computed from these images, such as "subset: ...".
    """

    name: str
    train_x: Rows
    train_y: Labels
    test_x: Rows
    test_y: Labels
    classes: tuple[str, ...]
    fingerprint: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self)

    def __repr__(self) -> str:
        what = "x".join(map(str, self.shape))
        return (
            f"<{self.name}: {len(self.classes)} classes, {len(self.train_y)} rows of {what} to "
            f"learn and {len(self.test_y)} to test>"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one picture, the order a network wants; or the length of a
        vector.
        """
        return tuple(self.as_rows(self.train_x[:0]).shape[1:])

    @staticmethod
    def as_rows(x: Rows) -> Rows:
        """Return some of the rows as a learner takes them: pictures ``(n, C, H, W)``."""
        return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x

    def for_validation(self, share: float) -> Images:
        """Return the set with the training images also in the place of the test images, which are
        out of reach.
        """
        note = (
            f"tested on {100 * share:g} % of each class's training images, kept out of the stream; "
            "no test image used"
        )
        return replace(self, test_x=self.train_x, test_y=self.train_y, notes=(*self.notes, note))


def _is_array(given: object) -> bool:
    return isinstance(given, np.ndarray) and not isinstance(given, np.ma.MaskedArray)


def check(images: Images | Decoded, name: str = "") -> None:
    """Raise `DataError` unless the arrays fit together and every class can be learnt.

    Parameters
    ----------
    images
        Arrays to look at; nothing is changed.
    name
        What to call the set in the message where the arrays carry no name.
    """
    name = name or getattr(images, "name", "the data set")
    for part in ("train", "test"):
        x: Rows = getattr(images, f"{part}_x")
        y: Labels = getattr(images, f"{part}_y")
        if not all(map(_is_array, (x, y))):
            raise DataError(
                f"{name}: {part} images and labels must be numpy arrays, and without masks."
            )
        vectors = x.dtype == np.float32 and x.ndim == 2
        if vectors and (not x.shape[1] or not np.isfinite(x).all()):
            raise DataError(
                f"{name}: {part} vectors must have a length and hold finite numbers: clean them."
            )
        if not vectors and (x.dtype != np.uint8 or x.ndim != 4):
            raise DataError(
                f"{name}: {part} images must be uint8 (n, H, W, C), not {x.dtype} {x.shape}."
            )
        if not vectors and (x.shape[3] not in (1, 3) or 0 in x.shape[1:3]):
            raise DataError(
                f"{name}: {part} images must have 1 or 3 channels and some size, not {x.shape[1:]}."
            )
        if y.dtype != np.int64 or y.ndim != 1 or len(y) != len(x):
            raise DataError(
                f"{name}: {part} needs one int64 label per image, not {y.dtype} {y.shape} for "
                f"{len(x)} images."
            )
        if len(x) == 0:
            raise DataError(
                f"{name} has no {part} image at all: add some, or choose another held-out share."
            )
        if y.min() < 0 or y.max() >= len(images.classes):
            raise DataError(
                f"{name}: {part} labels must be 0..{len(images.classes) - 1}, not "
                f"{y.min()}..{y.max()}."
            )
    if images.train_x.shape[1:] != images.test_x.shape[1:]:
        raise DataError(
            f"{name}: training images are {images.train_x.shape[1:]} but test images "
            f"{images.test_x.shape[1:]}; give one size for both with --data.size."
        )
    counts = np.bincount(images.train_y, minlength=len(images.classes))
    if counts.min() == 0:
        empty = [str(c) for c, n in zip(images.classes, counts, strict=True) if n == 0]
        raise DataError(
            f"{name}: {len(empty)} classes have no training image, the first is {empty[0]!r}; add "
            "some."
        )
    _check_titles(images, name)


def _check_titles(images: Images | Decoded, name: str) -> None:
    titles = (*images.classes, *images.notes)
    if not all(isinstance(title, str) for title in titles):
        raise DataError(f"{name}: class names and notes must be texts.")
    if len(set(images.classes)) < len(images.classes):
        raise DataError(f"{name}: two classes have the same name: rename one.")
    for title in images.classes:
        if printable(title) != title or "\n" in title:
            raise DataError(
                f"{name}: the class name {printable(title)!r} has characters that cannot be "
                "printed: rename the class."
            )


def fingerprint(images: Images | Decoded) -> str:
    """Give the sha256 of pixels, labels, class names and shapes, the same on every machine and byte
    order.
    """
    digest = hashlib.sha256()
    shapes = [list(images.train_x.shape), list(images.test_x.shape)]
    digest.update(json.dumps([shapes, list(images.classes)]).encode())
    for x in (images.train_x, images.test_x):
        digest.update(np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("<")).data)
    for y in (images.train_y, images.test_y):
        digest.update(np.ascontiguousarray(y, dtype="<i8").tobytes())
    return digest.hexdigest()


def subset_note(images: Images | Decoded, classes: int, train: int, test: int) -> str | None:
    """Say in a note how a set falls short of its full number of images, or None where it is
    complete.

    Parameters
    ----------
    images
        The set at hand.
    classes, train, test
        Classes, training images per class and test images per class of the full set.
    """
    got = [np.bincount(y, minlength=len(images.classes)) for y in (images.train_y, images.test_y)]
    if len(images.classes) == classes and all(
        (n == full).all() for n, full in zip(got, (train, test), strict=True)
    ):
        return None
    if (
        any(n.max() > full for n, full in zip(got, (train, test), strict=True))
        or len(images.classes) > classes
    ):
        spans = f"{_span(got[0])} training and {_span(got[1])} test images a class"
        return f"not the standard set: {spans}"
    parts = (
        [] if len(images.classes) == classes else [f"{len(images.classes)} of {classes} classes"]
    )
    parts += [
        f"{_span(got[0])} of {train} training images a class",
        f"{_span(got[1])} of {test} test images a class",
    ]
    return "subset: " + ", ".join(parts)


def _span(counts: Labels) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"
