"""Data sets that users add: by a file, by an installed package, and what can go wrong."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from dualmix import Decoded, register_dataset
from dualmix.data import DATASETS, Data, add_dataset, catalog, load
from dualmix.data.images import fingerprint
from dualmix.data.verify import listing, verify
from dualmix.errors import ConfigError, DataError
from dualmix.registry import load_plugin

from .makers import random_images

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_data.py"
TEXT = '''
from pathlib import Path
import numpy as np
from dualmix import Decoded, register_dataset

@register_dataset("raw", title="Raw pixels", tasks=2, files=["raw/*.bin"])
def raw(folder: Path) -> Decoded:
    """Pixels out of files."""
    with (Path(__file__).parent / "calls").open("a") as log:
        log.write("x")
    x = np.stack([np.frombuffer(p.read_bytes(), np.uint8) for p in sorted(folder.glob("raw/*"))])
    x = x.reshape(-1, 4, 6, 1) + np.uint8(CHANGE)
    y = np.arange(len(x)) % 2
    return Decoded(x, y, x, y, ("even", "odd"), ("made up",))
'''


@pytest.fixture
def raw(tmp_path):
    """A plugin that reads files, and four of them."""
    plugin = tmp_path / "raw.py"
    plugin.write_text(TEXT.replace("CHANGE", "0"))
    root = tmp_path / "root"
    (root / "raw").mkdir(parents=True)
    for i in range(4):
        (root / "raw" / f"{i}.bin").write_bytes(random_images(1, 4, 6, 1, seed=i).tobytes())
    load_plugin(plugin)
    return plugin, Data(name="raw", root=root)


def calls(plugin):
    return len((plugin.parent / "calls").read_text())


@pytest.mark.slow
def test_the_example_runs_as_its_docstring_says(dualmix_):
    words = ("--plugin", EXAMPLE, "--data.name", "my-data")
    small = ("--model.width", 2, "--method.memory", 20, "--seed", 3)
    code, out, err = dualmix_("run", "er", *words, *small, "--json")
    assert code == 0, err
    scores = json.loads(out)
    assert json.dumps(scores).count("accuracy")
    code, out, _ = dualmix_("data", "verify", "my-data", "--plugin", EXAMPLE)
    assert code == 0 and "4 classes, 8x8 pixels, 1 channels" in out and "400 images" in out
    code, out, _ = dualmix_("data", "list", "--plugin", EXAMPLE)
    assert "my-data: Stripes of four directions" in out
    code, out, _ = dualmix_("run", "er", "--plugin", EXAMPLE, "--help")
    assert "my-data" in out


def test_a_data_set_without_its_plugin_is_unknown(dualmix_):
    code, _, err = dualmix_("run", "er", "--data.name", "my-data")
    assert code == 2 and "there is no data set 'my-data'" in err


def test_the_default_number_of_tasks_is_the_plugins(raw):
    from dualmix.config.compose import compose

    config = compose("er", {"data.name": "raw", "data.root": str(raw[1].root)}).config
    assert config.stream.tasks == 2


def test_named_files_are_decoded_once_until_they_or_the_code_change(raw):
    plugin, data = raw
    first = load(data)
    assert load(data).fingerprint == first.fingerprint and calls(plugin) == 1
    assert first.notes == ("made up",) and first.shape == (1, 4, 6)
    (data.root / "raw" / "0.bin").write_bytes(random_images(1, 4, 6, 1, seed=9).tobytes())
    second = load(data)
    assert second.fingerprint != first.fingerprint and calls(plugin) == 2
    plugin.write_text(TEXT.replace("CHANGE", "10"))
    load_plugin(plugin)
    third = load(data)
    assert third.fingerprint != second.fingerprint and calls(plugin) == 3
    np.testing.assert_array_equal(third.train_x, second.train_x + np.uint8(10))


def test_size_and_fit_are_applied_to_what_a_plugin_returns(raw):
    _, data = raw
    sizes = data.model_copy(update={"size": 6}), data.model_copy(update={"size": 6, "fit": "pad"})
    squeezed, padded = (load(each) for each in sizes)
    assert squeezed.shape == padded.shape == (1, 6, 6)
    assert (padded.train_x[:, 0] == 0).all() and (squeezed.train_x[:, 0] != 0).any()


def test_missing_files_are_a_sentence(raw, tmp_path):
    with pytest.raises(DataError, match=r"raw is not in .*: there is no raw/\*\.bin\."):
        load(Data(name="raw", root=tmp_path / "elsewhere"))
    assert next(e for e in listing(tmp_path) if e.name == "raw").present is False


def test_without_files_nothing_is_kept_on_disk(tmp_path):
    x, y = random_images(4), np.arange(4) % 2
    calls = []

    @register_dataset("drawn")
    def drawn(folder):
        """Drawn."""
        calls.append(folder)
        return Decoded(x, y, x, y, ("a", "b"))

    images = load(Data(name="drawn", root=tmp_path))
    assert load(Data(name="drawn", root=tmp_path)).fingerprint == images.fingerprint
    assert calls == [tmp_path, tmp_path] and not list(tmp_path.iterdir())
    assert images.fingerprint == fingerprint(images) and not images.train_x.flags.writeable
    assert x.flags.writeable
    assert verify(Data(name="drawn", root=tmp_path)).ok


def test_a_set_of_the_users_own_files(tmp_path):
    @register_dataset("lines", own=True)
    def lines(path):
        """One image per line."""
        x = np.array([[int(v) for v in line.split()] for line in path.read_text().splitlines()])
        x = x.reshape(-1, 2, 2, 1).astype(np.uint8)
        y = np.arange(len(x)) % 2
        return Decoded(x, y, x, y, ("a", "b"))

    with pytest.raises(ValueError, match=r"needs data\.path with its file or folder"):
        Data(name="lines")
    (tmp_path / "my.txt").write_text("1 2 3 4\n5 6 7 8\n")
    images = load(Data(name="lines", root=tmp_path, path=tmp_path / "my.txt"))
    assert images.train_x.tolist() == [[[[1], [2]], [[3], [4]]], [[[5], [6]], [[7], [8]]]]
    with pytest.raises(DataError, match="cannot be read"):
        load(Data(name="lines", root=tmp_path, path=tmp_path / "none.txt"))


X, Y = random_images(4), np.arange(4) % 2


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda: 1 / 0, r"'bad' \(.*test_plugin\.py\) failed: ZeroDivisionError"),
        (lambda: None, "must return dualmix.Decoded, not NoneType"),
        (lambda: (X, Y, X, Y), "must return dualmix.Decoded, not tuple"),
        (lambda: Decoded([1], [2], [3], [4], ("a",)), "must be numpy arrays"),
        (lambda: Decoded(X / 255, Y, X, Y, ("a", "b")), "must be uint8"),
        (lambda: Decoded(X, Y.astype(np.int32), X, Y, ("a", "b")), "one int64 label per image"),
        (lambda: Decoded(X, Y, X, Y, ("a", "b", "c")), "have no training image"),
        (lambda: Decoded(X, Y, X, Y, (1, None)), "class names and notes must be texts"),
        (lambda: Decoded(X, Y, X, Y, ("a", "b"), (None,)), "class names and notes must be texts"),
        (lambda: Decoded(X, Y, X, Y, ("a", "a")), "two classes have the same name"),
        (lambda: Decoded(np.ma.masked_equal(X, 0), Y, X, Y, ("a", "b")), "without masks"),
        (lambda: sys.exit(5), "failed: SystemExit: 5"),
    ],
)
def test_a_plugin_that_fails_is_one_sentence(tmp_path, result, says):
    register_dataset("bad")(lambda folder: result())
    with pytest.raises(DataError, match=says) as fault:
        load(Data(name="bad", root=tmp_path))
    assert "\n" not in str(fault.value)


def test_names_are_taken_once():
    with pytest.raises(ConfigError, match="'digits' is already defined in dualmix"):
        register_dataset("digits")(lambda folder: None)
    register_dataset("twice")(lambda folder: None)
    register_dataset("twice")(lambda folder: None)
    from dataclasses import replace

    with pytest.raises(ConfigError, match=r"'twice' is already defined in tests\.data"):
        add_dataset(replace(DATASETS["twice"], home="another"))
    with pytest.raises(ConfigError, match=r"cannot be called '\.\./x'"):
        register_dataset("../x")(lambda folder: None)
    with pytest.raises(ConfigError, match="cannot be called None"):
        register_dataset(None)(lambda folder: None)
    with pytest.raises(ConfigError, match="a whole number of tasks from 1 on, not 'x'"):
        register_dataset("odd", tasks="x")(lambda folder: None)


def test_patterns_are_below_a_folder(tmp_path):
    register_dataset("rooted", files=["/etc/*"])(lambda folder: None)
    with pytest.raises(DataError, match="name no files below a folder"):
        load(Data(name="rooted", root=tmp_path))


def installed(monkeypatch, folder, text, value):
    (folder / "installed_data.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    points = [EntryPoint("installed", value, "dualmix.datasets")]
    monkeypatch.setattr(
        catalog, "entry_points", lambda group: [p for p in points if p.group == group]
    )


def test_an_installed_package_brings_data_sets(tmp_path, monkeypatch):
    text = TEXT.replace('"raw"', '"installed"').replace("CHANGE", "0")
    installed(monkeypatch, tmp_path, text, "installed_data:raw")
    assert Data(name="installed").name == "installed"
    assert "installed" in [entry.name for entry in listing(tmp_path)]


@pytest.mark.parametrize(
    ("text", "value"), [("1 / 0", "installed_data"), ("", "installed_data:lost"), ("", "no_mod_x")]
)
def test_a_broken_installed_package_is_one_sentence(tmp_path, monkeypatch, text, value):
    import sys

    monkeypatch.delitem(sys.modules, "installed_data", raising=False)
    installed(monkeypatch, tmp_path, text, value)
    with pytest.raises(ConfigError, match="installed data set 'installed'"):
        listing(tmp_path)
