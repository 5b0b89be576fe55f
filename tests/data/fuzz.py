"""Mutated files of every kind that `dualmix.data` reads: each must load rightly or end in one
sentence.

    python -m tests.data.fuzz --each 400 --seed 0

prints a table: kind, tried, right, typed error, untyped, hang, wrong. "Right" is a set that loaded
and passes its own check; where a checksum covers the bytes (gzip, zip members, the decoded cache)
it must also be the set that was there before the harm, or it counts as "wrong".
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import pickle
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from dualmix.data import Data, load
from dualmix.data.images import fingerprint
from dualmix.errors import DataError

from . import makers

VERDICTS = ("right", "typed", "untyped", "hang", "wrong")
SECONDS = 120
SIZE = (9, 7)
Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Case:
    """A data set in a folder of its own, harmed; `want` is the fingerprint it must have if it
    loads.
    """

    kind: str
    number: int
    folder: Path
    data: Data
    want: str | None = None


# ---------------------------------------------------------------------------------- harm to bytes


def _flip(raw: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)


def _overwrite(raw: bytearray, chance: random.Random) -> None:
    width = chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 1 << (8 * width - 1), (1 << (8 * width)) - 1))
    piece = (value & ((1 << (8 * width)) - 1)).to_bytes(width, chance.choice(("little", "big")))
    at = chance.randrange(len(raw))
    raw[at : at + width] = piece


def _cut(raw: bytearray, chance: random.Random) -> None:
    del raw[chance.randrange(len(raw)) :]


def _remove(raw: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(raw))
    del raw[at : at + chance.choice((1, 2, 8, 64, 512))]


def _repeat(raw: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(raw))
    raw[at:at] = raw[at : at + chance.choice((1, 8, 64, 512))] * chance.choice((1, 1, 2, 50))


def _insert(raw: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(raw) + 1)
    raw[at:at] = chance.randbytes(chance.choice((1, 4, 32)))


def _blank(raw: bytearray, chance: random.Random) -> None:
    at, count = chance.randrange(len(raw)), chance.choice((4, 64, 512))
    raw[at : at + count] = bytes(len(raw[at : at + count]))


def _digits(raw: bytearray, chance: random.Random) -> None:
    """Change numbers that are written as text, as tar, npy and JSON have them."""
    places = [i for i, byte in enumerate(raw[:4096]) if 48 <= byte < 58]
    for _ in range(min(len(places), chance.choice((1, 1, 3, 12)))):
        raw[chance.choice(places)] = chance.choice(b"0123456789-({[',.eLN ")


HARMS = (_flip, _overwrite, _cut, _remove, _repeat, _insert, _blank, _digits)


def harmed(raw: bytes, chance: random.Random) -> bytes:
    """Change bytes in one or a few of the ways in which files are damaged or forged."""
    buffer = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if buffer:
            chance.choice(HARMS)(buffer, chance)
    return bytes(buffer)


# ------------------------------------------------------------------------------- sound data sets


def _picture(options: dict[str, object], mode: str, seed: int) -> bytes:
    x = np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(x).convert(mode).save(buffer, **options)
    return buffer.getvalue()


PICTURES: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "png": ({"format": "PNG"}, ("RGB", "P", "L", "RGBA", "1", "I;16")),
    "jpeg": ({"format": "JPEG"}, ("RGB", "L", "CMYK")),
    "bmp": ({"format": "BMP"}, ("RGB", "L", "P", "1")),
    "gif": ({"format": "GIF"}, ("P", "L")),
    "webp": ({"format": "WEBP"}, ("RGB", "RGBA")),
    "tiff": ({"format": "TIFF"}, ("RGB", "L", "CMYK", "I;16")),
    "ppm": ({"format": "PPM"}, ("RGB", "L", "1")),
}


def _pictures(name: str) -> Callable[[Path, random.Random], Case]:
    options, modes = PICTURES[name]

    def case(root: Path, chance: random.Random) -> Case:
        mode = chance.choice(modes)
        if mode == "I;16":
            buffer = io.BytesIO()
            Image.fromarray(np.full(SIZE[::-1], 40000, np.uint16)).save(buffer, **options)
            raw = buffer.getvalue()
        else:
            raw = _picture(options, mode, chance.randrange(100))
        for part in ("train", "test"):
            folder = root / "mine" / part / "a"
            folder.mkdir(parents=True)
            (folder / "1").write_bytes(harmed(raw, chance) if part == "train" else raw)
        more = {"size": 8} if chance.random() < 0.5 else {}
        return Case(name, 0, root, Data(name="folder", root=root, path=root / "mine", **more))

    return case


X = makers.random_images(12, 6, 5)
ARRAYS = {"x_train": X, "y_train": np.arange(12) % 3, "x_test": X[:3], "y_test": np.arange(3)}


def _npz(root: Path, chance: random.Random) -> Case:
    path = root / "mine.npz"
    save = chance.choice((np.savez, np.savez_compressed))
    save(path, **ARRAYS)
    data = Data(name="arrays", root=root, path=path)
    want = load(data).fingerprint
    shutil.rmtree(root / ".decoded")
    path.write_bytes(harmed(path.read_bytes(), chance))
    return Case("npz", 0, root, data, want)


def _npy(root: Path, chance: random.Random) -> Case:
    """Forge the arrays inside a sound zip."""
    dtypes = ("<f8", ">f4", "|u1", "<i8", ">u2", "<U3", "|S3", "|b1", "<c8", "<m8[s]", "|V3", "<f2")
    path = root / "mine.npz"
    victim = chance.choice(list(ARRAYS))
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in ARRAYS.items():
            buffer = io.BytesIO()
            other = np.zeros(chance.choice(((), (0,), (12,), (12, 0, 5), (12, 6, 5), (12, 1))))
            other = other.astype(chance.choice(dtypes), order=chance.choice("CF"))
            chosen = other if name == victim and chance.random() < 0.3 else array
            np.lib.format.write_array(buffer, np.asarray(chosen), allow_pickle=False)
            raw = buffer.getvalue()
            if name == victim:
                head = harmed(raw[:128], chance) if chance.random() < 0.7 else raw[:128]
                raw = head + (harmed(raw[128:], chance) if chance.random() < 0.3 else raw[128:])
            archive.writestr(f"{name}.npy", raw)
    return Case("npy", 0, root, Data(name="arrays", root=root, path=path))


CIFAR = makers.cifar_parts()
PICKLES = makers.cifar_python(*CIFAR)


def _tar_gz(root: Path, chance: random.Random) -> Case:
    path = makers.put_archive(root / "cifar-100-python.tar.gz", PICKLES)
    data = Data(name="cifar100", root=root)
    want = load(data).fingerprint
    shutil.rmtree(root / ".decoded")
    path.write_bytes(harmed(path.read_bytes(), chance))
    return Case("tar.gz", 0, root, data, want)


def _tar(root: Path, chance: random.Random) -> Case:
    """Forge headers of a tar inside a sound gzip, some with the checksum that makes them pass."""
    path = makers.put_archive(root / "cifar-100-python.tar.gz", PICKLES)
    raw = bytearray(gzip.decompress(path.read_bytes()))
    if chance.random() < 0.7:
        starts = [i for i in range(0, len(raw), 512) if raw[i + 257 : i + 262] == b"ustar"]
        at = chance.choice(starts)
        head = raw[at : at + 512]
        fields = ((0, 100), (124, 12), (156, 1), (345, 155), (482, 13), (386, 96))
        start, width = chance.choice(fields)
        head[start : start + width] = harmed(bytes(head[start : start + width]), chance).ljust(
            width, b"\0"
        )[:width]
        if chance.random() < 0.3:
            head[156:157] = chance.choice([b"S", b"x", b"g", b"L", b"K", b"1", b"2", b"3", b"6"])
        if chance.random() < 0.2:
            head[124:136] = chance.choice((b"\x80" + b"\xff" * 11, b"\xff" * 12, b"77777777777\0"))
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        raw[at : at + 512] = head * chance.choice((1, 1, 1, 3000))
    else:
        raw = bytearray(harmed(bytes(raw), chance))
    path.write_bytes(gzip.compress(bytes(raw), 1))
    return Case("tar", 0, root, Data(name="cifar100", root=root))


def _cifar_pickle(root: Path, chance: random.Random) -> Case:
    write = chance.choice((makers.legacy_pickle, makers.modern_pickle(2), makers.modern_pickle(5)))
    folder = makers.put_files(root / "cifar-100-python", makers.cifar_python(*CIFAR, write))
    victim = folder / chance.choice(("train", "test", "meta"))
    victim.write_bytes(_headed(victim.read_bytes(), chance))
    return Case("pickle", 0, root, Data(name="cifar100", root=root))


def _headed(raw: bytes, chance: random.Random) -> bytes:
    """Harm the beginning or the end, where a pickle has its steps, more often than the pixels."""
    where = chance.random()
    if where < 0.4:
        return harmed(raw[:400], chance) + raw[400:]
    if where < 0.7:
        return raw[:-200] + harmed(raw[-200:], chance)
    return harmed(raw, chance)


def _binary(root: Path, chance: random.Random) -> Case:
    folder = makers.put_files(root / "cifar-100-binary", makers.cifar_binary(*CIFAR))
    victim = chance.choice(sorted(folder.iterdir()))
    victim.write_bytes(harmed(victim.read_bytes(), chance))
    return Case("binary", 0, root, Data(name="cifar100", root=root))


def _mini(root: Path, chance: random.Random) -> Case:
    """Pickles that are harmed, or sound but of arrays that do not fit."""
    shapes = ((6, 5, 5, 3), (6, 4, 4, 3), (6, 5, 5, 1), (6, 5, 5), (0, 5, 5, 3), (6, 0, 5, 3), (6,))
    rows = ([0, 1, 2, 3, 4, 5], [0, 0], [6], [-1], [], [2**70], [True], "ab", None, 3, {}, [[0]])
    odd = (np.arange(6), np.zeros((2, 2), np.int64), np.array(3), np.array([], np.uint8))
    victim = chance.randrange(3)
    for number, part in enumerate(("train", "val", "test")):
        shape = chance.choice(shapes) if number == victim and chance.random() < 0.5 else shapes[0]
        x = np.zeros(shape, chance.choice((np.uint8, np.uint8, np.uint8, np.int16, np.uint64)))
        x = x if number == victim else x.astype(np.uint8)
        odd_rows = number == victim and chance.random() < 0.6
        chosen = chance.choice((*rows, *odd)) if odd_rows else rows[0]
        fields = {"image_data": x, "class_dict": {f"n{number}": chosen}}
        raw = pickle.dumps(fields, chance.choice((2, 3, 4, 5)))
        if number == victim and chance.random() < 0.4:
            raw = _headed(raw, chance)
        (root / f"mini-imagenet-cache-{part}.pkl").write_bytes(raw)
    return Case("mini", 0, root, Data(name="mini_imagenet", root=root))


def _zip(root: Path, chance: random.Random) -> Case:
    path = root / "tiny-imagenet-200.zip"
    packed = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(path, "w", packed) as archive:
        base = "tiny-imagenet-200"
        for number, name in enumerate(("n1", "n2")):
            raw = _picture({"format": "JPEG"}, "RGB", number)
            archive.writestr(f"{base}/train/{name}/images/{name}_0.JPEG", raw)
            archive.writestr(f"{base}/val/images/val_{number}.JPEG", raw)
        archive.writestr(f"{base}/wnids.txt", "n1\nn2\n")
        notes = "val_0.JPEG\tn1\t0\nval_1.JPEG\tn2\t0\n"
        archive.writestr(f"{base}/val/val_annotations.txt", notes)
    raw = path.read_bytes()
    if chance.random() < 0.5:  # flags, methods, versions and sizes of the entries
        buffer = bytearray(raw)
        sign, width = chance.choice(((b"PK\1\2", 46), (b"PK\3\4", 30), (b"PK\5\6", 22)))
        places = [i for i in range(len(raw)) if raw.startswith(sign, i)]
        at = chance.choice(places)
        piece = bytes(buffer[at + 4 : at + width])
        buffer[at + 4 : at + width] = harmed(piece, chance).ljust(width - 4, b"\0")[: width - 4]
        raw = bytes(buffer)
    else:
        raw = harmed(raw, chance)
    path.write_bytes(raw)
    return Case("zip", 0, root, Data(name="tiny_imagenet", root=root))


def _cache(root: Path, chance: random.Random) -> Case:
    np.savez(root / "mine.npz", x=X, y=np.arange(12) % 3)
    data = Data(name="arrays", root=root, path=root / "mine.npz")
    want = load(data).fingerprint
    (folder,) = (root / ".decoded").glob("arrays-*")
    victims = chance.sample(sorted(folder.iterdir()), chance.choice((1, 1, 2)))
    for victim in victims:
        victim.write_bytes(harmed(victim.read_bytes(), chance))
    return Case("cache", 0, root, data, want)


def _tree(root: Path, chance: random.Random) -> Case:
    """A folder of images with something in it that is none."""
    base = root / "mine"
    parts = chance.choice((("",), ("train", "test")))
    for part in parts:
        for name in ("a", "b"):
            for number in range(3):
                makers.picture(base / part / name / f"{number}.png", seed=number)
    at = chance.choice([path for path in [base, *base.rglob("*")] if path.is_dir()])
    for _ in range(chance.choice((1, 1, 2))):
        with suppress(OSError):
            chance.choice(ODDITIES)(at, chance)
    more = {"skip": True} if chance.random() < 0.4 else {}
    return Case("tree", 0, root, Data(name="folder", root=root, path=base, **more))


def _socket(at: Path, chance: random.Random) -> None:
    here = Path.cwd()
    os.chdir(at)
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind("plug")
    finally:
        os.chdir(here)


def _deep(at: Path, chance: random.Random) -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(at)
        for _ in range(chance.choice((50, 1500, 2500))):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.fchdir(here)
        os.close(here)


def _bytes_name(at: Path, chance: random.Random) -> None:
    name = os.fsdecode(bytes(chance.choice((b"\xff\xfe", b"n\x1b[31m", b"a\nb", b"\xc3"))))
    if chance.random() < 0.5:
        makers.picture(at / f"{name}.png")
    else:
        makers.picture(at / name / "1.png")


ODDITIES: tuple[Callable[[Path, random.Random], object], ...] = (
    lambda at, chance: os.mkfifo(at / "pipe.png"),
    lambda at, chance: (at / "loop.png").symlink_to("loop.png"),
    lambda at, chance: (at / "up").symlink_to(".."),
    lambda at, chance: (at / "gone.png").symlink_to("nowhere"),
    lambda at, chance: (at / "zero").symlink_to("/dev/zero"),
    lambda at, chance: (at / "notes.txt").write_text("hello"),
    lambda at, chance: (at / ".DS_Store").write_text("x"),
    lambda at, chance: (at / "Thumbs.db").write_text("x"),
    lambda at, chance: (at / ("n" * 255)).write_text("x"),
    lambda at, chance: (at / "empty").mkdir(),
    lambda at, chance: (at / "empty.png").write_bytes(b""),
    lambda at, chance: (at / "evil.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n"),
    lambda at, chance: at.joinpath("train").mkdir(),
    lambda at, chance: shutil.rmtree(at),
    lambda at, chance: makers.picture(at / "other.png", size=(5, 6)),
    _socket,
    _deep,
    _bytes_name,
)

KINDS: dict[str, Callable[[Path, random.Random], Case]] = {
    **{name: _pictures(name) for name in PICTURES},
    "npz": _npz,
    "npy": _npy,
    "tar.gz": _tar_gz,
    "tar": _tar,
    "pickle": _cifar_pickle,
    "binary": _binary,
    "mini": _mini,
    "zip": _zip,
    "cache": _cache,
    "tree": _tree,
}


def mutants(kind: str, seed: int, folder: Path, count: int) -> Iterator[Case]:
    """Yield harmed data sets of a kind, each in a folder that is gone when the next one comes."""
    for number in range(count):
        chance = random.Random(f"{kind} {seed} {number}")
        root = Path(tempfile.mkdtemp(prefix=f"{kind}-{number}-", dir=folder))
        try:
            case = KINDS[kind](root, chance)
            yield Case(kind, number, root, case.data, case.want)
        finally:
            _gone(root)


def _gone(root: Path) -> None:
    """Remove a tree that may be deeper than Python's recursion or a path's length allow."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(root)
    if root.exists():
        os.spawnlp(os.P_WAIT, "rm", "rm", "-rf", str(root))


class _TimeoutError(BaseException):
    """Not an `Exception`, so that no clause of the code under test can catch it."""


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _TimeoutError

    usual = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


def check(case: Case) -> tuple[str, str]:
    """Load a harmed data set and return the verdict, with what was said or went wrong."""
    try:
        with _within(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            images = load(case.data)
            mark = fingerprint(images)
    except DataError as fault:
        said = str(fault)
        said.encode()
        one = "\n" not in said and "\x1b" not in said and said.endswith(".")
        return ("typed" if one else "untyped"), said
    except _TimeoutError:
        return "hang", ""
    except Exception as fault:
        return "untyped", f"{type(fault).__name__}: {fault}"
    if mark != images.fingerprint or (case.want is not None and mark != case.want):
        return "wrong", mark
    return "right", ""


def tally(kinds: list[str], seed: int, each: int, folder: Path) -> dict[str, Counter[str]]:
    """Try so many cases of each kind; bad ones are written to stderr."""
    table = {}
    for kind in kinds:
        counts: Counter[str] = Counter()
        for case in mutants(kind, seed, folder, each):
            verdict, said = check(case)
            counts[verdict] += 1
            if verdict not in ("right", "typed"):
                print(
                    f"{kind} seed {seed} number {case.number}: {verdict}: {said}", file=sys.stderr
                )
        table[kind] = counts
    return table


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    options.add_argument("--each", type=int, default=400)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    given = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        table = tally(given.kinds, given.seed, given.each, Path(folder))
    table["all"] = sum(table.values(), Counter())
    print(f"{'kind':10}{'tried':>8}" + "".join(f"{v:>9}" for v in VERDICTS))
    for kind, counts in table.items():
        row = "".join(f"{counts[verdict]:9}" for verdict in VERDICTS)
        print(f"{kind:10}{counts.total():8}{row}")
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")
    sys.exit(any(table["all"][verdict] for verdict in ("untyped", "hang", "wrong")))


if __name__ == "__main__":
    main()
