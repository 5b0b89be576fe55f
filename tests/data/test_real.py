"""The real images, where they are."""

import numpy as np
import pytest

from dualmix.data import Data, load
from dualmix.data.verify import verify
from dualmix.errors import DataError

from . import makers

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_cifar100_is_complete_in_another_order(real_root):
    data = Data(name="cifar100", root=real_root)
    images = load(data)
    assert images.train_x.shape == (50000, 32, 32, 3) and images.test_x.shape == (10000, 32, 32, 3)
    assert (np.bincount(images.train_y) == 500).all() and (np.bincount(images.test_y) == 100).all()
    assert images.notes == ("official CIFAR-100 content in another order",)
    assert images.classes[:2] == ("apple", "aquarium_fish") and images.classes[99] == "worm"
    report = verify(data)
    assert report.ok and report.verdict[0].startswith("official content in another order")
    assert {file.name: file.official for file in report.files} == {
        "train": False,
        "test": False,
        "meta": True,
    }


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
def test_a_truncated_cifar_file_harms_nothing(real_root, tmp_path, keep):
    folder = makers.put_files(
        tmp_path / "cifar-100-python", makers.cifar_python(*makers.cifar_parts())
    )
    raw = (real_root / "cifar-100-python" / "test").read_bytes()
    (folder / "test").write_bytes(raw[: int(keep * len(raw))])
    with pytest.raises(DataError, match=r"test is cut short or damaged"):
        load(Data(name="cifar100", root=tmp_path))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "note"),
    [
        ("mini_imagenet", (3, 84, 84), 100, "subset: 80 of 500 training images a class, 30 of 100"),
        ("tiny_imagenet", (3, 64, 64), 200, "subset: 75 of 500 training images a class, 25 of 50"),
    ],
)
def test_subsets_say_so(real_root, name, shape, classes, note):
    data = Data(name=name, root=real_root)
    images = load(data)
    assert images.shape == shape and len(images.classes) == classes
    assert any(remark.startswith(note) for remark in images.notes)
