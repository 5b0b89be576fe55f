"""The code behind a method that is not the package's own: it is part of what a run is.

A plugin's file counts with all that it imports beside it; an installed package goes by its name and
version, and by its files too where it is installed from a working folder.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any

from dualmix.errors import ConfigError

PREFIX = "dualmix_plugin_"
"""How the modules of plugin files are called."""
OWN = Path(__file__).parent
LIBRARIES = {
    Path(sysconfig.get_path(name)).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
}


@dataclass(frozen=True, slots=True)
class Code:
    """What defines a method.

    Attributes
    ----------
    files
        The sha256 of every file, the method's own first.
    package
        Name and version of an installed distribution, or "".
    text
        The sha256 of a class without a file (a notebook, a console), or "".
    """

    files: dict[Path, str] = field(default_factory=dict)
    package: str = ""
    text: str = ""

    def identity(self) -> str:
        """Return what a run's key covers: contents and names, not where the files lie; "" for the
        package's own methods.
        """
        first, *others = self.files.items() if self.files else [(Path(), "")]
        beside = sorted(f"{path.name} {digest}" for path, digest in others)
        parts = [part for part in (first[1], *beside, self.package, self.text) if part]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest() if parts else ""

    def where(self) -> str:
        """Return the file or the package to name in messages."""
        return str(next(iter(self.files), self.package))

    def record(self) -> dict[str, Any]:
        """Return what a run's facts keep."""
        return {
            "sha256": self.identity(),
            "file": str(next(iter(self.files), "")),
            "files": {str(path): digest for path, digest in self.files.items()},
            "package": self.package,
        }


_KNOWN: dict[type, Code] = {}


def code_of(method: type) -> Code:
    """Return the code that defines a method's settings class, as it was when first asked for."""
    if method not in _KNOWN:
        _KNOWN[method] = _read(method)
    return _KNOWN[method]


def load_entry(point: EntryPoint, what: str) -> None:
    """Load what an installed package offers; `what` says in a fault what it is."""
    try:
        point.load()
    except ConfigError:
        raise
    except Exception as fault:
        raise ConfigError(
            f"The installed {what} {point.name!r} ({point.value}) cannot be loaded: "
            f"{type(fault).__name__}: {fault}: mend or remove the package that brings it."
        ) from fault


def _read(method: type) -> Code:
    top = method.__module__.partition(".")[0]
    if top == "dualmix":
        return Code()
    module = sys.modules.get(method.__module__)
    path = _file(module)
    package = "" if top == "__main__" or top.startswith(PREFIX) else _package(top)
    if path is None:
        return Code(package=package, text="" if package else _text(method))
    files = {path: ""}
    waiting = [(module, path)]
    while waiting:
        module, path = waiting.pop()
        files[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        for name, inner in _imports(module, path):
            if inner not in files:
                files[inner] = ""
                waiting.append((name, inner))
    if _installed(next(iter(files))):
        files = {}
    return Code(files, package)


def _file(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    path = Path(name).resolve() if isinstance(name, str) else None
    return path if path is not None and path.is_file() else None


def _package(name: str) -> str:
    """Return name and version of the distribution that a top module comes from, or ""."""
    owners = packages_distributions().get(name, [])
    return "; ".join(f"{owner} {version(owner)}" for owner in sorted(set(owners)))


def _installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(
        path.is_relative_to(folder) for folder in LIBRARIES
    )


def _text(method: type) -> str:
    try:
        text = inspect.getsource(method)
    except (OSError, TypeError):
        functions = {name: part for name, part in vars(method).items() if inspect.isfunction(part)}
        text = repr([(n, f.__code__.co_code, f.__code__.co_consts) for n, f in functions.items()])
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1024)  # parsing is slow, and every method of a file asks again
def _import_statements(content: bytes) -> tuple[ast.Import | ast.ImportFrom, ...]:
    try:
        nodes = ast.walk(ast.parse(content))
    except (SyntaxError, ValueError):
        return ()  # nothing that runs has imported it
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def _imports(module: ModuleType | None, path: Path) -> list[tuple[ModuleType | None, Path]]:
    """Return the files of one's own that a file imports, at its top or inside a function: modules
    that are loaded, or that lie beside it.
    """
    names: set[str] = set()
    base = getattr(module, "__package__", None) or ""
    for node in _import_statements(path.read_bytes()) if path.suffix == ".py" else ():
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
            parts = base.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            whole = ".".join(part for part in (*above, node.module) if part)
            names.update([whole, *(f"{whole}.{alias.name}" for alias in node.names)])
    for value in vars(module).values() if module else ():
        if isinstance(value, ModuleType):
            names.add(value.__name__)
        elif isinstance(owner := getattr(value, "__module__", None), str):
            names.add(owner)
    # A module's packages are run when it is imported.
    names |= {name[:at] for name in names for at in range(len(name)) if name[at] == "."}
    files = []
    for name in sorted(names):
        loaded = sys.modules.get(name)
        inner = _file(loaded)
        if inner is None and loaded is None and name:
            stem = path.parent.joinpath(*name.split("."))
            beside = (stem.with_suffix(".py"), stem / "__init__.py")
            inner = next((file.resolve() for file in beside if file.is_file()), None)
        if inner is not None and not _installed(inner) and not inner.is_relative_to(OWN):
            files.append((loaded, inner))
    return files
