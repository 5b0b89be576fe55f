"""Runs killed with -9 at any moment and begun again until done: the bytes of one never killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import dualmix
from tests.torture.calls import methods, pixels, tiny
from tests.torture.jail import Kind, Outcome, WrongError, digest, judged
from tests.torture.line import RESULTS, call, checked, run_words
from tests.torture.shallow import shallow

KILLS = 5
PROBES = ("--probes.on", "true", "--probes.draws", "2", "--probes.rows", "4", "--probes.past", "9")


def filed(store: Path) -> dict[str, str]:
    """Return digests of all results of a store; demand that no litter is there."""
    if litter := [path.name for path in store.rglob("*.part")]:
        raise WrongError(f"a killed run left {litter}")
    files = (path for path in store.rglob("*") if path.name in RESULTS)
    return {f"{p.parent.name}/{p.name}": digest(p.read_bytes()) for p in sorted(files)}


def killed(words: list[str], after: float, *, real: bool = False) -> bool:
    """Start a command, kill it after some seconds, and return whether it was still at work."""
    if real:
        child = subprocess.Popen(
            [sys.executable, "-m", "dualmix", *words], stdout=-3, stderr=-3, start_new_session=True
        ).pid
    elif not (child := os.fork()):
        try:
            call(*words)
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Kill one run several times, in one of four lives."""
    lives = (_plain, _plain, _again_fresh, _again_probed, _saving)
    life, method = chance.choice(lives), methods()[index % len(methods())]
    if index % 10:
        with shallow():
            yield from life(chance, method)
    else:
        yield from _plain(chance, method, real=True)


def _whole(words: list[str]) -> tuple[dict[str, str], float]:
    began = time.monotonic()
    checked(*words)
    took = time.monotonic() - began
    found = filed(Path("store"))
    shutil.rmtree("store")
    return found, took


def _counted(
    story: str, kill: Callable[[], object], end: Callable[[], object], kills: int = KILLS
) -> Iterator[Outcome]:
    for _ in range(kills - 1):
        yield judged(story, kill)
    yield judged(story, lambda: (kill(), end()))


def _equal(words: list[str], whole: dict[str, str]) -> None:
    checked(*words)
    got = filed(Path("store"))
    if wrong := sorted(name for name in {*got, *whole} if got.get(name) != whole.get(name)):
        raise WrongError(f"other bytes after kills in {', '.join(n.split('/')[1] for n in wrong)}")


def _plain(chance: Random, method: str, *, real: bool = False) -> Iterator[Outcome]:
    """Kill a run; a real one is a process of its own, from its start on."""
    words = run_words(method)
    whole, took = _whole(words)

    def kill() -> None:
        killed(words, chance.uniform(0, took) + 3 * real, real=real)

    yield from _counted(f"kill -9 `dualmix {' '.join(words)}`", kill, lambda: _equal(words, whole))


def _again_fresh(chance: Random, method: str) -> Iterator[Outcome]:
    words = run_words(method)
    whole, took = _whole(words)
    checked(*words)

    def kill() -> None:
        killed([*words, "--fresh"], chance.choice((0.02, 0.1, took)) * chance.random())

    yield from _counted(
        f"kill -9 `dualmix {' '.join(words)} --fresh`", kill, lambda: _equal(words, whole)
    )


def _again_probed(chance: Random, method: str) -> Iterator[Outcome]:
    words = run_words(method)
    whole, took = _whole([*words, *PROBES])
    checked(*words)

    def kill() -> None:
        killed([*words, *PROBES], chance.choice((0.05, 0.2, took)) * chance.random())

    story = f"run, then kill -9 `dualmix {' '.join([*words, *PROBES])}`"
    yield from _counted(story, kill, lambda: _equal([*words, *PROBES], whole))


def _saving(chance: Random, method: str) -> Iterator[Outcome]:
    learners = [tiny(method, seed=seed) for seed in (0, 1)]
    for learner in learners:
        learner.observe(pixels(3), [0, 1, 2])
    known = {digest(learner.state_dict()) for learner in learners}
    dualmix.save(learners[0], "saved")

    def kill() -> None:
        if not (child := os.fork()):
            while True:
                for learner in learners:
                    dualmix.save(learner, "saved")
        time.sleep(chance.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if digest(dualmix.load("saved").state_dict()) not in known:
            raise WrongError("a killed save left another learner")

    def end() -> None:
        dualmix.save(learners[0], "saved")
        if len(list(Path().iterdir())) > 1:
            raise WrongError("killed saves left .part files for ever")

    yield from _counted(f"kill -9 while tiny({method!r}) is saved", kill, end)


KIND = Kind("kills", "runs and saves killed, over all methods", 500, KILLS, 120, attempt)
