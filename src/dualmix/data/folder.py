"""Folder: anybody's own images, one folder a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dualmix.data import pixels, split
from dualmix.data.images import Decoded
from dualmix.data.source import Source, Stamp, subfolders, walk
from dualmix.errors import DataError
from dualmix.folders import expanded

if TYPE_CHECKING:
    from dualmix.data.config import Data


def find(root: Path, data: Data) -> Source:
    """Take ``train/<class>`` and ``test/<class>``, else one tree of class folders; every file is
    stamped.
    """
    assert data.path is not None
    given = expanded(data.path)
    path = given.resolve() if given.is_dir() else (root / given).resolve()
    if not path.is_dir():
        raise DataError(
            f"There is no folder {given}: point --data.path to a folder with one folder a class."
        )
    train, test = (path / part for part in ("train", "test"))
    if train.is_dir() != test.is_dir():
        has, lacks = ("train", "test") if train.is_dir() else ("test", "train")
        raise DataError(
            f"{path} has {has} but no {lacks}: add {lacks}/<class>/..., or point --data.path to {path / has} "
            "to hold out a share of it."
        )
    parts = [train, test] if train.is_dir() else [path]
    found: list[Stamp] = []
    for part in parts:
        folders = subfolders(part)
        if not folders:
            raise DataError(
                f"{part} holds no folder: make one folder a class and put its images there."
            )
        for folder in folders:
            found += walk(str(folder), f"{folder.relative_to(path).as_posix()}/")
    if len(parts) == 2:
        return Source("train and test", path, tuple(found), data.size)
    return Source("one tree", path, tuple(found), data.size, data.held_out, data.split_seed)


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
                f"{base / 'test'} has classes that train lacks, such as {odd[0]!r}: remove or rename them."
            )
    names = [name for name, _, _ in source.stamps]
    if not names:
        raise DataError(f"{base} holds class folders but no image: put images there.")
    x = pixels.stack(names, lambda name: (base / name).open("rb"), source.size, str(base))
    y = np.array([label[name.split("/")[1 if divided else 0]] for name in names], dtype=np.int64)
    if divided:
        test = np.array([name.startswith("test/") for name in names])
        return Decoded(x[~test], y[~test], x[test], y[test], classes)
    assert source.held_out is not None and source.seed is not None
    test = split.draw(y, split.share(source.held_out), source.seed)
    note = split.note(source.held_out, source.seed)
    return Decoded(x[~test], y[~test], x[test], y[test], classes, (note,), np.flatnonzero(test))
