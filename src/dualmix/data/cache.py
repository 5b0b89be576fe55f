"""Cache: every data set is decoded once and then memory-mapped by all processes that use it.

A decoded set is a folder ``<root>/.decoded/<name>-<signature>/`` of ``.npy`` files and a
``meta.json``. It is written under a temporary name, synced and renamed, so what carries the final
name is complete.

What is mapped is compared with what was written, whenever a process opens it: ``meta.json``
carries a digest of itself and each file's size, and its fingerprint must be the sha256 of the
mapped pixels, labels, shapes and class names. So a result is filed under the fingerprint of the
very bytes that were learned, and any damage is noticed, be it one bit. A process hashes a copy
once, and again only after its files were touched. A damaged copy is decoded again, with a
`DataWarning`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualmix.data import npy
from dualmix.data.images import Decoded, Images, check, fingerprint
from dualmix.data.source import Source, open_file, read_file
from dualmix.errors import ConfigError, DataError
from dualmix.folders import cache_folder

FORMAT = 2
PARTS = ("train_x", "train_y", "test_x", "test_y")
FOLDER = ".decoded"
LARGEST_META = 2**28
"""Bytes above which a ``meta.json`` is none of ours."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written again is sure to have another time."""

Facts = tuple[tuple[int, ...], ...]
_hashed: dict[Path, Facts] = {}
"""The copies that this process has compared in full, and their files' facts at that time."""


class DataWarning(UserWarning):
    """Something about the data was wrong and has been put right."""


class DamagedError(Exception):
    """A decoded copy is not what was written; the message says in what way."""


def platform_folder() -> Path:
    """Give the folder that the platform reserves for cached data of this program."""
    return cache_folder() / "data"


def places(root: Path) -> list[Path]:
    """List where decoded sets may lie: beside the data, else in the platform's cache folder."""
    beside = [root / FOLDER] if root.is_dir() else []
    try:
        fallback = [platform_folder() / FOLDER]
    except ConfigError:
        if not beside:
            raise
        fallback = []
    return [*beside, *(p for p in fallback if p not in beside)]


def load(
    name: str,
    source: Source,
    root: Path,
    decode: Callable[[Source], Decoded],
    version: int = 1,
) -> Images:
    """Open the decoded set, decoding it first if that was not done yet or the copy is damaged.

    Parameters
    ----------
    name
        The data set's name.
    source
        What was found on disk.
    root
        The data root; the decoded set goes below it if it can be written.
    decode
        Reads the source; called at most once, however many processes ask at the same time.
    version
        The decoder's version; a new one makes old decoded sets void.
    """
    stem = f"{name}-{source.signature(root, version)}"
    damage = []
    for place in places(root):
        try:
            images = opened(place / stem)
        except DamagedError as fault:
            damage.append(f"The decoded copy {place / stem} is damaged ({fault})")
            continue
        if images is not None:
            return images
    for place in places(root):
        if _writable(place):
            images = _fill(place, stem, name, source, decode)
            for sentence in damage:
                warnings.warn(f"{sentence}: {name} was decoded again.", DataWarning, stacklevel=3)
            return images
    raise DataError(
        f"The decoded copy of {name} cannot be written to "
        f"{' or '.join(str(p) for p in places(root))}: "
        "point --data.root or DUALMIX_DATA to a folder that can be written."
    )


def opened(folder: Path) -> Images | None:
    """Memory-map a decoded set and compare it with what was written.

    Returns
    -------
    Images or None
        None where there is no copy, or one of another version of this program.

    Raises
    ------
    DamagedError
        Where the copy is incomplete or any byte of it has changed.
    """
    meta = read_meta(folder)
    if meta is None:
        return None
    try:
        files = [folder / "meta.json", *(folder / file for file in meta["files"])]
        facts = _facts(files)
        sizes = [size for _, _, size, _, _ in facts[1:]]
        if sizes != [size for size, _ in meta["files"].values()]:
            raise DamagedError("a file has another size")
        for file, (_, digest) in meta["files"].items():
            if digest and hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
                raise DamagedError(f"{file} has changed")
        images = Images(
            name=meta["name"],
            classes=tuple(meta["classes"]),
            fingerprint=meta["fingerprint"],
            notes=tuple(meta["notes"]),
            **{part: _mapped(folder / f"{part}.npy") for part in PARTS},
        )
    except (OSError, KeyError, TypeError, AttributeError, ValueError, DataError) as fault:
        raise DamagedError(f"{type(fault).__name__}: {fault}") from fault
    if _hashed.get(folder) != facts:
        if fingerprint(images) != images.fingerprint:
            raise DamagedError("its pixels or labels have changed")
        if time.time_ns() - max(max(each[3:]) for each in facts) > SETTLED:
            _hashed[folder] = facts
    return images


def read_meta(folder: Path) -> dict[str, Any] | None:
    """Read a copy's ``meta.json``; None where there is none, or of another version.

    Raises
    ------
    DamagedError
        Where it is not what was written.
    """
    try:
        raw = read_file(folder / "meta.json", LARGEST_META, "remove it")
    except FileNotFoundError:
        if folder.is_dir():
            raise DamagedError("meta.json is missing") from None
        return None
    except (OSError, DataError) as fault:
        raise DamagedError(str(fault)) from fault
    try:
        meta = json.loads(raw)
        if meta["format"] in range(FORMAT):
            return None
        digest = meta.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedError("meta.json cannot be read") from None
    if digest != _digest(meta):
        raise DamagedError("meta.json has changed")
    return dict(meta)


def _digest(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _facts(files: list[Path]) -> Facts:
    every = [file.stat() for file in files]
    return tuple((f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns, f.st_ctime_ns) for f in every)


def _mapped(file: Path) -> Any:
    try:
        with open_file(file) as stream:
            header = npy.read_header(stream)
            start = stream.tell()
    except Exception as fault:  # numpy's header is Python text, and its reader raises accordingly
        raise DamagedError(f"the header of {file.name} cannot be read") from fault
    if start + header.size != file.stat().st_size:
        raise DamagedError(f"the header of {file.name} has changed")
    mapped = np.memmap(file, header.dtype, "r", start, header.shape, "F" if header.fortran else "C")
    return mapped.view(np.ndarray)


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _usable(folder: Path) -> Images | None:
    try:
        return opened(folder)
    except DamagedError:
        return None


def _fill(
    place: Path, stem: str, name: str, source: Source, decode: Callable[[Source], Decoded]
) -> Images:
    from filelock import FileLock

    with FileLock(place / f".{stem}.lock"):
        images = _usable(place / stem)
        if images is not None:
            return images
        for left in place.glob(f".{stem}-*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        decoded = decode(source)
        check(decoded, name)
        work = Path(tempfile.mkdtemp(prefix=f".{stem}-", suffix=".tmp", dir=place))
        try:
            _write(work, name, source, decoded)
            if (place / stem).is_symlink() or not (place / stem).is_dir():
                (place / stem).unlink(missing_ok=True)
            shutil.rmtree(place / stem, ignore_errors=True)
            work.rename(place / stem)
            _sync_folder(place)
        except OSError as fault:
            reason = (
                "there is no room left"
                if fault.errno == errno.ENOSPC
                else (fault.strerror or str(fault))
            )
            raise DataError(
                f"The decoded copy of {name} cannot be written to {place} ({reason}): "
                "make room, or point --data.root or DUALMIX_DATA elsewhere."
            ) from fault
        finally:
            shutil.rmtree(work, ignore_errors=True)
        _forget_older(place, stem, name, source)
    images = _usable(place / stem)
    if images is None:
        raise DataError(
            f"The decoded copy of {name} in {place} vanished or changed while it was opened: try "
            "again."
        )
    return images


def _write(work: Path, name: str, source: Source, decoded: Decoded) -> None:
    work.chmod(0o755)
    for part in PARTS:
        with (work / f"{part}.npy").open("wb") as stream:
            np.save(stream, getattr(decoded, part), allow_pickle=False)
            _sync(stream)
    if decoded.test_rows is not None:
        with (work / "split.npz").open("wb") as stream:
            np.savez(stream, test_rows=decoded.test_rows, seed=np.int64(source.seed or 0))
            _sync(stream)
    meta = {
        "format": FORMAT,
        "name": name,
        "kind": source.kind,
        "where": str(source.where),
        "options": source.options(),
        "classes": list(decoded.classes),
        "images": [len(decoded.train_x), len(decoded.test_x)],
        "notes": list(decoded.notes),
        "fingerprint": fingerprint(decoded),
        "files": {file.name: _written(file) for file in sorted(work.iterdir())},
    }
    with (work / "meta.json").open("wb") as stream:
        stream.write(json.dumps({**meta, "digest": _digest(meta)}, indent=1).encode())
        _sync(stream)
    _sync_folder(work)


def _written(file: Path) -> tuple[int, str]:
    """Give a file's size, and its sha256 unless the fingerprint covers its content."""
    covered = file.stem in PARTS
    digest = "" if covered else hashlib.sha256(file.read_bytes()).hexdigest()
    return file.stat().st_size, digest


def _sync(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename last; systems that cannot open folders do without."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _forget_older(place: Path, stem: str, name: str, source: Source) -> None:
    """Remove decoded sets of the same source and choices that the new one replaces, if possible."""
    for folder in place.glob(f"{name}-*"):
        if folder.name == stem:
            continue
        try:
            meta = json.loads(read_file(folder / "meta.json", LARGEST_META, "remove it"))
            same = (
                meta["name"] == name
                and meta["where"] == str(source.where)
                and meta["options"] == source.options()
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError, DataError):
            continue
        if same:
            shutil.rmtree(folder, ignore_errors=True)
            (place / f".{folder.name}.lock").unlink(missing_ok=True)
