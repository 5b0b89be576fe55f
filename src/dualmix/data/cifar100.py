"""CIFAR-100: 60,000 images of 32 x 32 in 100 fine classes, from the python or binary files or
archives.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dualmix.data.images import Decoded, Labels, Pixels, subset_note
from dualmix.data.pixels import resize
from dualmix.data.source import (
    Source,
    checksum,
    missing,
    open_file,
    parsing,
    read_file,
    stamps,
)
from dualmix.errors import DataError

if TYPE_CHECKING:
    from dualmix.data.config import Data

REMEDY = "get the official file with `dualmix data get cifar100`"
OTHER_ORDER = "official CIFAR-100 content in another order"
UNKNOWN_ORDER = "official CIFAR-100 content, in an order that no published checksum confirms"
NOT_OFFICIAL = "not the official CIFAR-100 content"

PYTHON = ("train", "test", "meta")
BINARY = ("train.bin", "test.bin", "fine_label_names.txt")
LAYOUTS = {
    "python folder": ("cifar-100-python", PYTHON),
    "python archive": ("cifar-100-python.tar.gz", PYTHON),
    "binary folder": ("cifar-100-binary", BINARY),
    "binary archive": ("cifar-100-binary.tar.gz", BINARY),
}
MD5 = {
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CONTENT = {
    "train": "36ce7a701fbea47796e570c34382aad50f2539687cfcbc6ae96e2f56530d29b6",
    "test": "d3cd5d87a1b9317a0982c8ef5535fe3b86da8da90b13ce5e9b23ea06400dd5eb",
}
"""`content_digest` of the official images and fine labels.

Computed from a complete copy (500 and 100 images per class, ``meta`` of the published md5) that was
rebuilt losslessly from a PNG edition of the set in another order. The published md5 cover the order
too and so could not be compared: files of the official md5 are taken as official without looking at
these constants. """

FIRST_LABEL = 19
"""The fine label of the first published training image, a piece of cattle: another one proves
another order.
"""

LARGEST = 1 << 29
RECORD = 2 + 3072


def find(root: Path, data: Data) -> Source:
    """Look for the four forms in which the set is published; the first one found is taken."""
    for kind, (name, files) in LAYOUTS.items():
        where = root / name
        if kind.endswith("archive") and where.is_file():
            return Source(kind, where, stamps([where], root), data.size, fit=data.fit)
        if kind.endswith("folder") and where.is_dir():
            lost = [file for file in files if not (where / file).is_file()]
            if lost:
                raise DataError(f"{where} lacks {', '.join(lost)}: {REMEDY} or put the rest there.")
            marks = stamps([where / file for file in files], root)
            return Source(kind, where, marks, data.size, fit=data.fit)
    raise missing("CIFAR-100", "cifar100", root, "cifar-100-python")


def decode(source: Source) -> Decoded:
    """Read images and fine labels, and note how they compare with the official content."""
    members = LAYOUTS[source.kind][1]
    if source.kind.endswith("archive"):
        content = _from_archive(source.where, members)
    else:
        content = {name: read_file(source.where / name, LARGEST, REMEDY) for name in members}
    python = members is PYTHON
    train, test = [
        _pickled(content[name], f"{source.where}/{name}")
        if python
        else _records(content[name], f"{source.where}/{name}")
        for name in members[:2]
    ]
    classes = _names(content[members[2]], f"{source.where}/{members[2]}", python)
    for part, (_, y) in (("train", train), ("test", test)):
        if len(y) and y.max() >= len(classes):
            raise DataError(
                f"{source.where} is damaged, its {part} labels name classes that are not there: "
                f"{REMEDY}."
            )
    if python:
        published = all(
            hashlib.md5(content[n], usedforsecurity=False).hexdigest() == MD5[n]
            for n in members[:2]
        )
    else:
        published = source.where.is_file() and checksum(source.where) == MD5[source.where.name]
    native = Decoded(*train, *test, classes)
    return Decoded(
        resize(train[0], source.size, source.fit),
        train[1],
        resize(test[0], source.size, source.fit),
        test[1],
        classes,
        _notes(native, published),
    )


def content_digest(x: Pixels, y: Labels) -> str:
    """Hash images and labels so that their order does not matter: sha256 of the sorted sha256 of
    each image.

    An image is hashed as its label in one byte, followed by its pixels row by row with the channels
    last."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    each = sorted(
        hashlib.sha256(bytes([label]) + row.tobytes()).digest()
        for label, row in zip(y, rows, strict=True)
    )
    return hashlib.sha256(b"".join(each)).hexdigest()


def _notes(native: Decoded, published: bool) -> tuple[str, ...]:
    if published:
        return ()
    fewer = subset_note(native, 100, 500, 100)
    if fewer:
        return (fewer,)
    same = (
        content_digest(native.train_x, native.train_y) == CONTENT["train"]
        and content_digest(native.test_x, native.test_y) == CONTENT["test"]
    )
    if not same:
        return (NOT_OFFICIAL,)
    return (UNKNOWN_ORDER if native.train_y[0] == FIRST_LABEL else OTHER_ORDER,)


class _Counted:
    """A stream that ends with a sentence where a small archive unpacks to something absurd, or a
    header sends its reader far beyond the end.
    """

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self.stream, self.path, self.left, self.beyond = stream, path, LARGEST, 0

    def read(self, size: int) -> bytes:
        raw = self.stream.read(size)
        self.left -= len(raw)
        self.beyond += not raw
        if self.beyond > 8:
            raise EOFError
        if self.left < 0:
            raise DataError(f"{self.path} is far larger than CIFAR-100 can be: {REMEDY}.")
        return raw


def _from_archive(path: Path, members: tuple[str, ...]) -> dict[str, bytes]:
    """Read the wanted members into memory; nothing is unpacked, so no path in the archive matters.

    The archive is read once from its beginning to its end: no header can send the reader back, and
    gzip's own checksum at the end is compared.
    """
    folder = path.name.removesuffix(".tar.gz")
    wanted = {f"{folder}/{member}": member for member in members}
    content: dict[str, bytes] = {}
    with (
        parsing(f"{path} is cut short or damaged: {REMEDY}."),
        open_file(path) as file,
        gzip.open(file) as unpacked,
    ):
        whole = _Counted(unpacked, path)
        with tarfile.open(fileobj=cast(Any, whole), mode="r|") as archive:
            for entry in archive:
                member = wanted.get(entry.name.removeprefix("./"))
                if member is None or not entry.isreg() or entry.issparse():
                    continue
                stream = archive.extractfile(entry)
                assert stream is not None
                content[member] = stream.read()
                if len(content[member]) != entry.size:
                    raise EOFError
        while whole.read(1 << 20):
            pass
    lost = [member for member in members if member not in content]
    if lost:
        raise DataError(f"{path} lacks {', '.join(lost)}: {REMEDY}.")
    return content


def _pickled(raw: bytes, name: str) -> tuple[Pixels, Labels]:
    from dualmix.data import unpickle

    fields = unpickle.read(io.BytesIO(raw), name, REMEDY)
    data, labels = fields.get("data"), fields.get("fine_labels")
    right = (
        isinstance(data, np.ndarray)
        and data.dtype == np.uint8
        and data.ndim == 2
        and data.shape[1] == 3072
        and isinstance(labels, list)
        and len(labels) == len(data)
        and all(type(label) is int and 0 <= label < 256 for label in labels)
    )
    if not right:
        raise DataError(
            f"{name} is a pickle but not of CIFAR-100's images and fine labels: {REMEDY}."
        )
    assert isinstance(data, np.ndarray)
    return _upright(data), np.array(labels, dtype=np.int64)


def _records(raw: bytes, name: str) -> tuple[Pixels, Labels]:
    if not raw or len(raw) % RECORD:
        whole = math.floor(len(raw) / RECORD)
        raise DataError(f"{name} is cut short or damaged, {whole} images and a piece: {REMEDY}.")
    table = np.frombuffer(raw, np.uint8).reshape(-1, RECORD)
    return _upright(table[:, 2:]), table[:, 1].astype(np.int64)


def _upright(planes: Any) -> Pixels:
    """Turn rows of 1024 red, 1024 green and 1024 blue values into images."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _names(raw: bytes, name: str, python: bool) -> tuple[str, ...]:
    if python:
        from dualmix.data import unpickle

        names: Any = unpickle.read(io.BytesIO(raw), name, REMEDY).get("fine_label_names")
    else:
        names = raw.decode("utf-8", errors="replace").split()
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise DataError(f"{name} does not list CIFAR-100's class names: {REMEDY}.")
    return tuple(names)
