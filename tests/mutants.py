"""Mutation run: change a module in every small way and see whether its tests notice.

    # every mutant of src/dualmix/methods/dualmix.py, the first of four parts, those in one function
    python tests/mutants.py methods.dualmix tests/methods/test_dualmix.py
    python tests/mutants.py methods.dualmix tests/methods/test_dualmix.py 0/4
    python tests/mutants.py methods.dualmix tests/methods/test_dualmix.py outweighs

Each mutant runs in a fork of a process that has everything else loaded. A mutant that survives is a
fault of the tests unless `EXPLAINED` says why no test can notice it. The package mutmut starts the
tests anew for each mutant, which takes many times longer (torch has to be loaded): hence this file.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.util
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SECONDS = 30
ARITHMETIC: dict[type[ast.operator], list[type[ast.operator]]] = {
    ast.Add: [ast.Sub, ast.Mult],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div, ast.Add],
    ast.Div: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
}
COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Gt: [ast.GtE, ast.Lt],
    ast.Lt: [ast.LtE, ast.Gt],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
}
SWAPPED = (
    {"a", "b"},
    {"mu_x", "mu_y"},
    {"i", "j"},
    {"old_x", "new_x"},
    {"new", "old"},
    {"x", "y"},
    {"kappa", "tau"},
    {"tau", "delta"},
    {"ratio", "mu_x"},
    {"tilted", "mu_x"},
    {"weight", "bias"},
    {"min", "max"},
    {"any", "all"},
)
"""Names that are easily taken for each other."""

EXPLAINED = {
    ".to(": "moves to the device of the batch: shows only where there is a second device",
    "device=new.device": "the same",
    ".cpu()": "the same, towards the host",
    ".detach()": "gradients are not asked for where it is used: it saves work only",
    "slots=True": "saves memory only",
    "x -> y in partner = torch.from_numpy(": "images and labels lie on one device",
    "x -> y in mu = beta(": "the same",
    "new.x -> new.y in i, j =": "the same",
    "new.x -> new.y in mu_x = beta(": "the same",
    "new -> old in i, j =": "old and new lie on one device",
    "new -> old in mu_x = beta(": "the same",
    "new -> old in fresh =": "the same",
    "new -> old in return ratio": "a pair has one old and one new row: there are as many",
    "i -> j in mu_x = beta(": "the same",
    'i -> j in "adpmix pairs"': "the same",
    "a -> b in mu = mu.view": "what is blended has one shape",
    "min(new, len(rows)) -> min(len(rows), new)": "the lesser of two, in either order",
}
"""Part of what a mutant is (function: before; or before -> after in line), and why no test can
notice it.
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed module: where, what became of what, and its whole source."""

    line: int
    where: str
    before: str
    after: str
    source: str


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node could be mistaken for."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            for other in ARITHMETIC.get(type(op), ()):
                yield ast.BinOp(left, other(), right)
            if isinstance(op, ast.Sub | ast.Div):
                yield ast.BinOp(right, op, left)
            yield left
            yield right
        case ast.Compare(left=left, ops=[op], comparators=right):
            for change in COMPARISONS.get(type(op), ()):
                yield ast.Compare(left, [change()], right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            yield from values
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=bool(v)):
            yield ast.Constant(not v)
        case ast.Constant(value=int(v) | float(v)):
            yield ast.Constant(v + 1)
            if v:
                yield ast.Constant(v / 2 if isinstance(v, float) else v - 1)
        case ast.Constant(value=str(v)):
            yield ast.Constant(f"not {v}")
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Attribute) and not (
                isinstance(func.value, ast.Name) and func.value.id in ("np", "torch", "self")
            ):
                yield func.value
            for k in range(len(args) - 1):
                yield ast.Call(func, [*args[:k], args[k + 1], args[k], *args[k + 2 :]], keywords)
            for k in range(len(args)):
                yield ast.Call(func, args[:k] + args[k + 1 :], keywords)
            for k in range(len(keywords)):
                yield ast.Call(func, args, keywords[:k] + keywords[k + 1 :])
        case ast.Name(id=name, ctx=ast.Load()):
            for pair in SWAPPED:
                if name in pair:
                    yield ast.Name(*(pair - {name}), ast.Load())
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()):
            for pair in SWAPPED:
                if name in pair:
                    yield ast.Attribute(value, *(pair - {name}), ast.Load())
        case ast.Subscript(value=value, ctx=ast.Load()):
            yield value
        case ast.If(body=body, orelse=orelse):
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.While(body=body):
            yield ast.While(ast.Constant(False), body, [])
        case ast.Assign() | ast.AugAssign() | ast.For() | ast.Return() | ast.Expr():
            yield ast.Pass()
        case ast.Tuple(elts=[first, second], ctx=ast.Load()):
            yield ast.Tuple([second, first], ast.Load())
        case ast.Dict(keys=keys, values=values):
            for k in range(len(keys)):
                yield ast.Dict(keys[:k] + keys[k + 1 :], values[:k] + values[k + 1 :])


def left_alone(tree: ast.Module) -> set[int]:
    """Return the nodes that say nothing about what the code does: annotations, docstrings,
    decorators, imports.
    """
    skipped: list[ast.AST] = []
    for node in ast.walk(tree):
        skipped += [
            found
            for name in ("annotation", "returns")
            if (found := getattr(node, name, None)) is not None
        ]
        skipped += getattr(node, "decorator_list", [])
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            skipped.append(body[0])
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            skipped.append(node)
    return {id(inner) for node in skipped for inner in ast.walk(node)}


def mutants(text: str) -> Iterator[Mutant]:
    """Yield every mutant of a module once."""
    tree = ast.parse(text)
    skipped, seen = left_alone(tree), {ast.unparse(tree)}
    owner = {
        id(inner): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for inner in ast.walk(node)
    }
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for k, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or id(node) in skipped:
                    continue
                for other in variants(node):

                    def put(
                        new: Any,
                        value: Any = value,
                        k: int = k,
                        parent: ast.AST = parent,
                        name: str = name,
                    ) -> None:
                        if isinstance(value, list):
                            value[k] = new
                        else:
                            setattr(parent, name, new)

                    put(other)
                    source = ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree)))
                    put(node)
                    if source not in seen:
                        seen.add(source)
                        line = getattr(node, "lineno", getattr(parent, "lineno", 0))
                        yield Mutant(
                            line, owner.get(id(node), "-"), _short(node), _short(other), source
                        )


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())[:100]


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads a module from a given source instead of its file."""

    def __init__(self, module: str, source: str) -> None:
        self.module, self.source = module, source

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(compile(self.source, "mutant", "exec"), module.__dict__)


class Order:
    """A plugin of pytest: tests that noticed an earlier mutant go first, and the one that fails is
    told.
    """

    def __init__(self, first: list[str], tell: int) -> None:
        self.first, self.tell = first, tell

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(
            key=lambda item: (
                self.first.index(item.nodeid) if item.nodeid in self.first else len(self.first)
            )
        )

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            os.write(self.tell, report.nodeid.encode())


def run(tests: list[str], *plugins: Any) -> int:
    """Run the tests in this process, with our own modules loaded anew, and return pytest's exit
    code.
    """
    import pytest

    ours = (str(ROOT / "src"), str(ROOT / "tests"))
    for name, loaded in [*sys.modules.items()]:
        if name != "__main__" and (getattr(loaded, "__file__", None) or "").startswith(ours):
            del sys.modules[name]
    quick = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
    return int(
        pytest.main([*quick, "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests], plugins)
    )


def verdict(module: str, source: str, tests: list[str], first: list[str]) -> str:
    """Run the tests against a changed module in a fork; the test that notices it is put at the head
    of `first`.
    """
    heard, tell = os.pipe()
    child = os.fork()
    if not child:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, Instead(module, source))
        os._exit(run(tests, Order(first, tell)))
    os.close(tell)
    killer, deadline = b"", time.monotonic() + SECONDS
    while select.select([heard], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(heard, 4096)
        if not part:
            break
        killer += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(heard)
    _, status = os.waitpid(child, 0)
    if killer:
        noticed = killer.decode()
        first[:] = [noticed, *(name for name in first if name != noticed)]
    if os.WIFSIGNALED(status):
        return "killed by the clock"
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


def explanation(mutant: Mutant, line: str) -> str | None:
    """Return why no test can notice a mutant of a line, if that is known."""
    place, change = (
        f"{mutant.where}: {mutant.before}",
        f"{mutant.before} -> {mutant.after} in {line.strip()}",
    )
    return next(
        (why for part, why in EXPLAINED.items() if part in place or change.startswith(part)), None
    )


def main(module: str, tests: list[str], only: str) -> int:
    """Print what survives and return how many of those are not explained."""
    import hypothesis
    import scipy.stats
    import torch

    torch.set_num_threads(1)
    scipy.stats.beta(1, 1).cdf(0.5)
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutants", phases=phases, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    path = ROOT / "src" / "dualmix" / f"{module.replace('.', '/')}.py"
    name = f"dualmix.{module.replace('/', '.')}"
    text = path.read_text(encoding="utf-8")
    if run(tests):
        raise SystemExit(f"{' '.join(tests)} fail on {path.name} as it is.")
    every = list(mutants(text))
    if "/" in only:
        part, parts = (int(number) for number in only.split("/"))
        every = every[part::parts]
    elif only:
        every = [mutant for mutant in every if mutant.where == only]
    tally: Counter[str] = Counter()
    first: list[str] = []
    began = time.monotonic()
    for number, mutant in enumerate(every, 1):
        found = verdict(name, mutant.source, tests, first)
        if found == "survived":
            why = explanation(mutant, text.splitlines()[mutant.line - 1])
            found = "explained" if why else "SURVIVED"
            print(
                f"{found}: line {mutant.line} in {mutant.where}: "
                f"{mutant.before} -> {mutant.after}  {why or ''}",
                flush=True,
            )
        tally[found] += 1
        if number % 50 == 0:
            print(
                f"... {number} of {len(every)} "
                f"after {time.monotonic() - began:.0f} s: {dict(tally)}",
                flush=True,
            )
    print(f"{len(every)} mutants: {dict(tally)} in {time.monotonic() - began:.0f} s")
    return tally["SURVIVED"]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    chosen = sys.argv[-1] if len(sys.argv) > 3 and not Path(sys.argv[-1]).exists() else ""
    files = sys.argv[2 : len(sys.argv) - bool(chosen)]
    sys.exit(1 if main(sys.argv[1], files, chosen) else 0)
