"""Folder: anybody's own images, one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dualmix.data import pixels, split
from dualmix.data.images import Decoded
from dualmix.data.source import Source, Stamp, locate, open_file, subfolders, walk
from dualmix.errors import DataError

if TYPE_CHECKING:
    from dualmix.data.config import Data

REMEDY = "remove or replace and try again, or leave out what is no image with --data.skip true"


def find(root: Path, data: Data) -> Source:
    """Take ``train/<class>`` and ``test/<class>``, else one tree of class folders; every file is
    stamped.
    """
    assert data.path is not None
    path = locate(data.path, root)
    if not path.is_dir():
        raise DataError(
            f"There is no folder {data.path}: point --data.path to a folder with one folder per "
            "class."
        )
    train, test = (path / part for part in ("train", "test"))
    if train.is_dir() != test.is_dir():
        has, lacks = ("train", "test") if train.is_dir() else ("test", "train")
        raise DataError(
            f"{path} has {has} but no {lacks}: add {lacks}/<class>/..., or point --data.path to "
            f"{path / has} to hold out a share of it."
        )
    parts = [train, test] if train.is_dir() else [path]
    files: list[Stamp] = []
    for part in parts:
        folders = subfolders(part)
        if not folders:
            raise DataError(
                f"{part} holds no folder: make one folder per class and put its images there."
            )
        for folder in folders:
            files += walk(str(folder), f"{folder.relative_to(path).as_posix()}/")
    if len(parts) == 2:
        return Source("train and test", path, tuple(files), data.size, fit=data.fit, skip=data.skip)
    return Source(
        "one tree",
        path,
        tuple(files),
        data.size,
        data.held_out,
        data.split_seed,
        data.fit,
        data.skip,
    )


def decode(source: Source) -> Decoded:
    """Read every file as RGB; classes are the folders of the training part, sorted by name."""
    base = source.where
    divided = source.held_out is None
    classes = tuple(folder.name for folder in subfolders(base / "train" if divided else base))
    label = {name: index for index, name in enumerate(classes)}
    if divided:
        odd = [folder.name for folder in subfolders(base / "test") if folder.name not in label]
        if odd:
            raise DataError(
                f"{base / 'test'} has classes that train lacks, such as {odd[0]!r}: remove or "
                "rename them."
            )
    names = [name for name, _, _ in source.stamps]
    if not names:
        raise DataError(f"{base} holds class folders but no image: put images there.")
    notes: list[str] = []
    if source.skip:
        x, others = pixels.stack(names, _opener(base), source.size, str(base), source.fit)
        left_out = set(others)
        names = [name for name in names if name not in left_out]
        if others:
            what = "file that is" if len(others) == 1 else "files that are"
            notes.append(
                f"{len(others)} {what} no readable image left out ({pixels.first(others)})"
            )
    else:
        x = pixels.stack_all(names, _opener(base), source.size, str(base), source.fit, REMEDY)
    try:
        y = np.array([label[name.split("/")[divided]] for name in names], dtype=np.int64)
    except KeyError as lost:
        raise DataError(
            f"{base}: the folder {lost} vanished while it was read: try again."
        ) from None
    if divided:
        test = np.array([name.startswith("test/") for name in names], dtype=bool)
        return Decoded(x[~test], y[~test], x[test], y[test], classes, tuple(notes))
    assert source.held_out is not None and source.seed is not None
    test = split.draw(y, split.share(source.held_out), source.seed)
    notes.insert(0, split.note(source.held_out, source.seed))
    rows = np.flatnonzero(test)
    return Decoded(x[~test], y[~test], x[test], y[test], classes, tuple(notes), rows)


def count(source: Source) -> int:
    """Count the files without reading them."""
    return len(source.stamps)


def _opener(base: Path) -> pixels.Read:
    return lambda name: open_file(base / name)
