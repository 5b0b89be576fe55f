"""Catalogue: every data set by name, with what it should hold and where it is published."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dualmix.data import arrays, cache, cifar100, digits, folder, mini_imagenet, tiny_imagenet
from dualmix.data.images import Decoded
from dualmix.data.source import Source
from dualmix.folders import expanded

if TYPE_CHECKING:
    from dualmix.data.config import Data


@dataclass(frozen=True, slots=True)
class Download:
    """A published file: address, checksum as ``algorithm:digest`` and the name to keep it under."""

    url: str
    checksum: str
    filename: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """An entry of the catalogue.

    Attributes
    ----------
    name, title
        The name in settings and the name in sentences.
    doc
        One line for ``data list``.
    tasks
        The number of tasks a stream of it has unless the user says otherwise.
    find
        Locates it below a root; raises `DataError` with the command that helps.
    decode
        Reads what was found.
    classes, shape, train, test
        The full set: classes, (C, H, W), training and test images a class; None where it depends on
        the user.
    downloads
        Published files that ``data get`` fetches.
    obtain
        A sentence for ``data get`` where nothing can be fetched.
    own
        The user brings the files by ``--data.path``.
    version
        Raised when the decoder's result changes, which voids what was decoded before.
    """

    name: str
    title: str
    doc: str
    tasks: int
    find: Callable[[Path, Data], Source]
    decode: Callable[[Source], Decoded]
    classes: int | None = None
    shape: tuple[int, int, int] | None = None
    train: int | None = None
    test: int | None = None
    downloads: tuple[Download, ...] = ()
    obtain: str = ""
    own: bool = False
    version: int = 1


_ALL = (
    Dataset(
        name="digits",
        title="Digits",
        doc="1,797 handwritten digits, 10 classes, 8x8 grey; embedded in scikit-learn, the default",
        tasks=5,
        find=digits.find,
        decode=digits.decode,
        classes=10,
        shape=(1, 8, 8),
        obtain="The digits are embedded in scikit-learn: nothing to get, --data.name digits works at once.",
    ),
    Dataset(
        name="cifar100",
        title="CIFAR-100",
        doc="60,000 images, 100 classes, 32x32 colour (Krizhevsky, 2009)",
        tasks=20,
        find=cifar100.find,
        decode=cifar100.decode,
        classes=100,
        shape=(3, 32, 32),
        train=500,
        test=100,
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                f"md5:{cifar100.MD5['cifar-100-python.tar.gz']}",
                "cifar-100-python.tar.gz",
            ),
        ),
    ),
    Dataset(
        name="mini_imagenet",
        title="Mini-ImageNet",
        doc="60,000 images, 100 classes, 84x84 colour (Vinyals et al., 2016; ImageNet's terms of use)",
        tasks=20,
        find=mini_imagenet.find,
        decode=mini_imagenet.decode,
        classes=100,
        shape=(3, 84, 84),
        train=500,
        test=100,
        obtain=(
            "Mini-ImageNet has no official download: obtain the few-shot pickles "
            "mini-imagenet-cache-train.pkl, mini-imagenet-cache-val.pkl and mini-imagenet-cache-test.pkl "
            "and put them into {root}/mini_imagenet."
        ),
    ),
    Dataset(
        name="tiny_imagenet",
        title="Tiny-ImageNet",
        doc="110,000 images, 200 classes, 64x64 colour (Stanford CS231n; ImageNet's terms of use)",
        tasks=20,
        find=tiny_imagenet.find,
        decode=tiny_imagenet.decode,
        classes=200,
        shape=(3, 64, 64),
        train=500,
        test=50,
        downloads=(
            Download(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                f"md5:{tiny_imagenet.MD5['tiny-imagenet-200.zip']}",
                "tiny-imagenet-200.zip",
            ),
        ),
    ),
    Dataset(
        name="folder",
        title="Your images",
        doc="your own images: --data.path DIR with train/<class>/* and test/<class>/*, or <class>/*",
        tasks=5,
        find=folder.find,
        decode=folder.decode,
        obtain="The data set folder is made of your own images: use --data.name folder --data.path DIR.",
        own=True,
    ),
    Dataset(
        name="arrays",
        title="Your arrays",
        doc="your own arrays: --data.path FILE.npz with x_train, y_train, x_test, y_test, or x, y",
        tasks=5,
        find=arrays.find,
        decode=arrays.decode,
        obtain="The data set arrays is your own .npz file: use --data.name arrays --data.path FILE.npz.",
        own=True,
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}


def root(data_root: Path | str | None = None) -> Path:
    """Say where data lie: the folder given, else ``DUALMIX_DATA``, else the platform's cache
    folder.
    """
    given = data_root or os.environ.get("DUALMIX_DATA")
    return expanded(Path(given)).absolute() if given else cache.platform_folder()
