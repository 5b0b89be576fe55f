"""What is printed: right numbers, in 80 columns, of runs that are done and of runs that are not."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType

from dualmix.cli import main
from dualmix.cli.scores import BAR, _bar, curve, curve_rows, results
from dualmix.cli.settings import explanation, explanation_rows
from dualmix.cli.text import percent
from dualmix.config.compose import Composed, compose
from dualmix.runs.run import Stopped, run
from dualmix.store.folder import Folder
from dualmix.store.store import Store

pytestmark = pytest.mark.usefixtures("shallow")

Command = Callable[..., tuple[int, str, str]]


def printed(thing: RenderableType, width: int = 80) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width, markup=False, emoji=False).print(thing)
    text = screen.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    return text


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    x = np.random.default_rng(1).integers(0, 256, (36, 4, 4)).astype(np.uint8)
    np.savez(path, x=x, y=np.repeat(np.arange(6), 6))
    flags = {
        "data.name": "arrays",
        "data.path": str(path),
        "stream.tasks": 3,
        "stream.batch": 5,
        "model.width": 1,
    }
    return compose("er", {**flags, "method.memory": 5})


@pytest.fixture(scope="module")
def done(composed: Composed, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return run(composed, Store(tmp_path_factory.mktemp("done"))).folder


def unfinished(composed: Composed, store: Path, steps: int) -> Folder:
    calls = iter(range(1, 1000))
    with pytest.raises(Stopped):
        run(composed, Store(store), stop=lambda: next(calls) == steps)
    return Store(store).find("er")


def test_percent() -> None:
    assert percent(0.12345) == "12.3 %"
    assert percent(-0.5) == "-50.0 %"
    assert percent(1.0) == "100.0 %"
    assert percent(None) == percent(float("nan")) == "-"


def test_results_name_every_score_with_its_number() -> None:
    names = (
        "average_accuracy",
        "forgetting",
        "forgetting_ref",
        "anytime_accuracy",
        "learning_accuracy",
    )
    scores: dict[str, Any] = {name: (n + 1) / 10 for n, name in enumerate(names)}
    scores |= {"backward_transfer": -0.25, "online_accuracy": None}
    times = {
        "train_seconds": 61.0,
        "evaluate_seconds": 3.0,
        "images_per_second": 123.4,
        "peak_memory_mb": 456.7,
    }
    text = printed(results(Path("runs/x"), scores, times))
    for n, name in enumerate(names):
        assert re.search(rf"{name.replace('_', ' ')} +{10 * (n + 1)}\.0 %", text)
    assert re.search(r"backward transfer +-25\.0 %", text)
    assert re.search(r"online accuracy +- ", text)
    for part in ("1:01", "0:03", "123 images/s", "457 MB", "runs/x"):
        assert part in text


def test_curve_of_a_finished_run(done: Folder) -> None:
    scores = done.read_json("scores.json")
    text = printed(curve(done))
    assert "er, done" in text
    for task in range(3):
        row = next(line for line in text.splitlines() if re.match(rf" +{task + 1} +\d", line))
        assert percent(scores["average_accuracy_by_task"][task]) in row
        assert percent(scores["forgetting_by_task"][task]) in row
        assert percent(scores["er_old_new"][task]) in row
    assert re.search(rf"average accuracy +{re.escape(percent(scores['average_accuracy']))}", text)
    rows = json.loads(json.dumps(curve_rows(done), allow_nan=False))
    assert (rows["done"], rows["tasks"], rows["finished_tasks"]) == (True, 3, 3)
    assert rows["average_accuracy"] == scores["average_accuracy"]
    assert rows["times"]["train_seconds"] > 0


def test_curve_of_an_unfinished_run(composed: Composed, done: Folder, tmp_path: Path) -> None:
    whole = done.read_json("scores.json")
    folder = unfinished(composed, tmp_path, 5)
    before = {p.name: p.read_bytes() for p in folder.path.iterdir()}
    rows = json.loads(json.dumps(curve_rows(folder), allow_nan=False))
    assert (rows["done"], rows["tasks"], rows["finished_tasks"]) == (False, 3, 2)
    assert rows["average_accuracy_by_task"] == whole["average_accuracy_by_task"][:2]
    assert rows["accuracy_matrix"] == [row[:2] for row in whole["accuracy_matrix"][:2]]
    text = printed(curve(folder))
    assert "2 of 3 tasks" in text
    assert percent(whole["average_accuracy_by_task"][1]) in text
    assert before == {p.name: p.read_bytes() for p in folder.path.iterdir()}, (
        "looking changes nothing"
    )


def test_curve_of_a_run_without_a_finished_task(composed: Composed, tmp_path: Path) -> None:
    folder = unfinished(composed, tmp_path, 1)
    assert curve_rows(folder)["finished_tasks"] == 0
    assert "0 of 3 tasks" in printed(curve(folder))
    for path in folder.path.glob("snapshot-*"):
        path.unlink()
    assert "0 of 3 tasks" in printed(curve(folder))


def test_the_show_command(
    done: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store = str(done.path.parent)
    for words in (["er", "--store", store], [str(done.path)], [done.key[:8], "--store", store]):
        with pytest.raises(SystemExit) as left:
            main(["show", *words])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert "er, done" in text
        assert all(len(line) <= 80 for line in text.splitlines())
    with pytest.raises(SystemExit):
        main(["show", "er", "--store", store, "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows["run"] == str(done.path)
    assert rows["average_accuracy"] == done.read_json("scores.json")["average_accuracy"]


def test_several_runs_side_by_side_and_their_steps(
    composed: Composed, tmp_path: Path, dualmix_: Command
) -> None:
    config = composed.config
    for seed in (1, 2):
        told = config.model_copy(update={"seed": seed, "log_every": 2})
        run(Composed(composed.label, told, composed.origins), Store(tmp_path))
    code, out, err = dualmix_("show", "s1", "s2", "--steps", "--store", tmp_path)
    assert (code, err) == (0, "")
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    shares = [curve_rows(Store(tmp_path).find(f"s{n}"))["average_accuracy"] for n in (1, 2)]
    last = [line.split() for line in out.splitlines() if line.split()[:1] == ["3"]]
    assert [*(f"{100 * share:.1f}" for share in shares)] in [row[1::2] for row in last]
    for name in ("er seed 1", "er seed 2"):
        assert out.count(f" {name} ") >= 3, "a curve, the loss and the online accuracy"
    code, out, _ = dualmix_("show", "s1", "s2", "--json", "--steps", "--store", tmp_path)
    rows = json.loads(out)
    assert [row["average_accuracy"] for row in rows] == shares
    assert [step["step"] for step in rows[0]["steps"]] == [2, 4, 6]


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("scores.json", "average_accuracy", 10**400),
        ("scores.json", "average_accuracy", 0.123),
        ("times.json", "train_seconds", "9"),
        ("plan.json", "tasks", "x"),
    ],
)
def test_a_run_without_sums_is_not_believed(
    done: Folder, dualmix_: Command, tmp_path: Path, name: str, part: str, value: Any
) -> None:
    """As runs of earlier versions are, and as whoever writes the sums too can make them."""
    folder = Path(shutil.copytree(done.path, tmp_path / done.path.name))
    (folder / "sums.json").unlink()
    record = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**record, part: value}))
    code, out, err = dualmix_("show", folder)
    assert (code, out) == (2, "") and f"{folder.name} cannot be shown: " in err


def test_a_configuration_that_is_nested_too_deep(
    done: Folder, dualmix_: Command, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(done.path, tmp_path / done.path.name))
    (folder / "sums.json").unlink()
    deep = '{"a":' * 900 + "1" + "}" * 900
    (folder / "config.json").write_text(f'{{"key": "k", "label": "l", "config": {deep}}}')
    assert dualmix_("show", folder)[0] == 0
    code, _, err = dualmix_("compare", done.path, folder)
    assert code == 2 and "cannot be compared" in err


def test_steps_that_were_not_logged(done: Folder, dualmix_: Command) -> None:
    code, _, err = dualmix_("show", done.path, "--steps")
    assert code == 2 and "train it with --log_every 10 --fresh" in err


def test_bars_grow_with_the_share() -> None:
    lengths = [len(_bar(share, 0.8)) for share in (0, 0.2, 0.4, 0.8)]
    assert lengths == [0, BAR // 4, BAR // 2, BAR]
    assert _bar(0.0, 0.0) == ""
    assert set(_bar(0.8, 0.8)) == {"█"}


def test_explanation_shows_value_origin_paper_and_choice() -> None:
    flags = {
        "method.memory": 50,
        "stream.class_order": [2, 1, 0],
        "model.mean": [0.5],
        "model.std": [0.25],
    }
    digits = printed(explanation(compose("er", flags)))
    assert re.search(r" lr +0\.03 +default for +0\.1 +ours", digits)
    text = printed(explanation(compose("er", {**flags, "data.name": "cifar100"})))
    assert re.search(r" memory +50 +flag +1000, 2000", text)
    assert re.search(r" class_order +\[2,1,0\] +flag", text)
    assert re.search(r" lr +0\.1 +default +0\.1 +the paper's", text)
    assert re.search(r" size +none +default", text)
    assert "er: Chaudhry et al., 2019, arXiv:1902.10486." in text


@pytest.mark.parametrize(
    ("preset", "choices"),
    {
        "er+dualmix": {
            "reservoir": "reference",
            "mix.stream": "calibrated",
            "mix.kappa": "paper",
            "mix.each": "ours",
        },
        "dvc": {
            "per_sample": "reference",
            "jitter_p": "reference",
            "bn": "reference",
            "reservoir": "reference",
        },
        "mir": {"bn": "reference", "subsample": "reference"},
        "scr-100": {"memory_batch": "reference"},
        "iid-offline": {"weight_decay": "inferred"},
        "der++": {"reservoir": "ours"},
    }.items(),
)
def test_explain_says_whose_choice_the_value_in_force_is(
    preset: str, choices: dict[str, str]
) -> None:
    rows = {
        row["setting"]: row["choice"]
        for row in explanation_rows(compose(preset, {"method.lr": 0.2}))
    }
    assert {path: rows[f"method.{path}"] for path in choices} == choices
    assert rows["method.lr"] == "yours"


def test_a_long_value_is_folded_not_cut() -> None:
    order = list(range(100))
    text = printed(explanation(compose("er", {"stream.class_order": order})))
    shown = "".join(re.findall(r"^.{14,24}?([\[\]\d,]{2,})(?: |$)", text, re.MULTILINE))
    assert json.dumps(order).replace(" ", "") in shown
    rows = {
        row["setting"]: row
        for row in explanation_rows(compose("er", {"stream.class_order": order}))
    }
    assert "".join(str(rows["stream.class_order"]["value"]).split()) == json.dumps(order).replace(
        " ", ""
    )
