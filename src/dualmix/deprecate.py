"""Names that were renamed and still work for one release."""

from __future__ import annotations

import warnings


def renamed(old: str, new: str, *, gone_in: str) -> None:
    """Warn the user's own line of code that a public name has another one now."""
    warnings.warn(
        f"dualmix.{old} is now dualmix.{new}; the older name goes away in {gone_in}: rename it.",
        DeprecationWarning,
        stacklevel=3,
    )
