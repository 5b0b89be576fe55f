"""Decoded once, shared, and never half read."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dualmix.data import DATASETS, Data, DataWarning, cache, load
from dualmix.data.images import Decoded, fingerprint
from dualmix.data.source import Source
from dualmix.errors import DataError

from .makers import random_images


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


def edit(name, change):
    """Return a harm that changes a file's bytes."""

    def harm(folder):
        path = folder / name
        path.write_bytes(change(bytearray(path.read_bytes())))

    return harm


def flip(at):
    def change(raw):
        raw[at] ^= 0x10
        return raw

    return change


def edited_meta(**changes):
    return edit("meta.json", lambda raw: json.dumps(json.loads(raw) | changes).encode())


@pytest.mark.parametrize(
    "harm",
    [
        *(edit("train_x.npy", flip(at)) for at in (-1, 128, 5000, 90000)),
        edit("test_x.npy", flip(-1)),
        edit("train_y.npy", flip(-8)),
        edit("train_y.npy", lambda raw: raw[:128] + raw[136:] + raw[128:136]),
        edit("train_x.npy", lambda raw: raw.replace(b"(32, 32, 32, 3)", b"(32, 32, 3, 32)")),
        edit("train_x.npy", lambda raw: raw.replace(b"(32, 32, 32, 3)", b"(31, 32, 32, 3)")),
        edit("train_x.npy", lambda raw: raw.replace(b"False", b"True ")),
        edit("train_x.npy", lambda raw: raw.replace(b"'|u1'", b"'|i1'")),
        edit("train_x.npy", lambda raw: raw.replace(b"{'descr'", b"{{{{((((")),
        edit("split.npz", flip(-40)),
        edited_meta(notes=[]),
        edited_meta(classes=["a", "b", "c", "d"]),
        edited_meta(fingerprint="0" * 64),
        edited_meta(digest="0" * 64),
        lambda f: (f / "train_x.npy").write_bytes((f / "train_x.npy").read_bytes()[:-1]),
        lambda f: (f / "train_x.npy").write_bytes(b""),
        lambda f: (f / "test_y.npy").unlink(),
        lambda f: (f / "meta.json").write_text("{"),
        lambda f: (f / "meta.json").write_text("[]"),
        lambda f: (f / "meta.json").unlink(),
        lambda f: (f / "train_y.npy").write_bytes(bytes(len((f / "train_y.npy").read_bytes()))),
        lambda f: (f / "split.npz").write_bytes(b"x"),
        lambda f: ((f / "meta.json").unlink(), os.mkfifo(f / "meta.json")),
        lambda f: (shutil.rmtree(f), f.write_bytes(b"x")),
        lambda f: (shutil.rmtree(f), f.symlink_to(f.name)),
    ],
)
def test_a_harmed_copy_is_noticed_and_made_again(data, decodes, harm):
    before = load(data).fingerprint
    harm(decoded_folder(data))
    with pytest.warns(DataWarning, match=r"The decoded copy .* is damaged .* was decoded again"):
        after = load(data)
    assert after.fingerprint == fingerprint(after) == before and len(decodes) == 2
    assert load(data).fingerprint == before and len(decodes) == 2


def test_a_copy_of_an_older_version_is_made_again_without_a_word(data, decodes):
    load(data)
    edited_meta(format=1)(decoded_folder(data))
    load(data)
    assert len(decodes) == 2 and len(list((data.root / ".decoded").glob("arrays-*"))) == 1


def test_every_single_flipped_bit_of_the_copy_is_noticed(data):
    """Bits anywhere in pixels and labels; what a header's padding holds is never used."""
    load(data)
    folder = decoded_folder(data)
    rng = np.random.default_rng(0)
    for name in ("train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy"):
        whole = (folder / name).read_bytes()
        for at in rng.integers(128, len(whole), 25):
            raw = bytearray(whole)
            raw[at] ^= 1 << rng.integers(8)
            (folder / name).write_bytes(raw)
            with pytest.raises(cache.DamagedError):
                cache.opened(folder)
        (folder / name).write_bytes(whole)
    assert cache.opened(folder) is not None


def test_a_process_hashes_a_copy_once_until_it_is_touched(data, monkeypatch):
    load(data)
    folder = decoded_folder(data)
    past = time.time() - 60
    for file in folder.iterdir():
        os.utime(file, (past, past))
    monkeypatch.setattr(cache, "SETTLED", 0)
    hashed = []
    monkeypatch.setattr(cache, "fingerprint", lambda i: hashed.append(1) or fingerprint(i))
    for _ in range(3):
        load(data)
    assert len(hashed) == 1
    os.utime(folder / "train_x.npy")
    load(data)
    assert len(hashed) == 2


@pytest.mark.slow
def test_a_damaged_copy_is_renewed_by_one_of_two_processes(data):
    load(data)
    edit("train_x.npy", flip(-1))(decoded_folder(data))
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


@pytest.mark.slow
def test_the_user_is_told_of_a_damaged_copy(data, tmp_path):
    words = [
        "run",
        "er",
        "--data.name",
        "arrays",
        "--data.path",
        data.path,
        "--data.root",
        data.root,
    ]
    words += ["--stream.tasks", 2, "--model.width", 1, "--method.memory", 5, "--store", tmp_path]
    load(data)
    edit("train_x.npy", flip(-1))(decoded_folder(data))
    command = [sys.executable, "-m", "dualmix", *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    (told,) = [line for line in run.stderr.splitlines() if "damaged" in line]
    assert told.startswith("note: The decoded copy") and told.endswith("was decoded again.")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
        DataError, match=r"point data\.root or DUALMIX_DATA to a folder that can be written"
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
        "known = {'torch', 'PIL', 'sklearn', 'pooch', 'requests', 'scipy', 'rich', 'pandas'}\n"
        "heavy = known & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
