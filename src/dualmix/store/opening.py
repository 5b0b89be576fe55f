"""Which kind of store a place is."""

from __future__ import annotations

from pathlib import Path

from dualmix.errors import ConfigError
from dualmix.store.archive import open_folder
from dualmix.store.store import Store


def open_store(location: Path | str, run: Path | None = None) -> Store:
    """Return the store in a folder or an archive, or at an address that fsspec reaches.

    Parameters
    ----------
    run
        One run's folder on this machine, as `Store` takes it.
    """
    if not isinstance(location, str | Path):
        raise ConfigError(f"A store is a folder or an address, not {location!r:.80}.")
    if not str(location):
        raise ConfigError("The store has no name: give a folder or an address with --store.")
    if "://" not in str(location):
        return open_folder(location, run)
    from dualmix.store.mirror import Mirror

    mirror = Mirror(str(location))
    return Store(mirror.root, run, mirror)
