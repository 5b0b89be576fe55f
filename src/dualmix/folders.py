"""Folders of the user who runs a program."""

from __future__ import annotations

from pathlib import Path

from dualmix.errors import ConfigError


def cache_folder() -> Path:
    """Return the folder that the platform reserves for what this program can make again.

    Raises
    ------
    ConfigError
        The user has no home folder, as in a container that names no user.
    """
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("dualmix", appauthor=False)
    except RuntimeError:  # what newer platformdirs do; older ones return a path that begins with ~
        folder = Path("~")
    if not folder.is_absolute():
        raise ConfigError(
            "This user has no home folder: set HOME, or set DUALMIX_DATA and DUALMIX_CACHE to "
            "folders for data and for copies."
        )
    return folder
