"""Tiny-ImageNet from the public folder and the public zip."""

import zipfile

import numpy as np
import pytest

from dualmix.data import Data, load
from dualmix.errors import DataError

from . import makers

WNIDS = ("n03", "n01", "n02")


def data(root, **options):
    return Data(name="tiny_imagenet", root=root, **options)


@pytest.fixture
def tree(tmp_path):
    base = tmp_path / "tiny-imagenet-200"
    lines = []
    for label, wnid in enumerate(WNIDS):
        for i in range(3):
            mode = "L" if i == 1 else "RGB"
            path = base / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            makers.picture(path, seed=10 * label + i, size=(64, 64), mode=mode, format="JPEG")
        makers.picture(
            base / "val" / "images" / f"val_{label}.JPEG", seed=label, size=(64, 64), format="JPEG"
        )
        lines.append(f"val_{label}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (base / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (base / "val" / "val_annotations.txt").write_text("".join(lines[::-1]))
    return base


def zipped(tree, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(tree.rglob("*")):
            archive.write(file, file.relative_to(tree.parent))
    return path


def test_folder_and_zip_give_the_same_images(tree, tmp_path):
    images = load(data(tmp_path))
    assert images.classes == WNIDS and images.shape == (3, 64, 64)
    np.testing.assert_array_equal(images.train_y, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(images.test_y, [2, 1, 0])
    grey = images.train_x[1]
    assert (grey[:, :, 0] == grey[:, :, 1]).all() and (grey[:, :, 0] == grey[:, :, 2]).all()
    assert images.notes[0] == "tests on the 50-a-class validation split" and images.notes[
        1
    ].startswith("subset")
    root = tmp_path / "other"
    root.mkdir()
    zipped(tree, root / "tiny-imagenet-200.zip")
    assert load(data(root)).fingerprint == images.fingerprint
    assert {path.name for path in root.iterdir()} == {".decoded", "tiny-imagenet-200.zip"}


def test_a_cut_zip_is_one_clear_sentence(tree, tmp_path):
    root = tmp_path / "other"
    root.mkdir()
    path = zipped(tree, root / "tiny-imagenet-200.zip")
    raw = path.read_bytes()
    for keep in (0, 10, len(raw) // 2, len(raw) - 10):
        path.write_bytes(raw[:keep])
        with pytest.raises(DataError, match="cut short or damaged"):
            load(data(root))


def test_lost_files_are_named(tree, tmp_path):
    (tree / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(
        DataError, match=r"lacks 1 of the files it lists, such as val/images/val_1\.JPEG"
    ):
        load(data(tmp_path))
    (tree / "wnids.txt").unlink()
    with pytest.raises(DataError, match=r"lacks wnids\.txt"):
        load(data(tmp_path))


def test_a_broken_image_is_named(tree, tmp_path):
    path = tree / "train" / "n01" / "images" / "n01_0.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(
        DataError, match=r"1 file that is no readable image \(train/n01/images/n01_0\.JPEG\)"
    ):
        load(data(tmp_path))


def test_missing_data_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"run `dualmix data get tiny_imagenet`"):
        load(data(tmp_path))


def test_a_changed_tree_is_decoded_again_and_the_old_copy_goes(tree, tmp_path):
    first = load(data(tmp_path))
    makers.picture(tree / "train" / "n01" / "images" / "n01_9.JPEG", seed=9, size=(64, 64))
    second = load(data(tmp_path))
    assert len(second.train_x) == len(first.train_x) + 1
    assert len(list((tmp_path / ".decoded").glob("tiny_imagenet-*"))) == 1
