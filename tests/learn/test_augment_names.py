"""Names of augmentations and strengths of crops, known without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.learn.augment import NAMES, check_name, crop_range


@pytest.mark.parametrize(
    ("strength", "scale"),
    [
        (0.8, (0.2, 1.0)),
        ("0.8", (0.2, 1.0)),
        (0.3, (0.7, 1.0)),
        (0.5, (0.5, 1.0)),
        (0.81, (0.2, 0.99)),
        (1.0, (0.2, 0.8)),
        (1.3, (0.2, 0.5)),
        ("1.3", (0.2, 0.5)),
        (1.5, (0.2, 0.3)),
    ],
)
def test_ranges_by_hand(strength: float | str, scale: tuple[float, float]) -> None:
    assert crop_range(strength) == scale


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.floats(0.001, 1.599))
def test_a_range_has_the_strength_it_was_made_for(strength: float) -> None:
    low, high = crop_range(strength)
    assert 0.2 <= low < high <= 1
    assert (1 - low) + (1 - high) == pytest.approx(strength, abs=1e-9)
    assert high == 1 or low == 0.2


@pytest.mark.parametrize("strength", [0, -0.5, 1.6, 7, float("nan"), float("inf"), "much", ""])
def test_a_strength_out_of_range_is_refused(strength: float | str) -> None:
    with pytest.raises(ValueError, match=rf"between 0 and 1\.6, not {strength}"):
        crop_range(strength)


@pytest.mark.parametrize("name", [*NAMES, "crop-0.8", "crop-1.3", "crop-1"])
def test_known_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "blur",
            r"no augmentation 'blur': choose standard, identity, flip, jitter, grey, crop, shift, "
            "shift-flip or crop-S",
        ),
        ("Crop", r"no augmentation 'Crop'"),
        ("", r"no augmentation ''"),
        ("crop-", r"between 0 and 1\.6, not "),
        ("crop-big", r"between 0 and 1\.6, not big"),
        ("crop--1", r"between 0 and 1\.6, not -1"),
        ("crop-2", r"between 0 and 1\.6, not 2"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_name(name)


def test_a_wrong_name_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"method\.mix\.augment: there is no augmentation 'blur'"):
        compose("er+da", {"method.mix.augment": "blur"})
    with pytest.raises(ConfigError, match=r"method\.mix\.augment: the strength of a crop"):
        compose("er+da", {"method.mix.augment": "crop-9"})
    assert (
        compose("er+da", {"method.mix.augment": "crop-1.3"}).config.method.mix.augment == "crop-1.3"
    )


def test_names_are_known_without_torch() -> None:
    code = "import sys, dualmix.learn.augment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
