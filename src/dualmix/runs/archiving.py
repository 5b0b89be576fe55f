"""Finished runs put into an archive, and taken out again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dualmix.errors import StoreError
from dualmix.runs.reader import Reader
from dualmix.store.archive import FILES, NAME, Archive
from dualmix.store.files import digest, json_bytes, make_folder, write_bytes
from dualmix.store.folder import Folder
from dualmix.store.run_files import SUMS


def archive(folders: Iterable[Folder], to: Path, *, replace: bool = False) -> list[str]:
    """Put finished runs into the archive of a folder, all or none, and return the names of those
    that were not in it.

    The learner and the rows of the stream stay out: they are large, and nothing is shown of them.
    So does the folder in which the data lay, which is nobody's business.

    Parameters
    ----------
    to
        The folder of the archive; it is made if need be. Or the archive itself, a name in ``.zip``.
    replace
        Put a run in place of another that has its name.

    Raises
    ------
    StoreError
        A run is not finished or its files are damaged, or another has its name.
    """
    target = Archive(to if to.suffix == ".zip" else to / NAME)
    reader, new = Reader(), {}
    for folder in folders:
        name = folder.path.name
        if not folder.done:
            raise StoreError(f"{folder} is not finished: only finished runs are archived.")
        try:
            reader.read(folder)
        except StoreError as fault:
            raise StoreError(f"{folder} is not archived: {fault}") from fault
        files = _kept(folder)
        if name in target.runs and target.files(name) != files:
            if not replace:
                raise StoreError(
                    f"{target.path} has another run {name}: give --replace to put this one in its "
                    "place."
                )
            new[name] = files
        elif name not in target.runs:
            new[name] = files
    if new:
        make_folder(target.path.parent)
        target.add(new)
    return sorted(new)


def extract(folders: Iterable[Folder], to: Path) -> list[Path]:
    """Write archived runs as folders, each at once, and return where they are.

    A folder that is there already is left as it is.
    """
    paths = []
    for folder in folders:
        path = to / folder.path.name
        if not path.exists():
            part = path.with_name(f".{path.name}.part")
            make_folder(part)
            for file in (*FILES, SUMS):
                if folder.has(file):
                    write_bytes(part / file, folder.read(file))
            part.rename(path)
        paths.append(path)
    return paths


def _kept(folder: Folder) -> dict[str, bytes]:
    """Return the files of a run that are archived, with their digests."""
    files = {name: folder.read(name) for name in FILES if folder.has(name)}
    saved = folder.read_json("config.json")
    if saved["config"]["data"].get("root") is not None:
        saved["config"]["data"]["root"] = None
        files["config.json"] = json_bytes(saved)
    sums = {name: digest(content) for name, content in files.items()}
    return {**files, SUMS: json_bytes({"files": sums, "before": {}})}
