"""A place that fsspec reaches: its files listed, read, written and removed, and every fault one
sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

from dualmix.errors import ConfigError, StoreError
from dualmix.store.names import plain

VERSION = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
"""What drivers call the fields that are others once a file is."""
TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a listing: a mark that changes with it, its size and when it was written, where the
    driver tells.
    """

    mark: str
    size: int | None
    written: float | None


class Location:
    """A folder at an address such as ``s3://bucket/runs``.

    Parameters
    ----------
    url
        Any address that fsspec has a driver for; options of the driver come from fsspec's own
        configuration.

    Raises
    ------
    ConfigError
        The protocol is unknown or its driver is not installed.
    """

    def __init__(self, url: str) -> None:
        self.protocol = url.partition("://")[0].partition("::")[0]
        self.name = re.sub(r"(?<=://)[^/]*@", "", url.rstrip("/"))
        self.fs, self.base = self._opened(url)
        local = "file" in ((kind,) if isinstance(kind := self.fs.protocol, str) else kind)
        self.url = self.fs.unstrip_protocol(self.base) if local else url.rstrip("/")
        self.turn = nullcontext() if self.fs.async_impl else Lock()

    def __str__(self) -> str:
        return self.name

    @property
    def shared(self) -> bool:
        """Whether other processes see it."""
        return self.protocol != "memory"

    def _opened(self, url: str) -> tuple[Any, str]:
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations, registry

        if self.protocol not in registry and self.protocol not in known_implementations:
            from dualmix.registry import nearest

            meant = nearest(self.protocol, known_implementations)
            raise ConfigError(f"{self}: fsspec knows no protocol {self.protocol!r}{meant or '.'}")
        if not url.partition("://")[2]:
            raise ConfigError(f"{url} names no folder: write it behind the slashes.")
        try:
            fs, path = url_to_fs(url)
        except ImportError as fault:
            driver = known_implementations[self.protocol]["class"].partition(".")[0]
            package = getattr(fault.__cause__, "name", None) if driver == "fsspec" else driver
            raise ConfigError(
                f"{self} needs the package {package}: pip install {package} "
                f"({fault.__cause__ or fault})."
            ) from fault
        except Exception as fault:
            raise StoreError(
                f"{self} cannot be opened ({_reason(fault)}): see that the address is right."
            ) from fault
        return fs, path.rstrip("/")

    def listing(self, folder: str = "") -> dict[str, Found]:
        """Return every file in a folder, however deep, by its path from there; none where there is
        no folder.

        Hidden ones are left out, and names that could lead elsewhere when they are written here.
        """
        top = self._path(folder) if folder else self.base
        with self._reaching("read"):
            self.fs.invalidate_cache()
            try:
                infos: Mapping[str, Mapping[str, Any]] = self.fs.find(
                    top, detail=True, **_strict(self.fs)
                )
                if not infos:
                    self.fs.ls(top)
            except FileNotFoundError:
                return {}
        start = f"{top}/"
        return {
            path[len(start) :]: _found(info)
            for path, info in infos.items()
            if path.startswith(start)
            and info.get("type") != "directory"
            and plain(*path[len(start) :].split("/"))
        }

    def folders(self) -> list[str]:
        """Return the names of the folders right below."""
        with self._reaching("read"):
            self.fs.invalidate_cache()
            try:
                return [
                    str(path).rstrip("/").rpartition("/")[2]
                    for path in self.fs.ls(self.base, detail=False)
                ]
            except FileNotFoundError:
                return []

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of files by name, at once where the driver can, without those that are
        not there.
        """
        if not names:
            return {}
        paths = {self._path(name): name for name in names}
        with self._reaching("read"):
            replies = self.fs.cat(list(paths), on_error="return")
            contents = {}
            for path, content in replies.items():
                if isinstance(content, bytes):
                    contents[paths[path]] = content
                elif not isinstance(content, FileNotFoundError):
                    raise content
        return contents

    def write(self, name: str, content: bytes) -> None:
        """Write a file; whoever reads it meanwhile may find half of it where the driver does not
        write at once.
        """
        path = self._path(name)
        with self._reaching("written"):
            try:
                self.fs.pipe_file(path, content)
            except FileNotFoundError:
                self._make(path.rpartition("/")[0])
                self.fs.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._reaching("written"), suppress(FileNotFoundError):
            self.fs.rm_file(self._path(name))

    def _make(self, folder: str) -> None:
        """Make a folder and those above it, but for the first: a bucket that is not there is a
        mistake.
        """
        first = re.match(r"/?[^/]+", folder)
        if first is None or not self.fs.exists(first[0]):
            raise FileNotFoundError(f"there is no {first[0] if first else folder}")
        self.fs.makedirs(folder, exist_ok=True)

    def _path(self, name: str) -> str:
        return f"{self.base}/{name}"

    @contextmanager
    def _reaching(self, done: str) -> Iterator[None]:
        """Make one sentence of whatever a driver raises: each has exceptions of its own."""
        try:
            with self.turn:
                yield
        except Exception as fault:
            raise StoreError(
                f"{self} cannot be {done} ({_reason(fault)}): once the address is right and "
                "open to you from here, give the same command again; what a run has done is kept "
                "on this machine, and it goes on from there."
            ) from fault


def _strict(fs: Any) -> dict[str, Any]:
    """Return what makes fsspec's own walk raise what goes wrong: by itself it leaves out what it
    cannot list.
    """
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own, generic = (
        (type(fs)._find, AsyncFileSystem._find)
        if fs.async_impl
        else (type(fs).find, AbstractFileSystem.find)
    )
    return {"on_error": _unless_gone} if own is generic else {}


def _unless_gone(fault: Exception) -> None:
    if not isinstance(fault, FileNotFoundError):
        raise fault


def _reason(fault: Exception) -> str:
    text = " ".join(str(fault).split())
    match fault:
        case PermissionError():
            return f"no permission: {text}"
        case FileNotFoundError():
            return f"not found: {text}"
        case _:
            return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def _found(info: Mapping[str, Any]) -> Found:
    marks = [f"{name}={info[name]}" for name in VERSION if info.get(name) is not None]
    when = next(
        (info[name] for name in TIMES if isinstance(info.get(name), int | float | datetime)), None
    )
    size = info.get("size")
    return Found(
        " ".join([*marks, f"size={size}"]),
        size if isinstance(size, int) else None,
        when.timestamp() if isinstance(when, datetime) else when,
    )
