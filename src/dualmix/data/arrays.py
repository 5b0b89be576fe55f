"""Arrays: images and labels out of a ``.npz`` file.

The file holds ``x_train``, ``y_train``, ``x_test`` and ``y_test``, or only ``x`` and ``y``, of
which a share of every class is then held out. Images are uint8, or floating-point in [0, 1], and
lie as ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)`` with C = 1 or 3. Rows ``(n, d)`` are
vectors: numbers of any range, kept as float32. Labels are whole numbers or texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data import npy, split
from dualmix.data.images import Decoded, Images, Labels, Pixels, Rows, check, fingerprint
from dualmix.data.pixels import first, resize
from dualmix.data.source import Source, check_room, locate, open_file, parsing, stamps
from dualmix.errors import DataError, InputError
from dualmix.learn.inputs import as_array

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

    from dualmix.data.config import Data

DIVIDED = ("x_train", "y_train", "x_test", "y_test")
WHOLE = ("x", "y")


def find(root: Path, data: Data) -> Source:
    """Take the file and look which of the two sets of names it has."""
    assert data.path is not None
    path = locate(data.path, root)
    if not path.is_file():
        raise DataError(f"There is no file {data.path}: point --data.path to a .npz file.")
    with _archive(path) as (_, entries):
        names = set(entries)
    marks = stamps([path], path.parent)
    if names.issuperset(DIVIDED):
        return Source("train and test", path, marks, data.size, fit=data.fit)
    if names.issuperset(WHOLE):
        return Source("one set", path, marks, data.size, data.held_out, data.split_seed, data.fit)
    holds = first(sorted(names)) or "nothing"
    raise DataError(f"{path} must hold {', '.join(DIVIDED)}, or x and y, but holds {holds}.")


def decode(source: Source) -> Decoded:
    """Check every array, bring images to uint8 ``(n, H, W, C)`` and number the classes in sorted
    order.
    """
    divided = source.held_out is None
    return _decoded(source, _arrays(source.where, DIVIDED if divided else WHOLE), divided)


def _decoded(source: Source, held: dict[str, NDArray[Any]], divided: bool) -> Decoded:
    names = [("x_train", "y_train"), ("x_test", "y_test")] if divided else [("x", "y")]
    images, labels = [], []
    for x_name, y_name in names:
        x, y = _rows(held[x_name], f"{source.where}: {x_name}"), held[y_name]
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1 or len(y) != len(x):
            raise DataError(
                f"{source.where}: {y_name} must hold one label for each of the {len(x)} images in "
                f"{x_name}."
            )
        if x.ndim == 2 and source.size is not None:
            raise DataError(f"{source.where}: {x_name} holds vectors: leave out --data.size.")
        images.append(resize(x, source.size, source.fit))
        labels.append(_plain(y, f"{source.where}: {y_name}"))
    if divided and labels[0].dtype.kind != labels[1].dtype.kind:
        raise DataError(
            f"{source.where}: y_train holds {labels[0].dtype} and y_test {labels[1].dtype}: give "
            "labels of one kind."
        )
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


IN_MEMORY = Path("(in memory)")


def from_arrays(
    x: NDArray[Any],
    y: Any,
    x_test: NDArray[Any] | None = None,
    y_test: Any = None,
    *,
    held_out: float = 0.2,
    seed: int = 0,
) -> Images:
    """Make a data set of arrays in memory, as `dualmix.train` takes it.

    Parameters
    ----------
    x, y
        Images or vectors, and a whole number or a text for each, as in a ``.npz`` file of
        ``arrays``.
    x_test, y_test
        For testing; none: a share of each class of `x` is held out.
    held_out
        That share.
    seed
        What decides which rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = from_arrays(rng.normal(size=(20, 5)), ["cat", "dog"] * 10)
    >>> images.shape, images.classes, len(images.test_y)
    ((5,), ('cat', 'dog'), 4)
    """
    if (x_test is None) != (y_test is None):
        raise DataError("Give both x_test and y_test, or neither.")
    if not isinstance(held_out, float | np.floating) or not 0 < held_out < 1:
        raise DataError(f"held_out is a share between 0 and 1, not {held_out!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise DataError(f"seed is a whole number from 0 on, not {seed!r}.")
    divided = x_test is not None
    given = dict(zip(DIVIDED, (x, y, x_test, y_test), strict=True)) if divided else {"x": x, "y": y}
    try:
        held = {name: as_array(array, name) for name, array in given.items()}
    except InputError as fault:
        raise DataError(str(fault)) from fault
    source = Source("in memory", IN_MEMORY, (), None)
    if not divided:
        source = replace(source, held_out=held_out, seed=seed)
    made = _decoded(source, held, divided)
    check(made, "arrays")
    parts = {
        name: getattr(made, name).copy() for name in ("train_x", "train_y", "test_x", "test_y")
    }
    for part in parts.values():
        part.flags.writeable = False
    return Images(
        "arrays",
        **parts,
        classes=made.classes,
        fingerprint=fingerprint(made),
        notes=made.notes,
    )


@contextmanager
def _archive(path: Path) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Open the file as the zip archive that it is, with its members by the arrays' names."""
    import zipfile

    with (
        parsing(f"{path} is not a .npz file or is damaged: write it with numpy.savez."),
        open_file(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        members = archive.infolist()
        named = {member.filename.removesuffix(".npy"): member for member in members}
        if len(named) < len(members):
            raise DataError(f"{path} holds two arrays of one name: write it with numpy.savez.")
        yield archive, named


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    import zipfile

    with _archive(path) as (archive, members):
        total = sum(members[name].file_size for name in names)
        check_room(total, str(path))
        arrays = {}
        for name in names:
            member = members[name]
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(
                    f"{path} is packed in a way that numpy never does: write it with numpy.savez."
                )
            try:
                with archive.open(member) as stream:
                    arrays[name] = npy.read(stream, member.file_size)
            except npy.PickledError:
                raise DataError(
                    f"{path} holds Python objects, which are never loaded because they can run "
                    "code: save plain arrays of numbers or texts."
                ) from None
        return arrays


def _rows(x: NDArray[Any], name: str) -> Rows:
    if x.ndim != 2:
        return _pixels(x, name)
    if x.dtype.kind not in "iuf" or x.dtype.itemsize > 8:
        raise DataError(f"{name} is {x.dtype}: vectors must be numbers.")
    with np.errstate(over="ignore"):
        vectors = x.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise DataError(f"{name} holds NaN, infinite or too large numbers: clean these rows.")
    return vectors


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
            f"{name} has the shape {x.shape}: images must be (n, H, W), (n, H, W, C) or "
            "(n, C, H, W), and vectors (n, d)."
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
    if y.dtype.kind in "iu":
        if y.size and y.max() > np.iinfo(np.int64).max:
            raise DataError(f"{name} holds labels beyond 64 bits: give smaller numbers or texts.")
        return y.astype(np.int64)
    if y.dtype.kind not in "bU":
        raise DataError(f"{name} is {y.dtype}: labels must be integers or texts.")
    return y
