"""Names of folders and files that came from elsewhere: what may be one here, and what may not."""

from __future__ import annotations

import unicodedata
from hashlib import sha256

from dualmix.errors import StoreError

LONGEST = 180
"""Bytes of a run's name: with what the store appends it stays below the 255 that disks allow."""
UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Kinds of characters that a terminal obeys or does not show, and halves of characters."""


def plain(*names: str) -> bool:
    """Whether names may be names of files here, and are not hidden."""
    return all(
        name
        and not name.startswith(".")
        and not set(name) & set("/\\")
        and not any(unicodedata.category(letter) in UNSEEN for letter in name)
        for name in names
    )


def folder_name(name: str, key: str) -> str:
    """Return the name of a run's folder: what it is called, then the start of its key.

    A name that is too long is cut, and a digest of the whole keeps it apart from its like.

    Raises
    ------
    StoreError
        The name could lead out of the store or upset a terminal.

    Examples
    --------
    >>> folder_name("er-digits-s0", "0123456789abcdef")
    'er-digits-s0-0123456789ab'
    """
    if not plain(name) or name.startswith("-"):
        raise StoreError(
            f"{name!r} cannot name a run's folder: a label is not empty and has no slashes, no "
            "control characters, and neither dot nor dash in front."
        )
    if len(name.encode()) > LONGEST:
        kept = name.encode()[: LONGEST - 9].decode(errors="ignore")
        name = f"{kept}~{sha256(name.encode()).hexdigest()[:8]}"
    return f"{name}-{key[:12]}"
