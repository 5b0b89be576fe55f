"""What a result depends on beside its configuration: versions, the commit and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dualmix.config.fields import RESULTS_VERSION
from dualmix.engine.library import available
from dualmix.plugins import Code


def facts(code: Code | None = None) -> dict[str, Any]:
    """Return what is needed to get a result again: versions, commit, host and the instructions that
    torch uses there.

    Other instructions round otherwise, and after enough steps other scores come of it.
    """
    import torch

    packages = ("dualmix", "torch", "numpy", "pillow", "safetensors", "scikit-learn")
    return {
        "results_version": RESULTS_VERSION,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        **({"plugin": code.record()} if code and code.identity() else {}),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "processor": _processor(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "native_engine": available(),
            "cores": os.cpu_count(),
        },
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    """Ask git about the package's own source, where it is a checkout."""
    source = Path(__file__).parents[1]
    if not (source.parent.parent / ".git").exists():
        return None
    try:
        answer = subprocess.run(  # noqa: S603
            ["git", "-C", str(source), *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
