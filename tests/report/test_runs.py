"""Reading a store: what counts, what is left out and why, and that the rest is right."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualmix.config import migrate
from dualmix.config.compose import compose
from dualmix.config.migrate import Change, Dropped, Renamed
from dualmix.errors import StoreError
from dualmix.paper.numbers import rank
from dualmix.report.collect import collect
from dualmix.report.commands import rerun_command
from dualmix.runs.filing import place
from dualmix.store.store import Store

from .makers import accurate, counts, made


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(change(plain) or plain))


def garbage(name: str) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_bytes(b"\x00\xffgarbage{")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def deep(name: str) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_text(nested(100_000))


def claiming(items: int) -> bytes:
    """Return an npz file whose array says that it has so many items."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (items, 1, 1)}
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("counts.npy", header.getvalue())
    return packed.getvalue()


def summed(run: Path) -> None:
    """Give a run the digests that finished runs file."""
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in run.iterdir()}
    del files["log.jsonl"]
    (run / "sums.json").write_text(json.dumps({"files": files, "before": {}}))


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
        "scores.json cannot be read (it holds NaN)",
    ),
    "facts not a number": (
        lambda run: (run / "facts.json").write_text(
            (run / "facts.json").read_text().replace('"3.11.7"', "NaN")
        ),
        "facts.json cannot be read (it holds NaN)",
    ),
    "counts": (garbage("confusion.npz"), "confusion.npz is damaged"),
    "no counts": (lambda run: (run / "confusion.npz").unlink(), "confusion.npz cannot be read"),
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
    "config not text": (
        lambda run: (run / "config.json").write_bytes(b'{"key": "\xff"}'),
        "config.json cannot be read",
    ),
    "config deep": (deep("config.json"), "config.json cannot be read (it is nested too deep)"),
    "facts deep": (deep("facts.json"), "facts.json cannot be read (it is nested too deep)"),
    "plan deep": (deep("plan.json"), "plan.json cannot be read (it is nested too deep)"),
    "scores deep": (deep("scores.json"), "scores.json cannot be read (it is nested too deep)"),
    "settings deep": (
        lambda run: (run / "config.json").write_text(
            (run / "config.json").read_text().replace('"seed": 2', '"seed": ' + nested(900))
        ),
        "configuration is none of this version (seed",
    ),
    "a number of 5000 digits": (
        lambda run: (run / "config.json").write_text(
            (run / "config.json").read_text().replace('"seed": 2', '"seed": ' + "9" * 5000)
        ),
        "config.json cannot be read",
    ),
    "a number beyond floats": (
        lambda run: edit(run / "config.json", lambda c: c["config"]["method"].update(lr=10**400)),
        "configuration is none of this version (method.lr",
    ),
    "a class beyond integers": (
        lambda run: edit(run / "plan.json", lambda p: p["tasks"][0].update(classes=[10**30])),
        "plan and its confusion counts do not fit",
    ),
    "counts of another shape": (
        lambda run: np.savez(run / "confusion.npz", counts=np.arange(2)),
        "confusion.npz holds no confusion counts",
    ),
    "counts of text": (
        lambda run: np.savez(run / "confusion.npz", counts=np.array(["a"])),
        "confusion.npz is damaged",
    ),
    "counts beyond memory": (
        lambda run: (run / "confusion.npz").write_bytes(claiming(2**50)),
        "confusion.npz is damaged",
    ),
    "label no text": (
        lambda run: edit(run / "config.json", lambda c: c.update(label=[1])),
        "config.json is not the record of a run",
    ),
    "settings a list": (
        lambda run: edit(run / "config.json", lambda c: c.update(config=[["method", {}]])),
        "config.json is not the record of a run",
    ),
    "method a number": (
        lambda run: edit(run / "config.json", lambda c: c["config"].update(method=3)),
        "does not hold a configuration",
    ),
    "tasks a number": (
        lambda run: (run / "plan.json").write_text('{"tasks": 3}'),
        "plan and its confusion counts do not fit",
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
    assert says in text and text.endswith(".") and str(tmp_path) not in text and len(text) < 400
    (group,) = found.groups
    assert group.values("average_accuracy") == {0: pytest.approx(10), 1: pytest.approx(20)}


def test_all_damages_at_once(tmp_path: Path) -> None:
    accurate(tmp_path, "er", [10, 20])
    for seed, (spoil, _) in enumerate(HOSTILE.values(), start=2):
        spoil(made(tmp_path, "er", seed))
    found = collect(Store(tmp_path))
    assert len(found.left_out) == len(HOSTILE)
    assert [run.seed for run in found.runs] == [0, 1]


@pytest.mark.parametrize(
    "name", ["config.json", "facts.json", "plan.json", "scores.json", "confusion.npz"]
)
@pytest.mark.parametrize("harm", ["a flipped bit", "white space"])
def test_a_file_that_is_not_as_the_run_wrote_it_is_named(
    tmp_path: Path, name: str, harm: str
) -> None:
    """Also where the file still reads well, which only its digest tells."""
    accurate(tmp_path, "er", [10, 20])
    for run in tmp_path.iterdir():
        summed(run)
    assert len(collect(Store(tmp_path)).runs) == 2
    bad = sorted(tmp_path.iterdir())[0]
    content = bytearray((bad / name).read_bytes())
    if harm == "white space":
        content += b" "
    else:
        content[len(content) // 2] ^= 1
    (bad / name).write_bytes(content)
    found = collect(Store(tmp_path))
    assert [remark.run for remark in found.left_out] == [bad.name]
    assert f"{name} is not as the run wrote it" in found.left_out[0].text
    assert len(found.runs) == 1


@pytest.mark.parametrize("name", ["times.json", "probes.json"])
def test_what_a_run_can_do_without_is_not_shown_if_it_was_changed(
    tmp_path: Path, name: str
) -> None:
    run = made(tmp_path, "er", probes=[{"task": 1}])
    summed(run)
    assert not collect(Store(tmp_path)).remarks
    (run / name).write_text((run / name).read_text().replace("1", "2"))
    found = collect(Store(tmp_path))
    assert len(found.runs) == 1 and name in found.remarks[0].text
    assert not (found.runs[0].times if name == "times.json" else found.runs[0].probes)


def aged(run: Path, label: str = "er") -> str:
    """Rewrite a run as an earlier version filed it, in which `memory_batch` had another name and
    `momentum` was a setting; return the key that it had.
    """
    config = json.loads((run / "config.json").read_text())
    facts = json.loads((run / "facts.json").read_text())
    method = config["config"]["method"]
    method["rehearsed"], method["momentum"] = method.pop("memory_batch"), 0.0
    composed = compose(label, {"data.name": "cifar100", "method.memory_batch": 9, "seed": 2})
    plain = composed.config.model_dump(mode="json", exclude_defaults=True)
    hashed = {
        "kind": "er",
        "method": {
            {"memory_batch": "rehearsed"}.get(name, name): value
            for name, value in plain["method"].items()
        },
        "stream": plain["stream"],
        "order_seed": 2,
        "run_seed": 2,
        "data": facts["data"]["fingerprint"],
        "results_version": 1,
    }
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    config["key"] = hashlib.sha256(text.encode()).hexdigest()
    (run / "config.json").write_text(json.dumps(config))
    run.rename(run.with_name(f"er-cifar100-s2-{config['key'][:12]}"))
    return str(config["key"])


HISTORY: tuple[Change, ...] = (
    Renamed("method.rehearsed", "method.memory_batch"),
    Dropped("method.momentum", 0.0),
)


def test_a_run_of_old_names_keeps_its_key_and_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"method.memory_batch": 9}
    accurate(tmp_path, "er", [10, 20], values)
    key = aged(made(tmp_path, "er", 2, values, table=counts([[100], [0, 60]], images=100)))
    found = collect(Store(tmp_path))
    assert [run.seed for run in found.runs] == [0, 1], "without the table that run alone is out"
    assert [remark.run[-12:] for remark in found.left_out] == [key[:12]]
    assert "method.rehearsed" in found.left_out[0].text or "momentum" in found.left_out[0].text

    monkeypatch.setattr(migrate, "CHANGES", HISTORY)
    fresh = tmp_path / "fresh"
    accurate(fresh, "er", [10, 20], values)
    shutil.copytree(tmp_path / f"er-cifar100-s2-{key[:12]}", fresh / f"old-s2-{key[:12]}")
    (group,) = collect(Store(fresh)).groups
    assert (sorted(group.seeds), dict(group.changed)) == ([0, 1, 2], {"method.memory_batch": 9})
    assert {run.key for run in group.runs if run.seed == 2} == {key}
    assert group.values("average_accuracy")[2] == pytest.approx(30)

    today = compose("er", {"data.name": "cifar100", **values, "seed": 2})
    fingerprint = group.content.fingerprint
    folder = place(Store(fresh), today, fingerprint)
    assert folder.done and folder.path.name == f"old-s2-{key[:12]}", "it is done already"


def test_a_dropped_setting_with_another_value_leaves_that_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accurate(tmp_path, "er", [10, 20])
    run = sorted(tmp_path.iterdir())[0]
    edit(run / "config.json", lambda c: c["config"]["method"].update(momentum=0.9))
    monkeypatch.setattr(migrate, "CHANGES", HISTORY)
    found = collect(Store(tmp_path))
    assert [remark.run for remark in found.left_out] == [run.name]
    assert "method.momentum is gone and is always 0.0, but here it is 0.9" in found.left_out[0].text
    assert len(found.runs) == 1


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
        and "seed of a but for device, threads or engine" in found.left_out[0].text
    )


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_two_engines_the_one_of_the_preset_counts(tmp_path: Path, names: str) -> None:
    """Whatever their names are, and so their order in the store."""
    plain, native = names
    made(tmp_path, "er", name=plain)
    made(tmp_path, "er", 0, {"model.engine": "native"}, name=native)
    kept = collect(Store(tmp_path))
    assert ([run.name for run in kept.runs], [run.name for run in kept.twins]) == (
        [plain],
        [native],
    )
    assert [[run.name for run in g.runs] for g in kept.configurations] == [[plain], [native]]


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
            b'[{"task": 1, "operators": {"view": {"mean_variance": 1, "covariance": 1, '
            b'"gap": 1}}}]',
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
    with pytest.raises(StoreError, match="with store"):
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
