"""Reading a store: what counts, what is left out and why, and that the rest is right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dualmix.errors import StoreError
from dualmix.paper.numbers import rank
from dualmix.report.collect import collect
from dualmix.report.commands import rerun_command
from dualmix.store.folder import Store

from .makers import accurate, counts, made


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(change(plain) or plain))


def garbage(name: str) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_bytes(b"\x00\xffgarbage{")


def doubled(run: Path) -> None:
    shutil.copytree(run, run.with_name(f"{run.name}-copy"))


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "config": (garbage("config.json"), "config.json cannot be read"),
    "no config": (lambda run: (run / "config.json").unlink(), "has no config.json"),
    "config list": (
        lambda run: (run / "config.json").write_text("[1]"),
        "config.json is not the record of a run",
    ),
    "config without settings": (
        lambda run: edit(run / "config.json", lambda c: c.update(config={})),
        "does not hold a configuration",
    ),
    "scores": (garbage("scores.json"), "scores.json cannot be read"),
    "scores list": (
        lambda run: (run / "scores.json").write_text("[]"),
        "scores.json does not hold a record",
    ),
    "scores empty": (
        lambda run: (run / "scores.json").write_text("{}"),
        "scores.json lacks average_accuracy",
    ),
    "scores edited": (
        lambda run: edit(run / "scores.json", lambda s: s.update(average_accuracy=0.9)),
        "says average_accuracy 0.9, but its confusion counts give 0.5",
    ),
    "scores as text": (
        lambda run: edit(run / "scores.json", lambda s: s.update(forgetting="low")),
        "says forgetting low, but its confusion counts give 0.3",
    ),
    "scores not a number": (
        lambda run: (run / "scores.json").write_text(
            (run / "scores.json").read_text().replace("0.5", "NaN")
        ),
        "holds NaN or infinity",
    ),
    "facts not a number": (
        lambda run: (run / "facts.json").write_text(
            (run / "facts.json").read_text().replace('"3.11.7"', "NaN")
        ),
        "facts.json holds NaN",
    ),
    "counts": (garbage("confusion.npz"), "confusion.npz is damaged"),
    "no counts": (lambda run: (run / "confusion.npz").unlink(), "confusion.npz is damaged"),
    "facts": (garbage("facts.json"), "facts.json cannot be read"),
    "facts without data": (
        lambda run: edit(run / "facts.json", lambda f: f.update(data=None)),
        "does not say which images it saw",
    ),
    "plan": (garbage("plan.json"), "plan.json cannot be read"),
    "plan without tasks": (
        lambda run: (run / "plan.json").write_text("{}"),
        "plan and its confusion counts do not fit",
    ),
    "plan longer": (
        lambda run: edit(run / "plan.json", lambda p: p["tasks"].append({"classes": []})),
        "tested after 2 of 3 tasks",
    ),
    "version": (
        lambda run: edit(run / "facts.json", lambda f: f.update(results_version=0)),
        "It has results version 0, but this is 1",
    ),
    "edited": (
        lambda run: edit(run / "config.json", lambda c: c["config"]["method"].update(lr=0.5)),
        "does not give its key",
    ),
    "other data": (
        lambda run: edit(run / "facts.json", lambda f: f["data"].update(fingerprint="0" * 64)),
        "does not give its key",
    ),
    "unknown method": (
        lambda run: edit(run / "config.json", lambda c: c["config"]["method"].update(kind="magic")),
        "There is no method 'magic'",
    ),
    "unknown setting": (
        lambda run: edit(run / "config.json", lambda c: c["config"]["method"].update(magic=1)),
        "configuration is none of this version (method.magic",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_damaged_run_is_named_and_the_rest_is_right(tmp_path: Path, case: str) -> None:
    spoil, says = HOSTILE[case]
    accurate(tmp_path, "er", [10, 20])
    bad = made(tmp_path, "er", 2)
    spoil(bad)
    found = collect(Store(tmp_path))
    assert [remark.run for remark in found.left_out] == [bad.name]
    text = found.left_out[0].text
    assert says in text and text.endswith(".") and str(tmp_path) not in text
    (group,) = found.groups
    assert group.values("average_accuracy") == {0: pytest.approx(10), 1: pytest.approx(20)}


def test_all_damages_at_once(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10, 20])
    for seed, (spoil, _) in enumerate(HOSTILE.values(), start=2):
        spoil(made(tmp_path, "er", seed))
    found = collect(Store(tmp_path))
    assert len(found.left_out) == len(HOSTILE)
    assert [run.seed for run in found.runs] == [0, 1]


def test_two_runs_of_one_key_count_once(tmp_path: Path) -> None:
    first = made(tmp_path, "er")
    doubled(first)
    found = collect(Store(tmp_path))
    assert [run.name for run in found.runs] == [first.name]
    assert found.left_out[0].run == f"{first.name}-copy"
    assert f"has the key of {first.name}, with equal scores" in found.left_out[0].text


def test_runs_that_differ_in_device_alone_are_not_two_seeds(tmp_path: Path) -> None:
    made(tmp_path, "er", name="a")
    made(tmp_path, "er", 0, {"threads": 2}, name="b")
    found = collect(Store(tmp_path))
    assert [run.name for run in found.runs] == ["a"]
    assert (
        found.left_out[0].run == "b"
        and "seed of a but for device or threads" in found.left_out[0].text
    )


def test_a_run_half_done_is_not_finished(tmp_path: Path) -> None:
    """A task that was logged, cut off and trained again counts once."""
    run = made(tmp_path, "er")
    (run / "scores.json").unlink()
    done = '{"event": "task", "task": 1, "accuracy": 0.5}\n'
    (run / "log.jsonl").write_text('{"event": "begin"}\n' + done + done + '{"event": "ta')
    broken = made(tmp_path, "er", 1)
    (broken / "scores.json").unlink()
    (broken / "plan.json").unlink()
    damaged = made(tmp_path, "er", 2)
    (damaged / "scores.json").unlink()
    (damaged / "plan.json").write_text("{")
    found = collect(Store(tmp_path))
    assert not found.runs and not found.left_out
    assert [remark.text for remark in found.unfinished] == [
        "Not finished: 1 of 2 tasks are done.",
        "Not finished: it has no plan.",
        "Not finished: its plan or its log cannot be read.",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("times.json", b"\xff"),
        ("times.json", b"[]"),
        ("probes.json", b"{"),
        ("probes.json", b"[1]"),
        ("probes.json", b'[{"tally": {}}]'),
        ("probes.json", b'[{"task": 1, "tally": {"adpmix pairs": "many"}}]'),
        ("probes.json", b'[{"task": 1, "operators": {"view": 3}}]'),
        (
            "probes.json",
            b'[{"task": 1, "operators": {"view": {"mean_variance": null, "covariance": 1}}}]',
        ),
        ("probes.json", b'[{"task": 1, "memory_counts": ["x"]}]'),
        ("probes.json", b'[{"task": 1, "norm_ratio": NaN}]'),
        (
            "probes.json",
            b'[{"task": 1, "operators": {"view": {"mean_variance": 1, "covariance": 1, "gap": 1}}}]',
        ),
        ("log.jsonl", b"\xff\xfe"),
    ],
)
def test_a_run_can_do_without_some_files_but_says_so(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (made(tmp_path, "er") / name).write_bytes(content)
    found = collect(Store(tmp_path))
    assert len(found.runs) == 1 and not found.left_out
    assert name in found.remarks[0].text


def test_what_differs_from_the_preset_is_found(tmp_path: Path) -> None:
    made(
        tmp_path,
        "er",
        0,
        {"method.memory": 50, "probes.on": True, "device": "cuda", "save_every": 7},
    )
    made(tmp_path, "er", 0, {"stream.first": 10, "method.lr": 0.05})
    made(tmp_path, "er", 0, {"method.memory": 40, "method.memory_batch": 9, "order_seed": 4})
    made(tmp_path, "iid-offline", 0)
    found = collect(Store(tmp_path))
    changed = {(group.label, group.memory): dict(group.changed) for group in found.groups}
    assert changed == {
        ("er", 50): {},
        ("er", 1000): {"stream.first": 10, "method.lr": 0.05},
        ("er", 40): {"method.memory_batch": 9, "order_seed": 4},
        ("iid-offline", None): {},
    }
    assert [group.label for group in found.plain] == ["iid-offline", "er"]


def test_a_name_of_ones_own_is_compared_with_its_method(tmp_path: Path) -> None:
    run = made(tmp_path, "er", 0, {"method.lr": 0.3})
    edit(run / "config.json", lambda config: config.update(label="mine"))
    (group,) = collect(Store(tmp_path)).groups
    assert (group.label, dict(group.changed)) == ("mine", {"method.lr": 0.3})
    assert (
        rerun_command(group)
        == "dualmix run er --data.name cifar100 --method.memory 1000 --method.lr 0.3 --seed 0"
    )


def test_a_rows_own_setting_on_a_data_set_is_no_change(tmp_path: Path) -> None:
    made(tmp_path, "aser", 0, {"method.n_smp_cls": 3}, data="mini_imagenet")
    made(tmp_path, "aser", 1, data="mini_imagenet")
    plain, changed = collect(Store(tmp_path)).groups
    assert (plain.seeds, plain.changed) == ((0,), ())
    assert (changed.seeds, changed.changed) == ((1,), (("method.n_smp_cls", 2),))
    command = "dualmix run aser --data.name mini_imagenet --method.memory 1000 --method.n_smp_cls"
    assert (rerun_command(plain), rerun_command(changed)) == (
        f"{command} 3 --seed 0",
        f"{command} 2 --seed 1",
    )


def test_runs_on_other_images_are_not_averaged(tmp_path: Path) -> None:
    made(tmp_path, "er", 0)
    made(
        tmp_path, "er", 1, fingerprint="e" * 64, notes=["subset: 1 of 500 training images a class"]
    )
    found = collect(Store(tmp_path))
    assert [len(group.runs) for group in found.groups] == [1, 1]
    assert {group.content.subset for group in found.groups} == {True, False}


def test_scores_are_computed_from_the_counts(tmp_path: Path) -> None:
    """What scores.json says beside accuracy and forgetting is not even looked at, but for what
    counts cannot tell.
    """
    run = made(tmp_path, "er", table=counts([[5], [2, 7]]))
    junk = {
        "er_new_old": "none",
        "average_accuracy_by_task": [9],
        "anytime_accuracy": 1e308,
        "online_accuracy": 0.3,
    }
    edit(run / "scores.json", lambda scores: scores.update(junk))
    found = collect(Store(tmp_path)).runs[0].scores
    assert found["average_accuracy_by_task"] == [0.5, pytest.approx(0.45)]
    assert (found["anytime_accuracy"], found["online_accuracy"]) == (pytest.approx(0.475), 0.3)
    assert found["er_new_old"] == [None, 1.0]


def test_confusion_is_summed_by_task(tmp_path: Path) -> None:
    """After task 2, 2 of the first task's 10 images are right and 8 go to the second; 7 of the
    second's are right.
    """
    made(tmp_path, "er", table=counts([[5], [2, 7]]))
    assert collect(Store(tmp_path)).runs[0].confusion.tolist() == [[2, 8], [3, 7]]


def test_an_absent_store_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--store"):
        collect(Store(tmp_path / "none"))
    assert collect(Store(tmp_path)).groups == ()


def test_methods_stand_in_the_papers_order() -> None:
    order = [
        "finetune",
        "agem",
        "er",
        "er+da",
        "er+enmix",
        "er+adpmix",
        "er+dualmix",
        "gss",
        "mine",
    ]
    assert sorted(set(order), key=rank) == order
