"""Command lines of all commands with odd words: exit code 0 or 2, one sentence, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from dualmix.errors import DualmixError
from tests.torture.jail import Kind, Outcome, WrongError, judged
from tests.torture.line import TINY, call

MANY = ("--seeds", "--workers", "--retries", "--plugin", "--on", "--cpus", "--store", "--json")
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (("PRESET",), ("--store", "--plugin", "--track", "--fresh", "--json")),
    "explain": (("PRESET",), ("--plugin", "--json")),
    "methods": ((), ("--plugin", "--json")),
    "show": (("RUN",), ("--store", "--json")),
    "status": ((), ("--store", "--json", "--all")),
    "report": (("--out", "VALUE"), ("--format", "--figures", "--bench", "--store", "--plugin")),
    "compare": (("RUN", "RUN"), ("--store", "--json")),
    "export": (("--out", "VALUE"), ("--format", "--store", "--json")),
    "archive": (("RUN", "--to", "VALUE"), ("--store", "--json")),
    "demo": (("--dry-run",), MANY),
    "sweep": (("GRID", "--dry-run"), ("--data", "--memory", "--methods", *MANY)),
    "tune": (("PRESET", "--dry-run"), ("--only", "--trials", *MANY)),
    "proposition": ((), ("--store", "--json")),
    "data list": ((), ("--data.root", "--json")),
    "data verify": (("DATA",), ("--data.root", "--data.path", "--data.size", "--json")),
    "data get": (("DATA", "--url", "file:///no/such/file"), ("--data.root", "--json")),
    "nonsense": ((), ()),
    "": ((), ("--help", "--version")),
}
"""Words that a command needs, and flags that it knows."""
PRESETS = (
    "er",
    "er+dualmix",
    "mir",
    "scr",
    "gdumb",
    "finetune",
    "iid-offline",
    "er+x",
    "+",
    "ER",
    "er+",
)
WHERE = {
    "PRESET": PRESETS,
    "RUN": ("er", "s0", "*", "[", "store", "er-digits", "..", "~"),
    "GRID": ("table1", "table2", "figure2", "proposition", "table9", "grid.yaml", "mine.yaml"),
    "DATA": ("digits", "folder", "arrays", "mini_imagenet", "cifra"),
}
PLAIN = """
0 1 -1 2 1e39 1e-400 nan inf -inf 9223372036854775808 999999999 0x10 1_000 none null true yes
[] [1,2] [[ {} 2020-01-01 [2020-01-01] .. /proc /dev/null /proc/x =1+1 -- - -h %s {} file:///proc/x
s3://x/y nope://x https:// [*a] [1e999] cuda cuda:99 mps digits growing 1.5
"""
VALUES = [
    *PLAIN.split(),
    *(
        "1" * 400,
        "x" * 300,
        "x/" * 200,
        "[" * 2000,
        "",
        " ",
        "{a: 1}",
        "!!binary aGk=",
        "a\nb",
        "\t",
    ),
    *(
        "[!!binary aGk=]",
        "[!!python/name:os.system ]",
        "&a [*a]",
        "é",
        "名",
        "\u202e",
        "\x1b[31m",
        "١٢",
    ),
    *("a\x00b", "\udcff"),
]
STRANGE = (
    *(
        "--",
        "-x",
        "--method.",
        "--.",
        "--method.mix",
        "--a.b.c",
        "--method.memroy",
        "--" + "x" * 300,
    ),
    *("--help", "--version", "--é", "--store", "--json"),
)
TAKES_SETTINGS = ("run", "explain", "demo", "sweep", "tune")
SLOW = ("stream.epochs", "method.epochs", "method.iterations", "method.mix.copies", "probes.draws")
"""Settings whose large values are lawful and take hours: they are composed, not run."""


def prepare(shared: Path) -> None:
    """Make a store, a grid file and a configuration to name."""
    os.chdir(shared)
    call("run", "er", *TINY, "--method.memory", "20", "--store", "store", "--quiet")
    Path("grid.yaml").write_text("presets: [er]\nseeds: 1\nvalues: {stream.first: 1}\n")
    call("explain", "er")
    (run,) = Path("store").iterdir()
    Path("mine.yaml").write_text((run / "config.json").read_text())


def line(chance: Random) -> list[str]:
    """Return a command line that is right but for a few words."""
    import dualmix
    from dualmix.config.compose import walk

    command = chance.choice([*COMMANDS, *TAKES_SETTINGS])
    needed, flags = COMMANDS[command]
    words = [chance.choice(WHERE.get(word, VALUES)) if word.isupper() else word for word in needed]
    settings = [path for path, _ in walk(type(dualmix.compose("er+dualmix").config))]
    if command == "run":
        settings = [path for path in settings if path not in SLOW]
    odd: list[str] = []
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        if command in TAKES_SETTINGS and chance.random() < 0.6:
            odd += _pair(f"--{chance.choice(settings)}", chance)
        else:
            odd += _pair(chance.choice((*flags, *flags, chance.choice(STRANGE))), chance)
    if chance.random() < 0.1:
        odd.insert(chance.randrange(len(odd) + 1), chance.choice(VALUES))
    tiny = [*TINY, "--stream.epochs", "1"] if command == "run" else []
    if tiny and words[0] == "gdumb":
        tiny += ["--method.epochs", "1"]
    used = {word.partition("=")[0] for word in odd}
    pairs = zip(tiny[::2], tiny[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] not in used for word in pair]
    return [*command.split(), *words, *kept, *odd]


def _short(word: str) -> str:
    return f"{word[:2]!r} * {len(word) // 2}" if len(word) > 100 else repr(word)


def _pair(flag: str, chance: Random) -> list[str]:
    if flag in ("--json", "--all", "--full", "--fresh", "--help", "--version"):
        return [flag]
    value = chance.choice(VALUES)
    return chance.choice(([flag, value], [flag, value], [f"{flag}={value}"], [flag]))


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Try one command line, every fiftieth in a process of its own with bytes that are no text."""
    for name in ("store", "grid.yaml", "mine.yaml"):
        Path(name).symlink_to(shared / name)
    words = line(chance)
    if index % 50 == 49:
        yield _outside(words, chance)
        return
    yield judged(f"main([{', '.join(map(_short, words))}])", lambda: _fits(*call(*words)))


def _fits(code: int, out: str, err: str) -> None:
    if code not in (0, 2):
        raise WrongError(f"exit code {code}: {err.strip()[-80:]}")
    if "Traceback" in err:
        raise WrongError(f"a traceback: {err.strip().splitlines()[-1][:80]}")
    if "\x1b[31m" in err + out:
        raise WrongError("a terminal's escape was passed on")
    if code == 2 and not err.strip() and not out.strip():
        raise WrongError("refused without a word")
    if code == 2:
        raise DualmixError((err or out).strip()[:1000])


def _outside(words: list[str], chance: Random) -> Outcome:
    raw = [word.encode("utf-8", "surrogateescape").replace(b"\0", b"") for word in words]
    if raw:
        raw[chance.randrange(len(raw))] += chance.choice((b"", b"\xff", b"\xed\xa0\x80"))
    command = [os.fsencode(sys.executable), b"-m", b"dualmix", *raw]
    bare = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_ALL")}
    bare["LC_ALL"] = chance.choice(("C", "C.UTF-8", "POSIX"))

    def run() -> None:
        ended = subprocess.run(command, capture_output=True, timeout=600, env=bare, check=False)
        _fits(
            ended.returncode,
            ended.stdout.decode(errors="replace"),
            ended.stderr.decode(errors="replace"),
        )

    return judged(f"dualmix {raw!r}", run)


KIND = Kind("words", "command lines of all commands", 5_000, 1, 120, attempt, prepare)
