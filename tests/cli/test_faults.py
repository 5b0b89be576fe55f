"""Everything a user can get wrong: one clear sentence, exit code 2, and nothing is harmed."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dualmix
from dualmix.cli import main
from dualmix.errors import ConfigError, DataError, InputError
from dualmix.store import snapshot
from dualmix.sweeps.sweep import read_grid
from tests.kit import RESULTS

Command = Callable[..., tuple[int, str, str]]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b""
        for p in folder.rglob("*")
    }


def refused(answer: tuple[int, str, str], *words: str, lines: int = 3) -> str:
    code, out, err = answer
    assert code == 2, err
    assert not out
    assert "Traceback" not in err
    _, *found = re.split(r"^dualmix: ", err, flags=re.MULTILINE)
    assert len(found) == 1, err
    assert len(found[0].splitlines()) <= lines
    for word in words:
        assert word in found[0], f"{word!r} is not in {err!r}"
    return found[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run err", ["'err'", "did you mean er?"]),
        ("explain err", ["'err'", "did you mean er?"]),
        ("run er --method.memroy 5", ["--method.memroy", "--method.memory"]),
        ("explain er --method.memroy 5", ["--method.memroy", "--method.memory"]),
        ("run er --method.memory -1", ["--method.memory", "-1"]),
        ("run er --method.memory=-1", ["--method.memory", "-1"]),
        ("run er --seed abc", ["--seed", "abc"]),
        ("run er --stream.batch 0", ["--stream.batch", "1"]),
        ("run er --data.name cifra100", ["cifra100", "cifar100"]),
        ("run er --plugin no.py", ["no.py"]),
        ("rnu er", ["rnu", "run"]),
        ("run", ["PRESET"]),
        ("run er --method.memory", ["--method.memory", "value"]),
        ("run er --method.memory --seed 3", ["--method.memory", "value"]),
        ("run er --store", ["--store"]),
        ("run er er", ["er"]),
        ("run no/such/file.yaml", ["no/such/file.yaml"]),
        ("run er --stream.tasks 50", ["stream.tasks", "50", "10"]),
        ("run er --stream.class_order [3,99]", ["class_order", "99"]),
        ("run er --stream.incomplete drop --stream.batch 5000", ["5000", "keep"]),
        ("run er --data.name folder --data.path nowhere", ["nowhere"]),
        ("run er --data.name arrays --data.path nowhere.npz", ["nowhere.npz"]),
        (
            "run er --data.name cifar100 --data.root nowhere",
            ["CIFAR-100", "nowhere", "dualmix data get cifar100"],
        ),
        ("show nothing", ["nothing", "runs"]),
        ("show nothing --store elsewhere", ["nothing", "elsewhere"]),
        ("methods --plugin no.py", ["no.py"]),
        ("methods er", ["er"]),
        ("demo --seeds 0", ["--seeds"]),
        ("demo --seeds=--", ["--seeds=--"]),
        ("status --store a\0b", ["a\\x00b"]),
    ],
)
def test_bad_usage(dualmix_: Command, words: str, said: list[str]) -> None:
    refused(dualmix_(*words.split()), *said)
    assert not any(Path.cwd().iterdir())


def test_all_faults_of_a_command_at_once(dualmix_: Command) -> None:
    words = (
        "run er --seed abc --stream.bacth 3 --method.memory -1 --data.name cifra100 "
        "--stream.epochs 0 --threads"
    )
    expected = (
        "--seed",
        "--stream.bacth",
        "--stream.batch",
        "--method.memory",
        "cifar100",
        "--stream.epochs",
    )
    said = refused(dualmix_(*words.split()), *expected, "--threads", lines=7)
    assert len(said.splitlines()) == 7
    assert not any(Path.cwd().iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_where_there_is_none(dualmix_: Command) -> None:
    refused(dualmix_("run", "er", "--device", "cuda"), "CUDA", "cpu")
    assert not any(Path.cwd().iterdir())


@pytest.mark.slow
def test_from_outside_too(tmp_path: Path) -> None:
    for words, said in (
        ("run err", "did you mean er?"),
        ("run er --seed abc --stream.batch 0", "2 faults"),
    ):
        command = [sys.executable, "-m", "dualmix", *words.split()]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=900
        )
        assert ended.returncode == 2
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
        assert not ended.stdout
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00\xff", b"{", b"[]", b"method: 3", b"a: b: c", b"x: 2021-99-99"]
)
def test_a_garbage_config_file(dualmix_: Command, garbage: bytes) -> None:
    Path("mine.yaml").write_bytes(garbage)
    before = tree(Path.cwd())
    refused(dualmix_("run", "mine.yaml"), "mine.yaml", lines=8)
    refused(dualmix_("explain", "mine.yaml"), "mine.yaml", lines=8)
    assert tree(Path.cwd()) == before


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1/0", "ZeroDivisionError"),
        ("import nowhere_at_all", "nowhere_at_all"),
        ("def", "SyntaxError"),
        (
            "import dualmix\n@dualmix.register('er')\nclass Mine(dualmix.Method):\n    'x'",
            "'er' is already defined",
        ),
    ],
)
def test_a_broken_plugin(dualmix_: Command, code: str, said: str) -> None:
    Path("mine.py").write_text(code)
    refused(dualmix_("run", "er", "--plugin", "mine.py"), said)


@pytest.mark.parametrize("garbage", ["", "{", "[]", "{}", '{"key": 3}'])
def test_a_store_with_garbage(dualmix_: Command, garbage: str) -> None:
    run = Path("runs/er-digits-s0-0123456789ab")
    run.mkdir(parents=True)
    (run / "config.json").write_text(garbage)
    before = tree(Path.cwd())
    refused(dualmix_("show", "er"), "config.json")
    refused(dualmix_("show", run), "config.json")
    refused(dualmix_("run", run), "config.json", lines=8)
    assert tree(Path.cwd()) == before


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 25)]
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "more than 100,000 values"),
        ("a: &a [*a]", "holds itself"),
        ("method: {kind: er, lr: 2020-01-01}", "holds a date"),
        ("method: {kind: er, lr: 2020-01-01T00:00:00Z}", "holds a datetime"),
        ("method: {kind: er, lr: !!binary aGVsbG8=}", "holds a bytes"),
        ("method: {kind: er}\nstream: {class_order: !!set {1, 2}}", "holds a set"),
        ("method: {kind: er}\n3: 4", "the name 3"),
        ('method: {kind: er}\ndata: {path: "a\\0b"}', "no name or path can hold"),
        ('method: {kind: "\\ud800"}', "no name or path can hold"),
        ("[" * 3000, "no YAML or JSON"),
        ("x: " + "9" * 5_000_000, "longer than"),
        ("x: " + "9" * 10_000, "no YAML or JSON"),
    ],
)
@pytest.mark.slow
def test_yaml_that_no_setting_can_be(dualmix_: Command, text: str, said: str) -> None:
    assert len(BOMB.splitlines()) == 25
    Path("mine.yaml").write_text(text)
    refused(dualmix_("run", "mine.yaml"), "mine.yaml", said)
    refused(dualmix_("sweep", "mine.yaml"), "mine.yaml", said)


def test_aliases_that_repeat_a_little_are_read(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("presets: [er]\ngrid: {method.memory: &m [1, 2], stream.batch: *m}\n")
    assert len(read_grid(path)) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run er --method.lr 1e39", "beyond the numbers of a network"),
        ("run er --method.lr -1e39", "--method.lr"),
        ("run er --model.mean [1e39] --model.std [1]", "beyond the numbers of a network"),
        ("run er --threads 9223372036854775808", "1024"),
        ("run er --threads 9223372036854775807", "1024"),
        ("run er --save_every 9223372036854775808", "--save_every"),
        ("run er --stream.class_order [9223372036854775808]", "64 bits"),
        ("run er+dualmix --method.mix.copies 999999999", "copies"),
        ("run er --seed 1e999", "--seed"),
        ("sweep table1 --seeds 999999999999", "100,000 at most"),
        ("sweep table1 --on ray --cpus nan", "--cpus"),
        ("sweep table1 --on ray --cpus inf", "--cpus"),
    ],
)
def test_numbers_that_no_machine_holds(dualmix_: Command, words: str, said: str) -> None:
    refused(dualmix_(*words.split()), said)
    assert not any(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("presets: er", "presets is a list of names"),
        ("presets: [3, [4]]", "presets is a list of names"),
        ("presets: [er]\nseeds: 999999999999", "from 1 to 100,000"),
        ("presets: [er]\nseeds: [a]", "--seed"),
    ],
)
def test_a_grid_that_is_none(dualmix_: Command, text: str, said: str) -> None:
    Path("mine.yaml").write_text(text)
    refused(dualmix_("sweep", "mine.yaml"), said)


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        f"run {LONG}",
        f"explain {LONG}.yaml",
        f"run er --store {LONG}",
        f"run er --plugin {LONG}",
        f"run er --data.name arrays --data.path {LONG}",
        f"run er --data.name folder --data.path {LONG}/x",
        f"run er --data.name cifar100 --data.root {LONG}",
        f"show {LONG}",
        f"status --store {LONG}",
        f"sweep {LONG}",
        f"report --store {LONG} --out x.md",
        f"report --out {LONG}.md --store store",
        f"export --out {LONG} --store store",
        f"compare {LONG} {LONG}",
        f"data verify cifar100 --data.root {LONG}",
        "export --out . --store store",
        "export --out .. --store store",
        "export --out / --store store",
        "report --out . --store store",
        "run er --store /dev/null/x",
        "run er --data.name cifar100 --data.root ~nobody-of-that-name/x",
    ],
)
def test_a_path_that_the_system_refuses(
    dualmix_: Command, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    Path("store").mkdir()
    monkeypatch.delenv("DUALMIX_DEBUG")
    refused(dualmix_(*words.split()))
    assert [path.name for path in Path.cwd().iterdir()] == ["store"]


@pytest.mark.parametrize("words", ["run er", "data list", "status --store file:///nowhere/runs"])
def test_a_user_without_a_home(
    dualmix_: Command, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """A container's user may have neither HOME nor an entry in the list of users."""
    import pwd

    def unknown(*given: object) -> None:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "USER", "LOGNAME", "DUALMIX_DATA", "DUALMIX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    refused(dualmix_(*words.split()), "no home folder", "DUALMIX_DATA", "DUALMIX_CACHE")
    assert not any(Path.cwd().iterdir())


def test_a_user_without_a_home_but_with_folders(
    dualmix_: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny: list[str],
) -> None:
    monkeypatch.setattr("dualmix.data.cache.cache_folder", _homeless)
    monkeypatch.setenv("DUALMIX_DATA", str(tmp_path))
    code, _, err = dualmix_(*tiny)
    assert code == 0, err


def _homeless() -> Path:
    raise ConfigError("no home")


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def cifar(root: Path, *, train: bytes | None = None) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3072)).astype(np.uint8)
    good = pickle.dumps({"data": pixels, "fine_labels": [n % 10 for n in range(20)]}, protocol=2)
    (folder / "train").write_bytes(good if train is None else train)
    (folder / "test").write_bytes(good)
    (folder / "meta").write_bytes(
        pickle.dumps({"fine_label_names": [str(n) for n in range(10)]}, protocol=2)
    )


def test_a_truncated_cifar_file(dualmix_: Command, tmp_path: Path) -> None:
    cifar(tmp_path / "good")
    content = (tmp_path / "good" / "cifar-100-python" / "train").read_bytes()
    for number, size in enumerate((0, 1, len(content) // 2, len(content) - 1)):
        root = tmp_path / str(number)
        cifar(root, train=content[:size])
        refused(
            dualmix_("run", "er", "--data.name", "cifar100", "--data.root", root),
            "train",
            "cut short or damaged",
        )
        assert (root / "cifar-100-python" / "train").read_bytes() == content[:size]
        assert not any(Path.cwd().iterdir())
        with pytest.raises(DataError):
            dualmix.load_data(dualmix.Data(name="cifar100", root=root))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_os_system(dualmix_: Command, tmp_path: Path, protocol: int) -> None:
    for number, evil in enumerate((_Evil(), {"data": _Evil(), "fine_labels": [1]})):
        cifar(tmp_path / str(number), train=pickle.dumps(evil, protocol=protocol))
        flags = ("--data.name", "cifar100", "--data.root", tmp_path / str(number))
        refused(dualmix_("run", "er", *flags), "train")
    assert not any(Path.cwd().iterdir())
    assert not list(tmp_path.rglob("ran"))


def arrays(path: Path, **changes: Any) -> Path:
    y = np.repeat(np.arange(4), 6)
    x = np.random.default_rng(1).integers(0, 256, (24, 8, 8, 1)).astype(np.uint8)
    np.savez(path, **{"x": x, "y": y, **changes})
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": np.repeat(np.arange(4), 6) + 0.5}, ["y", "whole numbers"]),
        ({"y": np.full(24, np.nan)}, ["y"]),
        ({"y": np.arange(3)}, ["y", "24"]),
        ({"x": np.full((24, 8, 8), np.nan)}, ["x", "NaN"]),
        ({"x": np.full((24, 8, 8), 7.0)}, ["x", "[0, 1]"]),
        ({"x": np.zeros((24, 8, 8, 2), np.uint8)}, ["x", "(24, 8, 8, 2)"]),
        ({"x": np.zeros(24, np.uint8)}, ["x"]),
        ({"x": np.zeros((0, 8, 8), np.uint8), "y": np.zeros(0, np.int64)}, []),
        ({"x": np.array([{"a": 1}] * 24)}, ["x"]),
        ({"y": np.array([object()] * 24)}, ["y"]),
    ],
)
def test_data_that_cannot_be_learned(
    dualmix_: Command, tmp_path: Path, changes: dict[str, Any], said: list[str]
) -> None:
    path = arrays(tmp_path / "mine.npz", **changes)
    before = path.read_bytes()
    refused(
        dualmix_("run", "er", "--data.name", "arrays", "--data.path", path),
        "mine.npz" if said else "",
        *said,
    )
    assert path.read_bytes() == before
    assert not any(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (np.zeros((2, 1, 8, 8), np.uint8), [0.5, 1.0], "whole numbers"),
        (np.zeros((2, 1, 8, 8), np.uint8), [np.nan, 1.0], "whole numbers"),
        (np.full((2, 1, 8, 8), np.nan), [0, 1], "NaN"),
        (np.full((2, 1, 8, 8), np.inf), [0, 1], "NaN or infinite"),
        (np.zeros((2, 3, 8, 8), np.uint8), [0, 1], "1 channels"),
        (np.zeros((0, 1, 8, 8), np.uint8), [], "empty"),
        (np.zeros((2, 1, 8, 8), np.uint8), [0], "one for each of 2"),
        (np.zeros((2, 1, 8, 8), np.uint8), ["a", "b"], "one kind"),
        (np.full((2, 1, 8, 8), 200.0), [0, 1], r"\[0, 1\]"),
        (np.zeros((2, 1, 8, 8), np.int64), [0, 1], "uint8"),
    ],
)
def test_a_batch_that_cannot_be_learned_leaves_the_learner_alone(
    tmp_path: Path, x: Any, y: Any, said: str
) -> None:
    learner = dualmix.create("er", (1, 8, 8), memory=3)
    learner.observe(np.zeros((2, 1, 8, 8), np.uint8), [5, 6])
    dualmix.save(learner, tmp_path / "before")
    with pytest.raises(InputError, match=said) as caught:
        learner.observe(x, y)
    assert str(caught.value).count("\n") == 0
    dualmix.save(learner, tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the words of a run of 9 steps that takes a moment."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    arrays(path)
    flags = {
        "data.name": "arrays",
        "data.path": path,
        "stream.tasks": 2,
        "stream.batch": 3,
        "model.width": 1,
    }
    more = {"method.memory": 5, "save_every": 2}
    return [
        "run",
        "er",
        *(str(w) for name, value in {**flags, **more}.items() for w in (f"--{name}", value)),
    ]


@pytest.fixture(scope="module")
def untroubled(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of a run that met with no trouble."""
    store = tmp_path_factory.mktemp("untroubled") / "runs"
    with pytest.raises(SystemExit) as left:
        main([*tiny, "--store", str(store)])
    assert not left.value.code
    return store


@pytest.fixture
def results(untroubled: Path) -> dict[str, bytes]:
    """Return the files of a run that met with no trouble."""
    return filed(untroubled)


def filed(store: Path) -> dict[str, bytes]:
    (folder,) = store.iterdir()
    return {name: (folder / name).read_bytes() for name in RESULTS}


def test_a_store_that_cannot_be_written(
    dualmix_: Command,
    tmp_path: Path,
    tiny: list[str],
) -> None:
    (tmp_path / "plain").write_text("mine")
    for store in (
        tmp_path / "plain",
        tmp_path / "plain" / "below",
        Path("/proc/runs"),
        Path("/sys/runs"),
    ):
        refused(dualmix_(*tiny, "--store", store), str(store), "cannot be made", "--store")
    assert (tmp_path / "plain").read_text() == "mine"
    assert not any(Path.cwd().iterdir())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a real small disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if (
        shutil.which("mount") is None
        or subprocess.run(words, capture_output=True, check=False).returncode
    ):
        pytest.skip("NOT TESTED ON A REAL DISK: mounting a tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def fill(disk: Path, room: int) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError as fault:
            assert fault.errno == errno.ENOSPC
        file.truncate(max(0, (file.tell() - room) // 4096 * 4096))
    return ballast


def stopped(
    words: list[str], store: Path, monkeypatch: pytest.MonkeyPatch, dualmix_: Command
) -> Path:
    """Leave a run unfinished after step 5, as Ctrl-C does."""
    from dualmix.runs import run as module

    real, calls = module.run, iter(range(100))
    with monkeypatch.context() as patch:
        patch.setattr(
            module, "run", lambda *a, **k: real(*a, **{**k, "stop": lambda: next(calls) == 4})
        )
        code, _, err = dualmix_(*words, "--store", store)
    assert code == 130, err
    assert "step 5" in err
    (folder,) = store.iterdir()
    return folder


@pytest.mark.parametrize("room", [0, 40_000])
def test_a_disk_that_is_full(
    dualmix_: Command,
    disk: Path,
    results: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    room: int,
    tiny: list[str],
) -> None:
    store = disk / "runs"
    folder = stopped(tiny, store, monkeypatch, dualmix_)
    before = {p.name: p.read_bytes() for p in folder.glob("snapshot-*")}
    assert min(len(content) for content in before.values()) > 40_000
    ballast = fill(disk, room)
    refused(dualmix_(*tiny, "--store", store), "free", "space", "same command")
    assert {p.name: p.read_bytes() for p in folder.glob("snapshot-*")} == before
    assert not list(folder.glob(".*part"))
    assert not (folder / "scores.json").exists()
    ballast.unlink()
    code, _, err = dualmix_(*tiny, "--store", store)
    assert code == 0
    assert "step 5" in err
    assert filed(store) == results


def test_a_disk_that_is_read_only(
    dualmix_: Command,
    disk: Path,
    results: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tiny: list[str],
    untroubled: Path,
) -> None:
    store, ready = disk / "runs", disk / "ready"
    stopped(tiny, store, monkeypatch, dualmix_)
    shutil.copytree(untroubled, ready)
    before = tree(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
    refused(dualmix_(*tiny, "--store", store), "cannot be written", "Read-only")
    refused(dualmix_(*tiny, "--store", store, "--fresh"), "cannot be written", "Read-only")
    refused(dualmix_(*tiny, "--store", disk / "new"), "cannot be made", "Read-only")
    assert dualmix_(*tiny, "--store", ready)[0] == 0, "what is done can be read"
    assert dualmix_("show", "er", "--store", store)[0] == 0
    assert tree(disk) == before
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, capture_output=True)
    assert dualmix_(*tiny, "--store", store)[0] == 0
    assert filed(store) == results


@pytest.mark.parametrize("call", [4, 9, 14, 17, 20, 23, 27])
def test_no_space_at_any_write(
    dualmix_: Command,
    tmp_path: Path,
    results: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    call: int,
    tiny: list[str],
) -> None:
    """The n-th flush to the disk of a run, and all after it, find no space."""
    real, calls = os.fsync, iter(range(1, 10**6))

    def full(number: int) -> None:
        if next(calls) >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    store = tmp_path / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(dualmix_(*tiny, "--store", store), "full", "same command")
    assert not list(store.glob("*/.*part"))
    assert not list(store.glob("*/scores.json"))
    for path in store.glob("*/snapshot-*"):
        snapshot.read(path)
    code, _, err = dualmix_(*tiny, "--store", store, "--json")
    assert code == 0, err
    assert filed(store) == results


def test_results_that_are_damaged(
    dualmix_: Command, tmp_path: Path, results: dict[str, bytes], tiny: list[str], untroubled: Path
) -> None:
    store = shutil.copytree(untroubled, tmp_path / "damaged")
    (folder,) = store.iterdir()
    (folder / "scores.json").write_text("{")
    refused(dualmix_(*tiny, "--store", store), "scores.json", "--fresh")
    refused(dualmix_("show", folder), "scores.json", "--fresh")
    assert dualmix_(*tiny, "--store", store, "--fresh")[0] == 0
    assert filed(store) == results
    assert json.loads((folder / "scores.json").read_text())


@pytest.mark.parametrize(
    "words",
    ["export --out memory://a", "report --out s3://b/a.html", "run er --plugin file://p.py"],
)
def test_an_address_is_no_path(dualmix_: Command, words: str) -> None:
    refused(dualmix_(*words.split()), "is an address: give a path on this machine")
    assert not any(Path.cwd().iterdir())
