"""Verify: what is on disk, and how it compares with what was published."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualmix.data import cache, cifar100, mini_imagenet, tiny_imagenet
from dualmix.data.catalog import DATASETS, Dataset, load_installed, title
from dualmix.data.catalog import root as data_root
from dualmix.data.config import Data
from dualmix.data.images import Decoded, Images, check, fingerprint
from dualmix.data.source import Source, checksum, readable
from dualmix.errors import DataError

PUBLISHED = {**cifar100.MD5, **tiny_imagenet.MD5}


@dataclass(frozen=True, slots=True)
class File:
    """A file of a data set: ``official`` is None where no checksum of it was published."""

    name: str
    size: int
    md5: str
    official: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found.

    Attributes
    ----------
    name, where
        The data set and the place it was found in.
    files
        Its files with their checksums; class folders with many small files are not listed.
    train, test, classes, shape
        Numbers of images and classes, and (C, H, W); 0 where nothing could be read.
    train_span, test_span
        The fewest and the most images per class.
    fingerprint
        sha256 of the decoded content.
    verdict
        Sentences for the user, the decisive one first.
    ok
        False if something is missing, damaged or not what it claims to be; a subset or another
        order is ok.
    """

    name: str
    where: str
    files: tuple[File, ...]
    train: int
    test: int
    classes: int
    shape: tuple[int, ...]
    train_span: tuple[int, int]
    test_span: tuple[int, int]
    fingerprint: str
    verdict: tuple[str, ...]
    ok: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of ``data list``.

    Attributes
    ----------
    name, doc
        The data set and what it is.
    present
        None where the user brings the files.
    where
        The place it was found in, or the root where it is not there.
    images
        Images that are there, or None while nobody has counted them.
    full
        Images of the full set, or None where there is no such number.
    size, decoded
        Bytes of the files and of their decoded copies.
    problem
        Why it cannot be used.
    """

    name: str
    present: bool | None
    where: str
    images: int | None
    full: int | None
    size: int
    decoded: int
    doc: str
    problem: str = ""


def verify(data: Data) -> Report:
    """Read a data set anew from its source, without the cache, and judge it.

    Parameters
    ----------
    data
        Which set and where. A set that is not there raises `DataError`; one that is damaged gives a
        report.
    """
    dataset = DATASETS[data.name]
    with readable(title(data)):
        root = data_root(data.root)
        source = dataset.find(root, data)
        files = tuple(_file(path, dataset) for path in _paths(dataset, source))
    try:
        with readable(title(data)):
            decoded = dataset.decode(source)
            check(decoded, dataset.title)
    except DataError as fault:
        verdict = (f"damaged: {fault}",)
        return Report(
            data.name,
            str(source.where),
            files,
            0,
            0,
            0,
            (0, 0, 0),
            (0, 0),
            (0, 0),
            "",
            verdict,
            False,
        )
    mark = fingerprint(decoded)
    lines, ok = _judge(dataset, decoded, data.size, files)
    with readable(title(data)):
        stale = _stale(data.name, source, root, dataset.version, mark)
    return Report(
        name=data.name,
        where=str(source.where),
        files=files,
        train=len(decoded.train_x),
        test=len(decoded.test_x),
        classes=len(decoded.classes),
        shape=tuple(Images.as_rows(decoded.train_x[:0]).shape[1:]),
        train_span=_span(decoded, "train"),
        test_span=_span(decoded, "test"),
        fingerprint=mark,
        verdict=(*lines, *stale),
        ok=ok and not stale,
    )


_VERDICTS = {
    cifar100.NOT_OFFICIAL: (
        "damaged or altered: the counts are right, the images or labels are not; get them again",
        False,
    ),
    cifar100.OTHER_ORDER: (
        "official content in another order: results are comparable, but sample order differs from "
        "other tools",
        True,
    ),
    cifar100.UNKNOWN_ORDER: (
        "official content; no published checksum confirms the order of these files",
        True,
    ),
}


def _judge(
    dataset: Dataset, decoded: Decoded, size: int | None, files: tuple[File, ...]
) -> tuple[list[str], bool]:
    """Turn what the decoder noted into the decisive sentence, the remarks that remain, and good or
    bad.
    """
    rest = [note for note in decoded.notes if note not in _VERDICTS]
    shape = tuple(Images.as_rows(decoded.train_x[:0]).shape[1:])
    odd = [note for note in rest if note.startswith(("subset", "not the standard"))]
    if size is None and dataset.shape is not None and shape != dataset.shape:
        line, ok = (
            f"not the standard {dataset.title}: images are {shape}, not {dataset.shape}",
            False,
        )
    elif odd:
        rest.remove(odd[0])
        line, ok = (
            f"{odd[0]}; do not quote results as those of the full set",
            odd[0].startswith("subset"),
        )
    elif dataset.name == "cifar100":
        noted = [_VERDICTS[note] for note in decoded.notes if note in _VERDICTS]
        line, ok = noted[0] if noted else ("official content, official order", True)
    elif files and all(file.official for file in files):
        line, ok = "official content, official order", True
    elif dataset.train is not None:
        line, ok = "complete; no published checksum to compare the images with", True
    else:
        line, ok = "readable", True
    return [line, *rest], ok


def _span(decoded: Decoded, part: str) -> tuple[int, int]:
    counts = np.bincount(getattr(decoded, f"{part}_y"), minlength=len(decoded.classes))
    return int(counts.min()), int(counts.max())


def _stale(name: str, source: Source, root: Path, version: int, mark: str) -> list[str]:
    """Compare every decoded copy, pixel by pixel, with the source."""
    said = []
    for place in cache.places(root):
        folder = place / f"{name}-{source.signature(root, version)}"
        try:
            images = cache.opened(folder)
        except cache.DamagedError as fault:
            said.append(
                f"the decoded copy {folder} is damaged ({fault}): the next run makes it again"
            )
            continue
        if images is not None and images.fingerprint != mark:
            said.append(
                f"the decoded copy differs from the files: delete {folder} and it is made again"
            )
    return said


def _paths(dataset: Dataset, source: Source) -> list[Path]:
    """List the few files that carry a set; none where it lies in many small ones."""
    if source.where.is_file():
        return [source.where]
    if dataset.name == "cifar100":
        return [source.where / name for name in cifar100.LAYOUTS[source.kind][1]]
    if source.kind == "pickles":
        return [source.where / name for name in mini_imagenet.PICKLES]
    return []


def _file(path: Path, dataset: Dataset) -> File:
    md5 = checksum(path)
    known = PUBLISHED.get(path.name) if dataset.downloads else None
    return File(path.name, path.stat().st_size, md5, None if known is None else md5 == known)


def listing(root: Path) -> list[Entry]:
    """Say of every data set whether it is below the root, how many images it has there, and how
    large it and its decoded copies are. The user's own files are those that were decoded before.
    """
    load_installed()
    with readable("The data folder"):
        copies = [
            (folder, _meta(folder))
            for place in cache.places(root)
            for folder in (sorted(place.iterdir()) if place.is_dir() else ())
        ]
        return [
            entry
            for dataset in DATASETS.values()
            for entry in _entries(
                dataset, root, [c for c in copies if c[0].name.rpartition("-")[0] == dataset.name]
            )
        ]


Copy = tuple[Path, dict[str, Any]]


def _meta(folder: Path) -> dict[str, Any]:
    """Read what a copy says of itself; nothing where it is damaged or of another version."""
    try:
        return cache.read_meta(folder) or {}
    except cache.DamagedError:
        return {}


def _entries(dataset: Dataset, root: Path, copies: list[Copy]) -> Iterator[Entry]:
    full = _full(dataset)
    if dataset.own:
        yield Entry(dataset.name, None, "--data.path", None, full, 0, 0, dataset.doc)
        for where in sorted({str(meta["where"]) for _, meta in copies if meta}):
            mine = [copy for copy in copies if copy[1].get("where") == where]
            images: int | None = sum(mine[-1][1]["images"])
            decoded = sum(_bytes(folder) for folder, _ in mine)
            path = Path(where)
            present = path.exists()
            size = _bytes(path) if present else 0
            problem = "" if present else f"{where} is gone"
            yield Entry(dataset.name, present, where, images, full, size, decoded, "", problem)
        return
    decoded = sum(_bytes(folder) for folder, _ in copies)
    try:
        with readable(dataset.title):
            source = dataset.find(root, Data(name=dataset.name, root=root))
            images = _count(dataset, source, root, copies)
    except DataError as fault:
        yield Entry(dataset.name, False, str(root), None, full, 0, decoded, dataset.doc, str(fault))
        return
    few = _paths(dataset, source)
    size = sum(path.stat().st_size for path in few) if few else _bytes(source.where)
    if source.kind == "plugin":
        size = sum(size for _, size, _ in source.stamps[:-1])
    yield Entry(dataset.name, True, str(source.where), images, full, size, decoded, dataset.doc)


def _full(dataset: Dataset) -> int | None:
    if dataset.classes is None or dataset.train is None or dataset.test is None:
        return None
    return dataset.classes * (dataset.train + dataset.test)


def _count(dataset: Dataset, source: Source, root: Path, copies: list[Copy]) -> int | None:
    """Count the images that are there: as decoded, else by the files where each is an image."""
    stem = f"{dataset.name}-{source.signature(root, dataset.version)}"
    for folder, meta in copies:
        if folder.name == stem and meta:
            return sum(meta["images"])
    return dataset.count(source)


def _bytes(path: Path) -> int:
    """Add up the sizes of a file or of all files in a folder; what vanishes meanwhile counts 0."""
    total = 0
    for each in [path] if path.is_file() else path.rglob("*"):
        with suppress(OSError):
            facts = each.lstat()
            total += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return total
