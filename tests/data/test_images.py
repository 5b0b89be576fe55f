"""Images check themselves."""

import dataclasses

import numpy as np
import pytest

from dualmix.data.images import Images, fingerprint, subset_note
from dualmix.errors import DataError

from .makers import random_images


def made(**changes):
    fields = {
        "name": "mine",
        "train_x": random_images(4, 6, 5),
        "train_y": np.array([0, 1, 0, 1]),
        "test_x": random_images(2, 6, 5, seed=1),
        "test_y": np.array([0, 1]),
        "classes": ("a", "b"),
        "fingerprint": "",
        "notes": (),
    }
    return Images(**(fields | changes))


def test_shape_is_channels_first():
    assert made().shape == (3, 6, 5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train_x": random_images(4, 6, 5).astype(float)}, "must be uint8"),
        ({"train_x": random_images(4, 6, 5)[:, :, :, 0]}, "must be uint8"),
        ({"train_x": random_images(4, 6, 5, 2)}, "1 or 3 channels"),
        ({"train_y": np.array([0, 1, 0])}, "one int64 label per image"),
        ({"train_y": np.array([0, 1, 0, 1], np.int32)}, "one int64 label per image"),
        ({"train_y": np.array([0, 1, 0, 2])}, r"labels must be 0\.\.1, not 0\.\.2"),
        ({"train_y": np.array([0, 1, 0, -1])}, r"labels must be 0\.\.1, not -1\.\.1"),
        ({"train_y": np.array([0, 0, 0, 0])}, "no training image, the first is 'b'"),
        ({"test_x": random_images(0, 6, 5), "test_y": np.zeros(0, np.int64)}, "no test image"),
        ({"test_x": random_images(2, 7, 5)}, "give one size for both"),
    ],
)
def test_faults_are_sentences(changes, says):
    with pytest.raises(DataError, match=says):
        made(**changes)


def test_fingerprint_sees_pixels_labels_names_and_shapes():
    base = made()
    pixels = base.train_x.copy()
    pixels[0, 0, 0, 0] ^= 1
    others = [
        made(train_x=pixels),
        made(train_y=np.array([1, 0, 0, 1])),
        made(classes=("a", "c")),
        made(train_x=base.train_x.reshape(4, 5, 6, 3), test_x=base.test_x.reshape(2, 5, 6, 3)),
    ]
    assert len({fingerprint(images) for images in (base, *others)}) == 5
    assert fingerprint(base) == fingerprint(made(notes=("x",)))


def test_images_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().name = "other"


def test_subset_note():
    assert subset_note(made(), 2, 2, 1) is None
    assert subset_note(made(), 2, 5, 1) == (
        "subset: 2 of 5 training images a class, 1 of 1 test images a class"
    )
    assert subset_note(made(), 3, 2, 1).startswith("subset: 2 of 3 classes")
    assert subset_note(made(), 2, 1, 1).startswith("not the standard set")
