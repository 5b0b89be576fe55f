"""Names of augmentations, known without loading torch."""

from __future__ import annotations

NAMES = ("standard", "identity", "flip", "jitter", "grey", "crop")


def check_name(name: str) -> None:
    """Raise ValueError unless a name is one of `NAMES`, or crop-S with a strength S as in crop-0.8."""
    if name.startswith("crop-"):
        crop_range(name.removeprefix("crop-"))
    elif name not in NAMES:
        raise ValueError(
            f"there is no augmentation {name!r}: choose {', '.join(NAMES)} or crop-S, e.g. crop-0.8"
        )


def crop_range(strength: float | str) -> tuple[float, float]:
    """Return the range [a, b] of a crop's scale whose strength (1 - a) + (1 - b) is given.

    Up to 0.8 the range is [1 - strength, 1]; beyond it a stays 0.2 and b falls, so that 1.3 is
    [0.2, 0.5].

    Examples
    --------
    >>> crop_range(1.3)
    (0.2, 0.5)
    """
    try:
        wanted = float(strength)
    except ValueError:
        wanted = 0.0
    if not 0 < wanted < 1.6:
        raise ValueError(f"the strength of a crop is a number between 0 and 1.6, not {strength}")
    return (round(1 - wanted, 12), 1.0) if wanted <= 0.8 else (0.2, round(1.8 - wanted, 12))
