"""The benchmark: ratios by hand, no verdict where the spread is larger than the difference, every
group runs.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import bench, growth, peers
from benchmarks.__main__ import main
from benchmarks.growth import FOOTPRINTS, Footprint
from benchmarks.tables import bench_table
from benchmarks.timing import interleaved, ratio_rows
from dualmix.engine import available
from dualmix.errors import ConfigError, DualmixError
from dualmix.learn.network import Classifier
from dualmix.report.speed import Row

pytestmark = pytest.mark.slow


def test_every_round_makes_all_calls_in_an_order_that_rotates() -> None:
    made: list[str] = []
    ticks = iter(range(1000))
    taken = interleaved(
        {name: lambda name=name: made.append(name) for name in "abc"}, 3, lambda: next(ticks)
    )
    assert "".join(made) == "abc" + "abc" + "bca" + "cab"
    assert taken == {name: [1, 1, 1] for name in "abc"}


def test_ratios_are_taken_round_by_round() -> None:
    taken = {"slow": [2.0, 4.0, 6.0, 8.0, 10.0], "floor": [1.0, 2.0, 3.0, 4.0, 5.0]}
    floor, slow = ratio_rows("g", taken, "floor", {"slow": 2.1})
    assert (floor.name, floor.median, floor.ratio) == ("floor", 3.0, None)
    assert (slow.ratio, slow.low, slow.high) == (2.0, 2.0, 2.0)
    assert slow.spread == pytest.approx((8 - 4) / 2 / 6)
    assert slow.verdict == "met"
    (_, fast) = ratio_rows("g", taken, "slow", {"floor": 2.1}, inverse=True, atleast=True)
    assert (fast.ratio, fast.verdict) == (2.0, "missed")


@pytest.mark.parametrize(
    ("low", "high", "limit", "atleast", "says"),
    [
        (1.0, 1.1, 1.12, False, "met"),
        (1.1, 1.2, 1.12, False, "unclear"),
        (1.2, 1.3, 1.12, False, "missed"),
        (1.5, 1.6, 1.45, True, "met"),
        (1.4, 1.5, 1.45, True, "unclear"),
        (1.3, 1.4, 1.45, True, "missed"),
        (1.3, 1.4, None, True, ""),
    ],
)
def test_verdicts(low: float, high: float, limit: float | None, atleast: bool, says: str) -> None:
    assert Row("g", "n", 1.0, 0.1, (low + high) / 2, low, high, limit, atleast).verdict == says


def test_what_is_not_known_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean step"):
        bench.bench(["stpe"])
    with pytest.raises(ConfigError, match=r"did you mean der\+\+"):
        bench.bench(["step"], methods=["der+"])


def test_every_row_of_the_table_to_beat_has_its_limit() -> None:
    limits = {name: limit for name, (_, _, limit) in bench.STEPS.items() if limit}
    expected = {
        "er": 1.12,
        "er+dualmix": 3.3,
        "er+dualmix, joint": 2.4,
        "agem": 1.2,
        "mir": 2.7,
        "aser": 5.0,
    }
    assert limits == expected | {"gss": 7.5, "scr": 2.4, "scr-100": 10.5, "der++": 1.7}


def test_steps_and_other_groups_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MEMORY", 50)
    found = bench.bench(
        ["step", "augmentation", "filing"], rounds=2, methods=["er", "er+dualmix, joint"]
    )
    steps = {row.name: row for row in found if row.group == "step"}
    assert list(steps) == ["floor", "floor, 50 images", "er", "er+dualmix, joint"]
    assert all(row.median > 0 for row in found)
    joint = steps["er+dualmix, joint"].ratio
    assert joint is not None and joint > 1.2
    told = json.loads(bench.record(found))
    assert len(told["rows"]) == len(found) and told["versions"]["torch"] and told["peers"] == {}


def test_figure_7_is_measured_at_its_memory_against_er(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "FIGURE7", 60)
    sizes = []

    def small(preset: str, settings: dict[str, object]) -> object:
        made = LEARNER(preset, settings)
        sizes.append((preset, len(made.memory)))
        return made

    monkeypatch.setattr(bench, "learner", small)
    first, second = bench.bench(["figure7"], rounds=2, methods=["er+dualmix"])
    assert sizes == [("er", 60), ("er+dualmix", 60)]
    assert (first.name, first.ratio, first.group) == ("er", None, "Figure 7, memory 60")
    assert second.name == "er+dualmix" and second.ratio is not None and second.ratio > 1.2


LEARNER = bench.learner


@pytest.mark.skipif(not available(), reason="the native engine was not built")
def test_both_engines_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MEMORY", 50)
    monkeypatch.setattr(bench, "SHAPE", (3, 8, 8))
    monkeypatch.setattr(bench, "LARGE", (3, 12, 12))
    monkeypatch.setattr(bench, "HEAVY", ("er",))
    found = bench.bench(["engine"], rounds=2, methods=["er"])
    assert [(row.group, row.name, row.limit) for row in found] == [
        ("engine", "torch, bare step", None),
        ("engine", "native, bare step", None),
        ("engine", "torch, er", None),
        ("engine", "native, er", 0.55),
        ("engine, 84 px", "torch, bare step", None),
        ("engine, 84 px", "native, bare step", None),
        ("engine, 500 answers", "torch", None),
        ("engine, 500 answers", "native", 2.0),
        ("engine, memory", "torch, er", None),
        ("engine, memory", "native, er", 1.0),
    ]
    assert all(row.median > 0 for row in found)


def test_the_profile_holds_the_network_against_all_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "MEMORY", 50)
    training, network, *rest = bench.profile(2, repeats=2)
    assert (training.name, network.name, network.limit, network.atleast) == (
        "training",
        "network",
        0.9,
        True,
    )
    assert network.ratio is not None and network.ratio > 0.5
    assert {row.name for row in rest} == {
        "taking a batch in",
        "rehearsed batch",
        "filing in memory",
    }
    assert all(row.ratio is not None and row.ratio < 0.5 and row.verdict == "" for row in rest)


def test_the_scale_run_meets_ever_new_classes() -> None:
    told: list[tuple[int, str]] = []
    stages = growth.scale(
        430, 43, batch=20, stages=4, watch=lambda done, facts: told.append((done, facts))
    )
    assert [stage.images for stage in stages] == [120, 240, 340, 430]
    assert [stage.classes for stage in stages] == [12, 24, 34, 43]
    assert all(stage.step_seconds > 0 and stage.memory_mb > 50 for stage in stages)
    assert len(told) == 22 and told[0] == (20, "2 classes") and told[-1] == (430, "43 classes")


def test_a_scale_run_of_few_images_has_few_stages() -> None:
    assert [stage.images for stage in growth.scale(3, 2, batch=2)] == [2, 3]


def test_a_process_is_weighed_against_what_it_cannot_do_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(expression: str) -> object:
        if "resident" in expression:
            return 200.0
        return {"peak": 412.0 if "20000" in expression else 240.0, "memory": 60.0, "network": 40.0}

    monkeypatch.setattr(growth, "_in_new_process", told)
    begun, *found = growth.weigh(3)
    assert (begun.name, begun.median, begun.unit, begun.ratio) == (
        "imports alone",
        200.0,
        "MB",
        None,
    )
    assert [row.name for row in found] == list(FOOTPRINTS)
    assert [row.verdict for row in found] == ["met", "met", "missed", "met", "met"]
    assert found[2].ratio == pytest.approx(412 / (60 + 40 + 300))


@pytest.mark.long
def test_a_fresh_process_tells_its_peak_its_memory_and_its_network() -> None:
    found = Footprint(**growth._in_new_process("asdict(growth.footprint(150, 12, steps=1))"))
    assert found.memory == pytest.approx(150 * (3 * 32 * 32 + 8) / 2**20)
    network = Classifier((3, 32, 32), classes=12)
    assert found.network == pytest.approx(
        sum(t.nbytes for t in network.state_dict().values()) / 2**20
    )
    assert 100 < found.peak < 1000
    with pytest.raises(
        DualmixError, match="ended with code 1: ZeroDivisionError: division by zero"
    ):
        growth._in_new_process("1 / 0")


def test_a_peer_that_is_not_there_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "avalanche", None)
    monkeypatch.setitem(sys.modules, "avalanche.benchmarks", None)
    monkeypatch.setitem(sys.modules, "avalanche.benchmarks.scenarios", None)
    with pytest.raises(SystemExit) as left:
        main(["step", "--against", "avalanche", "--rounds", "1"])
    assert left.value.code == 2
    said = capsys.readouterr()
    assert "dualmix: Avalanche cannot be imported (ModuleNotFoundError" in said.err
    assert "pip install 'avalanche-lib" in said.err and not said.out


def test_peers_are_measured_in_the_steps_only() -> None:
    with pytest.raises(ConfigError, match="in the group step"):
        bench.bench(["start"], against=["avalanche"])
    with pytest.raises(ConfigError, match="did you mean avalanche"):
        bench.bench(["step"], against=["avalanch"])


def test_the_steps_of_a_peer_are_timed_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of several steps counts as one of them."""
    ticks = iter(range(0, 1000))
    given: list[peers.Work] = []

    def other(work: peers.Work) -> dict[str, peers.Timed]:
        given.append(work)
        return {
            "other er": peers.Timed(lambda: None),
            "other er, long": peers.Timed(lambda: None, 10),
        }

    monkeypatch.setattr(bench, "PEERS", {"other": other})
    monkeypatch.setattr(bench, "MEMORY", 20)
    monkeypatch.setattr(bench, "floor", lambda images=20: lambda: None)
    monkeypatch.setattr(
        bench, "interleaved", lambda calls, rounds: interleaved(calls, rounds, lambda: next(ticks))
    )
    found = {row.name: row for row in bench.steps([], 3, ["other"])}
    assert {name: row.ratio for name, row in found.items()} == {
        "floor": None,
        "floor, 50 images": 1.0,
        "other er": 1.0,
        "other er, long": 0.1,
    }
    (work,) = given
    assert (work.memory, work.batch, tuple(work.x.shape)) == (20, 10, (40, 3, 32, 32))
    assert float(work.x.max()) <= 1 and torch.equal(work.y, torch.from_numpy(bench._labels(40)))


def test_avalanche_takes_one_step_a_call_with_ten_new_and_ten_old_images() -> None:
    pytest.importorskip("avalanche", exc_type=Exception)
    seen: list[int] = []

    def network() -> Classifier:
        made = Classifier((3, 8, 8), classes=5, width=2)
        made.register_forward_hook(lambda module, given, _: seen.append(len(given[0])))
        return made

    x, y = (
        torch.from_numpy(bench._images(60)[:, :, :8, :8].copy()).float() / 255,
        torch.arange(60) % 5,
    )
    found = peers.avalanche(peers.Work(network, x, y, memory=30, batch=10, lr=0.1))
    assert json.loads(bench.record([], (), ["avalanche"]))["peers"]["avalanche-lib"].startswith(
        "0."
    )
    for timed in found.values():
        seen.clear()
        timed.call()
        timed.call()
        expected = 2 if timed.steps == 1 else 12
        assert seen == [20] * expected


def test_the_record_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "bench.json"
    with pytest.raises(SystemExit) as left:
        main(
            [
                "scale",
                "--images",
                "40",
                "--classes",
                "4",
                "--batch",
                "10",
                "--out",
                str(out),
                "--json",
            ]
        )
    assert left.value.code == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(out.read_text(encoding="utf-8"))
    assert [stage["classes"] for stage in json.loads(said.out)["scale"]] == [1, 2, 3, 4]


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    names = [*bench.STEPS, *FOOTPRINTS, "avalanche er, nhwc", "avalanche er, long"]
    found = [Row("step", name, 1.23456, 0.123, 10.0, 10.25, 10.75, 10.5) for name in names]
    console = Console(width=80, file=StringIO())
    start = Row("start-up (wall)", "to the first step", 1.65, 0.02, 144.5, 141.31, 145.2)
    console.print(
        bench_table([*found, Row("memory", "imports alone", 1234.5, 0.1, unit="MB"), start])
    )
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(f"  {name} " in line for name, line in zip(names, lines[4:], strict=False))
    assert lines[4].endswith("1234.56 ms    12 %  10.00  10.25-10.75  <= 10.5  unclear ")
    assert any("imports alone" in line and "1234 MB" in line for line in lines)


def test_the_scale_run_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["scale", "--images", "40", "--classes", "4", "--batch", "20"])
    assert (
        "classes" in (table := capsys.readouterr().out) and "ms per step" in table and "40" in table
    )
    with pytest.raises(SystemExit) as left:
        main(["scale", "--width", "0"])
    assert left.value.code == 2


@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_the_one_that_is_written_down(training: bool) -> None:
    """What is done in place, or in another layout, changes no bit of features and gradients."""
    network = Classifier((3, 32, 32), classes=5, width=8, seed=3).train(training)
    x = torch.rand(6, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    found = []
    for features in (network.backbone, partial(bench._as_written, copy.deepcopy(network.backbone))):
        seen = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = features(seen)
        out.square().sum().backward()
        found.append((out.detach(), seen.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] is not None and torch.equal(found[0][1], found[1][1])


def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as left:
        main(["start", "--out", str(tmp_path / "file" / "x.json")])
    said = capsys.readouterr().err
    assert left.value.code == 2 and "cannot be made" in said and said.count("\n") == 1


def test_the_command_runs_as_it_is_documented() -> None:
    words = [sys.executable, "-m", "benchmarks"]
    help_ = subprocess.run(
        [*words, "--help"], capture_output=True, text=True, cwd=growth.ROOT, check=False
    )
    assert help_.returncode == 0 and "usage: python -m benchmarks" in help_.stdout
    wrong = subprocess.run(
        [*words, "stpe"], capture_output=True, text=True, cwd=growth.ROOT, check=False
    )
    assert wrong.returncode == 2 and "did you mean step" in wrong.stderr
