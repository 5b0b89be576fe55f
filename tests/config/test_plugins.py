"""The code of a plugin's method: part of the key, of the facts and of what messages name."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualmix
from dualmix import registry
from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.learn import backbones
from dualmix.plugins import Code, code_of
from dualmix.registry import load_plugin, presets

PLUGIN = """
{imports}
from dualmix.methods import ER
from dualmix.registry import register

@register("edited")
class Edited(ER):
    "A method that is edited."
    def build(self, model, rng):
        {lazily}
        return ER(lr=self.lr * {factor}, memory=5).build(model, rng)
"""


def forget() -> None:
    for table in (registry._METHODS, registry._PRESETS):
        table.pop("edited", None)


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    forget()
    for name in [n for n in sys.modules if n.startswith("dualmix_plugin_")]:
        del sys.modules[name]


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.npz"
    x = np.random.default_rng(1).integers(0, 256, (24, 4, 4)).astype(np.uint8)
    np.savez(path, x=x, y=np.repeat(np.arange(4), 6))
    flags = {"data.name": "arrays", "data.path": path, "stream.tasks": 2, "model.width": 1}
    return [str(word) for name, value in flags.items() for word in (f"--{name}", value)]


def written(path: Path, imports: str = "", lazily: str = "", factor: str = "1") -> Path:
    path.write_text(PLUGIN.format(imports=imports, lazily=lazily, factor=factor))
    return path


def key(path: Path, *folders: Path) -> str:
    """Return the key that a command has; all modules that it loads are forgotten after it."""
    before = {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*map(str, folders), *sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)
        load_plugin(path)
        found = compose("edited").config.key("data")
    for name in {*sys.modules} - before:
        del sys.modules[name]
    forget()
    importlib.invalidate_caches()
    return found


def test_an_edit_of_the_file_gives_another_key(tmp_path: Path) -> None:
    keys = []
    for factor in ("1", "2", "1"):
        load_plugin(written(tmp_path / "own.py", factor=factor))
        keys.append(compose("edited").config.key("data"))
        forget()
    assert keys[0] == keys[2] != keys[1]
    load_plugin(written(tmp_path / "moved.py"))
    assert compose("edited").config.key("data") == keys[0]


def test_an_edit_of_the_same_second_and_length_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for factor in ("1", "2"):
        path = written(tmp_path / "quick.py", factor=factor)
        os.utime(path, (1e9, 1e9))
        load_plugin(path)
        learner = dualmix.create("edited", (1, 4, 4), memory=2, lr=0.1)
        assert learner.lr == pytest.approx(0.1 * int(factor))
        forget()


@pytest.mark.parametrize(
    ("imports", "lazily", "helper"),
    [
        ("import helper", "", "helper.py"),
        ("from helper import FACTOR", "", "helper.py"),
        ("", "from helper import FACTOR", "helper.py"),
        ("import middle", "", "helper.py"),
        ("import pack.inner", "", "pack/inner.py"),
        ("from pack import inner", "", "pack/inner.py"),
        ("from library import FACTOR", "", "below/library.py"),
        ("", "from library import FACTOR", "below/library.py"),
        ("from pack.lazy import near", "", "pack/inner.py"),
        ("from pack.lazy import far", "", "pack/deep/last.py"),
        ("from pack.deep.lazy import up", "", "pack/inner.py"),
        ("import importlib", "importlib.import_module('helper')", "helper.py"),
        ("FACTOR = __import__('helper').FACTOR", "", "helper.py"),
        ("", "exec(open('helper.py').read())", "helper.py"),
    ],
)
def test_an_edit_of_what_it_imports_gives_another_key(
    tmp_path: Path, imports: str, lazily: str, helper: str
) -> None:
    for folder in ("pack", "below"):
        (tmp_path / folder).mkdir()
    (tmp_path / "middle.py").write_text("from helper import FACTOR\n")
    (tmp_path / "other.py").write_text("FACTOR = 1\n")
    (tmp_path / "pack/deep").mkdir()
    (tmp_path / "pack/lazy.py").write_text(
        "def near():\n    from .inner import FACTOR\ndef far():\n    from pack.deep import last\n"
    )
    (tmp_path / "pack/deep/lazy.py").write_text("def up():\n    from ..inner import FACTOR\n")
    plain = ("helper.py", "pack/__init__.py", "pack/inner.py", "pack/deep/last.py")
    for name in (*plain, "below/library.py"):
        (tmp_path / name).write_text("FACTOR = 1\n")
    path = written(tmp_path / "own.py", imports, lazily)
    first = key(path, tmp_path, tmp_path / "below")
    (tmp_path / "other.py").write_text("FACTOR = 2\n")
    assert key(path, tmp_path, tmp_path / "below") == first
    (tmp_path / helper).write_text("FACTOR = 2\n")
    assert key(path, tmp_path, tmp_path / "below") != first


def test_two_helpers_that_change_places_give_another_key(tmp_path: Path) -> None:
    keys = []
    for first, second in ((1, 2), (2, 1)):
        for folder, factor in (("one", first), ("two", second)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "rule.py").write_text(f"FACTOR = {factor}\n")
        path = written(tmp_path / "own.py", "from one.rule import FACTOR\nimport two.rule")
        keys.append(key(path, tmp_path))
    assert keys[0] != keys[1]


def test_a_file_among_installed_packages_counts_unless_a_distribution_brings_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "site-packages").mkdir()
    path = tmp_path / "site-packages" / "own.py"
    assert key(written(path)) != key(written(path, factor="2"))


NETWORK = """
import torch
from dualmix import register_backbone

@register_backbone("{name}")
def made(shape, hidden):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.{layer}())
"""


def test_the_code_of_a_backbone_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbones, "_MAKERS", dict(backbones._MAKERS))
    keys = []
    for layer in ("ReLU", "Tanh"):
        path = tmp_path / "net.py"
        name = f"edited-{layer}"
        path.write_text(NETWORK.format(name=name, layer=layer))
        load_plugin(path)
        composed = compose("er", {"model.name": name})
        assert composed.config.code().where() == str(path)
        keys.append(composed.config.key("data"))
        assert keys[-1] == composed.config.key("data", composed.config.code().identity())
        learner = dualmix.create("er", (1, 4, 4), memory=2, model=name)
        saved = dualmix.to_bytes(learner)
        with pytest.MonkeyPatch.context() as patch:
            patch.delitem(backbones._MAKERS, name)
            with pytest.raises(ConfigError, match=str(path)):
                dualmix.load(saved)
    assert len({*keys}) == 2


def test_the_packages_own_methods_have_no_code_in_their_keys() -> None:
    for preset in presets().values():
        method = registry.get_method(preset.kind)
        if method.__module__.startswith("dualmix."):
            assert code_of(method) == Code() and not code_of(method).identity()


@pytest.mark.slow
def test_a_class_without_a_file(tmp_path: Path) -> None:
    """Defined in a console: what its functions do counts."""
    found = []
    for factor in (1, 2, 1):
        room: dict[str, Any] = {"__name__": "a_console", "ER": dualmix.ER}
        text = f"class Own(ER):\n    def build(self, model, rng):\n        return {factor}\n"
        exec(text, room)
        found.append(code_of(room["Own"]).identity())
    assert found[0] == found[2] != found[1]


CONSOLE = """
LIMIT = 1
def helper(x):
    return x * 2
class Base(ER):
    def rule(self):
        return 3
class Own(Base):
    bonus: int = setting(5, "more")
    @property
    def sized(self):
        return [number for number in range(7)]
    def build(self, model, rng):
        return helper(min(LIMIT, 9)) if "a" in {"b", "c", "d"} else None
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 1", "LIMIT = 2"),
        ("x * 2", "x + 2"),
        ("return 3", "return 4"),
        ("setting(5", "setting(6"),
        ("range(7)", "range(8)"),
        ("min(", "max("),
    ],
)
def test_what_a_class_without_a_file_uses_counts_too(old: str, new: str) -> None:
    found = []
    for text in (CONSOLE, CONSOLE, CONSOLE.replace(old, new)):
        room = {"__name__": "a_console", "ER": dualmix.ER, "setting": dualmix.setting}
        exec(text, room)
        found.append(code_of(room["Own"]).identity())
    assert found[0] == found[1] != found[2]


def test_facts_configuration_and_messages_name_the_file(
    dualmix_: Any, tiny: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path / "own.py")
    words = ["run", "edited", *tiny, "--plugin", path, "--json"]
    folders = []
    for factor in ("1", "2"):
        written(path, factor=factor)
        code, out, err = dualmix_(*words)
        assert code == 0 and "done already" not in err
        folders.append(Path(json.loads(out)["run"]))
        assert "done already" in dualmix_(*words[:-1])[2]
        forget()
    facts = [json.loads((folder / "facts.json").read_text())["plugin"] for folder in folders]
    assert [f["file"] for f in facts] == [str(path)] * 2
    assert facts[1]["files"] == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert facts[0]["sha256"] != facts[1]["sha256"] and folders[0] != folders[1]
    for command in (["run", folders[1]], ["explain", folders[1]]):
        code, _, err = dualmix_(*command)
        assert code == 2 and f"--plugin {path}" in err
    with pytest.raises(ConfigError, match=f"--plugin {path}"):
        dualmix.load(folders[1] / "learner.safetensors")
    code, out, _ = dualmix_("report", "--store", folders[0].parent, "--format", "md")
    assert code == 0 and f"--plugin {path}" in out
    code, out, _ = dualmix_(
        "report", "--store", folders[0].parent, "--format", "md", "--plugin", path
    )
    said = Path("report.md").read_text()
    assert code == 0 and said.count(f"dualmix run edited --data.name arrays --plugin {path}") >= 1
