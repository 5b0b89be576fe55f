"""Imports point one way, chance has one source, and the command line starts without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import dualmix

ROOT = Path(dualmix.__file__).parent
LAYERS = (
    ("errors", "rng", "settings", "files", "types", "augmentations", "extras", "process"),
    ("data", "stream", "model", "memory", "inputs", "graphs", "sightings", "transforms", "mixing", "heads"),
    ("policies", "losses", "readout"),
    ("learners",),
    ("registry", "methods", "config"),
    ("snapshot", "recipe", "facts", "store", "location", "lease", "copies", "remote"),
    ("metrics", "events", "probes", "run", "testing"),
    ("status", "sweep", "executors", "cluster", "paper"),
    ("timing", "peers", "growth"),
    ("bench", "calibrate", "proposition", "tune", "report", "progress", "show", "board", "demo", "trackers"),
    ("cli",),
    ("__main__",),
)
"""A module may import from its own line and the lines above; a package stands for all of its modules."""

FOR_TYPES_ONLY = {("types", "memory"), ("types", "model"), ("types", "sightings")}
"""The protocols name the table and the network that parts are handed; nothing is imported when they run."""

LATER = {("registry", "methods")}
"""A look-up by name loads the package's own methods, which register themselves: the one call back."""


class Edge(NamedTuple):
    source: str
    target: str
    kind: str  # "now" (on import), "later" (inside a function) or "types" (under TYPE_CHECKING)


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


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


def edges() -> list[Edge]:
    found = []
    for source, tree in MODULES.items():
        for statement, kind in imports(tree):
            for target in targets(statement):
                if target.split(".")[0] == "dualmix":
                    found.append(Edge(source, target.removeprefix("dualmix").removeprefix("."), kind))
    return found


def targets(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    assert statement.level == 0, "relative imports hide where a name comes from"
    home = statement.module or ""
    inner = [f"{home}.{alias.name}" for alias in statement.names]
    return [name if name.removeprefix("dualmix.") in MODULES else home for name in inner]


def layer(module: str) -> int:
    top = module.split(".", maxsplit=1)[0]
    return next(number for number, names in enumerate(LAYERS) if top in names)


EDGES = edges()


def test_the_walk_sees_the_imports_it_is_there_for() -> None:
    assert Edge("run", "metrics", "now") in EDGES
    assert Edge("recipe", "snapshot", "now") in EDGES
    assert Edge("store", "snapshot", "later") in EDGES
    assert Edge("types", "model", "types") in EDGES
    assert Edge("policies.uniform", "memory", "now") in EDGES


def test_every_module_has_a_layer() -> None:
    known = {name for names in LAYERS for name in names}
    homeless = {module.split(".")[0] for module in MODULES if module} - known
    assert not homeless, f"give these modules a layer in LAYERS: {sorted(homeless)}"


def test_imports_point_one_way() -> None:
    allowed = {"types": FOR_TYPES_ONLY, "later": LATER, "now": set()}
    back = [
        edge
        for edge in EDGES
        if edge.source and layer(edge.target or "cli") > layer(edge.source) and edge[:2] not in allowed[edge.kind]
    ]
    assert not back, f"back edges: {back}"


def test_nothing_is_imported_through_the_package_front() -> None:
    """`from dualmix import ER` is for users; inside, a name comes from its home, or the front would be a cycle."""
    assert not [edge for edge in EDGES if not edge.target]


def test_the_front_imports_nothing_until_it_is_asked() -> None:
    assert {edge.kind for edge in EDGES if not edge.source} == {"types"}


def test_no_import_goes_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for source, target, kind in EDGES:
        if source and kind != "types" and (source, target) not in LATER and source != target:
            graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        raise AssertionError(f"imports go in a circle: {cycle.args[1]}") from cycle


def test_every_exception_is_still_needed() -> None:
    assert {edge[:2] for edge in EDGES if edge.kind == "types"} >= FOR_TYPES_ONLY
    assert {edge[:2] for edge in EDGES if edge.kind == "later"} >= LATER


def test_every_public_name_is_there_and_declared() -> None:
    declared = {
        alias.asname or alias.name
        for statement, kind in imports(MODULES[""])
        for alias in statement.names
        if kind == "types"
    }
    assert declared == set(dualmix.__all__)
    for name in dualmix.__all__:
        assert getattr(dualmix, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dualmix.nothing  # noqa: B018


SEEDED = {"Generator", "PCG64", "SeedSequence", "default_rng", "BitGenerator"}
TORCH_CHANCE = {
    "manual_seed", "seed", "initial_seed", "rand", "randn", "randint", "randperm", "rand_like", "randn_like",
    "randint_like", "bernoulli", "multinomial", "normal", "poisson", "dropout", "set_rng_state", "Generator",
}  # fmt: skip
DRAWN_IN_PLACE = {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "kaiming_uniform_", "xavier_uniform_"}


def faults(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = targets(node) if not getattr(node, "level", 0) else []
            if "random" in named and name != "testing":
                yield f"{name}:{node.lineno} imports random"
        if isinstance(node, ast.Attribute):
            owner, what = ast.unparse(node.value), node.attr
            watched = name == "testing" and what in {"get_state", "getstate", "get_rng_state"}
            if owner in ("np.random", "numpy.random") and what not in SEEDED and not watched:
                yield f"{name}:{node.lineno} uses {owner}.{what}"
            if owner in ("torch", "torch.cuda", "torch.random", "F", "nn") and what in TORCH_CHANCE:
                yield f"{name}:{node.lineno} uses {owner}.{what}"
            if name == "testing" and owner == "random" and not watched:
                yield f"{name}:{node.lineno} uses random.{what}"
            if what in DRAWN_IN_PLACE:
                yield f"{name}:{node.lineno} draws by {what}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng") and not node.args:
            yield f"{name}:{node.lineno} draws without a seed"


def test_chance_has_one_source() -> None:
    """No global generator is drawn from or seeded; `testing` alone looks at them, to see that nobody moved them."""
    assert not [fault for name, tree in MODULES.items() for fault in faults(tree, name)]


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
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, check=True)


@pytest.mark.parametrize("module", ["dualmix", "dualmix.cli", "dualmix.registry", "dualmix.config"])
def test_the_command_line_does_not_import_torch(module: str) -> None:
    heavy = ("torch", "scipy", "sklearn", "safetensors")
    script = f"import sys, {module}; print(sorted(set({heavy}) & set(sys.modules)))"
    assert python("-c", script).stdout.strip() == "[]"


def test_help_answers_at_once() -> None:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        answer = python("-m", "dualmix", "--help")
        seconds.append(time.perf_counter() - began)
    assert "first steps" in answer.stdout
    assert min(seconds) < 0.5


def test_only_an_address_needs_fsspec(tmp_path: Path) -> None:
    script = (
        "import sys; from dualmix.cli import _parser; from dualmix.remote import open_store; _parser().format_help(); "
        f"open_store({str(tmp_path)!r}).paths(); print('fsspec' in sys.modules)"
    )
    assert python("-c", script).stdout.strip() == "False"
