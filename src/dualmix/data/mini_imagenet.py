"""Mini-ImageNet: 100 classes of 600 images of 84 x 84, from the three few-shot pickles or class
folders.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualmix.data import pixels, split
from dualmix.data.images import Decoded, Labels, Pixels, subset_note
from dualmix.data.source import Source, open_file, stamps, subfolders, walk
from dualmix.errors import DataError

if TYPE_CHECKING:
    from dualmix.data.config import Data

PARTS = ("train", "val", "test")
PICKLES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in PARTS)
FOLDERS = ("mini_imagenet", "mini-imagenet", ".")
REMEDY = "obtain the file again, Mini-ImageNet has no official address"


def find(root: Path, data: Data) -> Source:
    """Look for the pickles, then for class folders in ``train`` and ``test``, or ``val`` too
    (few-shot).
    """
    for name in FOLDERS:
        where = root / name
        held = [file for file in PICKLES if (where / file).is_file()]
        if held and len(held) < len(PICKLES):
            lost = [file for file in PICKLES if file not in held]
            raise DataError(
                f"Mini-ImageNet needs its three pickles, but {where} lacks {' and '.join(lost)}."
            )
        if held:
            return Source(
                "pickles",
                where,
                stamps([where / f for f in held], where),
                data.size,
                None,
                data.split_seed,
                data.fit,
            )
    for name in FOLDERS[:2]:
        where = root / name
        if (where / "train").is_dir() and (where / "test").is_dir():
            return _class_folders(where, data)
    raise DataError(
        f"Mini-ImageNet is not in {root}: `dualmix data get mini_imagenet` says which files to "
        "obtain, or point --data.root or DUALMIX_DATA to the folder that holds mini_imagenet."
    )


def _class_folders(where: Path, data: Data) -> Source:
    parts = {part: subfolders(where / part) for part in PARTS if (where / part).is_dir()}
    train, test = ({folder.name for folder in parts[part]} for part in ("train", "test"))
    marks = stamps(
        [where / part for part in parts] + [f for folders in parts.values() for f in folders], where
    )
    if train and test and not train & test:
        return Source("few-shot folders", where, marks, data.size, None, data.split_seed, data.fit)
    return Source("class folders", where, marks, data.size, fit=data.fit)


def decode(source: Source) -> Decoded:
    """Read all classes; where the source does not divide them, 100 of 600 images per class become
    the test.
    """
    if source.kind == "class folders":
        decoded = _divided(source)
    else:
        read = _pickles if source.kind == "pickles" else _few_shot
        decoded = _drawn(source, *read(source))
    fewer = subset_note(decoded, 100, 500, 100)
    return replace(decoded, notes=decoded.notes + ((fewer,) if fewer else ()))


def _drawn(source: Source, x: Pixels, y: Labels, classes: tuple[str, ...]) -> Decoded:
    assert source.seed is not None
    test = split.draw(y, lambda n: n // 6, source.seed)
    note = f"tests on a sixth of each class, drawn with split seed {source.seed}"
    return Decoded(x[~test], y[~test], x[test], y[test], classes, (note,), np.flatnonzero(test))


def _pickles(source: Source) -> tuple[Pixels, Labels, tuple[str, ...]]:
    """Stack the classes of the three files; labels count on from file to file."""
    from dualmix.data import unpickle

    images: list[Pixels] = []
    labels: list[Labels] = []
    classes: list[str] = []
    for file in PICKLES:
        path = source.where / file
        with open_file(path) as stream:
            x, members = _fields(unpickle.read(stream, str(path), REMEDY), path)
        if images and not source.size and x.shape[1:] != images[0].shape[1:]:
            raise DataError(
                f"{path} has images of {x.shape[1:]}, the file before it of "
                f"{images[0].shape[1:]}: {REMEDY}, or give one size for both with --data.size."
            )
        for name, rows in members.items():
            images.append(pixels.resize(x[rows], source.size, source.fit))
            labels.append(np.full(len(rows), len(classes), np.int64))
            classes.append(name)
    if len(set(classes)) < len(classes):
        raise DataError(
            f"{source.where} has a class in two of its pickles, which Mini-ImageNet never has: "
            f"{REMEDY}."
        )
    return np.concatenate(images), np.concatenate(labels), tuple(classes)


def _fields(fields: dict[str, Any], path: Path) -> tuple[Pixels, dict[str, Labels]]:
    x, members = fields.get("image_data"), fields.get("class_dict")
    if (
        isinstance(x, np.ndarray)
        and x.dtype == np.uint8
        and x.ndim == 4
        and x.shape[3] == 3
        and 0 not in x.shape
        and isinstance(members, dict)
        and members
    ):
        rows = {name: _rows(value, len(x)) for name, value in members.items()}
        every = np.concatenate(list(rows.values()))
        if all(len(each) for each in rows.values()) and len(np.unique(every)) == len(every):
            return x, rows
    raise DataError(
        f"{path} is a pickle but not of Mini-ImageNet's image_data and class_dict, which name each "
        f"image once: {REMEDY}."
    )


def _rows(value: Any, count: int) -> Labels:
    """Give the row numbers of a class, or none at all if any of them is not a row."""
    whole = (isinstance(value, np.ndarray) and value.ndim == 1) or (
        isinstance(value, list) and all(type(n) is int for n in value)
    )
    if not whole or not len(value) or min(value) < 0 or max(value) >= count:
        return np.empty(0, np.int64)
    return np.asarray(value, np.int64)


def count(source: Source) -> int | None:
    """Count the images of the class folders without reading them."""
    if source.kind == "pickles":
        return None
    parts = [source.where / part for part in PARTS if (source.where / part).is_dir()]
    if source.kind == "class folders":
        parts = [part for part in parts if part.name != "val"]
    return sum(1 for part in parts for folder in subfolders(part) for _ in walk(str(folder), "/"))


def _images(folders: list[Path], source: Source) -> tuple[Pixels, Labels]:
    names = [[name for name, _, _ in walk(str(folder), f"{folder}/")] for folder in folders]
    y = np.repeat(np.arange(len(folders)), [len(files) for files in names]).astype(np.int64)
    flat = [name for files in names for name in files]
    return pixels.stack_all(flat, open_file, source.size, "Mini-ImageNet", source.fit), y


def _few_shot(source: Source) -> tuple[Pixels, Labels, tuple[str, ...]]:
    folders = [
        f
        for part in PARTS
        if (source.where / part).is_dir()
        for f in subfolders(source.where / part)
    ]
    return *_images(folders, source), tuple(folder.name for folder in folders)


def _divided(source: Source) -> Decoded:
    train, test = (subfolders(source.where / part) for part in ("train", "test"))
    classes = tuple(folder.name for folder in train)
    if classes != tuple(folder.name for folder in test):
        odd = sorted(set(classes) ^ {folder.name for folder in test})
        raise DataError(
            f"{source.where} has {odd[0]} in only one of train and test: both need the same "
            "classes."
        )
    return Decoded(*_images(train, source), *_images(test, source), classes)
