"""Imports point one way, chance has one source, and the command line starts without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import dualmix

ROOT = Path(dualmix.__file__).parent
ROOMS = (
    "",
    *("engine", "learn", "data", "methods", "config", "store", "runs", "sklearn", "river"),
    *("sweeps", "paper", "report", "export", "client", "serve", "cli", "testing"),
)
"""From the top of the house down: a room imports from itself and from rooms above it. "" is the
package's root.
"""
LAST = ("__init__", "__main__")
"""The front and the command stand in the root and may look at every room."""
FOREIGN = {"learn": {"pathlib", "json", "pydantic", "time", "os"}, "store": {"pydantic"}}
"""What a room has no business with: learning knows no file, no setting and no clock; a store knows
no setting.
"""


class Import(NamedTuple):
    source: str  # "learn.memory"
    target: str  # "dualmix.rng" or "numpy"
    kind: str  # "now" (on import), "later" (inside a function) or "types" (under TYPE_CHECKING)


@cache
def modules() -> dict[str, ast.Module]:
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        trees[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imports(node: ast.AST, kind: str = "now") -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, kind
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for inner in child.body:
                yield from imports(ast.Module([inner], []), "types")
            for inner in child.orelse:
                yield from imports(ast.Module([inner], []), kind)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, "later" if inside and kind == "now" else kind)


def targets(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    assert statement.level == 0, "relative imports hide where a name comes from"
    home = statement.module or ""
    inner = [f"{home}.{alias.name}" for alias in statement.names]
    return [name if is_module(name.removeprefix("dualmix.")) else home for name in inner]


def is_module(name: str) -> bool:
    return name in modules() or f"{name}.__init__" in modules()


@cache
def all_imports() -> list[Import]:
    return [
        Import(source, target, kind)
        for source, tree in modules().items()
        for statement, kind in imports(tree)
        for target in targets(statement)
    ]


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0] if "." in module else ""


@pytest.mark.slow
def test_the_walk_sees_the_imports_it_is_there_for() -> None:
    assert Import("runs.run", "dualmix.runs.metrics", "now") in all_imports()
    assert Import("learn.memory", "dualmix.learn.types", "now") in all_imports()
    assert {kind for _, _, kind in all_imports()} == {"now", "later", "types"}


def test_a_room_imports_only_from_rooms_above_it() -> None:
    for source, target, kind in all_imports():
        named_only = kind == "types" and not room(source)
        if source not in LAST and target.startswith("dualmix.") and not named_only:
            inner = target.removeprefix("dualmix.")
            there = room(inner if inner in modules() else f"{inner}.x")
            assert ROOMS.index(there) <= ROOMS.index(room(source)), f"{source} imports {target}"


def test_every_room_says_what_belongs_there() -> None:
    for name in ROOMS[1:]:
        said = ast.get_docstring(modules()[f"{name}.__init__"]) or ""
        assert said.count(".") >= 2, (
            f"{name}/__init__.py: two sentences on what belongs there and what it may import"
        )
        assert "mport" in said, f"{name}/__init__.py does not say what the room may import"
    assert len([name for name in modules() if "." not in name]) <= 10


def test_no_room_does_the_work_of_another() -> None:
    for source, target, _ in all_imports():
        top = target.split(".")[0]
        assert top not in FOREIGN.get(room(source), ()), f"{source} imports {target}"
        assert top != "rich" or room(source) == "cli", (
            f"{source} imports {target}: only cli draws in the terminal"
        )


def test_the_front_imports_nothing_until_it_is_asked() -> None:
    ours = {
        (target, kind)
        for source, target, kind in all_imports()
        if source == "__init__" and "dualmix" in target
    }
    assert {kind for _, kind in ours} == {"types"}
    assert not [
        source for source, target, _ in all_imports() if target == "dualmix" and source not in LAST
    ]


def test_no_import_goes_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for source, target, kind in all_imports():
        inner = target.removeprefix("dualmix.")
        if kind != "types" and target.startswith("dualmix.") and source != inner:
            graph.setdefault(source, set()).add(
                inner if inner in modules() else f"{inner}.__init__"
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        raise AssertionError(f"imports go in a circle: {cycle.args[1]}") from cycle


def test_every_public_name_is_there_and_declared() -> None:
    declared = {
        alias.asname or alias.name
        for statement, kind in imports(modules()["__init__"])
        for alias in statement.names
        if kind == "types" and "dualmix" in targets(statement)[0]
    }
    assert declared == set(dualmix.__all__)
    for name in dualmix.__all__:
        assert getattr(dualmix, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dualmix.nothing  # noqa: B018


SEEDED = {"Generator", "PCG64", "SeedSequence", "default_rng", "BitGenerator"}
TORCH_CHANCE = {
    "manual_seed", "seed", "initial_seed", "rand", "randn", "randint", "randperm", "rand_like",
    "randn_like", "randint_like", "bernoulli", "multinomial", "normal", "poisson", "dropout",
    "set_rng_state", "Generator",
}  # fmt: skip
DRAWN_IN_PLACE = {
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "kaiming_uniform_",
    "xavier_uniform_",
}


def faults(tree: ast.Module, name: str) -> Iterator[str]:
    watcher = room(name) == "testing"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = targets(node) if not getattr(node, "level", 0) else []
            if "random" in named and not watcher:
                yield f"{name}:{node.lineno} imports random"
        if isinstance(node, ast.Attribute):
            owner, what = ast.unparse(node.value), node.attr
            watched = watcher and what in {"get_state", "getstate", "get_rng_state"}
            if owner in ("np.random", "numpy.random") and what not in SEEDED and not watched:
                yield f"{name}:{node.lineno} uses {owner}.{what}"
            if owner in ("torch", "torch.cuda", "torch.random", "F", "nn") and what in TORCH_CHANCE:
                yield f"{name}:{node.lineno} uses {owner}.{what}"
            if watcher and owner == "random" and not watched:
                yield f"{name}:{node.lineno} uses random.{what}"
            if what in DRAWN_IN_PLACE:
                yield f"{name}:{node.lineno} draws by {what}"
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("default_rng")
            and not node.args
        ):
            yield f"{name}:{node.lineno} draws without a seed"


def test_chance_has_one_source() -> None:
    """No global generator is drawn from or seeded; `testing` alone looks at them, to see that
    nobody moved them.
    """
    assert not [fault for name, tree in modules().items() for fault in faults(tree, name)]


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from random import shuffle",
        "np.random.seed(0)",
        "np.random.rand(3)",
        "torch.manual_seed(1)",
        "torch.randn(2)",
        "torch.randperm(2)",
        "torch.randint(0, 2, (3,))",
        "x.uniform_()",
        "np.random.default_rng()",
        "def f():\n    import random",
    ],
)
def test_the_search_for_chance_finds_it(line: str) -> None:
    assert list(faults(ast.parse(line), "somewhere"))


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=900, check=True
    )


@pytest.mark.parametrize(
    "module", ["dualmix", "dualmix.cli", "dualmix.registry", "dualmix.config.compose"]
)
def test_the_command_line_does_not_import_torch(module: str) -> None:
    heavy = ("torch", "scipy", "sklearn", "safetensors")
    script = f"import sys, {module}; print(sorted(set({heavy}) & set(sys.modules)))"
    assert python("-c", script).stdout.strip() == "[]"


def test_only_an_address_needs_fsspec(tmp_path: Path) -> None:
    script = (
        "import sys; from dualmix.cli.parser import make_parser; "
        "from dualmix.store.opening import open_store; make_parser().format_help(); "
        f"open_store({str(tmp_path)!r}).paths(); print('fsspec' in sys.modules)"
    )
    assert python("-c", script).stdout.strip() == "False"
