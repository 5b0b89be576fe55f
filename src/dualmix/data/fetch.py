"""Fetch: published archives by pooch, with a checksum, progress, and going on after a broken
transfer.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dualmix.data.catalog import DATASETS, Download
from dualmix.errors import ConfigError, DataError

CHUNK = 1 << 18
TIMEOUT = (20, 60)
MB = 1_000_000

Show = Callable[[str, int, int], None]
"""Called with the file's name, the bytes that are here and those there will be (0 if unknown)."""


def get(
    name: str,
    root: Path,
    *,
    show: Show = lambda name, done, total: None,
    urls: Sequence[str] | None = None,
) -> Path:
    """Download a data set's published files into the root, unless they are there already.

    Parameters
    ----------
    name
        The data set.
    root
        Where to put the files; the decoders read the archives as they are.
    show
        Is told how far each file is.
    urls
        Other addresses of the same files, in the same order (a mirror); checksums stay the
        published ones.

    Returns
    -------
    Path
        The last file of the set.

    Raises
    ------
    DataError
        One sentence: nothing to download, no network, a broken transfer (call again to go on), a
        wrong checksum, no room.
    """
    if name not in DATASETS:
        raise ConfigError(f"There is no data set {name!r}: choose one of {', '.join(DATASETS)}.")
    dataset = DATASETS[name]
    if not dataset.downloads:
        raise DataError(dataset.obtain.format(root=root))
    addresses = list(urls) if urls is not None else [download.url for download in dataset.downloads]
    if len(addresses) != len(dataset.downloads):
        raise ConfigError(
            f"{name} needs {len(dataset.downloads)} addresses, but {len(addresses)} are given."
        )
    for download, url in zip(dataset.downloads, addresses, strict=True):
        path = _retrieve(download, url, root, name, show)
    return path


def _retrieve(download: Download, url: str, root: Path, name: str, show: Show) -> Path:
    import pooch
    from filelock import FileLock, Timeout

    pooch.get_logger().setLevel("WARNING")
    part = root / f"{download.filename}.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{download.filename}.lock", timeout=0):
            kept = pooch.retrieve(
                url,
                known_hash=download.checksum,
                fname=download.filename,
                path=root,
                downloader=_Resuming(part, show),
            )
    except Timeout:
        raise DataError(
            f"Another process is downloading {download.filename} to {root}: wait for it."
        ) from None
    except ValueError:
        raise DataError(
            f"What {url} gave is not the published {download.filename} (its checksum is not "
            f"{download.checksum}) and was removed: run `dualmix data get {name}` again, or put "
            f"the right file into {root} yourself."
        ) from None
    except OSError as fault:
        reason = (
            "no room is left"
            if fault.errno == errno.ENOSPC
            else (fault.strerror or type(fault).__name__)
        )
        raise DataError(
            f"{download.filename} cannot be written to {root} ({reason}): make room or choose "
            "another --data.root."
        ) from fault
    return Path(kept)


class _Resuming:
    """A downloader for pooch that keeps what has come in ``<file>.part`` and asks only for the
    rest.
    """

    def __init__(self, part: Path, show: Show) -> None:
        self.part = part
        self.show = show

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        """Bring the whole file to the name that pooch gives; pooch then checks it."""
        import requests
        from urllib3.exceptions import HTTPError

        try:
            self.transfer(url, requests)
        except (requests.RequestException, HTTPError) as fault:
            if self.have():
                raise self.broken(url) from fault
            raise DataError(f"{url} cannot be reached: check the network and try again.") from fault
        self.part.replace(output_file)

    def transfer(self, url: str, requests: Any) -> None:
        """Ask for what is lacking and append it, or start again where the server does not offer
        parts.
        """
        start = self.have()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416 and start:
                return self.over_the_end(url, answer, requests)
            if answer.status_code >= 400:
                raise DataError(
                    f"{url} answers {answer.status_code} ({answer.reason}): try later or use "
                    "another address."
                )
            resumed = answer.status_code == 206 and _range_start(answer) == start
            start = start if resumed else 0
            coming = int(answer.headers.get("Content-Length") or 0)
            total = start + coming if coming else 0
            self.check_room(coming)
            with self.part.open("ab" if resumed else "wb") as stream:
                done = start
                while block := answer.raw.read(CHUNK):
                    stream.write(block)
                    done += len(block)
                    self.show(self.part.stem, done, total)
        if total and self.have() != total:
            raise self.broken(url)
        return None

    def over_the_end(self, url: str, answer: Any, requests: Any) -> None:
        """Handle a range that begins at or after the end: the part is complete, or it is of another
        file.
        """
        total = str(answer.headers.get("Content-Range", "")).rpartition("/")[2]
        if total != str(self.have()):
            self.part.unlink()
            self.transfer(url, requests)

    def have(self) -> int:
        """Count the bytes that are here."""
        return self.part.stat().st_size if self.part.is_file() else 0

    def check_room(self, coming: int) -> None:
        """Refuse before the disk is full."""
        if coming > shutil.disk_usage(self.part.parent).free:
            raise OSError(errno.ENOSPC, "no room")

    def broken(self, url: str) -> DataError:
        """Say that calling again goes on."""
        return DataError(
            f"The transfer from {url} broke off: run the same command again, it goes on from "
            f"{self.have() / MB:.1f} MB."
        )


def _range_start(answer: Any) -> int:
    """Read where a partial answer begins; -1 where it does not say."""
    first = str(answer.headers.get("Content-Range", "")).removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdigit() else -1
