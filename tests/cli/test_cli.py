"""The command line: what each command prints, where it prints it, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualmix.cli.flags import split
from dualmix.cli.parser import make_parser
from dualmix.config.compose import compose, walk
from dualmix.registry import additions, presets
from tests.kit import heeded

pytestmark = pytest.mark.usefixtures("shallow")

Command = Callable[..., tuple[int, str, str]]
SCREEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the words of a run of 8 steps that takes a moment."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    x = np.random.default_rng(1).integers(0, 256, (24, 4, 4)).astype(np.uint8)
    np.savez(path, x=x, y=np.repeat(np.arange(4), 6))
    flags = {
        "data.name": "arrays",
        "data.path": path,
        "stream.tasks": 2,
        "stream.batch": 3,
        "model.width": 1,
    }
    return [
        "er",
        "--method.memory",
        "5",
        *(str(w) for name, v in flags.items() for w in (f"--{name}", v)),
    ]


def narrow(text: str) -> bool:
    return all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_the_help_of_every_command_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parsers = [make_parser()]
    for parser in parsers:
        parsers += parser.commands.values()
        assert [line for line in parser.format_help().splitlines() if len(line) > 80] == []
    assert len(parsers) > 20


@pytest.mark.parametrize(
    ("words", "own", "settings"),
    [
        ("run er --seed 3 --json", "run er --json", {"seed": "3"}),
        (
            "run --method.memory=7 er --store s --quiet",
            "run er --store s --quiet",
            {"method.memory": "7"},
        ),
        ("run er --track wandb --device cpu", "run er --track wandb", {"device": "cpu"}),
        ("run er --seeds 3", "run er", {"seeds": "3"}),
        (
            "sweep table1 --seeds 3 --memory 5 --threads 1",
            "sweep table1 --seeds 3 --memory 5",
            {"threads": "1"},
        ),
        (
            "data --data.root d verify cifar100 --json",
            "data verify cifar100 --json",
            {"data.root": "d"},
        ),
        ("data get cifar100 --url u", "data get cifar100 --url u", {}),
        ("show er --seed 3", "show er --seed 3", {}),
        ("nonsense --seed 3", "nonsense --seed 3", {}),
    ],
)
def test_a_commands_own_flags_are_those_of_its_parser(
    words: str, own: str, settings: dict[str, str]
) -> None:
    """A command that has no --seeds takes it for a setting, and compose says that it is none."""
    found = split(words.split(), make_parser())
    assert (found.own, found.settings, found.faults) == (own.split(), settings, [])


def test_help_is_quick_and_needs_no_torch() -> None:
    """Time is that of the processor, so that other processes do not count."""
    script = (
        "import sys, time\n"
        "from dualmix.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as left: code = left.code\n"
        "print(time.process_time(), *sorted(sys.modules))"
    )
    took = []
    for _ in range(3):
        words = [sys.executable, "-c", script]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        seconds, *modules = said.splitlines()[-1].split()
        took.append(float(seconds))
        assert not {"torch", "numpy", "pydantic", "rich", "sklearn", "scipy"} & set(modules)
    assert min(took) < 0.5
    for word in ("run", "explain", "methods", "show", "data", "first steps", "Exit codes"):
        assert word in said


def test_version_and_help_of_commands(dualmix_: Command) -> None:
    code, out, _ = dualmix_("--version")
    assert code == 0
    assert re.fullmatch(r"dualmix \d+\.\d+\.\d+\n", out)
    for words in (["run"], ["explain"], ["methods"], ["show"], ["data"], ["demo"]):
        code, out, err = dualmix_(*words, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: dualmix {words[0]}")


def test_help_of_a_preset_lists_every_setting(dualmix_: Command) -> None:
    code, out, _ = dualmix_("run", "er", "--help")
    assert code == 0
    assert narrow(out)
    for path, _ in walk(type(compose("er").config)):
        assert f"--{path} " in out
    assert "1000" in out
    assert not any(Path.cwd().iterdir())


def test_methods(dualmix_: Command) -> None:
    code, out, err = dualmix_("methods")
    assert (code, err) == (0, "")
    assert narrow(out)
    hosts = {
        name for name in presets() if not any(name.endswith(f"+{extra}") for extra in additions())
    }
    for name in (*hosts, *(f"+{extra}" for extra in additions())):
        assert re.search(rf"^ *{re.escape(name)} ", out, re.MULTILINE), name
    code, out, _ = dualmix_("methods", "--json")
    assert code == 0
    listed = json.loads(out)
    assert set(listed) == set(presets())
    assert all(row["doc"] and row["paper"] for row in listed.values())


def test_explain(dualmix_: Command) -> None:
    code, out, err = dualmix_("explain", "er", "--method.memory=77", "--data.name", "cifar100")
    assert (code, err) == (0, "")
    assert narrow(out)
    rows = [line.split() for line in out.splitlines()]
    assert ["memory", "77", "flag"] in [row[:3] for row in rows]
    assert ["reservoir", "ref", "preset"] in [row[:3] for row in rows]
    assert ["batch", "10", "default"] in [row[:3] for row in rows]
    code, out, _ = dualmix_(
        "explain", "er", "--method.memory=77", "--data.name", "cifar100", "--json"
    )
    assert code == 0
    listed = {row["setting"]: row for row in json.loads(out)}
    assert set(listed) == {path for path, _ in walk(type(compose("er").config))}
    assert (listed["method.memory"]["value"], listed["method.memory"]["from"]) == (77, "flag")
    assert listed["method.memory"]["paper"] == "1000, 2000 or 5000"
    assert (listed["stream.tasks"]["value"], listed["stream.tasks"]["from"]) == (
        20,
        "default for cifar100",
    )
    assert (listed["method.memory"]["choice"], listed["method.lr"]["choice"]) == ("yours", "paper")
    assert listed["data.root"]["value"] is None
    assert {row["choice"] for row in listed.values()} == {"paper", "reference", "ours", "yours"}
    assert not any(Path.cwd().iterdir())


def test_run_prints_plain_lines_and_the_result(dualmix_: Command, tiny: list[str]) -> None:
    code, out, err = dualmix_("run", *tiny)
    assert code == 0
    assert "\x1b" not in out + err
    assert narrow(out)
    assert "average accuracy" in out
    assert "forgetting" in out
    (folder,) = Path("runs").iterdir()
    assert folder.name in out.replace("\n", "")
    assert "8 steps, 2 tasks" in err
    assert len(re.findall(r"task +\d/2 done", err)) == 2
    scores = json.loads((folder / "scores.json").read_text())
    assert f"{100 * scores['average_accuracy']:.1f} %" in out

    code, again, err = dualmix_("run", *tiny)
    assert code == 0
    assert "done already" in err
    assert "task" not in err.replace(str(folder), "")
    assert again == out

    code, _, err = dualmix_("run", *tiny, "--fresh")
    assert code == 0
    assert "done already" not in err
    assert "8 steps" in err

    code, out, err = dualmix_("run", folder)
    assert code == 0
    assert "done already" in err
    assert [p.name for p in Path("runs").iterdir()] == [folder.name]


def test_quiet_and_json(dualmix_: Command, tiny: list[str]) -> None:
    code, out, err = dualmix_("run", *tiny, "--quiet")
    assert (code, err) == (0, "")
    assert "average accuracy" in out
    for more in ([], ["--fresh"]):
        code, out, err = dualmix_("run", *tiny, "--json", *more)
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        said = json.loads(out)
        scores = json.loads((Path(said["run"]) / "scores.json").read_text())
        assert said["scores"] == scores
        assert said["times"]["train_seconds"] > 0


@pytest.mark.parametrize(
    "flags", [["--seed=3"], ["--seed", "3"], ["--order_seed", "3", "--run-seed", "3"]]
)
def test_spellings_of_one_run(
    dualmix_: Command, tiny: list[str], flags: list[str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    code, _, _ = dualmix_("run", *tiny, "--seed", "3", "--json", "--store", store)
    assert code == 0
    code, _, err = dualmix_("run", *flags, *tiny, f"--store={store}")
    assert code == 0
    assert "done already" in err
    assert len(list(store.iterdir())) == 1
    assert not any(Path.cwd().iterdir())


def test_the_store_of_the_environment(
    dualmix_: Command, tiny: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DUALMIX_STORE", str(tmp_path / "mine"))
    assert dualmix_("run", *tiny, "--quiet")[0] == 0
    assert len(list((tmp_path / "mine").iterdir())) == 1
    assert dualmix_("show", "er")[0] == 0
    assert not any(Path.cwd().iterdir())


@pytest.mark.slow
def test_a_store_with_an_odd_name(dualmix_: Command, tiny: list[str]) -> None:
    for name in ("a[b]", "[red]x", "[/x]", "ä ö", ":smile:", "*"):
        code, out, err = dualmix_("run", *tiny, "--store", name)
        assert code == 0
        (folder,) = Path(name).iterdir()
        assert str(folder) in out.replace("\n", "")
        assert str(folder) in err
        code, _, err = dualmix_("run", *tiny, "--store", name)
        assert "done already" in err
        assert str(folder) in err
        assert dualmix_("show", "er", "--store", name)[0] == 0


def test_a_configuration_file_as_base(dualmix_: Command, tiny: list[str]) -> None:
    assert dualmix_("run", *tiny, "--quiet")[0] == 0
    (folder,) = Path("runs").iterdir()
    record = json.loads((folder / "config.json").read_text())["config"]
    Path("mine.json").write_text(json.dumps(record))
    code, _, err = dualmix_("run", "mine.json")
    assert code == 0
    assert "done already" in err
    code, out, _ = dualmix_("explain", "mine.json", "--seed", "4", "--json")
    origins = {row["setting"]: row["from"] for row in json.loads(out)}
    assert (origins["seed"], origins["method.memory"]) == ("flag", "file mine.json")


PLUGIN = """
import dualmix
from dualmix.methods import Descent, Finetune

@dualmix.register("mine-{name}")
class Mine(Descent):
    \"\"\"A method of my own.\"\"\"

    twist: int = dualmix.setting(3, "how much", ge=0)

    def build(self, model, rng):
        return Finetune(lr=self.lr).build(model, rng)
"""


def test_a_plugin(dualmix_: Command, tiny: list[str]) -> None:
    Path("mine_a.py").write_text(PLUGIN.format(name="a"))
    rest = [word for word in tiny[1:] if word not in ("--method.memory", "5")]
    code, out, _ = dualmix_(
        "run", "mine-a", *rest, "--plugin", "mine_a.py", "--method.twist", "4", "--json"
    )
    assert code == 0
    saved = json.loads((Path(json.loads(out)["run"]) / "config.json").read_text())
    assert saved["config"]["method"]["kind"] == "mine-a"
    assert saved["config"]["method"]["twist"] == 4
    assert "A method of my own." in dualmix_("methods", "--plugin", "mine_a.py")[1]
    code, _, err = dualmix_("run", "mine-a", "--plugin", "mine_a.py", "--method.twits", "4")
    assert code == 2
    assert "--method.twist" in err


@pytest.mark.slow
def test_on_a_terminal(tiny: list[str], tmp_path: Path) -> None:
    """A real terminal of 80 columns gets colours and a moving line; what is piped on gets none."""
    master, slave = pty.openpty()
    words = [
        sys.executable,
        "-m",
        "dualmix",
        "run",
        *tiny,
        "--stream.epochs",
        "20",
        "--store",
        str(tmp_path),
    ]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=slave, stdin=slave, env=env)
    os.close(slave)
    screen = b""
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:
            break
        if not got:
            break
        screen += got
    out = process.stdout.read().decode()  # type: ignore[union-attr]
    process.stdout.close()  # type: ignore[union-attr]
    assert process.wait() == 0
    os.close(master)
    shown = screen.decode()
    assert "\x1b[" in shown
    live = [line for line in re.split(r"[\r\n]", SCREEN.sub("", shown)) if "img/s" in line]
    assert live
    assert all(len(line.rstrip()) <= 80 for line in live)
    for fact in (r"[12]/2", r"\d+/160", r"loss +\d", r"\d+ ?%", r"\d+ img/s", r"ETA +\d+:\d\d"):
        assert re.search(fact, live[-1]), f"{fact} is not in {live[-1]!r}"
    assert "\x1b" not in out
    assert "average accuracy" in out


@pytest.mark.slow
def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    words = f"{sys.executable} -m dualmix explain er | head -c 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "--out", "FILE/x.html", "--store", "s"], "cannot be made"),
        (["report", "--figures", "FILE/f", "--store", "s"], "cannot be made"),
        (["export", "--out", "FILE/x", "--store", "s"], "cannot be made"),
        (["run", "er", "--store", ""], "The store has no name"),
        (["run", "none.yaml"], "There is no file none.yaml"),
        (["sweep", "none.yaml"], "There is no grid file none.yaml"),
        (["run", "er", "--method.memory", "999999999999999"], "does not fit: make it smaller"),
    ],
)
def test_what_cannot_work_is_said_before_the_work(
    words: list[str], says: str, dualmix_: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = dualmix_(*(word.replace("FILE", str(tmp_path / "file")) for word in words))
    assert code == 2 and says in err and err.count("\n") == 1 + err.count("note:")


@pytest.mark.slow
def test_ctrl_c_while_torch_is_imported(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dualmix", "run", "er", "--store", str(tmp_path / "runs")]
    with heeded(signal.SIGINT):
        process = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
        )
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and "libtorch" not in maps.read_text():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 130, said
    assert "Traceback" not in said


def test_interrupted_and_gone_on_with(
    dualmix_: Command, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualmix.runs import run as module

    assert dualmix_("run", *tiny, "--store", "whole", "--quiet")[0] == 0
    real, calls = module.run, iter(range(100))

    def interrupt() -> bool:
        if next(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    def run(*given: Any, stop: Callable[[], bool], **named: Any) -> object:
        return real(*given, **named, stop=lambda: interrupt() or stop())

    with monkeypatch.context() as patch:
        patch.setattr(module, "run", run)
        code, out, err = dualmix_("run", *tiny)
    assert (code, out) == (130, "")
    assert "step 5 of 8" in err
    assert "same command" in err
    code, _, err = dualmix_("run", *tiny)
    assert code == 0
    assert "step 5 of 8" in err
    (one,), (other,) = Path("whole").iterdir(), Path("runs").iterdir()
    for name in ("learner.safetensors", "scores.json", "confusion.npz"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_misspelt_flag_and_a_missing_value_hide_no_other_fault(dualmix_: Command) -> None:
    code, out, err = dualmix_("run", "er", "--seed", "--method.memroy", "3", "--quite", "--fres")
    assert (code, out) == (2, "")
    for words in (
        "--seed: needs a value",
        "did you mean --method.memory?",
        "mean --quiet?",
        "mean --fresh?",
    ):
        assert words in err


@pytest.mark.parametrize(
    ("command", "instead"),
    [("bench", "python -m benchmarks"), ("calibrate", "python -m studies.calibrate")],
)
def test_a_command_that_moved_says_where_it_is(
    dualmix_: Command, command: str, instead: str
) -> None:
    code, out, err = dualmix_(command, "--seeds", "3")
    assert code == 2 and not out and f"run `{instead}`" in err and err.count("\n") == 1
