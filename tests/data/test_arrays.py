"""Arrays out of .npz files."""

from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualmix.data import Data, arrays, load
from dualmix.data.source import Source
from dualmix.errors import DataError

from .makers import random_images

X, Y = random_images(12, 6, 5), np.arange(12) % 3


def data(root, path, **options):
    return Data(name="arrays", root=root, path=path, **options)


def saved(tmp_path, **fields):
    path = tmp_path / "mine.npz"
    np.savez(path, **fields)
    return path


def divided(**changes):
    return {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3]} | changes


def test_divided_arrays_are_kept_as_they_are(tmp_path):
    images = load(data(tmp_path, saved(tmp_path, **divided())))
    np.testing.assert_array_equal(images.train_x, X)
    np.testing.assert_array_equal(images.train_y, Y)
    assert images.classes == ("0", "1", "2") and images.shape == (3, 6, 5) and images.notes == ()


def test_a_whole_set_is_divided(tmp_path):
    images = load(data(tmp_path, saved(tmp_path, x=X, y=Y), held_out=0.25))
    np.testing.assert_array_equal(np.bincount(images.test_y), [1, 1, 1])
    assert "25 %" in images.notes[0]


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (X, (3, 6, 5)),
        (X.transpose(0, 3, 1, 2), (3, 6, 5)),
        (X[:, :, :, 0], (1, 6, 5)),
        (X[:, :, :, :1], (1, 6, 5)),
        (X / 255, (3, 6, 5)),
        ((X / 255).astype(np.float32), (3, 6, 5)),
    ],
)
def test_layouts_and_floats(tmp_path, x, shape):
    images = load(data(tmp_path, saved(tmp_path, x_train=x, y_train=Y, x_test=x, y_test=Y)))
    assert images.shape == shape
    np.testing.assert_array_equal(images.train_x, X[:, :, :, : shape[0]])


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (Y * 10 - 5, ("-5", "5", "15")),
        (Y.astype(np.float64), ("0", "1", "2")),
        (Y.astype(np.uint8)[:, None], ("0", "1", "2")),
        (np.array(["cat", "dog", "ant"])[Y], ("ant", "cat", "dog")),
        (np.array([b"cat", b"dog", b"ant"])[Y], ("ant", "cat", "dog")),
    ],
)
def test_labels_of_any_plain_kind(tmp_path, y, classes):
    images = load(data(tmp_path, saved(tmp_path, x_train=X, y_train=y, x_test=X, y_test=y)))
    assert images.classes == classes and set(images.train_y) == {0, 1, 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_train": X.astype(np.int64)}, "give uint8"),
        ({"x_train": X / 128}, r"must lie in \[0, 1\]"),
        ({"x_train": X / 255 - 0.5}, r"must lie in \[0, 1\]"),
        ({"x_train": np.where(X > 250, np.nan, X / 255)}, "not numbers"),
        ({"x_train": X[:, :3, :, :]}, "either end could be"),
        ({"x_train": np.zeros((12, 6, 5, 4), np.uint8)}, "no axis of 1 or 3"),
        ({"x_train": X[:, 0, 0, 0]}, "images must be"),
        ({"x_train": X.reshape(12, -1)}, "one size for both"),
        ({"y_train": Y + 0.5}, "not whole numbers"),
        ({"y_train": np.where(Y, np.nan, 1.0)}, "not whole numbers"),
        ({"y_train": Y[:-1]}, "one label for each of the 12 images"),
        ({"y_train": Y.reshape(3, 4)}, "one label for each"),
        ({"y_train": Y.astype(complex)}, "integers or texts"),
        ({"y_test": np.array([0, 1, 7])}, "y_test has classes that y_train lacks, such as 7"),
        ({"x_test": X[:3, :5]}, "but test images"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "no test image"),
        (
            {"x_train": np.array([object()] * 12), "y_train": Y},
            "Python objects, which are never loaded",
        ),
    ],
)
def test_faults_are_sentences(tmp_path, changes, says):
    with pytest.raises(DataError, match=says):
        load(data(tmp_path, saved(tmp_path, **divided(**changes))))


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match=r"There is no file .*data\.path"):
        load(data(tmp_path, tmp_path / "no.npz"))
    with pytest.raises(
        DataError, match="must hold x_train, y_train, x_test, y_test, or x and y, but holds a, b"
    ):
        load(data(tmp_path, saved(tmp_path, a=X, b=Y)))
    path = saved(tmp_path, **divided())
    raw = path.read_bytes()
    for keep in (0, 10, len(raw) // 2):
        path.write_bytes(raw[:keep])
        with pytest.raises(DataError, match=r"not a \.npz file or is damaged"):
            load(data(tmp_path, path))
    path.write_bytes(raw[:2000] + bytes(500) + raw[2500:])
    with pytest.raises(DataError, match="damaged"):
        load(data(tmp_path, path))


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    y=st.lists(st.integers(0, 4), min_size=2, max_size=40),
    held_out=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_image_lands_in_exactly_one_part(tmp_path, y, held_out, seed):
    x = np.broadcast_to(np.arange(len(y), dtype=np.uint8)[:, None, None], (len(y), 4, 4))
    path = saved(tmp_path, x=x, y=np.array(y))
    decoded = arrays.decode(Source("one set", path, (), None, held_out, seed))
    seen = np.concatenate([decoded.train_x[:, 0, 0, 0], decoded.test_x[:, 0, 0, 0]])
    np.testing.assert_array_equal(np.sort(seen), np.arange(len(y)))
    assert set(decoded.train_y) == set(range(len(set(y))))


def test_rows_of_numbers_are_vectors_of_float32(tmp_path):
    x = np.linspace(-1e3, 1e3, 12 * 7).reshape(12, 7)
    images = load(data(tmp_path, saved(tmp_path, x_train=x, y_train=Y, x_test=x, y_test=Y)))
    assert images.shape == (7,) and images.train_x.dtype == np.float32
    np.testing.assert_array_equal(images.train_x, x.astype(np.float32))


@pytest.mark.parametrize("labels", [["a\0", "a"], [1, "1"], deque([1, "1"])])
def test_labels_that_numpy_would_make_one_are_refused(labels):
    with pytest.raises(DataError, match=r"NUL|numbers and text"):
        arrays.from_arrays(np.zeros((20, 3)), labels * 10)
