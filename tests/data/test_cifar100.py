"""CIFAR-100 in its four published forms."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dualmix.data import Data, cifar100, load
from dualmix.errors import DataError

from . import makers


def data(root, **options):
    return Data(name="cifar100", root=root, **options)


@pytest.fixture
def parts():
    return makers.cifar_parts()


def four_forms(tmp_path, parts):
    python, binary = makers.cifar_python(*parts), makers.cifar_binary(*parts)
    roots = [tmp_path / name for name in ("pf", "pa", "bf", "ba")]
    for root in roots:
        root.mkdir()
    makers.put_files(roots[0] / "cifar-100-python", python)
    makers.put_archive(roots[1] / "cifar-100-python.tar.gz", python)
    makers.put_files(roots[2] / "cifar-100-binary", binary)
    makers.put_archive(roots[3] / "cifar-100-binary.tar.gz", binary)
    return roots


def test_all_forms_give_the_same_images(tmp_path, parts):
    names, train, test = parts
    loaded = [load(data(root)) for root in four_forms(tmp_path, parts)]
    assert len({images.fingerprint for images in loaded}) == 1
    for images in loaded:
        np.testing.assert_array_equal(images.train_x, train[0])
        np.testing.assert_array_equal(images.train_y, train[1])
        np.testing.assert_array_equal(images.test_x, test[0])
        assert images.classes == tuple(names) and images.shape == (3, 32, 32)
        assert not images.train_x.flags.writeable
        assert images.notes[0].startswith(
            "subset: 4 of 100 classes, 3 of 500 training images a class"
        )


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_written_by_python_3_are_read_too(tmp_path, parts, protocol):
    files = makers.cifar_python(*parts, write=makers.modern_pickle(protocol))
    makers.put_files(tmp_path / "cifar-100-python", files)
    np.testing.assert_array_equal(load(data(tmp_path)).train_x, parts[1][0])


def test_missing_data_gets_one_sentence_with_the_command(tmp_path):
    with pytest.raises(DataError) as caught:
        load(data(tmp_path))
    assert str(caught.value) == (
        f"CIFAR-100 is not in {tmp_path}: run `dualmix data get cifar100`, or point data.root or "
        "DUALMIX_DATA to the folder that holds cifar-100-python."
    )


def test_a_folder_that_lacks_a_file_says_which(tmp_path, parts):
    files = makers.cifar_python(*parts)
    del files["test"]
    makers.put_files(tmp_path / "cifar-100-python", files)
    with pytest.raises(DataError, match="lacks test"):
        load(data(tmp_path))


@pytest.mark.parametrize("keep", [0, 1, 100, 5000, -3000, -1])
@pytest.mark.parametrize("form", ["python", "binary"])
def test_truncated_files_are_one_clear_sentence(tmp_path, parts, form, keep):
    files = makers.cifar_python(*parts) if form == "python" else makers.cifar_binary(*parts)
    name = "train" if form == "python" else "train.bin"
    files[name] = files[name][:keep]
    makers.put_files(tmp_path / f"cifar-100-{form}", files)
    with pytest.raises(
        DataError, match=rf"{name} is cut short or damaged.*`dualmix data get cifar100`\.$"
    ):
        load(data(tmp_path))
    assert not list(tmp_path.glob(".decoded/cifar100-*"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_archives_are_one_clear_sentence(tmp_path, parts, share):
    path = makers.put_archive(tmp_path / "cifar-100-python.tar.gz", makers.cifar_python(*parts))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(DataError, match=r"tar\.gz (is cut short or damaged|lacks)"):
        load(data(tmp_path))


def test_a_hostile_file_is_refused_in_folder_and_archive(tmp_path, parts):
    sentinel = tmp_path / "ran"
    files = makers.cifar_python(*parts)
    files["train"] = b"cos\nsystem\n(S'touch " + str(sentinel).encode() + b"'\ntR."
    makers.put_files(tmp_path / "a" / "cifar-100-python", files)
    (tmp_path / "b").mkdir()
    makers.put_archive(tmp_path / "b" / "cifar-100-python.tar.gz", files)
    for root in ("a", "b"):
        with pytest.raises(
            DataError, match=r"refused before anything in it could run, because it holds os\.system"
        ):
            load(data(tmp_path / root))
    assert not sentinel.exists()


def test_paths_in_an_archive_are_not_trusted(tmp_path, parts):
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz") as archive:
        for name in ("../../escaped", "/tmp/escaped-absolute", "cifar-100-python/../../escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"x"))
        link = tarfile.TarInfo("cifar-100-python/train")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name, raw in makers.cifar_python(*parts).items():
            entry = tarfile.TarInfo(f"./cifar-100-python/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    assert load(data(root)).train_x.shape == (12, 32, 32, 3)
    assert not list(tmp_path.rglob("escaped*"))


@pytest.mark.parametrize(
    "change",
    [
        {"fine_labels": [0] * 11},
        {"fine_labels": ["a"] * 12},
        {"fine_labels": [99] * 12},
        {"data": np.zeros((12, 3071), np.uint8)},
        {"data": np.zeros((12, 3072), np.int64)},
        {"data": [1, 2]},
    ],
)
def test_other_content_is_refused(tmp_path, parts, change):
    files = makers.cifar_python(*parts, write=makers.modern_pickle(3))
    fields = {"fine_labels": [0] * 12, "data": np.zeros((12, 3072), np.uint8)} | change
    files["train"] = makers.modern_pickle(3)(fields)
    makers.put_files(tmp_path / "cifar-100-python", files)
    with pytest.raises(DataError, match=r"not of CIFAR-100's|damaged"):
        load(data(tmp_path))


def test_content_digest_ignores_order_but_not_labels_or_pixels():
    x, y = makers.random_images(20), np.arange(20) % 5
    order = np.random.default_rng(0).permutation(20)
    digest = cifar100.content_digest(x, y)
    assert cifar100.content_digest(x[order], y[order]) == digest
    assert cifar100.content_digest(x[order], y) != digest
    x = x.copy()
    x[3, 4, 5, 0] ^= 1
    assert cifar100.content_digest(x, y) != digest


def test_size_resizes_at_decode(tmp_path, parts):
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(*parts))
    small, native = load(data(tmp_path, size=16)), load(data(tmp_path))
    assert small.shape == (3, 16, 16) and native.shape == (3, 32, 32)
    assert small.fingerprint != native.fingerprint
    means = native.train_x.mean(axis=(1, 2)) - small.train_x.mean(axis=(1, 2))
    assert np.abs(means).max() < 6


@pytest.mark.parametrize("name", ["train", "meta"])
def test_what_the_system_refuses_to_read_is_a_sentence(tmp_path, parts, monkeypatch, name):
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(*parts))
    opens = os.open

    def denied(path, *flags, **options):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, *flags, **options)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(
        DataError, match=rf"CIFAR-100 cannot be read \(.*{name}: Permission denied\)"
    ):
        load(data(tmp_path))
