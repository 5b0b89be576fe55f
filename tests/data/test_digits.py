"""The embedded default."""

import numpy as np
from sklearn.datasets import load_digits

from dualmix.data import DATASETS, Data, load


def test_digits_are_the_real_ones_scaled(tmp_path):
    images = load(Data(root=tmp_path))
    assert (
        images.name == "digits"
        and images.shape == (1, 8, 8)
        and images.classes == tuple("0123456789")
    )
    assert len(images.train_x) + len(images.test_x) == 1797
    real = sorted(
        np.rint(image * 255 / 16).astype(np.uint8).tobytes() for image in load_digits().images
    )
    assert sorted(x.tobytes() for x in (*images.train_x, *images.test_x)) == real
    assert images.train_x.max() == 255 and DATASETS["digits"].tasks == 5


def test_the_split_is_stratified_and_repeats(tmp_path):
    first, other = load(Data(root=tmp_path)), load(Data(root=tmp_path, split_seed=1))
    assert first.fingerprint != other.fingerprint
    shares = np.bincount(first.test_y) / (np.bincount(first.test_y) + np.bincount(first.train_y))
    assert np.abs(shares - 0.2).max() < 0.01
    (tmp_path / "again").mkdir()
    assert load(Data(root=tmp_path / "again")).fingerprint == first.fingerprint


def test_digits_work_without_any_root(own_cache):
    assert load(Data()).shape == (1, 8, 8)
    assert list(own_cache.rglob("digits-*/meta.json"))


def test_a_root_that_is_not_there_is_not_made(tmp_path):
    load(Data(root=tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()


def test_size_enlarges(tmp_path):
    assert load(Data(root=tmp_path, size=16)).shape == (1, 16, 16)
