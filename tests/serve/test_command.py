"""The command `dualmix serve`, its example and its page of the documents."""

from __future__ import annotations

import configparser
import re
import runpy
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="SERVE EXTRA MISSING: pip install 'dualmix[serve]'")

import uvicorn

import dualmix
from dualmix.cli.serve import _file, _preset
from dualmix.serve.app import make_app
from dualmix.serve.server import Place, _hosts
from tests.kit import batch

from .asking import learner, service

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("er",), "give the --shape"),
        (("nothing.safetensors",), "cannot be read"),
        (("er", "--shape", "3x32"), "no shape such as"),
        (("er", "--shape", "1x8x8", "--method.memori", "5"), "method.memory"),
        (("er", "--shape", "1x8x8", "--data.name", "digits"), "method, model and seed only"),
        (("l.safetensors", "--method.memory", "5"), "is for a new learner"),
        (("l.safetensors", "--queue", "0"), "no whole number"),
        (("l.safetensors", "--body-limit", "nan"), "no number above 0"),
        (("l.safetensors", "--host", "not a host"), "cannot be listened on"),
        (("l.safetensors", "--token-file", "missing"), "cannot be read"),
    ],
)
def test_a_wrong_command_is_one_sentence(dualmix_: Any, words: tuple[str, ...], said: str) -> None:
    dualmix.save(learner(), "l.safetensors")
    code, _, err = dualmix_("serve", *words)
    assert code == 2 and said in err and err.count("dualmix: ") == 1, err


def test_a_preset_makes_the_learner_that_create_makes() -> None:
    from argparse import Namespace

    told = {"method.memory": "30", "model.width": "2", "seed": "4", "method.reservoir": "exact"}
    given = Namespace(learner="er", overrides=told, faults=[], shape=(1, 8, 8), classes=None)
    start, *_ = _preset(given)
    want = dualmix.create("er", (1, 8, 8), memory=30, width=2, seed=4)
    made = start()
    for one in (made, want):
        one.observe(*batch(10, 0))
    assert dualmix.to_bytes(made) == dualmix.to_bytes(want)


def test_a_learner_within_a_runs_folder_is_that_run(tmp_path: Path) -> None:
    """Its pictures are fitted as the run's were, and no journal is put into the store."""
    from argparse import Namespace

    dualmix.save(learner(), tmp_path / "learner.safetensors")
    (tmp_path / "config.json").write_text('{"data": {"fit": "crop"}}')
    told = [
        _file(Namespace(learner=str(path), overrides={}, faults=[], classes=None))[1:]
        for path in (tmp_path, tmp_path / "learner.safetensors")
    ]
    assert told[0] == told[1] and told[0][1:] == (tmp_path.name, "crop")


def test_a_proxy_may_give_it_another_name() -> None:
    assert _hosts(Place(names=("Learner.example.org",))) == {
        "localhost", "127.0.0.1", "::1", "learner.example.org"
    }  # fmt: skip
    assert _hosts(Place(host="0.0.0.0", names=("x",))) is None, "it may have any name there"


@pytest.mark.slow
def test_the_example_works_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = service(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(served), log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    example = runpy.run_path(str(ROOT / "examples" / "serve_client.py"))
    example["main"](f"http://127.0.0.1:{listener.getsockname()[1]}", batches=30)
    server.should_exit = True
    thread.join()
    listener.close()
    served.close()
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0: \d+ of \d+ recognised when they came", lines[0])
    assert served.learner.ages.steps == 31


def test_the_page_names_every_endpoint_and_limit(tmp_path: Path) -> None:
    served = service(tmp_path)
    described = make_app(served).app.openapi()  # type: ignore[attr-defined]
    served.close()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in PAGE, path
    flags = ("--body-limit", "--time-limit", "--connections", "--queue", "--most-classes")
    for flag in (*flags, "--most-rows", "--name"):
        assert f"`{flag}`" in PAGE


def test_the_unit_of_systemd_can_be_read() -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(unit)
    assert parser["Service"]["ExecStart"].split()[1] == "serve"
