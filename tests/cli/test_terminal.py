"""The terminal: no text steers it, no encoding stops it, no signal is lost while torch loads."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from dualmix import cli, registry
from dualmix.cli.terminal import asked_to_stop, make_console, printable
from tests.kit import heeded

Command = Callable[..., tuple[int, str, str]]
EVIL = "er\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e\x00"


def test_text_that_steers_a_terminal_is_marked_and_kept_apart_from_text_that_does_not() -> None:
    assert printable(EVIL) == "er�[2J�]0;owned��31m���"
    assert printable("Größe 1\t±\n█ 中文 🙂") == "Größe 1\t±\n█ 中文 🙂"


def test_a_console_lets_no_escape_of_a_name_through() -> None:
    table = Table("name", title=EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL, style="bold"))
    for thing in (EVIL, Text(EVIL), table):
        console = make_console()
        console.file = io.StringIO()
        console.print(thing)
        said = console.file.getvalue()
        assert "er" in said and not set("\x1b\x07\x9b\r\u202e\x00") & set(said)


def test_its_own_colours_still_pass() -> None:
    console = make_console()
    console.file = io.StringIO()
    console._force_terminal = True
    console._color_system = 1  # type: ignore[assignment]
    console.print(Text("x", style="bold"))
    assert "\x1b[1mx\x1b[0m" in console.file.getvalue()


def test_no_command_prints_an_escape_from_a_stored_name(dualmix_: Command) -> None:
    run = Path("runs") / "er\x1b[2J-digits-s0-0123456789ab"
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"key": "\x1b[31m"}')
    for words in (["status"], ["show", "er"], ["export"], ["compare", "er", "er"], ["run", run]):
        _, out, err = dualmix_(*words)
        assert "\x1b" not in out + err, words
    _, _, err = dualmix_("run", "\x1b[2Jer", "--\x1b[31m", "3", "--\x07.x=\x1b")
    assert "\x1b" not in err and "\x07" not in err


def dualmix(*words: str | bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    env = {name: at for name, at in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    return subprocess.run(
        [sys.executable, "-m", "dualmix", *words],
        capture_output=True,
        check=False,
        env={**env, **variables},
    )


NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("locale", [NO_LOCALE, {"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}])
@pytest.mark.slow
def test_a_locale_that_lacks_letters_stops_nothing(locale: dict[str, str]) -> None:
    ended = dualmix("explain", "er", **locale)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"memory" in ended.stdout


@pytest.mark.parametrize("word", [b"\xff\xfe", "é".encode()])
def test_what_is_no_text_is_one_sentence(word: bytes) -> None:
    ended = dualmix("run", word, **NO_LOCALE)
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"LC_ALL=C.UTF-8" in ended.stderr


FAKE_TORCH = """
import os, signal, time
from pathlib import Path
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
for _ in range(1000):
    pass
Path({loaded!r}).touch()
"""


@pytest.mark.slow
def test_ctrl_c_waits_until_torch_is_loaded_and_is_not_lost(tmp_path: Path) -> None:
    """An interrupt inside torch's own loading ends in an abort of its C++ part, now and then."""
    loaded = tmp_path / "loaded"
    (tmp_path / "torch.py").write_text(FAKE_TORCH.format(loaded=str(loaded)))
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with heeded(signal.SIGINT):
        ended = dualmix("run", "finetune", "--store", str(tmp_path / "runs"), PYTHONPATH=path)
    assert ended.returncode == 130, ended.stderr
    assert loaded.exists(), "the loading was interrupted"
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_once_and_ends_the_second_time(number: signal.Signals) -> None:
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        stop = asked_to_stop()
        assert not stop()
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


def test_nohup_stays_in_force() -> None:
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop = asked_to_stop()
        signal.raise_signal(signal.SIGHUP)
        assert not stop()
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (OSError(36, "File name too long", "x" * 9), 2, "xxxxxxxxx: File name too long"),
        (PermissionError(13, "Permission denied", "/a", None, "/b"), 2, "/a and /b: Permission"),
        (MemoryError(), 2, "does not fit into the memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "does not fit"),
        (UnicodeEncodeError("ascii", "é", 0, 1, "no"), 2, "LC_ALL=C.UTF-8"),
        (KeyError("bug\x1b"), 70, "fault of dualmix and not of yours: KeyError"),
    ],
)
def test_what_nobody_foresaw_is_one_sentence_unless_it_is_debugged(
    dualmix_: Command, monkeypatch: pytest.MonkeyPatch, fault: Exception, code: int, said: str
) -> None:
    def fail(words: list[str], extra: object) -> int:
        raise fault

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.setattr("dualmix.plugins.is_users", lambda file: False)
    monkeypatch.delenv("DUALMIX_DEBUG")
    answered, out, err = dualmix_("status")
    assert (answered, out) == (code, "")
    assert said in err and err.count("\n") == 1 and "\x1b" not in err
    monkeypatch.setenv("DUALMIX_DEBUG", "1")
    with pytest.raises(type(fault)):
        cli.main(["status"])


def test_a_fault_of_a_plugin_is_told_as_one(
    dualmix_: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DUALMIX_DEBUG")
    path = tmp_path / "own.py"
    path.write_text("raise ValueError('first' + '\\nmore' * 50)")
    code, _, err = dualmix_("methods", "--plugin", path)
    assert code == 2 and "own.py cannot be loaded: ValueError: first." in err
    assert err.count("\n") == 1
    path.write_text(
        "from dualmix import ER, register\n"
        "@register('failing')\n"
        "class Failing(ER):\n"
        "    def build(self, model, rng):\n"
        "        raise KeyError('mine')\n"
    )
    code, _, err = dualmix_("run", "failing", "--plugin", path, "--quiet")
    registry._METHODS.pop("failing"), registry._PRESETS.pop("failing")
    assert code == 2 and f"{path} fails in line 5: KeyError: 'mine'" in err
