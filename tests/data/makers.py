"""Small synthetic editions of the published files, written byte for byte in their formats."""

import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image


def random_images(count, height=32, width=32, channels=3, seed=0):
    return np.random.default_rng(seed).integers(
        0, 256, (count, height, width, channels), dtype=np.uint8
    )


def legacy_pickle(fields):
    """Write a dictionary as Python 2 did: byte strings, numpy.core, protocol 2."""
    memo = iter(range(1 << 30))

    def put():
        index = next(memo)
        return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    def text(value):
        return b"U" + bytes([len(value)]) + value.encode() + put()

    def write(value):
        if isinstance(value, str):
            return text(value)
        if isinstance(value, list):
            inside = b"".join(text(v) if isinstance(v, str) else b"K" + bytes([v]) for v in value)
            return b"]" + put() + b"(" + inside + b"e"
        raw = value.tobytes()
        head = b"cnumpy.core.multiarray\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put()
        head += b"K\x00\x85" + put() + text("b") + b"\x87" + put() + b"R" + put()
        shape = b"".join(b"J" + struct.pack("<i", n) for n in value.shape)
        dtype = b"cnumpy\ndtype\n" + put() + text("u1") + b"K\x00K\x01\x87" + put() + b"R" + put()
        dtype += (
            b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t" + put() + b"b"
        )
        return (
            head
            + b"(K\x01("
            + shape
            + b"t"
            + put()
            + dtype
            + b"\x89T"
            + struct.pack("<I", len(raw))
            + raw
            + b"tb"
        )

    inside = b"".join(text(key) + write(value) for key, value in fields.items())
    return b"\x80\x02}" + put() + b"(" + inside + b"u."


def cifar_parts(classes=4, train=3, test=2):
    """Give names, (x, y) for training and (x, y) for testing, shuffled."""
    names = [f"class_{i}" for i in range(classes)]
    parts = []
    for seed, count in enumerate((train, test)):
        y = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), count))
        parts.append((random_images(len(y), seed=seed), y))
    return names, *parts


def planes(x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)


def cifar_python(names, train, test, write=legacy_pickle):
    files = {"meta": write({"fine_label_names": names, "coarse_label_names": ["all"]})}
    for part, (x, y) in (("train", train), ("test", test)):
        labels = [int(label) for label in y]
        fields = {"filenames": [f"{i}.png" for i in range(len(y))], "batch_label": part}
        fields |= {"fine_labels": labels, "coarse_labels": [0] * len(y), "data": planes(x)}
        files[part] = write(fields)
    return files


def cifar_binary(names, train, test):
    files = {"fine_label_names.txt": "\n".join([*names, ""]).encode()}
    for part, (x, y) in (("train.bin", train), ("test.bin", test)):
        head = np.stack([np.zeros(len(y)), y], axis=1).astype(np.uint8)
        files[part] = np.concatenate([head, planes(x)], axis=1).tobytes()
    return files


def put_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


def put_archive(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in files.items():
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return path


def modern_pickle(protocol):
    return lambda fields: pickle.dumps(fields, protocol=protocol)


def picture(path: Path, seed=0, size=(8, 8), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random_images(1, size[1], size[0], seed=seed)[0]).convert(mode).save(
        path, **options
    )
    return path
