"""Decoded once, shared, and never half read."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from dualmix.data import DATASETS, Data, cache, load
from dualmix.data.images import Decoded
from dualmix.data.source import Source
from dualmix.errors import DataError

from .makers import quickest, random_images


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    np.savez(root / "mine.npz", x=random_images(40), y=np.arange(40) % 4)
    return Data(name="arrays", root=root, path=root / "mine.npz")


def decoded_folder(data):
    (folder,) = (data.root / ".decoded").glob("arrays-*")
    return folder


@pytest.fixture
def decodes(monkeypatch):
    """Count how often arrays are decoded."""
    from dataclasses import replace

    count = []
    entry = DATASETS["arrays"]

    def decode(source):
        count.append(1)
        return entry.decode(source)

    monkeypatch.setitem(DATASETS, "arrays", replace(entry, decode=decode))
    return count


def test_second_load_maps_what_the_first_decoded(data, decodes):
    first, second = load(data), load(data)
    assert len(decodes) == 1 and first.fingerprint == second.fingerprint
    for part in ("train_x", "train_y", "test_x", "test_y"):
        array = getattr(second, part)
        assert (
            not array.flags.writeable
            and isinstance(array.base, np.memmap)
            and type(array) is np.ndarray
        )
        np.testing.assert_array_equal(array, getattr(first, part))


def test_another_choice_has_another_copy_and_a_new_source_replaces_its_own(data, decodes):
    load(data)
    load(data.model_copy(update={"size": 16}))
    assert len(list((data.root / ".decoded").glob("arrays-*"))) == 2
    np.savez(data.path, x=random_images(44), y=np.arange(44) % 4)
    load(data)
    assert len(decodes) == 3 and len(list((data.root / ".decoded").glob("arrays-*"))) == 2


@pytest.mark.parametrize(
    "harm",
    [
        lambda f: (f / "train_x.npy").write_bytes((f / "train_x.npy").read_bytes()[:-1]),
        lambda f: (f / "train_x.npy").write_bytes(b""),
        lambda f: (f / "test_y.npy").unlink(),
        lambda f: (f / "meta.json").write_text("{"),
        lambda f: (f / "meta.json").write_text("[]"),
        lambda f: (f / "meta.json").unlink(),
        lambda f: (f / "meta.json").write_text(
            json.dumps(json.loads((f / "meta.json").read_text()) | {"format": 0})
        ),
        lambda f: (f / "train_y.npy").write_bytes(bytes(len((f / "train_y.npy").read_bytes()))),
        lambda f: (f / "split.npz").write_bytes(b"x"),
    ],
)
def test_a_harmed_copy_is_noticed_and_made_again(data, decodes, harm):
    before = load(data).fingerprint
    harm(decoded_folder(data))
    assert load(data).fingerprint == before and len(decodes) == 2
    assert load(data).fingerprint == before and len(decodes) == 2


def script(data, body):
    """Run a program that loads the data, with a decode that it can log or break."""
    text = f"""
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from dualmix.data import DATASETS, Data, load
data = Data(name="arrays", root=Path({str(data.root)!r}), path=Path({str(data.path)!r}))
entry = DATASETS["arrays"]
log = Path({str(data.root / "log")!r})
{body}
print(load(data).fingerprint)
"""
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_two_processes_at_once_decode_once(data):
    body = """
def decode(source):
    with log.open("a") as stream:
        stream.write("decoded\\n")
    time.sleep(0.5)
    return entry.decode(source)
DATASETS["arrays"] = replace(entry, decode=decode)
"""
    runs = [script(data, body) for _ in range(2)]
    prints = {run.communicate(timeout=900)[0] for run in runs}
    assert all(run.returncode == 0 for run in runs)
    assert len(prints) == 1 and (data.root / "log").read_text() == "decoded\n"


def test_a_killed_decode_leaves_nothing_that_is_read(data):
    body = """
save = np.save
def dies(stream, array, **options):
    save(stream, array, **options)
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
np.save = dies
"""
    run = script(data, body)
    run.communicate(timeout=900)
    assert run.returncode == -signal.SIGKILL
    place = data.root / ".decoded"
    assert list(place.glob(".arrays-*.tmp")) and not list(place.glob("arrays-*"))
    assert len(load(data).train_x) == 32
    assert not list(place.glob(".arrays-*.tmp"))


def test_a_failing_decode_leaves_nothing(data, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write", full)
    with pytest.raises(DataError, match=r"there is no room left\): make room"):
        load(data)
    assert [
        p.name for p in (data.root / ".decoded").iterdir() if not p.name.endswith(".lock")
    ] == []


def test_a_root_that_cannot_be_written_uses_the_platform_folder(data, monkeypatch, own_cache):
    real = cache._writable
    monkeypatch.setattr(
        cache, "_writable", lambda place: data.root not in place.parents and real(place)
    )
    first = load(data)
    assert not (data.root / ".decoded").exists() and list(own_cache.rglob("arrays-*/meta.json"))
    assert load(data).fingerprint == first.fingerprint
    monkeypatch.setattr(cache, "_writable", lambda place: False)
    shutil.rmtree(own_cache / "dualmix")
    with pytest.raises(
        DataError, match=r"point --data\.root or DUALMIX_DATA to a folder that can be written"
    ):
        load(data)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_root(data, own_cache):
    data.root.chmod(0o555)
    try:
        load(data)
    finally:
        data.root.chmod(0o755)
    assert list(own_cache.rglob("arrays-*/meta.json"))


def test_what_cannot_be_learnt_is_never_cached(tmp_path):
    x, y = random_images(4), np.zeros(4, np.int64)
    source = Source("x", tmp_path, ())
    with pytest.raises(DataError, match="no training image"):
        cache.load("odd", source, tmp_path, lambda _: Decoded(x, y, x, y, ("a", "b")))
    assert not list(tmp_path.glob(".decoded/odd-*"))


def test_second_load_is_fast(data):
    load(data)
    assert quickest(lambda: load(data)) < 0.2


def test_a_moved_root_keeps_its_copy(data, decodes, tmp_path):
    from dualmix.data import cifar100

    from . import makers

    root = tmp_path / "one"
    makers.put_files(root / "cifar-100-python", makers.cifar_python(*makers.cifar_parts()))
    source = cifar100.find(root, Data(name="cifar100", root=root))
    root.rename(tmp_path / "two")
    moved = cifar100.find(tmp_path / "two", Data(name="cifar100"))
    assert source.signature(root, 1) == moved.signature(tmp_path / "two", 1)


def test_importing_the_package_is_light():
    code = (
        "import sys, dualmix.data\n"
        "heavy = {'torch', 'PIL', 'sklearn', 'pooch', 'requests', 'scipy', 'rich', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
