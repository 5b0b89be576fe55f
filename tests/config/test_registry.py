"""Methods by name: the package's own, a plugin file's, an installed package's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import dualmix.methods
from dualmix import registry, testing
from dualmix.config.compose import compose
from dualmix.errors import ConfigError
from dualmix.registry import (
    Method,
    Preset,
    add_preset,
    get_method,
    get_preset,
    load_plugin,
    presets,
    register,
)
from dualmix.runs import build as recipe

pytestmark = pytest.mark.usefixtures("shallow")

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_method.py"
PLUGIN = """
from dualmix.methods import ER
from dualmix.registry import register

@register({name!r}, paper="Table 9", values={{"method.memory": 77, "stream.epochs": 2}})
class Own(ER):
    \"\"\"One line about it.

    More lines.
    \"\"\"
    extra: int = 3
"""


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    yield
    for name in [
        n for n in sys.modules if n == "installed_method" or n.startswith("dualmix_plugin_")
    ]:
        del sys.modules[name]


def plugin(folder: Path, text: str, name: str = "own.py") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_package_own_methods_are_known() -> None:
    assert {"er", "finetune", "iid-offline", "iid-online"} <= set(presets())
    assert get_method("er") is dualmix.methods.ER and dualmix.methods.ER.kind == "er"
    assert get_preset("er").values == {"method.reservoir": "ref"}


def test_every_method_but_the_bounds_names_its_paper() -> None:
    own = {name: preset for name, preset in presets().items() if _is_ours(preset)}
    bounds = {"finetune", "iid-offline", "iid-online"}
    assert {name for name, preset in own.items() if not preset.cite} == bounds
    assert own["er"].cite == "Chaudhry et al., 2019, arXiv:1902.10486"
    assert own["mir+dualmix"].cite == (
        "Aljundi et al., 2019, arXiv:1908.04742; Fan et al., 2023, arXiv:2303.07864"
    )
    for name, preset in own.items():
        module = sys.modules[get_method(preset.kind).__module__]
        for cite in preset.cite.split("; "):
            *_, place = cite.split(", ")
            texts = (
                module.__doc__,
                dualmix.methods.dualmix.__doc__,
                dualmix.methods.mkd.__doc__,
                dualmix.methods.ema.__doc__,
                dualmix.methods.recommended.__doc__,
            )
            assert any(place in (text or "") for text in texts), f"{name}: {cite}"


def _is_ours(preset: Preset) -> bool:
    return get_method(preset.kind).__module__.startswith("dualmix.methods.")


def test_every_preset_composes_and_its_values_arrive() -> None:
    for name, preset in presets().items():
        composed = compose(name)
        assert composed.label == name and composed.config.method.kind == preset.kind
        assert preset.doc.endswith(".") and preset.paper
        for path in preset.values:
            assert composed.origins[path] == f"preset {name}"
    offline = compose("iid-offline").config
    assert (offline.stream.tasks, offline.stream.epochs, offline.stream.batch) == (1, 70, 128)
    assert (offline.method.weight_decay, offline.stream.incomplete) == (1e-4, "drop")


@pytest.mark.parametrize(
    ("name", "near"), [("re", "er"), ("finetuen", "finetune"), ("iid_offline", "iid-offline")]
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"There is no method '{name}'; did you mean {near}\\?"):
        get_preset(name)


def test_an_addition_that_does_not_fit_names_its_hosts() -> None:
    for name in ("agem+dualmix", "finetune+dualmix"):
        with pytest.raises(
            ConfigError,
            match=r"'dualmix' cannot be added to '\w+', only to .*: aser, .*, er, .*mir\b.*\.$",
        ):
            get_preset(name)
    with pytest.raises(
        ConfigError, match="Nothing called 'enmx' can be added to 'er'; did you mean enmix"
    ):
        get_preset("er+enmx")


def test_several_additions_join_in_one_order_if_they_set_different_groups() -> None:
    for name in ("er+dualmix+mkd", "er+mkd+dualmix"):
        composed = compose(name)
        method = composed.config.method
        assert composed.label == "er+dualmix+mkd"
        assert (method.mix.enmix, method.mkd.weight, method.reservoir) == (1 / 5, 5.5, "ref")
    made = recipe.create("er+dualmix+mkd", (1, 8, 8), memory=5)
    assert made.recipe["method"]["mkd"]["weight"] == 5.5
    for look in (get_preset, lambda name: recipe.create(name, (1, 8, 8))):
        with pytest.raises(ConfigError, match=r"\+da and \+enmix set the same settings \(mix\)"):
            look("er+da+enmix")
    with pytest.raises(ConfigError, match=r"Nothing called 'mdk' .* did you mean mkd"):
        get_preset("er+dualmix+mdk")
    with pytest.raises(ConfigError, match=r"There is no method 'iid-offline\+da\+mkd'"):
        get_preset("iid-offline+da+mkd")


def test_a_name_like_nothing_gets_no_guess() -> None:
    for look in (get_preset, get_method):
        with pytest.raises(ConfigError) as fault:
            look("zzzzzz")
        assert "did you mean" not in str(fault.value) and str(fault.value).endswith(".")


def test_a_saved_learner_of_an_unknown_method_names_the_plugin(tmp_path: Path) -> None:
    load_plugin(plugin(tmp_path, PLUGIN.format(name="own")))
    learner = recipe.create("own", (1, 8, 8), memory=3)
    recipe.save(learner, tmp_path / "learner")
    del registry._METHODS["own"]
    with pytest.raises(ConfigError, match="--plugin"):
        recipe.load(tmp_path / "learner")


def test_a_plugin_registers_and_builds(tmp_path: Path) -> None:
    load_plugin(plugin(tmp_path, PLUGIN.format(name="own")))
    values = {"method.memory": 77, "stream.epochs": 2}
    sources = dict.fromkeys(values, "ours")
    assert get_preset("own") == Preset(
        "own", "own", "One line about it.", "Table 9", values, sources
    )
    composed = compose("own", {"method.extra": "5"})
    assert composed.config.method.memory == 77 and composed.config.method.extra == 5
    assert composed.config.stream.epochs == 2
    learner = recipe.create("own", (1, 8, 8), memory=6, extra=4)
    assert learner.memory.capacity == 6 and learner.recipe["kind"] == "own"


def test_a_plugin_may_be_loaded_twice(tmp_path: Path) -> None:
    path = plugin(tmp_path, PLUGIN.format(name="own"))
    load_plugin(path)
    load_plugin(path)
    assert get_preset("own").paper == "Table 9"


def test_a_name_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'er' is already defined in dualmix.methods.er: choose another name\."
    ):
        load_plugin(plugin(tmp_path, PLUGIN.format(name="er")))
    assert get_method("er") is dualmix.methods.ER
    assert get_preset("er").values == {"method.reservoir": "ref"}


def test_two_plugins_may_not_share_a_name(tmp_path: Path) -> None:
    load_plugin(plugin(tmp_path, PLUGIN.format(name="own"), "one.py"))
    with pytest.raises(ConfigError, match="already defined in dualmix_plugin_one"):
        load_plugin(plugin(tmp_path, PLUGIN.format(name="own"), "two.py"))


def test_two_plugins_of_one_file_name_may_not_share_a_name_either(tmp_path: Path) -> None:
    load_plugin(plugin(tmp_path / "a", PLUGIN.format(name="own")))
    with pytest.raises(ConfigError, match="already defined"):
        load_plugin(plugin(tmp_path / "b", PLUGIN.format(name="own")))


def test_a_method_may_not_take_the_name_of_a_preset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="iid-offline"):
        load_plugin(plugin(tmp_path, PLUGIN.format(name="iid-offline")))
    assert get_preset("iid-offline").kind == "finetune"


def test_a_preset_may_be_added() -> None:
    add_preset(Preset("er-small", "er", "A small memory.", "-", {"method.memory": 5}))
    assert compose("er-small").config.method.memory == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (:", "SyntaxError"),
        (
            "import no_such_module_at_all",
            "ModuleNotFoundError: No module named 'no_such_module_at_all'",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from dualmix import NoSuchThing", "ImportError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_broken_plugin_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded") as fault:
        load_plugin(plugin(tmp_path, text))
    message = str(fault.value)
    assert says in message and "own.py" in message and "\n" not in message and message.endswith(".")


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.py", tmp_path):
        with pytest.raises(ConfigError, match=r"There is no plugin file"):
            load_plugin(path)
    with pytest.raises(ConfigError, match="not a Python file"):
        load_plugin(plugin(tmp_path, "", "own.txt"))


def test_a_method_needs_build() -> None:
    @register("unfinished")
    class Unfinished(Method):
        """Not done."""

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, value: str) -> None:
    plugin(folder, text, "installed_method.py")
    monkeypatch.syspath_prepend(folder)
    points: list[Any] = [EntryPoint("installed", value, "dualmix.methods")]
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [p for p in points if p.group == group]
    )


def test_an_installed_package_brings_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path, PLUGIN.format(name="installed"), "installed_method:Own")
    assert get_preset("installed").doc == "One line about it."
    assert get_method("installed")().extra == 3
    assert "installed" in presets()


def test_the_real_entry_points_are_asked_for() -> None:
    from importlib.metadata import entry_points

    assert registry.entry_points is entry_points
    assert len(presets()) >= 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 / 0", "installed_method"), ("", "installed_method:Missing"), ("", "no_such_module_x")],
)
def test_a_broken_installed_package_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, value: str
) -> None:
    installed(monkeypatch, tmp_path, text, value)
    with pytest.raises(ConfigError, match="installed") as fault:
        presets()
    assert "\n" not in str(fault.value) and str(fault.value).endswith(".")


@pytest.mark.parametrize("demand", testing.CHECKS)
@pytest.mark.slow
def test_the_example_keeps_the_contract(demand: str) -> None:
    load_plugin(EXAMPLE)
    testing.CHECKS[demand](get_method("my-method")(), (1, 8, 8))


def test_the_example_rehearses_only_absent_classes() -> None:
    import numpy as np
    import torch

    load_plugin(EXAMPLE)
    learner = recipe.create("my-method", (1, 8, 8), memory=30, memory_batch=4, bonus=1)
    for number in range(3):
        learner.observe(np.zeros((6, 1, 8, 8), dtype=np.uint8), [number] * 6)
    from dualmix.learn.types import Batch

    rng = np.random.default_rng(0)
    for present in ([0], [1, 2], [2, 0]):
        slots = learner.retrieve(
            learner.memory, Batch(torch.zeros(2), torch.tensor(present)), learner.model, rng
        )
        assert len(set(slots.tolist())) == 5
        assert not set(learner.memory.y[slots].tolist()) & set(present)


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 60


def test_what_is_recommended_is_a_combination_and_takes_no_addition() -> None:
    one, base = get_preset("recommended"), get_preset("er+dualmix+ema")
    assert one.values == {**base.values, "method.readout": "ncm"}
    own = {path: source for path, source in base.sources.items() if ".ema." not in path}
    assert one.sources == own
    assert not [name for name in presets() if name.startswith("recommended+")]
    with pytest.raises(ConfigError, match=r"There is no method 'recommended\+dualmix'"):
        get_preset("recommended+dualmix")
