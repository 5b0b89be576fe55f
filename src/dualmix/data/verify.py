"""Verify: what is on disk, and how it compares with what was published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualmix.data import cache, cifar100, mini_imagenet, tiny_imagenet
from dualmix.data.catalog import DATASETS, Dataset
from dualmix.data.catalog import root as data_root
from dualmix.data.config import Data
from dualmix.data.images import Decoded, check, fingerprint
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
        The fewest and the most images a class.
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
    shape: tuple[int, int, int]
    train_span: tuple[int, int]
    test_span: tuple[int, int]
    fingerprint: str
    verdict: tuple[str, ...]
    ok: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of ``data list``; ``present`` is None where the user brings the files."""

    name: str
    present: bool | None
    where: str
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
    root = data_root(data.root)
    with readable(dataset.title):
        source = dataset.find(root, data)
        files = tuple(_file(path, dataset) for path in _paths(dataset, source))
    try:
        with readable(dataset.title):
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
    _, height, width, channels = decoded.train_x.shape
    mark = fingerprint(decoded)
    lines, ok = _judge(dataset, decoded, data.size, files)
    stale = _stale(data.name, source, root, dataset.version, mark)
    return Report(
        name=data.name,
        where=str(source.where),
        files=files,
        train=len(decoded.train_x),
        test=len(decoded.test_x),
        classes=len(decoded.classes),
        shape=(channels, height, width),
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
        "official content in another order: results are comparable, but sample order differs from other tools",
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
    shape = (decoded.train_x.shape[3], *decoded.train_x.shape[1:3])
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
    stem = f"{name}-{source.signature(root, version)}"
    found = [(place / stem, cache.opened(place / stem)) for place in cache.places(root)]
    return [
        f"the decoded copy differs from the files: delete {folder} and it is made again"
        for folder, images in found
        if images is not None and not images.fingerprint == fingerprint(images) == mark
    ]


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
    """Say of every data set whether it is below the root, and how large it and its decoded copies
    are.
    """
    return [_entry(dataset, root) for dataset in DATASETS.values()]


def _entry(dataset: Dataset, root: Path) -> Entry:
    copies = {folder for place in cache.places(root) for folder in place.glob(f"{dataset.name}-*")}
    decoded = sum(_bytes(folder) for folder in copies)
    if dataset.own:
        return Entry(dataset.name, None, "--data.path", 0, decoded, dataset.doc)
    try:
        with readable(dataset.title):
            source = dataset.find(root, Data(name=dataset.name, root=root))
    except DataError as fault:
        return Entry(dataset.name, False, str(root), 0, decoded, dataset.doc, str(fault))
    if source.kind == "pickles":
        size = sum(path.stat().st_size for path in _paths(dataset, source))
    else:
        size = _bytes(source.where)
    return Entry(dataset.name, True, str(source.where), size, decoded, dataset.doc)


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
