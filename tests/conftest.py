"""Shared by all tests: one torch thread, no deadlines (the machine is shared), a private cache,
real images if any.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "patient"))

SHARED = Path(__file__).parents[2] / "shared" / "data"
WANTED = ("cifar-100-python", "mini_imagenet", "tiny-imagenet-200")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` does not make the thousands of cases of files that are slow as a whole."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text("utf-8") or None


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no later collection of garbage looks through it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage is that of `make quick`: tracing makes a test half as long again."""
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker("no_cover")


@pytest.fixture(scope="session", autouse=True)
def _quiet_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ["DUALMIX_DATA"] = str(_common(tmp_path_factory) / "data")
    os.environ["DUALMIX_CACHE"] = str(_common(tmp_path_factory) / "cache")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test registers is forgotten after it, so that no test depends on what ran before
    it.
    """
    import dualmix.methods  # noqa: F401
    from dualmix import registry
    from dualmix.data import DATASETS

    for known in ("_METHODS", "_PRESETS", "_ADDITIONS"):
        monkeypatch.setattr(registry, known, dict(getattr(registry, known)))
    kept = dict(DATASETS)
    yield
    DATASETS.clear()
    DATASETS.update(kept)


@pytest.fixture(scope="session")
def real_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the real images: DUALMIX_REAL_DATA, else ../shared/data unpacked once
    for all workers.
    """
    given = os.environ.get("DUALMIX_REAL_DATA")
    if given:
        missing = [name for name in WANTED if not (Path(given) / name).is_dir()]
        assert not missing, f"DUALMIX_REAL_DATA is set but lacks {missing}"
        return Path(given)
    if not (SHARED / "unpack.py").is_file():
        pytest.skip(
            "REAL DATA MISSING: set DUALMIX_REAL_DATA to a folder with " + ", ".join(WANTED)
        )
    folder = _common(tmp_path_factory) / "real"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "done").is_file():
            subprocess.run(
                [sys.executable, SHARED / "unpack.py", folder], check=True, capture_output=True
            )
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def shallow() -> Iterator[None]:
    """Train networks of one block: most promises do not depend on the depth, and a step takes a
    fifth of the time.
    """
    from tests.torture.shallow import shallow

    with shallow():
        yield


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the runs of a sweep in this process: a new one needs seconds for torch alone."""
    monkeypatch.setattr("dualmix.sweeps.executors.Process", TrainedHere)


class TrainedHere:
    """A run of a sweep that has ended when it is started."""

    def __init__(self, job: str) -> None:
        from dualmix.sweeps import child

        self.begun, self.stop = False, threading.Event()
        assert child._run(json.loads(job), self) == 0

    def ended(self) -> bool:
        return True

    def last_lines(self) -> str:
        return ""


@pytest.fixture
def dualmix_(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command in this process, in an empty folder and 80 columns; a fault that nobody foresaw
    fails the test.
    """
    from dualmix.cli import main

    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("DUALMIX_STORE", raising=False)
    monkeypatch.setenv("DUALMIX_DEBUG", "1")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    kept = {number: signal.getsignal(number) for number in numbers}

    def command(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    yield command
    for number, handler in kept.items():
        signal.signal(number, handler)


def _common(factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all xdist workers of this test run."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
