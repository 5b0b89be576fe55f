"""Files that attack or lead astray: each ends in one sentence, starts no program and waits for
nothing.
"""

import io
import os
import pickle
import stat
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualmix.data import Data, cifar100, load, pixels
from dualmix.data.cache import platform_folder
from dualmix.data.catalog import root as data_root
from dualmix.data.source import check_room, open_file
from dualmix.data.verify import listing, verify
from dualmix.errors import ConfigError, DataError

from . import fuzz, makers

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
0 0 8 8 rectfill
showpage
%%EOF
"""


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A `gs` on the PATH that leaves a mark when it is started."""
    mark = tmp_path / "started"
    folder = tmp_path / "bin"
    folder.mkdir()
    gs = folder / "gs"
    gs.write_text(f"#!/bin/sh\ntouch {mark}\n")
    gs.chmod(gs.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    return mark


def own(tmp_path, **options):
    return Data(name="folder", root=tmp_path, path=tmp_path / "mine", **options)


def small(tmp_path, part=""):
    for name in ("a", "b"):
        for number in range(3):
            makers.picture(tmp_path / "mine" / part / name / f"{number}.png", seed=number)
    return tmp_path / "mine"


def test_pillow_would_start_ghostscript(ghostscript, tmp_path):
    """Without this the next tests would prove nothing."""
    (tmp_path / "evil.png").write_bytes(EPS)
    with pytest.raises(OSError), Image.open(tmp_path / "evil.png") as image:
        image.load()
    assert ghostscript.exists()


def test_no_program_is_started_for_an_image_of_a_folder(ghostscript, tmp_path):
    base = small(tmp_path)
    (base / "a" / "evil.png").write_bytes(EPS)
    with pytest.raises(DataError, match=r"1 file that is no readable image \(a/evil\.png\)"):
        load(own(tmp_path))
    assert len(load(own(tmp_path, skip=True)).train_x) == 4
    assert not ghostscript.exists()


def test_no_program_is_started_for_tiny_and_mini_imagenet(ghostscript, tmp_path):
    for part in ("train", "test"):
        makers.picture(tmp_path / "mini_imagenet" / part / "n1" / "1.png", size=(84, 84))
    (tmp_path / "mini_imagenet" / "train" / "n1" / "2.jpg").write_bytes(EPS)
    with pytest.raises(DataError, match=r"no readable image"):
        load(Data(name="mini_imagenet", root=tmp_path))
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        base = "tiny-imagenet-200"
        archive.writestr(f"{base}/wnids.txt", "n1\n")
        archive.writestr(f"{base}/val/val_annotations.txt", "v.JPEG\tn1\n")
        archive.writestr(f"{base}/val/images/v.JPEG", EPS)
        archive.writestr(f"{base}/train/n1/images/t.JPEG", EPS)
    with pytest.raises(DataError, match=r"no readable image"):
        load(Data(name="tiny_imagenet", root=tmp_path))
    assert not ghostscript.exists()


def test_images_are_opened_in_one_place_only():
    """The list of formats holds only if nobody opens images without it."""
    import dualmix

    package = Path(dualmix.__file__).parent
    calls = ("Image.open(", "Pil.open(")
    opening = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(call in path.read_text(encoding="utf-8") for call in calls)
    ]
    assert opening == ["data/pixels.py"]
    assert not {"EPS", "PSD", "FPX", "WMF", "PDF"} & set(pixels.FORMATS)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM"])
def test_pixel_formats_open_whatever_their_name_says(tmp_path, form):
    for part in ("train", "test"):
        makers.picture(tmp_path / "mine" / part / "a" / "evil.eps", format=form)
    assert load(own(tmp_path)).shape == (3, 8, 8)


def test_pictures_of_other_formats_are_refused(tmp_path):
    base = small(tmp_path)
    makers.picture(base / "a" / "x.tga", format="TGA")
    with pytest.raises(DataError, match=r"a/x\.tga\): .*data\.skip true"):
        load(own(tmp_path))


def test_the_first_frame_of_an_animation_is_taken(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for part in ("train", "test"):
        folder = tmp_path / "mine" / part / "a"
        folder.mkdir(parents=True)
        frames[0].save(folder / "1.gif", save_all=True, append_images=frames[1:])
        frames[0].save(folder / "2.png", save_all=True, append_images=frames[1:])
    assert (load(own(tmp_path)).train_x == (255, 0, 0)).all()


# ------------------------------------------------------------------ what is no file, and odd names


@pytest.mark.timeout(600)
def test_pipes_links_and_sockets_are_refused_not_waited_for(tmp_path):
    base = small(tmp_path)
    os.mkfifo(base / "a" / "pipe.png")
    with pytest.raises(DataError, match=r"a/pipe\.png"):
        load(own(tmp_path))
    os.mkfifo(base / "b" / "pipe.png")
    (base / "b" / "loop.png").symlink_to("loop.png")
    (base / "b" / "gone.png").symlink_to("nowhere")
    (base / "b" / "up").symlink_to("..")
    (base / "b" / "zero").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"6 unreadable images"):
        load(own(tmp_path))
    images = load(own(tmp_path, skip=True))
    assert len(images.train_x) + len(images.test_x) == 6
    assert images.notes[1].startswith("6 files that are no readable image left out (a/pipe.png")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["train/n1/images/n1_9.JPEG", "wnids.txt"])
def test_a_pipe_in_tiny_imagenet(tmp_path, name):
    base = tmp_path / "tiny-imagenet-200"
    makers.picture(base / "train" / "n1" / "images" / "n1_0.JPEG", size=(64, 64))
    makers.picture(base / "val" / "images" / "v.JPEG", size=(64, 64))
    (base / "wnids.txt").write_text("n1\n")
    (base / "val" / "val_annotations.txt").write_text("v.JPEG\tn1\n")
    assert load(Data(name="tiny_imagenet", root=tmp_path)).shape == (3, 64, 64)
    (base / name).unlink(missing_ok=True)
    os.mkfifo(base / name)
    with pytest.raises(DataError):
        load(Data(name="tiny_imagenet", root=tmp_path))


@pytest.mark.timeout(600)
def test_pipes_in_the_place_of_files(tmp_path):
    folder = makers.put_files(
        tmp_path / "cifar-100-python", makers.cifar_python(*makers.cifar_parts())
    )
    (folder / "train").unlink()
    os.mkfifo(folder / "train")
    with pytest.raises(DataError, match="lacks train"):
        load(Data(name="cifar100", root=tmp_path))
    os.mkfifo(tmp_path / "mine.npz")
    with pytest.raises(DataError, match=r"no file"):
        load(Data(name="arrays", root=tmp_path, path=tmp_path / "mine.npz"))
    with pytest.raises(DataError, match="no file that can be read"):
        open_file(folder / "train")


def test_paths_that_lead_in_a_circle_or_nowhere(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path in ("a", "n" * 300, "no\0name", "~nobody-of-this-name/x"):
        for name in ("folder", "arrays"):
            with pytest.raises(DataError) as fault:
                load(Data(name=name, root=tmp_path, path=path))
            assert str(fault.value).endswith(".") and "\n" not in str(fault.value)
    with pytest.raises(DataError):
        load(Data(name="cifar100", root=tmp_path / ("n" * 300)))


def test_a_tree_deeper_than_python_may_recurse(tmp_path):
    base = small(tmp_path)
    place = base / "a" / Path(*["d"] * 1200)
    subprocess.run(["mkdir", "-p", place], check=True)
    makers.picture(place / "deep.png")
    images = load(own(tmp_path))
    assert len(images.train_x) + len(images.test_x) == 7
    fuzz._gone(base)


def test_names_that_no_terminal_can_print(tmp_path):
    base = small(tmp_path)
    odd = os.fsdecode(b"\xff\x1b[31m.txt")
    (base / "a" / odd).write_text("x")
    with pytest.raises(DataError, match=r"a/\\udcff\\x1b\[31m\.txt"):
        load(own(tmp_path))
    (base / "a" / odd).unlink()
    makers.picture(base / os.fsdecode(b"\xff") / "1.png")
    with pytest.raises(DataError, match="characters that cannot be printed: rename the class"):
        load(own(tmp_path))


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    small(tmp_path)
    scan = os.scandir

    def denied(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DataError, match=r"mine/b: Permission denied"):
        load(own(tmp_path))


def test_a_folder_that_vanishes_meanwhile(tmp_path, monkeypatch):
    from dualmix.data import folder

    base = small(tmp_path)
    source = folder.find(tmp_path, own(tmp_path))
    monkeypatch.setattr(folder, "subfolders", lambda place: [base / "a"])
    with pytest.raises(DataError, match="'b' vanished while it was read"):
        folder.decode(source)


def test_no_home_folder(monkeypatch):
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/dualmix"))
    with pytest.raises(ConfigError, match="set DUALMIX_DATA"):
        platform_folder()
    with pytest.raises(DataError, match="home folder is not known"):
        data_root("~nobody-of-this-name/data")


def test_what_cannot_fit_is_refused_before_it_is_asked_for():
    with pytest.raises(DataError, match=r"needs 1,000,000\.0 GB, more than this machine's"):
        check_room(10**15, "It")


# ------------------------------------------------------------------------------------- archives


def header(name="cifar-100-python/train", size=b"00000000000\0", kind=b"0"):
    raw = bytearray(512)
    raw[: len(name)] = name.encode()
    raw[100:108] = b"0000644\0"
    raw[124:136] = size
    raw[136:148] = b"00000000000\0"
    raw[156:157] = kind
    raw[257:265] = b"ustar\x0000"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def pax(records, kind=b"x"):
    body = b""
    for key, value in records.items():
        inside = f" {key}={value}\n".encode()
        length = len(inside) + 1
        while len(str(length)) + len(inside) != length:
            length = len(str(length)) + len(inside)
        body += str(length).encode() + inside
    size = b"%011o\0" % len(body)
    return header("pax", size, kind) + body.ljust(-len(body) % 512 + len(body), b"\0")


def gnu(number):
    return b"\x80" + number.to_bytes(11, "big") if number >= 0 else b"\xff" * 11 + b"\x00"


TARS = {
    "absurd size": header(size=gnu(10**18)),
    "beyond an index": header(size=gnu(2**80)),
    "negative size": header(size=gnu(-1)),
    "octal text": header(size=b"9999999999x\0"),
    "pax size": pax({"size": 10**30}) + header(),
    "pax size is no number": pax({"size": "x"}) + header(),
    "pax without end": header("pax", b"00000001000\0", b"x") + b"9" * 512,
    "pax of absurd length": header("pax", gnu(10**15), b"x"),
    "global pax": pax({"path": "\0"}, b"g") + header(),
    "pax sparse": pax({"GNU.sparse.major": 1, "GNU.sparse.minor": 0, "GNU.sparse.realsize": 10**15})
    + header(),
    "pax sparse map": pax({"GNU.sparse.map": "0,x,1", "GNU.sparse.size": 5}) + header(),
    "old sparse": header(kind=b"S", size=gnu(10**12)) + bytes(512),
    "absurd neighbour": header("other", size=gnu(10**17)) + bytes(512),
    "3,000 long names": header(kind=b"L") * 3000 + header(),
    "3,000 pax": pax({"comment": "x"}) * 3000 + header(),
    "nothing": b"",
    "noise": np.random.default_rng(0).bytes(5000),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARS)
def test_hostile_tars(tmp_path, name):
    import gzip

    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(gzip.compress(TARS[name] + bytes(1024)))
    with pytest.raises(DataError) as fault:
        load(Data(name="cifar100", root=tmp_path))
    assert cifar100.REMEDY in str(fault.value)


@pytest.mark.timeout(600)
def test_a_small_archive_that_unpacks_to_something_absurd(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar100, "LARGEST", 1 << 20)
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("filler")
        entry.size = 1 << 22
        archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    with pytest.raises(DataError, match="far larger than CIFAR-100"):
        load(Data(name="cifar100", root=tmp_path))


def test_a_flipped_bit_anywhere_in_the_archive_is_noticed(tmp_path):
    path = makers.put_archive(
        tmp_path / "cifar-100-python.tar.gz", makers.cifar_python(*makers.cifar_parts())
    )
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for at in rng.integers(10, len(whole), 40):
        raw = bytearray(whole)
        raw[at] ^= 1 << rng.integers(8)
        path.write_bytes(raw)
        with pytest.raises(DataError, match="cut short or damaged"):
            load(Data(name="cifar100", root=tmp_path))


def edited_zip(path, **fields):
    """Change fields of every entry of a zip, in the directory and before the content."""
    raw = bytearray(path.read_bytes())
    places = {"version": (6, 4), "flags": (8, 6), "method": (10, 8)}
    for sign, column in ((b"PK\1\2", 0), (b"PK\3\4", 1)):
        at = raw.find(sign)
        while at >= 0:
            for field, value in fields.items():
                struct.pack_into("<H", raw, at + places[field][column], value)
            at = raw.find(sign, at + 4)
    path.write_bytes(raw)


ODD_ENTRIES = [{"flags": 1}, {"method": 99}, {"method": 9}, {"version": 200}, {"flags": 1 << 5}]


@pytest.mark.parametrize("fields", ODD_ENTRIES)
def test_encrypted_and_unsupported_entries(tmp_path, fields):
    np.savez(tmp_path / "mine.npz", **fuzz.ARRAYS)
    edited_zip(tmp_path / "mine.npz", **fields)
    with pytest.raises(DataError, match=r"write it with numpy\.savez"):
        load(Data(name="arrays", root=tmp_path, path=tmp_path / "mine.npz"))
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", "n1\n")
        archive.writestr("tiny-imagenet-200/val/val_annotations.txt", "v.JPEG\tn1\n")
    edited_zip(tmp_path / "tiny-imagenet-200.zip", **fields)
    with pytest.raises(DataError, match="cut short or damaged"):
        load(Data(name="tiny_imagenet", root=tmp_path))


@pytest.mark.parametrize("packed", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_numpy_never_uses(tmp_path, packed):
    with zipfile.ZipFile(tmp_path / "mine.npz", "w", packed) as archive:
        for name, array in fuzz.ARRAYS.items():
            archive.writestr(f"{name}.npy", npy(array))
    with pytest.raises(DataError, match="packed in a way that numpy never does"):
        load(Data(name="arrays", root=tmp_path, path=tmp_path / "mine.npz"))


# --------------------------------------------------------------------------------------- arrays


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def forged(text, body=b"", version=b"\1\0"):
    raw = text.encode("latin-1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(raw)) + raw + body


def put(tmp_path, members):
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return Data(name="arrays", root=tmp_path, path=tmp_path / "mine.npz")


def whole(**changes):
    members = {f"{name}.npy": npy(array) for name, array in fuzz.ARRAYS.items()}
    return members | {f"{name}.npy": raw for name, raw in changes.items()}


HEADERS = {
    "does not tokenise": "{'descr': '|u1', 'fortran_order': False, 'shape': ((((12, ",
    "deep": "(" * 5000,
    "code": "__import__('os').system('true')",
    "no dictionary": "[1, 2]",
    "wrong keys": "{'a': 1}",
    "no type": "{'descr': 'zz', 'fortran_order': False, 'shape': (12,), }",
    "10^12 rows": "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 6, 5, 3), }",
    "beyond 64 bits": f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({10**40},), }}",
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 6, 5, 3), }",
    "negative twice": "{'descr': '|u1', 'fortran_order': False, 'shape': (-12, -6, 5, 3), }",
    "no bytes per item": "{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,), }",
    "nothing": "",
    "long": "{" + " " * 60000,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(tmp_path, name):
    with pytest.raises(DataError, match=r"not a \.npz file or is damaged"):
        load(put(tmp_path, whole(x_train=forged(HEADERS[name], bytes(1080)))))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_train": npy(np.uint8(3))}, "images must be"),
        ({"y_train": npy(3)}, "one label for each"),
        ({"x_train": npy(np.array([None] * 12))}, "Python objects"),
        ({"y_train": npy(np.array([["a"], 1, {}] * 4, dtype=object))}, "Python objects"),
        ({"x_train": npy(fuzz.X)[:-1]}, "damaged"),
        ({"x_train": npy(fuzz.X) + b"x"}, "damaged"),
        ({"x_train": b"raw bytes"}, "damaged"),
        ({"x_train": b""}, "damaged"),
        ({"x_train": npy(fuzz.X)[:6] + b"\3\0" + npy(fuzz.X)[8:]}, "damaged"),
        ({"x_train": npy(np.zeros((12, 6, 5, 3), "<c8"))}, "give uint8"),
        ({"x_train": npy(np.zeros((12, 6, 5, 3), "<M8[s]"))}, "give uint8"),
        ({"x_train": npy(np.zeros((12, 6, 5, 3), [("a", "u1")]))}, "give uint8"),
        ({"x_train": npy(np.zeros((12, 0, 5, 3), "u1"))}, "some size"),
        ({"y_train": npy(np.full(12, 2**64 - 1, np.uint64))}, "beyond 64 bits"),
        ({"y_train": npy(np.array(["a", "b", "c"] * 4))}, "labels of one kind"),
    ],
)
def test_odd_members(tmp_path, changes, says):
    with pytest.raises(DataError, match=says):
        load(put(tmp_path, whole(**changes)))


def test_odd_names_of_members(tmp_path):
    members = whole()
    with pytest.raises(DataError, match="two arrays of one name"):
        load(put(tmp_path, {**members, "x_train": npy(fuzz.X)}))
    nested = {f"inner/{name}": raw for name, raw in members.items()}
    with pytest.raises(DataError, match=r"but holds inner/x_test, inner/x_train"):
        load(put(tmp_path, nested))
    assert load(put(tmp_path, {**members, "notes.txt": b"hello", "../x": b""})).shape == (3, 6, 5)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_byte_order_and_memory_order_gives_the_same_pixels(tmp_path, dtype, order):
    x = (fuzz.X // 255).astype(dtype, order=order)
    y = fuzz.ARRAYS["y_train"].astype(">i2")
    images = load(put(tmp_path, whole(x_train=npy(x), y_train=npy(y))))
    np.testing.assert_array_equal(images.train_x, fuzz.X // 255 * 255)
    np.testing.assert_array_equal(images.train_y, fuzz.ARRAYS["y_train"])


def test_size_of_images_without_pixels(tmp_path):
    empty = npy(np.zeros((12, 0, 5, 3), "u1"))
    data = put(tmp_path, whole(x_train=empty, x_test=npy(np.zeros((3, 0, 5, 3), "u1"))))
    with pytest.raises(DataError, match="no pixel"):
        load(data.model_copy(update={"size": 8}))


# -------------------------------------------------------------------------------------- pickles


def put_mini(tmp_path, **changes):
    x = np.zeros((6, 5, 5, 3), np.uint8)
    for number, part in enumerate(("train", "val", "test")):
        fields = {"image_data": x, "class_dict": {f"n{number}": [0, 1, 2, 3, 4, 5]}}
        fields |= changes if part == "val" else {}
        raw = pickle.dumps(fields, 4)
        (tmp_path / f"mini-imagenet-cache-{part}.pkl").write_bytes(raw)
    return Data(name="mini_imagenet", root=tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"image_data": np.zeros((6, 4, 4, 3), np.uint8)}, r"images of \(4, 4, 3\)"),
        ({"image_data": np.zeros((6, 0, 5, 3), np.uint8)}, "not of Mini-ImageNet"),
        ({"image_data": np.zeros((0, 5, 5, 3), np.uint8)}, "not of Mini-ImageNet"),
        ({"class_dict": {"a": np.array(3)}}, "not of Mini-ImageNet"),
        ({"class_dict": {"a": np.zeros((2, 2), np.int64)}}, "not of Mini-ImageNet"),
        ({"class_dict": {"a": [0, 0]}}, "each image once"),
        ({"class_dict": {"a": [0], "b": [0, 1]}}, "each image once"),
        ({"class_dict": {"a": [2**70]}}, "not of Mini-ImageNet"),
        ({"class_dict": {"a": None}}, "not of Mini-ImageNet"),
        ({"class_dict": {"a\udcff": [0, 1, 2]}}, "cannot be printed"),
        ({"class_dict": {"n0": [0]}}, "in two of its pickles"),
    ],
)
def test_mini_imagenet_pickles_whose_arrays_do_not_fit(tmp_path, changes, says):
    with pytest.raises(DataError, match=says):
        load(put_mini(tmp_path, **changes))


def test_pickles_of_two_sizes_are_read_where_one_is_asked_for(tmp_path):
    data = put_mini(tmp_path, image_data=np.zeros((6, 4, 4, 3), np.uint8))
    assert load(data.model_copy(update={"size": 6})).shape == (3, 6, 6)


@pytest.mark.timeout(600)
def test_a_small_pickle_cannot_fill_the_memory(tmp_path):
    """One text of 4 MB, turned into bytes 100,000 times."""
    from dualmix.data import unpickle

    text = b"X" + struct.pack("<I", 4_000_000) + b"a" * 4_000_000 + b"q\1"
    name = b"c_codecs\nencode\nq\0"
    again = b"h\0h\1U\6latin1\x86R"
    raw = b"\x80\2" + text + name + again * 100_000 + b"."
    with pytest.raises(DataError, match="the same text many times over"):
        unpickle.read(io.BytesIO(raw), "it", "no")


# ------------------------------------------------------------------------------------ all at once


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_a_few_mutants_of_every_kind(kind, tmp_path, capsys):
    counts = fuzz.tally([kind], 3, 12, tmp_path)[kind]
    assert counts.total() == 12
    assert counts["right"] + counts["typed"] == 12, capsys.readouterr().err


def test_the_fuzzer_sees_what_it_is_there_for(tmp_path, monkeypatch):
    """Each bad verdict is given where it is due."""
    (case,) = list(fuzz.mutants("cache", 0, tmp_path, 1))[:1]
    np.savez(tmp_path / "mine.npz", x=fuzz.X, y=np.arange(12) % 3)
    data = Data(name="arrays", root=tmp_path, path=tmp_path / "mine.npz")
    sound = fuzz.Case("npz", 0, tmp_path, data)
    assert fuzz.check(sound)[0] == "right"
    assert fuzz.check(fuzz.Case("npz", 0, tmp_path, data, "other"))[0] == "wrong"
    assert fuzz.check(case)[0] == "typed"
    monkeypatch.setattr(fuzz, "SECONDS", 1)

    def hangs(data):
        import time

        time.sleep(5)

    monkeypatch.setattr(fuzz, "load", hangs)
    assert fuzz.check(sound)[0] == "hang"
    monkeypatch.setattr(fuzz, "load", lambda data: 1 / 0)
    assert fuzz.check(sound) == ("untyped", "ZeroDivisionError: division by zero")


def test_listing_and_verify_live_with_odd_neighbours(tmp_path):
    os.mkfifo(tmp_path / "cifar-100-python.tar.gz")
    (tmp_path / "mini_imagenet").symlink_to("mini_imagenet")
    (tmp_path / ".decoded").mkdir()
    (tmp_path / ".decoded" / "cifar100-x").write_text("x")
    (tmp_path / ".decoded" / "loop-1").symlink_to("loop-1")
    entries = {entry.name: entry for entry in listing(tmp_path)}
    assert entries["cifar100"].present is False and entries["mini_imagenet"].present is False
    with pytest.raises(DataError):
        verify(Data(name="cifar100", root=tmp_path))
