"""Sweeps on a Ray cluster: the same bytes as without one, whatever is lost on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dualmix.config.compose import compose
from dualmix.errors import ConfigError, DualmixError
from dualmix.runs.filing import place
from dualmix.runs.run import run
from dualmix.store.opening import open_store
from dualmix.store.store import Store
from dualmix.sweeps.child import recompose
from dualmix.sweeps.executors import Local, describe
from dualmix.sweeps.sweep import Entry, Job, entries, grid, sweep

pytestmark = pytest.mark.slow

TINY = {"model.width": 4, "method.memory": 20, "stream.first": 2, "save_every": 5}
LONGER = {**TINY, "stream.epochs": 4, "save_every": 10}
"""Long enough to be seen alive, however late the sweep looks."""
RESULTS = ("learner.safetensors", "confusion.npz", "scores.json")


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Return a real cluster of two nodes with room for one run each."""
    pytest.importorskip(
        "ray", reason="RAY MISSING: pip install 'dualmix[ray]' to test sweeps on a cluster"
    )
    from ray.cluster_utils import Cluster

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    small = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=small)
    made.add_node(num_cpus=1, object_store_memory=80_000_000)
    yield made
    made.shutdown()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def lose(cluster: Any, node: Any, lost: list[str]) -> Callable[[Sequence[Entry]], None]:
    """Return a watcher that takes a node and its run away, as soon as that has a snapshot."""
    raylet = node.all_processes["raylet"][0].process.pid

    def watch(runs: Sequence[Entry]) -> None:
        for entry in runs:
            holder, snapshots = (
                entry.folder.path / "holder.json",
                list(entry.folder.path.glob("snapshot-*")),
            )
            if lost or entry.state != "running" or not snapshots or not holder.is_file():
                continue
            try:
                pid = json.loads(holder.read_text())["pid"]
                if parent(worker := parent(pid)) == raylet:
                    for process in (raylet, worker, pid):
                        os.kill(process, signal.SIGKILL)
                    while Path(
                        f"/proc/{pid}"
                    ).exists():  # as long as it dies it holds its run, which is no loss yet
                        time.sleep(0.01)
                    lost.append(entry.folder.path.name)
                    cluster.remove_node(node, allow_graceful=False)
            except (OSError, ValueError):
                continue

    return watch


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_lost_node_repeats_only_its_runs_and_a_stopped_sweep_goes_on_to_the_same_bytes(
    cluster: Any, tmp_path: Path
) -> None:
    from dualmix.sweeps.ray_cluster import Ray

    jobs = grid(["er", "er+dualmix"], range(2), values=LONGER)
    store, lost = Store(tmp_path / "swept"), []
    executor = Ray(store, address=cluster.address)
    try:
        assert executor.room() == 2
        runs = entries(jobs, store)
        node = next(iter(cluster.worker_nodes))
        sweep(runs, executor, watch=lose(cluster, node, lost))
        assert lost, "no run was seen on the second node: the test is void"
        assert [run.state for run in runs] == ["done"] * 4
        assert {run.folder.path.name: run.tries for run in runs if run.tries} == {lost[0]: 1}
        for entry in runs:
            log = [
                json.loads(line)
                for line in (entry.folder.path / "log.jsonl").read_text().splitlines()
            ]
            begun = [line["step"] for line in log if line["event"] == "begin"]
            if entry.tries:
                assert len(begun) == 2 and begun[1] >= 10 and "lost" in entry.fault
            else:
                assert begun == [0]
            alone = run(entry.composed, Store(tmp_path / "alone"))
            assert results(entry.folder.path) == results(alone.folder.path)

        longer = entries(
            [Job("er", {**TINY, "seed": 7, "stream.epochs": 4, "save_every": 500})], store
        )
        sweep(longer, executor, stop=(longer[0].folder.path / "log.jsonl").is_file)
        assert (longer[0].state, longer[0].tries) == ("stopped", 0)
        assert not longer[0].folder.busy and list(longer[0].folder.path.glob("snapshot-*"))
    finally:
        executor.close()
    saved = max(longer[0].folder.path.glob("snapshot-*")).name
    again = entries([longer[0].job], store)
    sweep(again, Local(store, 1))
    log = [
        json.loads(line) for line in (again[0].folder.path / "log.jsonl").read_text().splitlines()
    ]
    assert again[0].state == "done" and f"{log[1]['step']:09d}" in saved
    alone = run(again[0].composed, Store(tmp_path / "alone"))
    assert results(again[0].folder.path) == results(alone.folder.path)


def test_nodes_that_share_an_address_only_fill_it_with_the_same_bytes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes have another cache than the sweep, so that all it learns comes from the address."""
    from dualmix.sweeps.ray_cluster import Ray

    monkeypatch.setenv("DUALMIX_CACHE", str(tmp_path / "cache"))
    store = open_store(f"file://{tmp_path}/swept")
    executor = Ray(store, address=cluster.address, workers=1)
    killed: list[int] = []

    def kill(runs: Sequence[Entry]) -> None:
        for snapshot in (tmp_path / "swept").glob("*/snapshot-*"):
            if not killed:
                try:
                    pid = json.loads((snapshot.parent / "holder.json").read_text())["pid"]
                    os.kill(pid, signal.SIGKILL)
                except (OSError, ValueError):  # the note is just being replaced
                    return
                killed.append(pid)

    try:
        (entry,) = entries([Job("er", LONGER)], store)
        sweep([entry], executor, watch=kill)
    finally:
        executor.close()
    assert killed, "no run was seen alive: the test is void"
    assert (entry.state, entry.tries) == ("done", 1) and "signal 9" in entry.fault
    log = [json.loads(line) for line in (entry.folder.path / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in log if line["event"] != "task"] == [
        "begin",
        "failed",
        "begin",
        "end",
    ]
    assert not list((tmp_path / "cache").rglob("*.safetensors")), "a sweep fetches no network"
    alone = run(entry.composed, Store(tmp_path / "alone"))
    assert results(tmp_path / "swept" / entry.folder.path.name) == results(alone.folder.path)


def test_the_command_line_sweeps_on_a_cluster(
    cluster: Any, dualmix_: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    values = {"model.width": 4, "stream.first": 1}
    (tmp_path / "grid.json").write_text(json.dumps({"presets": ["finetune"], "values": values}))
    words = ["sweep", tmp_path / "grid.json", "--store", tmp_path / "store", "--on", "ray"]
    code, _, err = dualmix_(*words, "--address", cluster.address, "--gpus", "1", "--device", "cuda")
    assert code == 2 and "No node of the Ray cluster has 1 CPU and 1 GPU for a run" in err
    code, _, err = dualmix_(*words, "--address", cluster.address)
    assert code == 0 and "1 of 1 runs are done." in err
    code, out, _ = dualmix_(*words, "--address", cluster.address, "--dry-run")
    assert code == 0 and "1 run, 1 done, 0 to do: nothing." in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "rey"], "--on: there is no 'rey'; did you mean ray?"),
        (["--gpus", "1"], "--gpus is for --on ray"),
        (["--address", "x"], "--address is for --on ray"),
        (["--on", "ray", "--cpus", "0"], "--cpus must be above 0"),
        (["--on", "ray", "--gpus", "0.5"], "runs are for the cpu: add --device cuda"),
        (["--on", "ray", "--device", "cuda"], "e.g. --gpus 0.5"),
        (
            ["--on", "ray", "--gpus", "1", "--device", "cuda:1"],
            "use --device cuda without a number",
        ),
    ],
)
def test_mistakes_are_explained(
    dualmix_: Callable[..., tuple[int, str, str]], tmp_path: Path, words: list[str], says: str
) -> None:
    (tmp_path / "grid.json").write_text(json.dumps({"presets": ["finetune"]}))
    code, _, err = dualmix_("sweep", tmp_path / "grid.json", "--store", tmp_path / "none", *words)
    assert code == 2 and says in err
    assert not (tmp_path / "none").exists()


def test_places_are_counted_node_by_node() -> None:
    from dualmix.sweeps.ray_cluster import places

    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 3.0, "memory": 1.0}]
    assert places(nodes, {"CPU": 1}) == 11
    assert places(nodes, {"CPU": 2}) == 4 + 1
    assert places(nodes, {"CPU": 1, "GPU": 0.5}) == 4
    assert places(nodes, {"CPU": 3, "GPU": 0.1}) == 2
    assert places([{"CPU": 0.3}], {"CPU": 0.1}) == 3
    assert places([], {"CPU": 1}) == 0


class Answers:
    """What a task needs of Ray, with answers that the test chooses."""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return references, []

    def get(self, reference: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_result_that_is_late_to_be_seen_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dualmix.sweeps import ray_cluster as cluster

    now = [100.0]
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now[0]))
    folder = SimpleNamespace(path=tmp_path / "er-1", done=False, refresh=lambda after: None)
    late = cluster.RayTask(Answers((0, "")), None, folder)
    assert not late.ended()
    now[0] += cluster.VISIBLE - 1
    assert not late.ended()
    folder.done = True
    assert late.ended()
    folder.done = False
    now[0] += 2
    assert late.ended() and "do all nodes see the same store" in late.last_lines()
    failed = cluster.RayTask(Answers((2, "no luck")), None, folder)
    assert failed.ended() and failed.last_lines() == "no luck"
    gone = cluster.RayTask(Answers(Answers.exceptions.RayError("a\nnode died")), None, folder)
    assert gone.ended() and gone.last_lines() == "lost: node died"


def test_devices_must_fit_what_is_set_aside(tmp_path: Path) -> None:
    from dualmix.sweeps.ray_cluster import check

    def runs(*devices: str) -> Any:
        return [SimpleNamespace(composed=compose("er", {"device": device})) for device in devices]

    check(runs("cpu", "cpu"), 0)
    check(runs("cuda"), 0.5)
    for devices, gpus in (
        (("cpu",), 1),
        (("cuda",), 0),
        (("cpu", "cuda"), 0),
        (("cpu", "cuda"), 1),
        (("cuda:0",), 1),
    ):
        with pytest.raises(ConfigError):
            check(runs(*devices), gpus)


def test_a_run_starts_in_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saved.json").write_text(json.dumps(compose("er", {"model.width": 4}).config.record()))
    store = Store("here")
    (entry,) = entries(
        [Job("saved.json", {"data.root": "data", "seed": 3, "order_seed": None})], store
    )
    job = json.loads(describe(entry, store, [Path("plugin.py")]))
    assert job["store"] == str(tmp_path / "here")
    assert job["plugins"] == [str(tmp_path / "plugin.py")]
    assert job["config"]["data"]["root"] == str(tmp_path / "data")
    Path("saved.json").unlink()
    again = recompose(job)
    assert (again.label, dict(again.origins)) == (entry.composed.label, entry.composed.origins)
    assert again.config.seed == 3 and again.config.model.width == 4
    assert place(store, again, "f").key == place(store, entry.composed, "f").key


def test_a_missing_extra_is_one_sentence() -> None:
    from dualmix.runs.extras import extra

    with pytest.raises(
        DualmixError,
        match=r"^This needs the package no_such_thing: pip install 'dualmix\[some\]' \(",
    ):
        extra("no_such_thing.inside", "some", "This")
