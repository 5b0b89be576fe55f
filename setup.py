"""Builds the native engine: one library for each instruction set, all from the same source.

A library that cannot be built (no compiler, another machine) is left out, and the install succeeds
without it."""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = [
    "-std=gnu11",
    "-O2",
    "-g0",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wno-psabi",
]
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"]
BUILDS = {"portable": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    BUILDS |= {"avx2": ["-mavx2", "-mfma"], "avx512": [*AVX512, "-mavx2", "-mfma"]}


class Build(build_ext):
    """Plain shared libraries, which ctypes opens: no Python symbol in them, no Python version in
    their name.
    """

    def get_ext_filename(self, name: str) -> str:
        """Return where a library goes."""
        return str(Path(*name.split(".")).with_suffix(".so"))

    def get_export_symbols(self, extension: Extension) -> list[str]:
        """Name no symbols: the source marks its own."""
        return []

    def build_extension(self, extension: Extension) -> None:
        """Build one library with object files of its own, for all have the same source."""
        shared, self.build_temp = self.build_temp, str(Path(self.build_temp) / extension.name)
        try:
            super().build_extension(extension)
        finally:
            self.build_temp = shared


HERE = "src/dualmix/engine"
setup(
    ext_modules=[
        Extension(
            f"dualmix.engine._{name}",
            [f"{HERE}/engine.c"],
            depends=[str(path) for path in Path(HERE).glob("*.h")],
            extra_compile_args=[*FLAGS, *flags],
            libraries=["m"],
            optional=True,
        )
        for name, flags in BUILDS.items()
    ],
    cmdclass={"build_ext": Build},
)
