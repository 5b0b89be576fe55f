"""Mini-ImageNet from pickles and from folders."""

import pickle

import numpy as np
import pytest

from dualmix.data import Data, load
from dualmix.errors import DataError

from . import makers

COUNTS = {"train": 3, "val": 1, "test": 2}


def data(root, **options):
    return Data(name="mini_imagenet", root=root, **options)


def put_pickles(folder, each=12, protocol=3, indices=list):
    """Write three pickles whose pixels say which class and image they are; return the class names
    in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for part, count in COUNTS.items():
        x = np.zeros((count * each, 84, 84, 3), np.uint8)
        members = {}
        for i in range(count):
            rows = np.arange(i * each, (i + 1) * each)
            x[rows, :, :, 0] = len(names)
            x[rows, :, :, 1] = np.arange(each)[:, None, None]
            members[f"n{99 - len(names):02d}"] = indices(rows.tolist())
            names.append(f"n{99 - len(names):02d}")
        raw = pickle.dumps({"image_data": x, "class_dict": members}, protocol)
        (folder / f"mini-imagenet-cache-{part}.pkl").write_bytes(raw)
    return names


@pytest.mark.parametrize("place", ["mini_imagenet", "mini-imagenet", "."])
def test_pickles_are_stacked_in_order_and_split_by_the_seed(tmp_path, place):
    names = put_pickles(tmp_path / place)
    images = load(data(tmp_path))
    assert images.classes == tuple(names) and images.shape == (3, 84, 84)
    np.testing.assert_array_equal(images.train_x[:, 0, 0, 0], images.train_y)
    np.testing.assert_array_equal(np.bincount(images.train_y), [10] * 6)
    np.testing.assert_array_equal(np.bincount(images.test_y), [2] * 6)
    for label in range(6):
        split = [set(x[y == label][:, 0, 0, 1]) for x, y in _parts(images)]
        assert not split[0] & split[1] and len(split[0] | split[1]) == 12
    assert "drawn with split seed 0" in images.notes[0] and images.notes[1].startswith(
        "subset: 6 of 100 classes"
    )


def _parts(images):
    return (images.train_x, images.train_y), (images.test_x, images.test_y)


def test_the_split_repeats_and_follows_its_seed_and_is_kept_on_disk(tmp_path):
    put_pickles(tmp_path / "a" / "mini_imagenet")
    put_pickles(tmp_path / "b" / "mini_imagenet", indices=np.array)
    first, again, other = (
        load(data(tmp_path / "a")),
        load(data(tmp_path / "b")),
        load(data(tmp_path / "a", split_seed=1)),
    )
    assert first.fingerprint == again.fingerprint != other.fingerprint
    seeds = {}
    for path in (tmp_path / "a" / ".decoded").glob("*/split.npz"):
        with np.load(path) as kept:
            seeds[int(kept["seed"])] = kept["test_rows"]
    assert seeds.keys() == {0, 1} and len(seeds[0]) == 12 and not np.array_equal(seeds[0], seeds[1])


def test_held_out_does_not_matter_here(tmp_path):
    put_pickles(tmp_path)
    assert load(data(tmp_path)).fingerprint == load(data(tmp_path, held_out=0.5)).fingerprint
    assert len(list((tmp_path / ".decoded").glob("mini_imagenet-*"))) == 1


def test_a_missing_pickle_is_named(tmp_path):
    put_pickles(tmp_path)
    (tmp_path / "mini-imagenet-cache-val.pkl").unlink()
    with pytest.raises(DataError, match=r"lacks mini-imagenet-cache-val\.pkl"):
        load(data(tmp_path))


def test_hostile_and_cut_pickles_are_refused(tmp_path):
    put_pickles(tmp_path)
    path = tmp_path / "mini-imagenet-cache-test.pkl"
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(DataError, match="cut short or damaged"):
        load(data(tmp_path))
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    with pytest.raises(DataError, match=r"holds os\.system"):
        load(data(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image_data": [1], "class_dict": {"a": [0]}},
        {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {"a": [0, 2]}},
        {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {"a": [-1]}},
        {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {"a": ["x"]}},
        {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {"a": []}},
        {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {}},
        {"image_data": np.zeros((2, 84, 84, 3), np.int64), "class_dict": {"a": [0]}},
    ],
)
def test_other_content_is_refused(tmp_path, fields):
    put_pickles(tmp_path)
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(fields, 3))
    with pytest.raises(DataError, match="image_data and class_dict"):
        load(data(tmp_path))


def test_class_folders_keep_their_division(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for name in ("n02", "n01"):
            for i in range(count):
                makers.picture(
                    tmp_path / "mini_imagenet" / part / name / f"{i}.jpg", seed=i, size=(84, 84)
                )
    images = load(data(tmp_path))
    assert images.classes == ("n01", "n02") and len(images.train_x) == 6 and len(images.test_x) == 4
    assert images.notes == (
        "subset: 2 of 100 classes, 3 of 500 training images a class, 2 of 100 test images a class",
    )


def test_few_shot_folders_are_drawn_like_the_pickles(tmp_path):
    for part, name in (("train", "n03"), ("val", "n02"), ("test", "n01")):
        for i in range(6):
            makers.picture(
                tmp_path / "mini_imagenet" / part / name / f"{i}.png", seed=i, size=(84, 84)
            )
    images = load(data(tmp_path))
    assert images.classes == ("n03", "n02", "n01")
    np.testing.assert_array_equal(np.bincount(images.test_y), [1, 1, 1])


def test_a_class_in_one_part_only_is_named(tmp_path):
    for path in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        makers.picture(tmp_path / "mini_imagenet" / path, size=(84, 84))
    with pytest.raises(DataError, match="has b in only one of train and test"):
        load(data(tmp_path))


def test_missing_data_says_what_to_do(tmp_path):
    with pytest.raises(
        DataError, match="`dualmix data get mini_imagenet` says which files to obtain"
    ):
        load(data(tmp_path))
