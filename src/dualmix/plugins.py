"""The code behind a method or backbone that is not the package's own: it is part of what a run is.

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
from types import CodeType, ModuleType
from typing import Any

from dualmix.errors import ConfigError, quoted

PREFIX = "dualmix_plugin_"
"""How the modules of plugin files are called."""
OWN = Path(__file__).parent
LONGEST = 256
"""Letters above which a text is no file's name."""
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
        beside = sorted(f"{_below(path, first[0].parent)} {digest}" for path, digest in others)
        parts = [part for part in (first[1], *beside, self.package, self.text) if part]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest() if parts else ""

    def joined(self, other: Code) -> Code:
        """Return the code of two parts of a run."""
        package = "; ".join(part for part in (self.package, other.package) if part)
        return Code({**self.files, **other.files}, package, self.text + other.text)

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


_KNOWN: dict[Any, Code] = {}
_BACKBONES: dict[str, tuple[str, Any]] = {}
"""What makes a backbone, and the module that registered it, by its name."""


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def code_of(method: type) -> Code:
    """Return the code that defines a method's settings class, as it was when first asked for."""
    if method not in _KNOWN:
        _KNOWN[method] = _read(method.__module__, method)
    return _KNOWN[method]


def keep_backbone(name: str, module: str, maker: Any) -> None:
    """Remember which module registers a backbone."""
    _BACKBONES[name] = module, maker


def code_of_backbone(name: str) -> Code:
    """Return the code that defines a backbone of a plugin, as it was when first asked for."""
    if name not in _BACKBONES:
        return Code()
    if name not in _KNOWN:
        _KNOWN[name] = _read(*_BACKBONES[name])
    return _KNOWN[name]


def read_codes(module: str) -> None:
    """Read the code of all that a module has registered, before its file is edited."""
    for name, (owner, _) in _BACKBONES.items():
        if owner == module:
            code_of_backbone(name)


def load_entry(point: EntryPoint, what: str) -> None:
    """Load what an installed package offers; `what` says in a fault what it is."""
    try:
        point.load()
    except ConfigError:
        raise
    except Exception as fault:
        raise ConfigError(
            f"The installed {what} {point.name!r} ({point.value}) cannot be loaded: "
            f"{quoted(fault)}: mend or remove the package that brings it."
        ) from fault


def _read(owner: str, part: Any) -> Code:
    top = owner.partition(".")[0]
    if top == "dualmix":
        return Code()
    module = sys.modules.get(owner)
    path = _file(module)
    package = "" if top == "__main__" or top.startswith(PREFIX) else _package(top)
    if path is None:
        return Code(package=package, text="" if package else _text(part))
    if package and _installed(path):
        return Code(package=package)
    files = {path: ""}
    waiting = [(getattr(module, "__package__", None) or "", module, path)]
    while waiting:
        inside, module, path = waiting.pop()
        files[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        for name, loaded, inner in _imports(inside, module, path):
            if inner not in files:
                files[inner] = ""
                whole = inner.name == "__init__.py"
                waiting.append((name if whole else name.rpartition(".")[0], loaded, inner))
    return Code(files, package)


def is_users(file: str) -> bool:
    """Whether code is neither the package's nor an installed library's."""
    path = Path(file)
    return path.is_file() and not _installed(path) and not path.is_relative_to(OWN)


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


def _text(part: Any) -> str:
    parts: dict[int, Any] = {}
    _describe(part, part.__module__, parts)
    return hashlib.sha256(repr(list(parts.values())).encode("utf-8", "replace")).hexdigest()


def _describe(part: Any, room: str, parts: dict[int, Any]) -> None:
    """Add to `parts` what a class or a function of a module does, and all of that module that it
    names.
    """
    part = inspect.unwrap(getattr(part, "__func__", part))
    if id(part) in parts:
        return
    if inspect.isclass(part) and part.__module__ == room:
        fields = getattr(part, "__pydantic_fields__", {})
        parts[id(part)] = [(name, repr(field)) for name, field in fields.items()]
        inner = [vars(part)[name] for name in sorted(vars(part)) if not name.startswith("__")]
        for one in (*part.__bases__, *inner):
            _describe(one, room, parts)
    elif inspect.isfunction(part) and part.__module__ == room:
        codes = _codes(part.__code__)
        given = _plain((part.__defaults__, part.__kwdefaults__))
        parts[id(part)] = [_steps(code) for code in codes], given
        for name in sorted({name for code in codes for name in code.co_names}):
            _describe(part.__globals__.get(name), room, parts)
    elif isinstance(part, property):
        for one in (part.fget, part.fset):
            _describe(one, room, parts)
    else:
        parts[id(part)] = _plain(part)


def _codes(code: CodeType) -> list[CodeType]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return [code, *(deeper for one in inner for deeper in _codes(one))]


def _steps(code: CodeType) -> tuple[Any, ...]:
    values = [_plain(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, values, code.co_names, code.co_varnames, code.co_freevars


def _plain(value: Any) -> Any:
    """Return what tells two values apart in every process alike."""
    if isinstance(value, tuple | list | frozenset | set):
        inner = [str(_plain(one)) for one in value]
        return inner if isinstance(value, tuple | list) else sorted(inner)
    if isinstance(value, dict):
        return [(_plain(name), _plain(one)) for name, one in value.items()]
    simple = isinstance(value, str | bytes | int | float | complex | None)
    return repr(value) if simple else type(value).__qualname__


@lru_cache(maxsize=1024)  # parsing is slow, and every method of a file asks again
def _statements(content: bytes) -> tuple[tuple[tuple[int, str], ...], tuple[str, ...]]:
    """Return what a file's text imports, at its top or inside a function, each with the number of
    its dots; and what may be names of files with code.
    """
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (), ()  # nothing that runs has imported it
    names: list[tuple[int, str]] = []
    for node in nodes:
        match node:
            case ast.Import():
                names += [(0, alias.name) for alias in node.names]
            case ast.ImportFrom():
                whole = node.module or ""
                inner = (f"{whole}.{alias.name}".lstrip(".") for alias in node.names)
                names += [(node.level, name) for name in (whole, *inner)]
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in ("import_module", "__import__"):
                names.append((len(name) - len(name.lstrip(".")), name.lstrip(".")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    files = (text for text in texts if isinstance(text, str) and text.endswith(".py"))
    return tuple(names), tuple(file for file in files if len(file) < LONGEST)


def _imports(
    inside: str, module: ModuleType | None, path: Path
) -> list[tuple[str, ModuleType | None, Path]]:
    """Return the files of one's own that a file of a package uses, and their modules: loaded ones,
    others that would be found, and code beside it that it names by its file.
    """
    above = inside.split(".") if inside else []
    stated, named = _statements(path.read_bytes()) if path.suffix == ".py" else ((), ())
    names = set()
    for level, name in stated:
        base = above[: len(above) - level + 1] if level else []
        names.add(".".join([*base, *([name] if name else [])]))
    for value in vars(module).values() if module else ():
        if isinstance(value, ModuleType):
            names.add(value.__name__)
        elif isinstance(owner := getattr(value, "__module__", None), str):
            names.add(owner)
    # A module's packages are run when it is imported.
    names |= {name[:at] for name in names for at in range(len(name)) if name[at] == "."}
    # The folder of a plugin's file need not be on the path by now.
    roots = [path.parents[min(len(above), len(path.parents) - 1)], *map(Path, sys.path)]
    files: list[tuple[str, ModuleType | None, Path | None]] = []
    for name in sorted(names - {""}):
        loaded = sys.modules.get(name)
        files.append((name, loaded, _file(loaded) if loaded else _found(name, roots)))
    files += [("", None, _regular(path.parent / name)) for name in sorted(set(named))]
    return [
        (name, loaded, inner)
        for name, loaded, inner in files
        if inner is not None and not _installed(inner) and not inner.is_relative_to(OWN)
    ]


def _found(name: str, roots: list[Path]) -> Path | None:
    """Return the file that an import would run."""
    for root in roots:
        stem = root.joinpath(*name.split("."))
        for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if inner := _regular(file):
                return inner
    return None


def _regular(path: Path) -> Path | None:
    try:
        return path.resolve() if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
