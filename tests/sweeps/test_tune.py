"""Tuning: ranges that fit, no test image anywhere, and a search that can be cut off."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualmix.config.compose import compose, lookup
from dualmix.data.stream import Stream, plan
from dualmix.errors import ConfigError, StoreError
from dualmix.registry import presets
from dualmix.runs.run import run
from dualmix.settings import Range
from dualmix.store.store import Store
from dualmix.sweeps.sweep import Entry
from dualmix.sweeps.tune import command, search, tunable, tune

pytestmark = pytest.mark.usefixtures("shallow")

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_range_holds_the_presets_own_value_and_its_ends_can_be_run(name: str) -> None:
    composed = compose(name)
    found = tunable(composed)
    assert ("method.lr" in found) == hasattr(composed.config.method, "lr")
    for path, tried in found.items():
        if not (name == "scr-100" and path == "method.memory_batch"):
            assert tried.low <= lookup(composed.config, path) <= tried.high, path
        for end in (tried.low, tried.high):
            compose(
                name, {path: int(end) if isinstance(lookup(composed.config, path), int) else end}
            )


def test_only_what_matters_is_tuned() -> None:
    def names(preset: str, **more: Any) -> set[str]:
        found = tunable(compose(preset, {path.replace("__", "."): at for path, at in more.items()}))
        return {path.removeprefix("method.").removeprefix("mix.") for path in found}

    plain = {"lr", "memory_batch"}
    assert names("finetune") == {"lr"}
    assert names("er") == plain
    assert names("er+da") == plain | {"view"}
    assert names("er+enmix") == plain | {"enmix", "alpha"}
    assert names("er+adpmix") == plain | {"view", "adpmix", "alpha", "kappa", "tau", "delta"}
    assert names("er+dualmix") == plain | {
        "view",
        "enmix",
        "adpmix",
        "alpha",
        "kappa",
        "tau",
        "delta",
    }
    assert names("er+dualmix", method__mix__adpmix=0) == plain | {"view", "enmix", "alpha"}


def test_a_search_leaves_alone_what_is_fixed_and_what_must_be_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert set(search("er", {}, store).ranges) == {"method.lr"}
    assert set(search("er", {}, store, only=["method.memory_batch"]).ranges) == {
        "method.memory_batch"
    }
    fixed = search("er+enmix", {"method.lr": "0.05"}, store)
    assert set(fixed.ranges) == {"method.mix.enmix", "method.mix.alpha"}
    assert fixed.values == {"stream.first": 2, "stream.validation": 0.1, "method.lr": "0.05"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "only", "says"),
    [
        ({"method.lr": 0.1}, (), "Nothing is left"),
        ({}, ("method.lrr",), "did you mean method.lr"),
        ({}, ("method.mix.kappa",), "it has no range"),
        ({"method.lr": 0.1}, ("method.lr",), "is not tuned"),
        ({"stream.validation": 0}, (), "must not be chosen by test images"),
        ({"stream.first": None}, (), "stream.first"),
    ],
)
def test_what_cannot_be_tuned_is_explained(
    tmp_path: Path, values: Any, only: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        search("er", values, Store(tmp_path), only=only)


def test_the_same_search_is_found_again_and_another_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    base = search("er", {}, store)
    assert search("er", {"stream.first": 2}, store).folder == base.folder
    others = [
        search("er", {"method.memory": 5}, store),
        search("er", {"stream.first": 3}, store),
        search("er", {"stream.validation": 0.2}, store),
        search("er", {}, store, seeds=2),
        search("er", {}, store, only=["method.lr", "method.memory_batch"]),
        search("er+da", {}, store),
    ]
    assert len({one.folder for one in (base, *others)}) == 7


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(2, 30), min_size=2, max_size=6),
    share=st.floats(0.01, 0.9),
    seed=st.integers(0, 5),
    tasks=st.integers(1, 2),
    epochs=st.integers(1, 2),
)
def test_validation_rows_are_training_rows_that_the_stream_leaves_out(
    counts: list[int], share: float, seed: int, tasks: int, epochs: int
) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    nothing = np.zeros(0, dtype=np.int64)
    made = plan(y, nothing, len(counts), Stream(tasks=tasks, epochs=epochs, validation=share), seed)
    for task in made.tasks:
        for line in task.train:
            assert sorted([*line, *task.test]) == np.flatnonzero(np.isin(y, task.classes)).tolist()
        for label in task.classes:
            n = counts[label]
            assert (y[task.test] == label).sum() == min(max(1, round(share * n)), n - 1)
    assert [task.classes for task in made.tasks] == [
        task.classes for task in plan(y, y, len(counts), Stream(tasks=tasks), seed).tasks
    ]
    other = plan(y, nothing, len(counts), Stream(tasks=tasks, validation=share), seed + 1)
    assert (
        max(counts) < 20
        or share < 0.1
        or any(
            set(a.test.tolist()) != set(b.test.tolist())
            for a, b in zip(made.tasks, other.tasks, strict=True)
        )
    )


def arrays(path: Path, test_seed: int) -> Path:
    """Write 4 separable classes of 20 training images, and test images that depend on a seed."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(4), 20)
    x = (rng.integers(0, 60, (80, 4, 4)) + 50 * y[:, None, None]).astype(np.uint8)
    test = np.random.default_rng(test_seed).integers(0, 256, (8, 4, 4)).astype(np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=test, y_test=np.repeat(np.arange(4), 2))
    return path


def test_test_images_have_no_part_in_a_validation_run(tmp_path: Path) -> None:
    values = {
        "data.name": "arrays",
        "stream.tasks": 2,
        "stream.batch": 4,
        "model.width": 1,
        "method.memory": 8,
    }
    scores = []
    for seed in (1, 2):
        own = {**values, "data.path": arrays(tmp_path / f"{seed}.npz", seed)}
        tested = run(compose("er", own), Store(tmp_path / "runs"))
        result = run(compose("er", {**own, "stream.validation": 0.25}), Store(tmp_path / "runs"))
        scores.append((result.scores, result.folder.counts().tolist()))
        facts = result.folder.read_json("facts.json")["data"]
        assert facts["test"] == 0 and any("no test image used" in note for note in facts["notes"])
        assert result.folder.counts()[-1].sum(axis=1).tolist() == [5, 5, 5, 5]
        plans = [
            folder.read_json("plan.json")["tasks"] for folder in (tested.folder, result.folder)
        ]
        assert [task["train_images"] for task in plans[0]] == [40, 40]
        assert [task["train_images"] for task in plans[1]] == [30, 30]
    assert scores[0] == scores[1]


def judged(
    score: Callable[[float], float], stop_after: int | None = None
) -> Callable[[Sequence[Entry]], None]:
    """Return a training that files a score computed from the learning rate, and stops after some
    calls.
    """
    calls = [0]

    def train(runs: Sequence[Entry]) -> None:
        for entry in runs:
            if stop_after is not None and calls[0] >= stop_after:
                entry.state = "stopped"
                continue
            calls[0] += 1
            lr = entry.composed.config.method.lr
            if lr > 0.25:
                entry.state = "failed"
                continue
            entry.folder.path.mkdir(parents=True, exist_ok=True)
            (entry.folder.path / "scores.json").write_text(
                json.dumps({"average_accuracy": score(lr)})
            )
            entry.state = "done"

    return train


def score(lr: float) -> float:
    return max(0.0, 1 - abs(math.log10(lr / 0.02)))


def trials_of(result: dict[str, Any]) -> list[Any]:
    return [(t["number"], t["values"], t["score"], t["state"]) for t in result["trials"]]


def test_a_search_finds_the_best_and_goes_on_as_if_it_had_not_been_cut_off(tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    whole = search("er", {}, Store(tmp_path / "whole"))
    result = tune(whole, 15, together=1, train=judged(score))
    states = [trial["state"] for trial in result["trials"]]
    assert len(states) == 15 and set(states) <= {"complete", "fail"}
    assert result["trials"][0]["values"] == {"method.lr": 0.03}  # that of the digits
    assert result["trials"][0]["score"] == pytest.approx(1 - math.log10(1.5))
    for trial in result["trials"]:
        lr = trial["values"]["method.lr"]
        assert 0.003 <= lr <= 0.3 and float(f"{lr:.3g}") == lr
        assert (trial["score"] is None) == (lr > 0.25)
        assert trial["score"] is None or trial["score"] == pytest.approx(score(lr))
    assert result["best"]["score"] == max(
        t["score"] for t in result["trials"] if t["score"] is not None
    )
    assert result["best"]["score"] > 0.8
    assert len({trial["values"]["method.lr"] for trial in result["trials"]}) > 10

    cut = search("er", {}, Store(tmp_path / "cut"))
    first = tune(cut, 15, together=1, train=judged(score, stop_after=4))
    assert [trial["state"] for trial in first["trials"]].count("running") == 1 and len(
        first["trials"]
    ) == 5
    again = tune(cut, 15, together=1, train=judged(score))
    assert trials_of(again) == trials_of(result)

    def never(runs: Sequence[Entry]) -> None:
        raise AssertionError("all trials were there")

    assert trials_of(tune(cut, 15, together=1, train=never)) == trials_of(result)
    assert json.loads((cut.folder / "tune-er.json").read_text()) == json.loads(json.dumps(again))


def test_a_score_is_the_mean_over_seeds_and_trials_go_together(tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    chosen = search("mir", {}, Store(tmp_path), only=["method.memory_batch"], seeds=3)
    sizes = []

    def train(runs: Sequence[Entry]) -> None:
        sizes.append(len(runs))
        for entry in runs:
            entry.folder.path.mkdir(parents=True, exist_ok=True)
            accuracy = {0: 0.1, 1: 0.2, 2: 0.6}[entry.composed.config.seed]
            (entry.folder.path / "scores.json").write_text(
                json.dumps({"average_accuracy": accuracy})
            )
            entry.state = "done"

    result = tune(chosen, 5, together=2, train=train)
    assert sizes == [6, 6, 3]
    assert [trial["score"] for trial in result["trials"]] == pytest.approx([0.3] * 5)
    assert result["best"]["number"] == 0
    for trial in result["trials"]:
        batch = trial["values"]["method.memory_batch"]
        assert isinstance(batch, int) and 5 <= batch <= 50


def test_values_that_do_not_go_together_fail_their_trial(tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    chosen = search("mir", {"method.subsample": 12}, Store(tmp_path), only=["method.memory_batch"])

    def train(runs: Sequence[Entry]) -> None:
        for entry in runs:
            entry.state = "failed"

    result = tune(chosen, 6, together=3, train=train)
    assert {trial["state"] for trial in result["trials"]} == {"fail"} and result["best"] is None
    assert max(trial["values"]["method.memory_batch"] for trial in result["trials"]) > 12


def test_the_command_uses_what_was_chosen_on_the_whole_stream(tmp_path: Path) -> None:
    chosen = search("er+da", {"data.name": "digits", "method.memory": "30"}, Store(tmp_path))
    words = shlex.split(command(chosen, {"method.lr": 0.05, "method.mix.view": 0.7}))
    assert words[:3] == ["dualmix", "run", "er+da"]
    flags = {path.removeprefix("--"): at for path, at in zip(words[3::2], words[4::2], strict=True)}
    config = compose("er+da", flags).config
    assert (config.method.lr, config.method.mix.view, config.method.memory) == (0.05, 0.7, 30)
    assert config.stream.first is None and config.stream.validation == 0


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_the_command_line_tunes_and_goes_on(dualmix_: Command, tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    flags = (
        "--data.name",
        "arrays",
        "--data.path",
        arrays(tmp_path / "a.npz", 1),
        "--stream.tasks",
        "4",
    )
    flags += (
        "--stream.validation",
        "0.25",
        "--model.width",
        "1",
        "--method.memory",
        "8",
        "--store",
        tmp_path / "s",
    )
    code, out, _ = dualmix_("tune", "er", *flags, "--dry-run")
    assert (
        code == 0
        and "method.lr" in out
        and "0.003" in out
        and "On the first 2 tasks, scored by 25 %" in out
    )
    assert not (tmp_path / "s").exists()
    code, out, err = dualmix_("tune", "er", *flags, "--trials", "1", "--workers", "1")
    assert (
        code == 0
        and "dualmix run er" in " ".join(out.split())
        and "no test image" in " ".join(out.split())
    ), err
    code, out, _ = dualmix_("tune", "er", *flags, "--trials", "2", "--workers", "1", "--json")
    told = json.loads(out)
    assert code == 0 and [trial["state"] for trial in told["trials"]] == ["complete"] * 2
    (folder,) = (tmp_path / "s" / "tune").iterdir()
    assert json.loads((folder / "tune-er.json").read_text()) == told
    assert told["protocol"]["tasks"] == 2 and told["protocol"]["seeds"] == [0]
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 2
    for path in runs:
        made = json.loads((path / "plan.json").read_text())
        assert [task["test_images"] for task in made["tasks"]] == [5, 5]
        assert json.loads((path / "facts.json").read_text())["data"]["test"] == 0
        assert len(json.loads((path / "facts.json").read_text())["sessions"]) == 1
    code, out, _ = dualmix_("status", "--store", tmp_path / "s")
    assert code == 0 and "0 runs" in out


def test_a_range_reaches_the_declaration() -> None:
    found = tunable(compose("er+dualmix"))
    assert found["method.lr"] == Range(0.003, 0.3, log=True)
    assert found["method.mix.kappa"] == Range(1.0, 4.0, needs=("adpmix",))


def test_a_damaged_journal_is_named_and_one_cut_short_goes_on(tmp_path: Path) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    chosen = search("er", {}, Store(tmp_path))
    whole = trials_of(tune(chosen, 4, together=1, train=judged(score)))
    journal = chosen.folder / "trials.journal"
    good = journal.read_bytes()
    lines = good.splitlines(keepends=True)
    rng = np.random.default_rng(0)
    flips = [bytearray(good) for _ in range(20)]
    for flipped in flips:
        flipped[int(rng.integers(len(flipped)))] ^= 1 << int(rng.integers(8))
    damaged: list[bytes] = [
        b"\x00\xff\n",
        b"{}\n",
        b"[]\n" + good,
        b'"text"\n' + good,
        b"null\n" + good,
        good + b"{\n",
        good + b'{"op_code": 99}\n',
        good.replace(b"method.lr", b"method.rl"),
        good.replace(b"op_code", b"opcode"),
        good.replace(b'"values":[', b'"values":["x",'),
        b"".join(lines[2:]),
        b"".join(reversed(lines)),
        *(good[:at] for at in rng.integers(1, len(good), 8)),
        *(bytes(flipped) for flipped in flips),
    ]
    refusals = 0
    for content in damaged:
        journal.write_bytes(content)
        try:
            result = tune(chosen, 4, together=1, train=judged(score))
        except StoreError as fault:
            refusals += 1
            assert str(journal) in str(fault) and "move it away" in str(fault)
        else:
            assert len(result["trials"]) == 4
    assert refusals >= 10
    journal.unlink()
    assert trials_of(tune(chosen, 4, together=1, train=judged(score))) == whole


@pytest.mark.parametrize("edit", ["true", "0.99"])
def test_an_edited_score_is_not_believed(tmp_path: Path, edit: str) -> None:
    pytest.importorskip(
        "optuna", reason="OPTUNA MISSING: pip install 'dualmix[tune]' to test tuning"
    )
    chosen = search("er", {}, Store(tmp_path))
    tune(chosen, 2, together=1, train=judged(score))
    journal = chosen.folder / "trials.journal"
    good = journal.read_text()
    journal.write_text(re.sub(r'"values":\[[0-9.e-]+\]', f'"values":[{edit}]', good, count=1))
    assert journal.read_text() != good
    with pytest.raises(StoreError, match="is damaged"):
        tune(chosen, 2, together=1, train=judged(score))
    journal.write_text(good)
    assert len(tune(chosen, 2, together=1, train=judged(score))["trials"]) == 2
