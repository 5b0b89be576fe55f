"""The transforms of Winograd's F(4, 3) are what they say, and every changed sign or constant in
them is noticed.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.engine.building import HERE, SOURCES, compiled, needs_compiler, needs_engine

pytestmark = [needs_compiler, needs_engine]


def wrong(library: ctypes.CDLL) -> list[str]:
    """Return what does not hold for the transforms of a build."""
    rng = np.random.default_rng(0)

    def apply(name: str, values: np.ndarray, outputs: int) -> np.ndarray:
        source, target = values.astype(np.float32), np.zeros(outputs, np.float32)
        pointer = ctypes.POINTER(ctypes.c_float)
        getattr(library, f"probe_{name}")(
            source.ctypes.data_as(pointer), target.ctypes.data_as(pointer)
        )
        return target.astype(float)

    def matrix(name: str, inputs: int, outputs: int) -> np.ndarray:
        return np.stack([apply(name, unit, outputs) for unit in np.eye(inputs)], 1)

    enter, leave, taps = matrix("enter", 6, 6), matrix("leave", 6, 4), matrix("taps", 3, 6)
    d, g = rng.normal(size=6), rng.normal(size=3)
    held = {
        "the filter": np.allclose(
            leave @ ((taps @ g) * (enter @ d)), np.correlate(d, g, "valid"), atol=1e-5
        ),
        "back": np.allclose(matrix("back", 4, 6), leave.T, atol=1e-6),
        "taps_back": np.allclose(matrix("taps_back", 6, 3), taps.T, atol=1e-6),
        "spaced_in": np.allclose(matrix("spaced_in", 3, 6), enter[:, 1::2], atol=1e-6),
        "spaced_back": np.allclose(matrix("spaced_back", 2, 6), leave[::2].T, atol=1e-6),
    }
    return [name for name, holds in held.items() if not holds]


def mutants() -> list[str]:
    """Return the header with one sign or constant changed, once for every place."""
    header = (SOURCES / "winograd.h").read_text()
    start = header.index("INLINE void enter(")
    code = header[start:]
    made = []
    places = (
        r"scaled\((-?)\(?|(?<=[\w\])]) ([+-]) (?=[\w(])|= -(?=v)|"
        r"\b(A[123]|B[123]|G[AB0]|AABB|AAPBB)\b"
    )
    for match in re.finditer(places, code):
        old = match[0]
        if old.startswith("scaled("):
            new = old.replace("(-", "(", 1) if match[1] else old.replace("(", "(-", 1)
        elif match[2]:
            new = {" + ": " - ", " - ": " + "}[old]
        elif old == "= -":
            new = "= "
        else:
            new = f"(1.25 * {old})" if old.startswith("G") else f"(1.25f * {old})"
        made.append(header[:start] + code[: match.start()] + new + code[match.end() :])
    return made


def test_transforms(tmp_path: Path) -> None:
    assert wrong(compiled(HERE / "winograd.c", tmp_path)) == []


def caught(header: str, folder: Path, number: int) -> bool:
    folder = folder / str(number)
    folder.mkdir()
    (folder / "winograd.h").write_text(header)
    (folder / "lanes.h").write_text((SOURCES / "lanes.h").read_text())
    return bool(wrong(compiled(HERE / "winograd.c", folder, headers=folder)))


def test_changed_signs_are_noticed(tmp_path: Path) -> None:
    changed = mutants()
    chosen = np.random.default_rng(0).choice(len(changed), 8, replace=False)
    assert all(caught(changed[number], tmp_path, number) for number in chosen)


@pytest.mark.long
def test_every_change_is_noticed(tmp_path: Path) -> None:
    unnoticed = [
        number for number, header in enumerate(mutants()) if not caught(header, tmp_path, number)
    ]
    assert unnoticed == []


def test_points_drop_out_with_stride_2(tmp_path: Path) -> None:
    library = compiled(HERE / "winograd.c", tmp_path)
    pointer = ctypes.POINTER(ctypes.c_float)
    only_infinity, y = np.eye(6, dtype=np.float32)[5], np.zeros(4, np.float32)
    library.probe_leave(only_infinity.ctypes.data_as(pointer), y.ctypes.data_as(pointer))
    assert y[0] == y[2] == 0


def test_emulated_fma_is_rounded_once(tmp_path: Path) -> None:
    source = tmp_path / "fma.c"
    source.write_text(
        '#include "lanes.h"\n'
        "void fma_of(const float *a, const float *b, const float *c, float *out, long n) {\n"
        "    for (long i = 0; i < n; i += W)\n"
        "        store(out + i, fused(load(a + i), load(b + i), load(c + i)));\n}\n"
    )
    portable = compiled(source, tmp_path)
    rng = np.random.default_rng(0)
    count = 1 << 18
    bits = rng.integers(0, 1 << 32, (3, count), dtype=np.uint64).astype(np.uint32)
    a, b, c = bits.view(np.float32).copy()
    half = count // 2  # numbers of few bits, for ties; and sums that all but cancel
    a[half:], b[half:] = rng.integers(1, 1 << 13, half), rng.integers(1, 1 << 13, half)
    c[half:] = -(a[half:] * b[half:]) + rng.integers(-2, 3, half) * np.float32(2.0) ** rng.integers(
        -30, 30, half
    )
    out = np.empty_like(a)
    arrays = [each.ctypes.data_as(ctypes.c_void_p) for each in (a, b, c, out)]
    portable.fma_of(*arrays, ctypes.c_long(count))
    libm = ctypes.CDLL("libm.so.6")
    libm.fmaf.restype, libm.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    some = np.concatenate([np.arange(0, half, 16), np.arange(half, count, 4)])
    true = np.array([libm.fmaf(*map(float, (a[i], b[i], c[i]))) for i in some], np.float32)
    np.testing.assert_array_equal(out[some], true)


@pytest.mark.long
def test_the_engine_compiles_for_avx512(tmp_path: Path) -> None:
    words = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-c",
        "-fPIC",
        "-ffp-contract=off",
    ]
    machine = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"]
    subprocess.run(
        [*words, *machine, str(SOURCES / "engine.c"), "-o", str(tmp_path / "e.o")], check=True
    )
    text = subprocess.run(
        ["objdump", "-d", str(tmp_path / "e.o")], check=True, capture_output=True, text=True
    ).stdout
    assert "vfmadd" in text and "zmm" in text
