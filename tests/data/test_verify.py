"""What verify and list say."""

import os
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from dualmix.cli.data import MOST_OWN
from dualmix.cli.data_tables import data_table
from dualmix.data import Data, cifar100, load
from dualmix.data.verify import Entry, listing, verify
from dualmix.errors import DataError

from . import makers


@pytest.fixture
def full_cifar(tmp_path, monkeypatch):
    """A CIFAR-100 of 100 classes in small numbers that counts as complete and official."""
    names, train, test = makers.cifar_parts(classes=100, train=2, test=1)
    monkeypatch.setattr(cifar100, "subset_note", lambda *_: None)
    digests = {
        part: cifar100.content_digest(x, y) for part, (x, y) in (("train", train), ("test", test))
    }
    monkeypatch.setattr(cifar100, "CONTENT", digests)
    monkeypatch.setattr(cifar100, "FIRST_LABEL", train[1][0])
    return names, train, test


def data(root):
    return Data(name="cifar100", root=root)


def shuffled(part):
    order = np.random.default_rng(5).permutation(len(part[1]))
    assert part[1][order][0] != part[1][0]
    return part[0][order], part[1][order]


def test_another_order_is_said_clearly(full_cifar, tmp_path):
    names, train, test = full_cifar
    makers.put_files(
        tmp_path / "cifar-100-python", makers.cifar_python(names, shuffled(train), test)
    )
    report = verify(data(tmp_path))
    assert report.ok and report.verdict == (
        "official content in another order: results are comparable, but sample order differs from "
        "other tools",
    )
    assert load(data(tmp_path)).notes == ("official CIFAR-100 content in another order",)
    assert (report.train, report.test, report.classes, report.shape) == (200, 100, 100, (3, 32, 32))
    assert report.train_span == (2, 2) and report.test_span == (1, 1)
    assert [file.official for file in report.files] == [False, False, False]


def test_official_order_is_known_by_the_checksums(full_cifar, tmp_path, monkeypatch):
    import hashlib

    files = makers.cifar_python(*full_cifar)
    monkeypatch.setattr(
        cifar100, "MD5", {name: hashlib.md5(raw).hexdigest() for name, raw in files.items()}
    )
    makers.put_files(tmp_path / "cifar-100-python", files)
    report = verify(data(tmp_path))
    assert report.ok and report.verdict == ("official content, official order",)
    assert load(data(tmp_path)).notes == ()


def test_files_without_a_published_checksum_may_have_the_official_order(full_cifar, tmp_path):
    makers.put_files(tmp_path / "cifar-100-binary", makers.cifar_binary(*full_cifar))
    report = verify(data(tmp_path))
    assert report.ok and "no published checksum confirms the order" in report.verdict[0]


def test_one_changed_pixel_is_found(full_cifar, tmp_path):
    names, (x, y), test = full_cifar
    x = x.copy()
    x[0, 0, 0, 0] ^= 1
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(names, (x, y), test))
    report = verify(data(tmp_path))
    assert not report.ok and report.verdict[0].startswith("damaged or altered")


def test_a_cut_file_is_reported_as_damaged(full_cifar, tmp_path):
    files = makers.cifar_python(*full_cifar)
    files["test"] = files["test"][:-50]
    makers.put_files(tmp_path / "cifar-100-python", files)
    report = verify(data(tmp_path))
    assert (
        not report.ok
        and report.verdict[0].startswith("damaged: ")
        and "cut short" in report.verdict[0]
    )


def test_a_subset_is_not_quoted_as_the_full_set(tmp_path):
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(*makers.cifar_parts()))
    report = verify(data(tmp_path))
    assert report.ok and report.verdict[0].startswith("subset: 4 of 100 classes")
    assert report.verdict[0].endswith("do not quote results as those of the full set")


def test_images_of_another_size_are_not_the_standard_set(tmp_path):
    for part in ("train", "test"):
        makers.picture(tmp_path / "mini_imagenet" / part / "n01" / "1.jpg", size=(32, 32))
    report = verify(Data(name="mini_imagenet", root=tmp_path))
    assert not report.ok and report.verdict[0].startswith(
        "not the standard Mini-ImageNet: images are (3, 32, 32)"
    )


def test_a_silently_changed_copy_is_found(tmp_path):
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(*makers.cifar_parts()))
    load(data(tmp_path))
    (pixels,) = tmp_path.glob(".decoded/*/train_x.npy")
    raw = bytearray(pixels.read_bytes())
    raw[-1] ^= 1
    pixels.write_bytes(bytes(raw))
    report = verify(data(tmp_path))
    assert not report.ok and "its pixels or labels have changed" in report.verdict[-1]


def test_a_copy_of_other_files_is_found(tmp_path, monkeypatch):
    """Files that were replaced by others of the same size and time are told only by their
    content.
    """
    names, (x, y), test = makers.cifar_parts()
    folder = tmp_path / "cifar-100-python"
    makers.put_files(folder, makers.cifar_python(names, (x, y), test))
    load(data(tmp_path))
    at = (folder / "train").stat()
    files = makers.cifar_python(names, (x ^ 1, y), test)
    (folder / "train").write_bytes(files["train"])
    os.utime(folder / "train", ns=(at.st_atime_ns, at.st_mtime_ns))
    report = verify(data(tmp_path))
    assert not report.ok and "the decoded copy differs from the files: delete" in report.verdict[-1]


def test_missing_data_raises_the_helping_sentence(tmp_path):
    with pytest.raises(DataError, match="dualmix data get cifar100"):
        verify(data(tmp_path))


def test_digits_are_readable(tmp_path):
    report = verify(Data(root=tmp_path))
    assert report.ok and report.verdict[0] == "readable" and report.train + report.test == 1797


def test_listing_says_what_is_here(tmp_path):
    makers.put_files(tmp_path / "cifar-100-python", makers.cifar_python(*makers.cifar_parts()))
    load(data(tmp_path))
    entries = {entry.name: entry for entry in listing(tmp_path)}
    assert list(entries) == [
        "digits",
        "cifar100",
        "mini_imagenet",
        "tiny_imagenet",
        "folder",
        "arrays",
    ]
    cifar = entries["cifar100"]
    assert cifar.present and cifar.where == str(tmp_path / "cifar-100-python")
    assert cifar.size > 20 * 3072 and cifar.decoded > 20 * 3072
    assert entries["digits"].present and entries["folder"].present is None
    assert (
        entries["tiny_imagenet"].present is False
        and "data get tiny_imagenet" in entries["tiny_imagenet"].problem
    )
    assert not (tmp_path / "tiny-imagenet-200").exists()
    assert (cifar.images, cifar.full) == (20, 60_000) and entries["digits"].images == 1797


def test_listing_counts_images_that_nobody_has_decoded(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for i in range(count):
            makers.picture(tmp_path / "mini_imagenet" / part / "n1" / f"{i}.jpg", size=(84, 84))
    (mini,) = [entry for entry in listing(tmp_path) if entry.name == "mini_imagenet"]
    assert (mini.images, mini.full, mini.decoded) == (5, 60_000, 0)
    load(Data(name="mini_imagenet", root=tmp_path))
    (mini,) = [entry for entry in listing(tmp_path) if entry.name == "mini_imagenet"]
    assert (mini.images, mini.full) == (5, 60_000) and mini.decoded > 5 * 84 * 84 * 3


def test_the_list_fits_80_columns_and_breaks_no_path(tmp_path, dualmix_):
    root = tmp_path / ("a-rather-long-name-of-a-folder-" * 3)
    makers.put_files(root / "cifar-100-python", makers.cifar_python(*makers.cifar_parts()))
    own = [tmp_path / "one" / "mine.npz", tmp_path / "two" / "mine.npz"]
    for number, path in enumerate(own):
        path.parent.mkdir()
        np.savez(path, x=makers.random_images(8 + number), y=np.arange(8 + number) % 2)
        load(Data(name="arrays", root=root, path=path))
    code, out, _ = dualmix_("data", "list", "--data.root", root)
    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0 and f"Data in {root}" in lines and "  cifar-100-python" in lines
    assert all(f"  {path}" in lines for path in own)
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line and "/" not in line)
    rows = [line.split()[:3] for line in lines if "/mine.npz  " in line]
    assert rows == [["one/mine.npz", "yes", "8"], ["two/mine.npz", "yes", "9"]]
    own[0].unlink()
    _, out, _ = dualmix_("data", "list", "--data.root", root)
    assert "1 of your own that were decoded before are gone" in " ".join(out.split())


def test_no_number_of_the_list_is_cut_and_few_of_many_own_files_are_shown(tmp_path, dualmix_):
    large = Entry(
        "tiny_imagenet", True, "x", 110_000, 110_000, 1_234_500_000, 1_843_000_000, "Big."
    )
    own = Entry("arrays", True, f"{'long/' * 20}mine.npz", None, None, 10, 10, "")
    text = StringIO()
    Console(width=80, file=text).print(data_table([large, own]))
    text = text.getvalue()
    assert "…" not in text and "1843.0 MB" in text and "not counted" in text
    for number in range(MOST_OWN + 2):
        np.savez(tmp_path / f"{number}.npz", x=makers.random_images(8), y=np.arange(8) % 2)
        load(Data(name="arrays", root=tmp_path, path=tmp_path / f"{number}.npz"))
    _, out, _ = dualmix_("data", "list", "--data.root", tmp_path)
    assert out.count(".npz  ") == MOST_OWN and "2 more of your own are here" in out
