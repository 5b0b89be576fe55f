"""Tiny-ImageNet: 200 classes of images of 64 x 64, from the public folder or zip; tests on its val
split.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dualmix.data import pixels
from dualmix.data.images import Decoded, Labels, Pixels, subset_note
from dualmix.data.source import Source, missing, open_file, parsing, read_file, stamps
from dualmix.errors import DataError

if TYPE_CHECKING:
    from dualmix.data.config import Data

NAME = "tiny-imagenet-200"
MD5 = {f"{NAME}.zip": "90528d7ca1a48142e341f4ef8d21d0de"}
REMEDY = "get it again with `dualmix data get tiny_imagenet`"
LARGEST = 1 << 24


def find(root: Path, data: Data) -> Source:
    """Look for the unpacked folder, then for the zip."""
    where = root / NAME
    if where.is_dir():
        needed = [
            where / "wnids.txt",
            where / "train",
            where / "val" / "images",
            where / "val" / "val_annotations.txt",
        ]
        lost = [path for path in needed if not path.exists()]
        if lost:
            raise DataError(
                f"{where} lacks {lost[0].relative_to(where)}: unpack the public zip again or "
                f"{REMEDY}."
            )
        folders = [path for path in (where / "train").glob("*/images") if path.is_dir()]
        marks = stamps([*needed, *folders], where)
        return Source("folder", where, marks, data.size, fit=data.fit)
    archive = root / f"{NAME}.zip"
    if archive.is_file():
        return Source("archive", archive, stamps([archive], root), data.size, fit=data.fit)
    raise missing("Tiny-ImageNet", "tiny_imagenet", root, NAME)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files of the set by their names inside it, in a folder or in a zip that is never
    unpacked.
    """

    names: tuple[str, ...]
    read: Callable[[str], bytes]

    def lines(self, name: str) -> list[str]:
        return self.read(name).decode("utf-8", errors="replace").splitlines()


def decode(source: Source) -> Decoded:
    """Read training images by class, validation images by their annotations; labels follow
    ``wnids.txt``.
    """
    if source.kind == "folder":
        names = _listing(source.where)
        return _decode(
            source, _Tree(names, lambda name: read_file(source.where / name, LARGEST, REMEDY))
        )
    import zipfile

    with (
        parsing(f"{source.where} is cut short or damaged: {REMEDY}."),
        open_file(source.where) as file,
        zipfile.ZipFile(file) as archive,
    ):
        inside = {
            entry.filename.removeprefix(f"{NAME}/"): entry.filename
            for entry in archive.infolist()
            if not entry.is_dir() and entry.file_size <= LARGEST
        }
        return _decode(source, _Tree(tuple(inside), lambda name: archive.read(inside[name])))


def count(source: Source) -> int | None:
    """Count the images of the unpacked folder without reading them."""
    return len(_listing(source.where)) - 2 if source.kind == "folder" else None


def _listing(where: Path) -> tuple[str, ...]:
    folders = [*(where / "train").glob("*/images"), where / "val" / "images"]
    images = [path.relative_to(where).as_posix() for folder in folders for path in folder.iterdir()]
    return "wnids.txt", "val/val_annotations.txt", *images


def _decode(source: Source, tree: _Tree) -> Decoded:
    held = set(tree.names)
    lost = [name for name in ("wnids.txt", "val/val_annotations.txt") if name not in held]
    if lost:
        raise DataError(f"{source.where} lacks {lost[0]}: {REMEDY}.")
    classes = tuple(line.strip() for line in tree.lines("wnids.txt") if line.strip())
    label = {wnid: index for index, wnid in enumerate(classes)}
    train = _training(tree.names, label)
    test = [
        (f"val/images/{f[0]}", label.get(f[1], -1))
        for f in _fields(tree.lines("val/val_annotations.txt"))
    ]
    absent = [name for name, _ in test if name not in held]
    absent += [
        f"train/{wnid}/images" for wnid in set(classes) - {classes[index] for _, index in train}
    ]
    if absent or any(index < 0 for _, index in test):
        first = (
            f"{len(absent)} of the files it lists, such as {sorted(absent)[0]}"
            if absent
            else "classes it lists"
        )
        raise DataError(f"{source.where} lacks {first}: {REMEDY}.")
    decoded = Decoded(*_stack(train, tree, source), *_stack(test, tree, source), classes)
    fewer = subset_note(decoded, 200, 500, 50)
    return replace(
        decoded, notes=("tests on the 50-a-class validation split", *([fewer] if fewer else []))
    )


def _stack(part: list[tuple[str, int]], tree: _Tree, source: Source) -> tuple[Pixels, Labels]:
    names = [name for name, _ in part]
    x = pixels.stack_all(
        names,
        lambda name: io.BytesIO(tree.read(name)),
        source.size,
        "Tiny-ImageNet",
        source.fit,
    )
    return x, np.array([index for _, index in part], dtype=np.int64)


def _training(names: tuple[str, ...], label: dict[str, int]) -> list[tuple[str, int]]:
    """List training images in the order of labels, then of names."""
    images = []
    for name in names:
        match name.split("/"):
            case ["train", wnid, "images", file] if wnid in label and not file.startswith("."):
                images.append((label[wnid], name))
    return [(name, index) for index, name in sorted(images)]


def _fields(lines: list[str]) -> list[list[str]]:
    """Split annotation lines (file, class, box) and keep those with a class."""
    return [fields for fields in (line.split("\t") for line in lines) if len(fields) > 1]
