"""Cache: every data set is decoded once and then memory-mapped by all processes that use it.

A decoded set is a folder ``<root>/.decoded/<name>-<signature>/`` of ``.npy`` files and a
``meta.json``. It is written under a temporary name, synced and renamed, so what carries the final
name is complete."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualmix.data.images import Decoded, Images, check, fingerprint
from dualmix.data.source import Source
from dualmix.errors import ConfigError, DataError
from dualmix.folders import cache_folder

FORMAT = 1
PARTS = ("train_x", "train_y", "test_x", "test_y")
FOLDER = ".decoded"


def platform_folder() -> Path:
    """Give the folder that the platform reserves for cached data of this program."""
    return cache_folder() / "data"


def places(root: Path) -> list[Path]:
    """List where decoded sets may lie: beside the data, else in the platform's cache folder."""
    beside = [root / FOLDER] if root.is_dir() else []
    try:
        fallback = platform_folder() / FOLDER
    except ConfigError:
        if not beside:
            raise
        return beside
    return [*beside, *(p for p in [fallback] if p not in beside)]


def load(
    name: str,
    source: Source,
    root: Path,
    decode: Callable[[Source], Decoded],
    version: int = FORMAT,
) -> Images:
    """Open the decoded set, decoding it first if that was not done yet.

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
    for place in places(root):
        images = opened(place / stem)
        if images is not None:
            return images
    for place in places(root):
        if _writable(place):
            return _fill(place, stem, name, source, decode)
    raise DataError(
        f"The decoded copy of {name} cannot be written to {' or '.join(str(p) for p in places(root))}: "
        "point --data.root or DUALMIX_DATA to a folder that can be written."
    )


def opened(folder: Path) -> Images | None:
    """Memory-map a decoded set, or give None where it is missing, incomplete or damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            return None
        for file, size in meta["files"].items():
            if (folder / file).stat().st_size != size:
                return None
        arrays = {part: _mapped(folder / f"{part}.npy") for part in PARTS}
        return Images(
            name=meta["name"],
            classes=tuple(meta["classes"]),
            fingerprint=meta["fingerprint"],
            notes=tuple(meta["notes"]),
            **arrays,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        return None


def _mapped(file: Path) -> Any:
    return np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _fill(
    place: Path, stem: str, name: str, source: Source, decode: Callable[[Source], Decoded]
) -> Images:
    from filelock import FileLock

    with FileLock(place / f".{stem}.lock"):
        images = opened(place / stem)
        if images is not None:
            return images
        for left in place.glob(f".{stem}-*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        decoded = decode(source)
        check(decoded, name)
        work = Path(tempfile.mkdtemp(prefix=f".{stem}-", suffix=".tmp", dir=place))
        try:
            _write(work, name, source, decoded)
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
    images = opened(place / stem)
    if images is None:
        raise DataError(
            f"The decoded copy of {name} in {place} vanished or changed while it was opened: try again."
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
        "notes": list(decoded.notes),
        "fingerprint": fingerprint(decoded),
        "files": {file.name: file.stat().st_size for file in sorted(work.iterdir())},
    }
    with (work / "meta.json").open("wb") as stream:
        stream.write(json.dumps(meta, indent=1).encode())
        _sync(stream)
    _sync_folder(work)


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
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            same = meta["where"] == str(source.where) and meta["options"] == source.options()
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if same:
            shutil.rmtree(folder, ignore_errors=True)
            (place / f".{folder.name}.lock").unlink(missing_ok=True)
