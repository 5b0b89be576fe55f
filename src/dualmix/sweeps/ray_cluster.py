"""The executor for a Ray cluster: one task per run, with the store in a folder or at an address
that all nodes see.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dualmix.errors import ConfigError, DualmixError, StoreError
from dualmix.runs.extras import extra
from dualmix.store.folder import Folder
from dualmix.store.store import Store
from dualmix.sweeps.executors import Process, describe
from dualmix.sweeps.sweep import ELSEWHERE, POLL, Entry

RECOUNT = 2.0
"""Seconds after which the nodes are counted anew."""
VISIBLE = 60.0
"""Seconds within which all nodes see a file that one wrote: network folders remember what was not
there.
"""


def check(runs: Sequence[Entry], gpus: float) -> None:
    """Raise `ConfigError` where a run is for a GPU that none is set aside for, or the other way
    round.
    """
    devices = {run.composed.config.device for run in runs}
    if gpus and "cpu" in devices:
        raise ConfigError(
            f"--gpus {gpus:g} sets GPUs aside, but runs are for the cpu: add --device cuda, or "
            "leave it out."
        )
    if not gpus and devices - {"cpu"}:
        raise ConfigError("Runs are for a GPU: say how much of one each gets, e.g. --gpus 0.5.")
    if any(":" in device for device in devices):
        raise ConfigError(
            "On Ray a run sees only the GPU that it was given: use --device cuda without a number."
        )


class Ray:
    """Tasks of a Ray cluster; a lost node loses its runs, which `sweep` starts again from their
    snapshots.

    Parameters
    ----------
    address
        The cluster's; none: RAY_ADDRESS, else a cluster that runs on this machine, else this
        machine alone.
    cpus, gpus
        What is set aside for a run; GPUs may be shared by fractions.
    workers
        Runs that are under way or wait for a place in the cluster; none: as many as its nodes hold.
    """

    def __init__(
        self,
        store: Store,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        workers: int | None = None,
        plugins: Sequence[Path] = (),
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray = extra("ray", "ray", "A sweep on Ray")
        self.store, self.plugins, self.workers = store, plugins, workers
        self.needs = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level="error")
        except (ConnectionError, OSError, RuntimeError, ValueError) as fault:
            raise DualmixError(
                f"The Ray cluster {address or ''} does not answer: {fault}."
            ) from fault
        self.task = self.ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(attend)
        self._counted, self._places = time.monotonic(), self._count()
        if not self._places and workers is None:
            self.close()
            raise DualmixError(
                f"No node of the Ray cluster has {_amounts(self.needs)} for a run: give less by "
                "--cpus and --gpus, or --workers N to wait for nodes that are still to come."
            )

    def room(self) -> int:
        """Return what was asked for, else what the nodes that are alive hold."""
        if self.workers is not None:
            return self.workers
        if time.monotonic() > self._counted + RECOUNT:
            self._counted, self._places = time.monotonic(), self._count()
        return self._places

    def _count(self) -> int:
        return places([node["Resources"] for node in self.ray.nodes() if node["Alive"]], self.needs)

    def start(self, entry: Entry) -> RayTask:
        """Submit a task for a run."""
        data = os.environ.get("DUALMIX_DATA")
        job = describe(entry, self.store, self.plugins)
        reference = self.task.remote(job, data and str(Path(data).absolute()))
        return RayTask(self.ray, reference, entry.folder)

    def close(self) -> None:
        """Leave the cluster, and end it where it was begun here."""
        self.ray.shutdown()


class RayTask:
    """One run as a task."""

    def __init__(self, ray: Any, reference: Any, folder: Folder) -> None:
        self.ray, self.reference, self.folder = ray, reference, folder
        self.answer: tuple[int, str] | None = None
        self.until = 0.0

    def ended(self) -> bool:
        """Whether the task is over and what it wrote can be seen from here."""
        if self.answer is None:
            if not self.ray.wait([self.reference], timeout=0)[0]:
                return False
            self.answer = self._outcome()
            self.until = time.monotonic() + VISIBLE
        with suppress(StoreError):
            self.folder.refresh(after=ELSEWHERE)
        return self.answer[0] != 0 or self.folder.done or time.monotonic() > self.until

    def _outcome(self) -> tuple[int, str]:
        """Return its exit code and last lines; -1 where it was lost or cancelled."""
        try:
            code, said = self.ray.get(self.reference)
        except self.ray.exceptions.RayError as fault:
            lines = str(fault).strip().splitlines() or [type(fault).__name__]
            return -1, f"lost: {lines[-1]}"
        if code == 0:
            said = (
                f"ended well, but {self.folder} is not done here: do all nodes see the same store "
                "and the same data?"
            )
        return code, said

    def ask(self) -> None:
        """Ask it to save itself and end."""
        self.ray.cancel(self.reference, force=False)

    def kill(self) -> None:
        """End it at once."""
        self.ray.cancel(self.reference, force=True)

    def last_lines(self) -> str:
        """Return the end of what it said, or how it was lost."""
        assert self.answer is not None
        return self.answer[1]


def attend(job: str, data: str | None) -> tuple[int, str]:
    """Train a run on the node where this task is, and return its exit code and last lines.

    A cancelled task is interrupted in its main thread: instead of an exception anywhere, the run is
    asked to save itself, once.
    """
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    if data is not None:
        os.environ["DUALMIX_DATA"] = data
    try:
        process = Process(job)
        told = False
        while not process.ended():
            if asked and not told:
                told = True
                process.ask()
            time.sleep(POLL)
        return process.popen.returncode, process.last_lines()
    finally:
        signal.signal(signal.SIGINT, before)


def places(nodes: Sequence[Mapping[str, float]], needs: Mapping[str, float]) -> int:
    """Return how many runs fit on nodes, none of them divided between two.

    Examples
    --------
    >>> places([{"CPU": 3, "GPU": 1}, {"CPU": 1}], {"CPU": 1, "GPU": 0.5})
    2
    >>> places([{"CPU": 3}, {"CPU": 3}], {"CPU": 2})
    2
    """
    fits = [
        [int(node.get(name, 0) / amount + 1e-9) for name, amount in needs.items()] for node in nodes
    ]
    return sum(min(each) for each in fits)


def _amounts(needs: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}{'s' * (amount != 1)}" for name, amount in needs.items())
