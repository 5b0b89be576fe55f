"""Numbers as a person reads them."""

from __future__ import annotations

import math


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash where it is undefined.

    Examples
    --------
    >>> percent(0.1234), percent(None)
    ('12.3 %', '-')
    """
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss or m:ss.

    Examples
    --------
    >>> clock(61), clock(3600)
    ('1:01', '1:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
