"""Runs in an archive: the same results from one file, nothing damaged let in, nothing lost."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dualmix.cli import main
from dualmix.config.compose import compose
from dualmix.errors import StoreError
from dualmix.report.collect import collect
from dualmix.report.export import rows
from dualmix.runs.archiving import archive, extract
from dualmix.runs.filing import place, serves
from dualmix.runs.status import standings
from dualmix.store.archive import Archive
from dualmix.store.folder import Folder
from dualmix.store.opening import open_store
from dualmix.store.store import Store
from tests.report.makers import accurate, made


def opened(store: Path) -> list[Folder]:
    return [open_store(store).open(path) for path in open_store(store).paths()]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    accurate(tmp_path / "runs", "er", [10, 20])
    made(tmp_path / "runs", "er+da", 0, probes=[{"task": 1, "norm_ratio": 1.5}])
    return tmp_path / "runs"


@pytest.mark.parametrize("place", ["kept", "kept/runs.zip"])
def test_an_archive_is_read_as_the_folders_are(runs: Path, tmp_path: Path, place: str) -> None:
    before = collect(Store(runs))
    assert len(archive(opened(runs), tmp_path / "kept")) == 3
    shutil.rmtree(runs)
    after = collect(open_store(tmp_path / place))
    assert rows(after) == rows(before) and len(after.runs) == 3
    assert not after.left_out and not after.remarks and not after.unfinished
    for a, b in zip(before.runs, after.runs, strict=True):
        assert (a.probes, a.facts, a.plan, a.log, a.times) == (
            b.probes, b.facts, b.plan, b.log, b.times,
        )  # fmt: skip
        assert a.confusion.tolist() == b.confusion.tolist()
    assert {one.state for one in standings(open_store(tmp_path / place), now=0)} == {"done"}


def test_adding_is_idempotent_and_keeps_the_bytes_of_others(runs: Path, tmp_path: Path) -> None:
    to = tmp_path / "kept"
    first, *others = opened(runs)
    assert archive(others, to) == [folder.path.name for folder in others]
    small = (to / "runs.zip").read_bytes()
    assert archive(others, to) == []
    assert (to / "runs.zip").read_bytes() == small
    assert archive([first, *others], to) == [first.path.name]
    whole = (to / "runs.zip").read_bytes()
    (to / "runs.zip").unlink()
    archive([*others, first], to)
    assert (to / "runs.zip").read_bytes() == whole, "the order of adding does not matter"
    with zipfile.ZipFile(to / "runs.zip") as plain:
        assert plain.testzip() is None
        names = plain.namelist()
        assert names == sorted(names) and f"{first.path.name}/scores.json" in names
        assert all(stat.S_IMODE(one.external_attr >> 16) == 0o644 for one in plain.infolist())


def test_the_learner_and_the_place_of_the_data_stay_out(tmp_path: Path) -> None:
    run = made(tmp_path / "runs", "er", 0, {"data.root": "/home/somebody/data"})
    (run / "learner.safetensors").write_bytes(b"weights")
    (run / "plan.npz").write_bytes(b"rows")
    archive(opened(tmp_path / "runs"), tmp_path)
    with zipfile.ZipFile(tmp_path / "runs.zip") as plain:
        assert {name.partition("/")[2] for name in plain.namelist()} == {
            "config.json", "facts.json", "plan.json", "log.jsonl", "times.json", "scores.json",
            "confusion.npz", "sums.json",
        }  # fmt: skip
        assert not any(b"somebody" in plain.read(name) for name in plain.namelist())
    assert len(collect(open_store(tmp_path / "runs.zip")).runs) == 1


def unfinished(run: Path) -> None:
    (run / "scores.json").unlink()


def edited(run: Path) -> None:
    scores = json.loads((run / "scores.json").read_text())
    (run / "scores.json").write_text(json.dumps({**scores, "average_accuracy": 0.9}))


def garbage(run: Path) -> None:
    (run / "facts.json").write_bytes(b"\xff{")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (unfinished, "is not finished"),
        (edited, "but its confusion counts give"),
        (garbage, "facts.json cannot be read"),
    ],
)
def test_what_is_not_finished_or_damaged_is_refused_and_nothing_added(
    runs: Path, tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    archive(opened(runs)[:1], tmp_path / "kept")
    before = (tmp_path / "kept" / "runs.zip").read_bytes()
    spoil(opened(runs)[-1].path)
    with pytest.raises(StoreError, match=says):
        archive(opened(runs), tmp_path / "kept")
    assert (tmp_path / "kept" / "runs.zip").read_bytes() == before


def test_another_run_of_a_name_needs_a_word(runs: Path, tmp_path: Path) -> None:
    (folder, *_) = opened(runs)
    archive([folder], tmp_path)
    (folder.path / "times.json").write_text('{"train_seconds": 7.0}')
    with pytest.raises(StoreError, match="replace"):
        archive([folder], tmp_path)
    assert archive([folder], tmp_path, replace=True) == [folder.path.name]
    assert dict(collect(open_store(tmp_path)).runs[0].times) == {"train_seconds": 7.0}


def test_there_and_back(runs: Path, tmp_path: Path) -> None:
    archive(opened(runs), tmp_path / "kept")
    paths = extract(opened(tmp_path / "kept"), tmp_path / "again")
    assert extract(opened(tmp_path / "kept"), tmp_path / "again") == paths
    for path in paths:
        for file in path.iterdir():
            if file.name != "sums.json":
                assert file.read_bytes() == (runs / path.name / file.name).read_bytes()
    archive(opened(tmp_path / "again"), tmp_path / "twice")
    same = [(tmp_path / name / "runs.zip").read_bytes() for name in ("kept", "twice")]
    assert same[0] == same[1]
    assert rows(collect(Store(tmp_path / "again"))) == rows(collect(Store(runs)))


def flipped(path: Path, name: str) -> None:
    """Flip a bit in the middle of a member's compressed bytes."""
    with zipfile.ZipFile(path) as plain:
        member = next(one for one in plain.infolist() if one.filename.endswith(name))
    content = bytearray(path.read_bytes())
    content[member.header_offset + 30 + len(member.filename) + member.compress_size // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["config.json", "facts.json", "plan.json", "scores.json", "confusion.npz", "sums.json"]
)
def test_a_damaged_member_costs_its_run_alone(runs: Path, tmp_path: Path, name: str) -> None:
    archive(opened(runs), tmp_path / "kept")
    flipped(tmp_path / "kept" / "runs.zip", name)
    found = collect(open_store(tmp_path / "kept"))
    assert len(found.runs) == 2 and len(found.left_out) == 1
    assert name in found.left_out[0].text


@pytest.mark.parametrize("name", ["scores.json", "config.json", "times.json", "sums.json"])
def test_a_missing_member_is_named(runs: Path, tmp_path: Path, name: str) -> None:
    archive(opened(runs), tmp_path / "kept")
    path = tmp_path / "kept" / "runs.zip"
    with zipfile.ZipFile(path) as plain:
        member = next(one for one in plain.namelist() if one.endswith(name))
    repacked(path, {member: None})
    found = collect(open_store(tmp_path / "kept"))
    (remark,) = found.left_out + found.remarks
    assert remark.run == member.split("/")[0] and not found.unfinished
    assert len(found.runs) == 3 - (name != "times.json")


def test_an_archive_that_lists_fewer_members_is_damaged(runs: Path, tmp_path: Path) -> None:
    archive(opened(runs), tmp_path / "kept")
    path = tmp_path / "kept" / "runs.zip"
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b"PK\x05\x06") + 10] -= 1
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="it is damaged"):
        collect(open_store(tmp_path / "kept"))


def repacked(path: Path, change: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path) as plain:
        content = {one: plain.read(one) for one in plain.namelist()}
    with zipfile.ZipFile(path, "w", method) as plain:
        for name, value in (content | change).items():
            if value is not None:
                plain.writestr(name, value)


def test_a_forged_member_is_told_by_its_digest(runs: Path, tmp_path: Path) -> None:
    archive(opened(runs), tmp_path / "kept")
    path = tmp_path / "kept" / "runs.zip"
    with zipfile.ZipFile(path) as plain:
        name = next(one for one in plain.namelist() if one.endswith("plan.json"))
        repacked(path, {name: plain.read(name) + b" "})
    found = collect(open_store(tmp_path / "kept"))
    assert len(found.runs) == 2
    assert "plan.json is not as the run wrote it" in found.left_out[0].text


@pytest.mark.parametrize(
    "name",
    ["../evil/config.json", "/etc/config.json", ".hidden/config.json", "run/evil.py", "config.json",
     "run/sub/config.json", "a\\b/config.json"],
)  # fmt: skip
def test_an_archive_of_other_things_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    archive(opened(runs), tmp_path / "kept")
    repacked(tmp_path / "kept" / "runs.zip", {name: b"{}"})
    with pytest.raises(StoreError, match="not an archive of runs"):
        collect(open_store(tmp_path / "kept"))


@pytest.mark.parametrize("content", [b"", b"PK", b"garbage" * 99])
def test_what_is_no_archive_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.zip").write_bytes(content)
    with pytest.raises(StoreError, match=r"runs\.zip cannot be read .* get the file again"):
        open_store(tmp_path).paths()


def test_every_truncation_is_noticed(runs: Path, tmp_path: Path) -> None:
    archive(opened(runs)[:1], tmp_path)
    whole = (tmp_path / "runs.zip").read_bytes()
    for end in range(0, len(whole), 97):
        (tmp_path / "runs.zip").write_bytes(whole[:end])
        with pytest.raises(StoreError):
            open_store(tmp_path).paths()


def test_a_member_that_would_fill_the_memory_is_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(opened(runs), tmp_path / "kept")
    monkeypatch.setattr("dualmix.store.archive.LARGEST", 200)
    with pytest.raises(StoreError, match="more than a run files"):
        Archive(tmp_path / "kept" / "runs.zip").files(opened(runs)[0].path.name)


def test_a_folder_stands_for_the_archived_run_of_its_name(runs: Path, tmp_path: Path) -> None:
    """So a run that is trained anew beside its archive counts, and once."""
    archive(opened(runs), tmp_path / "kept")
    (folder, *_) = opened(runs)
    beside = tmp_path / "kept" / folder.path.name
    shutil.copytree(folder.path, beside)
    (beside / "times.json").write_text('{"train_seconds": 7.0}')
    found = collect(open_store(tmp_path / "kept"))
    assert len(found.runs) == 3 and not found.left_out
    assert dict({run.name: run for run in found.runs}[folder.path.name].times) == {
        "train_seconds": 7.0
    }
    (beside / "scores.json").unlink()
    assert not open_store(tmp_path / "kept").at(beside).done
    assert [remark.run for remark in collect(open_store(tmp_path / "kept")).unfinished] == [
        folder.path.name
    ]


def test_an_archived_run_is_done_already(runs: Path, tmp_path: Path) -> None:
    fingerprint = collect(Store(runs)).runs[0].content.fingerprint
    archive(opened(runs), tmp_path)
    composed = compose("er", {"data.name": "cifar100", "seed": 1})
    folder = place(open_store(tmp_path), composed, fingerprint)
    assert folder.done and not folder.busy and not folder.path.exists()
    assert serves(folder, composed)
    assert folder.read_json("scores.json")["average_accuracy"] == pytest.approx(0.2)
    other = compose("er", {"data.name": "cifar100", "seed": 5})
    assert not place(open_store(tmp_path), other, fingerprint).done


def call(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_the_command(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept"
    assert call("archive", "--store", runs, "--to", kept, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (sorted(told["added"]), told["there"]) == (sorted(p.name for p in runs.iterdir()), 0)
    assert call("archive", runs / told["added"][0], "--to", kept) == 0
    assert "0 runs added, 1 were there already" in capsys.readouterr().out
    assert call("show", kept / told["added"][0], "--json") == 0
    assert json.loads(capsys.readouterr().out)["done"] is True
    assert call("compare", *told["added"][:2], "--store", kept, "--json") == 0
    assert call("status", "--store", kept) == 0
    assert "3 done" in capsys.readouterr().out
    back = tmp_path / "back"
    assert call("archive", "--extract", "er+da", "--store", kept, "--to", back) == 0
    assert [path.name for path in back.iterdir()] == [n for n in told["added"] if "+da" in n]
    assert call("archive", "--store", tmp_path / "none", "--to", kept) == 2
    assert "no finished run" in capsys.readouterr().err
