"""Arrays: images and labels out of a ``.npz`` file.

The file holds ``x_train``, ``y_train``, ``x_test`` and ``y_test``, or only ``x`` and ``y``, of
which a share of every class is then held out. Images are uint8, or floating-point in [0, 1], and
lie as ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)`` with C = 1 or 3. Labels are whole numbers
or texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data import split
from dualmix.data.images import Decoded, Labels, Pixels
from dualmix.data.pixels import resize
from dualmix.data.source import Source, stamps
from dualmix.errors import DataError
from dualmix.folders import expanded

if TYPE_CHECKING:
    from dualmix.data.config import Data

DIVIDED = ("x_train", "y_train", "x_test", "y_test")
WHOLE = ("x", "y")


def find(root: Path, data: Data) -> Source:
    """Take the file and look which of the two sets of names it has."""
    assert data.path is not None
    given = expanded(data.path)
    path = given.resolve() if given.is_file() else (root / given).resolve()
    if not path.is_file():
        raise DataError(f"There is no file {given}: point --data.path to a .npz file.")
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        raise DataError(
            f"{path} is not a .npz file or is damaged: write it with numpy.savez."
        ) from None
    marks = stamps([path], path.parent)
    if names.issuperset(DIVIDED):
        return Source("train and test", path, marks, data.size)
    if names.issuperset(WHOLE):
        return Source("one set", path, marks, data.size, data.held_out, data.split_seed)
    holds = ", ".join(sorted(names)) or "nothing"
    raise DataError(f"{path} must hold {', '.join(DIVIDED)}, or x and y, but holds {holds}.")


def decode(source: Source) -> Decoded:
    """Check every array, bring images to uint8 ``(n, H, W, C)`` and number the classes in sorted
    order.
    """
    divided = source.held_out is None
    held = _arrays(source.where, DIVIDED if divided else WHOLE)
    names = [("x_train", "y_train"), ("x_test", "y_test")] if divided else [("x", "y")]
    images, labels = [], []
    for x_name, y_name in names:
        x, y = held[x_name], held[y_name]
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1 or len(y) != len(x):
            raise DataError(
                f"{source.where}: {y_name} must hold one label for each of the {len(x)} images in {x_name}."
            )
        images.append(resize(_pixels(x, f"{source.where}: {x_name}"), source.size))
        labels.append(_plain(y, f"{source.where}: {y_name}"))
    known = np.unique(labels[0])
    if divided and (odd := np.setdiff1d(labels[1], known)).size:
        raise DataError(
            f"{source.where}: y_test has classes that y_train lacks, such as {odd[0]}: remove them."
        )
    numbers: list[Labels] = [np.searchsorted(known, y).astype(np.int64) for y in labels]
    classes = tuple(str(name) for name in known)
    if divided:
        return Decoded(images[0], numbers[0], images[1], numbers[1], classes)
    assert source.held_out is not None and source.seed is not None
    x, y = images[0], numbers[0]
    test = split.draw(y, split.share(source.held_out), source.seed)
    note = split.note(source.held_out, source.seed)
    return Decoded(x[~test], y[~test], x[test], y[test], classes, (note,), np.flatnonzero(test))


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except ValueError as fault:
        if "allow_pickle" in str(fault):
            raise DataError(
                f"{path} holds Python objects, which are never loaded because they can run code: "
                "save plain arrays of numbers or texts."
            ) from None
        raise DataError(f"{path} is damaged: write it again with numpy.savez.") from None
    except (OSError, zipfile.BadZipFile, EOFError, KeyError, SyntaxError, MemoryError):
        raise DataError(
            f"{path} is damaged or too large: write it again with numpy.savez."
        ) from None


def _pixels(x: NDArray[Any], name: str) -> Pixels:
    x = _channels_last(x, name)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind != "f":
        raise DataError(f"{name} is {x.dtype}: give uint8 in 0..255, or floating-point in [0, 1].")
    if x.size and not np.isfinite(x).all():
        raise DataError(
            f"{name} holds values that are not numbers (NaN or infinite): remove those images."
        )
    if x.size and (x.min() < 0 or x.max() > 1):
        raise DataError(
            f"{name} lies in [{x.min():g}, {x.max():g}]: floating-point images must lie in [0, 1]."
        )
    return np.rint(x.astype(np.float64) * 255).astype(np.uint8)


def _channels_last(x: NDArray[Any], name: str) -> NDArray[Any]:
    if x.ndim == 3:
        return x[:, :, :, None]
    if x.ndim != 4:
        raise DataError(
            f"{name} has the shape {x.shape}: images must be (n, H, W), (n, H, W, C) or (n, C, H, W)."
        )
    last, first = x.shape[3] in (1, 3), x.shape[1] in (1, 3)
    if last and not first:
        return x
    if first and not last:
        return x.transpose(0, 2, 3, 1)
    reason = "either end could be the channels" if last else "no axis of 1 or 3 channels is found"
    raise DataError(
        f"{name} has the shape {x.shape}, {reason}: give (n, H, W, C) with C = 1 or 3 and H > 3."
    )


def _plain(y: NDArray[Any], name: str) -> NDArray[Any]:
    if y.dtype.kind == "f":
        if y.size and not (
            np.isfinite(y).all() and (y == np.rint(y)).all() and np.abs(y).max() < 2**53
        ):
            raise DataError(
                f"{name} holds labels that are not whole numbers: give integers or texts."
            )
        return y.astype(np.int64)
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8", "replace")
    if y.dtype.kind not in "biuU":
        raise DataError(f"{name} is {y.dtype}: labels must be integers or texts.")
    return y
