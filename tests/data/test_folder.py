"""Anybody's own images: formats, sizes, layouts, faults."""

import numpy as np
import pytest
from PIL import Image

from dualmix.data import Data, load
from dualmix.errors import DataError

from . import makers


def data(root, path, **options):
    return Data(name="folder", root=root, path=path, **options)


@pytest.fixture
def odd(tmp_path):
    """A class of pictures in every odd form, all of one solid colour each, and a plain second
    class.
    """
    base = tmp_path / "mine"
    odd = base / "train" / "odd"
    odd.mkdir(parents=True)
    solid = Image.new("RGB", (12, 12), (200, 100, 50))
    solid.convert("P", palette=Image.Palette.ADAPTIVE).save(odd / "01_palette.png")
    Image.new("RGBA", (12, 12), (0, 0, 0, 0)).save(odd / "02_clear.png")
    Image.fromarray(np.full((12, 12), 0x8000, np.uint16)).save(odd / "03_sixteen.png")
    Image.new("L", (12, 12), 77).save(odd / "04_grey.jpg", quality=100)
    Image.new("1", (12, 12), 1).save(odd / "05_bit.bmp")
    solid.convert("CMYK").save(odd / "06_cmyk.tif")
    solid.save(odd / "07_animation.gif")
    solid.save(odd / "08_no_extension", format="PNG")
    Image.new("LA", (12, 12), (0, 128)).save(odd / "09_half.png")
    Image.fromarray(np.full((12, 12), 0.5, np.float32)).save(odd / "10_float.tiff")
    clear = Image.new("P", (12, 12), 0)
    clear.putpalette([9, 9, 9] * 256)
    clear.save(odd / "11_clear_palette.png", transparency=0)
    (odd / "deeper").mkdir()
    solid.save(odd / "deeper" / "12.webp", lossless=True)
    (odd / ".hidden").write_text("x")
    (odd / "Thumbs.db").write_text("x")
    makers.picture(base / "train" / "plain" / "a.png", size=(12, 12))
    makers.picture(base / "test" / "plain" / "a.png", size=(12, 12))
    (base / "README.txt").write_text("not a class")
    return base


def test_every_form_becomes_rgb(odd, tmp_path):
    images = load(data(tmp_path, odd))
    assert images.classes == ("odd", "plain") and images.shape == (3, 12, 12) and images.notes == ()
    colours = [tuple(int(v) for v in x[6, 6]) for x in images.train_x[images.train_y == 0]]
    solid, white = (200, 100, 50), (255, 255, 255)
    assert colours[:5] == [solid, white, (128,) * 3, (77,) * 3, white]
    assert np.abs(np.array(colours[5:8]) - solid).max() < 6
    assert (
        colours[8] == (127,) * 3
        and colours[9] == (128,) * 3
        and colours[10] == white
        and colours[11] == solid
    )


def test_exif_orientation_is_applied(tmp_path):
    base = tmp_path / "mine"
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    for part in ("train", "test"):
        folder = base / part / "a"
        folder.mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(pixels).save(folder / "turned.jpg", exif=exif, quality=100)
    x = load(data(tmp_path, base)).train_x[0]
    assert x[:, 6].min() > 200 and x[:, 1].max() < 50


def test_sizes_must_agree_unless_one_is_given(tmp_path):
    base = tmp_path / "mine"
    makers.picture(base / "a" / "1.png", size=(10, 20))
    makers.picture(base / "a" / "2.png", size=(30, 5))
    with pytest.raises(DataError, match=r"10x20 and of 30x5 .*data\.size"):
        load(data(tmp_path, base))
    assert load(data(tmp_path, base, size=16)).shape == (3, 16, 16)


def test_one_size_is_kept_even_if_not_square(tmp_path):
    base = tmp_path / "mine"
    for i in range(4):
        makers.picture(base / "a" / f"{i}.png", size=(10, 20), seed=i)
    assert load(data(tmp_path, base)).shape == (3, 20, 10)


def test_one_tree_holds_out_a_share_of_each_class(tmp_path):
    base = tmp_path / "mine"
    for name, count in (("b", 10), ("a", 5), ("single", 1)):
        for i in range(count):
            makers.picture(base / name / f"{i}.png", seed=i)
    images = load(data(tmp_path, base, held_out=0.4))
    assert images.classes == ("a", "b", "single")
    np.testing.assert_array_equal(np.bincount(images.test_y, minlength=3), [2, 4, 0])
    assert images.notes == ("tests on 40 % of each class, held out with split seed 0",)
    assert load(data(tmp_path, base, held_out=0.4, split_seed=1)).fingerprint != images.fingerprint


def test_unreadable_files_are_counted_and_named(odd, tmp_path):
    (odd / "train" / "plain" / "notes.txt").write_text("hello")
    with pytest.raises(
        DataError, match=r"1 file that is no readable image \(train/plain/notes\.txt\)"
    ):
        load(data(tmp_path, odd))
    for i in range(4):
        (odd / "train" / "plain" / f"{i}.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(DataError, match=r"5 unreadable images \(train/plain/0\.jpg, .*, \.\.\.\)"):
        load(data(tmp_path, odd))


def test_a_decompression_bomb_is_unreadable(tmp_path, monkeypatch):
    makers.picture(tmp_path / "mine" / "a" / "1.png", size=(64, 64))
    makers.picture(tmp_path / "mine" / "a" / "2.png", size=(8, 8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    with pytest.raises(DataError, match=r"a/1\.png"):
        load(data(tmp_path, tmp_path / "mine"))


def test_layout_faults_say_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"There is no folder .*data\.path"):
        load(data(tmp_path, tmp_path / "nowhere"))
    base = tmp_path / "mine"
    base.mkdir()
    with pytest.raises(DataError, match="holds no folder"):
        load(data(tmp_path, base))
    (base / "a").mkdir()
    with pytest.raises(DataError, match="no image"):
        load(data(tmp_path, base))
    makers.picture(base / "train" / "a" / "1.png")
    with pytest.raises(DataError, match="has train but no test"):
        load(data(tmp_path, base))
    makers.picture(base / "test" / "b" / "1.png")
    with pytest.raises(DataError, match="classes that train lacks, such as 'b'"):
        load(data(tmp_path, base))
    makers.picture(base / "train" / "b" / "1.png")
    (base / "train" / "empty").mkdir()
    with pytest.raises(DataError, match="1 classes have no training image, the first is 'empty'"):
        load(data(tmp_path, base))


def test_a_replaced_picture_is_noticed(tmp_path):
    for i in range(2):
        makers.picture(tmp_path / "mine" / "a" / f"{i}.png", seed=i)
    first = load(data(tmp_path, tmp_path / "mine"))
    makers.picture(tmp_path / "mine" / "a" / "1.png", seed=5)
    assert load(data(tmp_path, tmp_path / "mine")).fingerprint != first.fingerprint
    assert len(list((tmp_path / ".decoded").glob("folder-*"))) == 1


def test_strays_are_left_out_on_request_and_counted(tmp_path):
    base = tmp_path / "mine"
    for part in ("train", "test"):
        for name in ("a", "b"):
            makers.picture(base / part / name / "1.png", seed=ord(name))
    clean = load(data(tmp_path, base))
    (base / "train" / "b" / ".DS_Store").write_text("x")
    (base / "train" / "b" / "Thumbs.db").write_text("x")
    assert load(data(tmp_path, base)).notes == ()
    (base / "train" / "a" / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"train/a/notes\.txt\): .* with data\.skip true"):
        load(data(tmp_path, base))
    images = load(data(tmp_path, base, skip=True))
    assert images.fingerprint == clean.fingerprint
    assert images.notes == ("1 file that is no readable image left out (train/a/notes.txt)",)
    (base / "test" / "b" / "half.png").write_bytes(
        (base / "test" / "b" / "1.png").read_bytes()[:99]
    )
    (note,) = load(data(tmp_path, base, skip=True)).notes
    assert note.startswith("2 files that are no readable image left out (train/a/notes.txt, test/b")
    (base / "train" / "a" / "1.png").unlink()
    with pytest.raises(DataError, match="1 classes have no training image, the first is 'a'"):
        load(data(tmp_path, base, skip=True))


def test_a_folder_without_any_image_is_a_sentence_with_skip_too(tmp_path):
    (tmp_path / "mine" / "a").mkdir(parents=True)
    (tmp_path / "mine" / "a" / "notes.txt").write_text("hello")
    with pytest.raises(DataError):
        load(data(tmp_path, tmp_path / "mine", skip=True))


def banner(path):
    """Save a picture of 24 x 8: red, green and blue squares beside one another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((8, 24, 3), np.uint8)
    for third in range(3):
        pixels[:, 8 * third : 8 * third + 8, third] = 255
    Image.fromarray(pixels).save(path)


def test_squeeze_crop_and_pad(tmp_path):
    base = tmp_path / "mine"
    for part in ("train", "test"):
        banner(base / part / "a" / "1.png")
    red, green, blue, black = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)
    x = {
        fit: load(data(tmp_path, base, size=8, fit=fit)).train_x[0]
        for fit in ("squeeze", "crop", "pad")
    }
    assert [tuple(x["squeeze"][4, c]) for c in (0, 4, 7)] == [red, green, blue]
    assert (x["crop"] == green).all()
    assert (x["pad"][[0, 1, 6, 7]] == black).all() and (x["pad"][3:5].max(axis=2) > 100).all()
    assert x["pad"][4, 0, 0] > 200 and x["pad"][4, 7, 2] > 200
    assert len({load(data(tmp_path, base, size=8, fit=fit)).fingerprint for fit in x}) == 3
    assert len(list((tmp_path / ".decoded").glob("folder-*"))) == 3


def test_squares_fit_in_every_way_alike(tmp_path):
    base = tmp_path / "mine"
    for part in ("train", "test"):
        makers.picture(base / part / "a" / "1.png", size=(20, 20))
    prints = {
        load(data(tmp_path, base, size=8, fit=fit)).fingerprint
        for fit in ("squeeze", "crop", "pad")
    }
    assert len(prints) == 1


@pytest.mark.parametrize(("turn", "corner"), [(1, 0), (3, 3), (6, 1), (8, 2), (2, 1), (5, 0)])
def test_every_exif_orientation_is_honoured(tmp_path, turn, corner):
    """The bright upper left corner of the file lies where the camera's orientation says."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = turn
    for part in ("train", "test"):
        (tmp_path / "mine" / part / "a").mkdir(parents=True)
        path = tmp_path / "mine" / part / "a" / "1.jpg"
        Image.fromarray(pixels).save(path, exif=exif, quality=100)
    x = load(data(tmp_path, tmp_path / "mine")).train_x[0, :, :, 0]
    quarters = [x[:8, :8], x[:8, 8:], x[8:, :8], x[8:, 8:]]
    assert int(np.argmax([quarter.mean() for quarter in quarters])) == corner
