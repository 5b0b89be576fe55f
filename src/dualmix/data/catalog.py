"""Catalogue: every data set by name, with what it should hold and where it is published, and how a
plugin adds one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualmix.data import arrays, cache, cifar100, digits, folder, mini_imagenet, tiny_imagenet
from dualmix.data.images import Decoded
from dualmix.data.source import Source, expanded
from dualmix.errors import ConfigError
from dualmix.plugins import load_entry

if TYPE_CHECKING:
    from dualmix.data.config import Data


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


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
        What it is, in one line for ``data list``.
    tasks
        The number of tasks a stream of it has unless the user says otherwise.
    find
        Locates it below a root; raises `DataError` with the command that helps.
    decode
        Reads what was found.
    classes, shape, train, test
        The full set: classes, (C, H, W), training and test images per class; None where it
        depends on the user.
    downloads
        Published files that ``data get`` fetches.
    obtain
        A sentence for ``data get`` where nothing can be fetched.
    own
        The user brings the files by ``--data.path``.
    mixed
        Files that are no images may lie among them; ``--data.skip`` leaves them out.
    count
        Counts the images of what was found without reading them, or gives None.
    cached
        Whether the decoded images are kept on disk and shared; False where nothing on disk tells
        whether they are still right.
    defaults
        Settings that suit it, by dotted path, such as ``method.lr``: presets and users' values come
        before them, and a method that lacks one passes it over.
    home
        The module of a plugin that added it.
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
    mixed: bool = False
    count: Callable[[Source], int | None] = lambda source: None
    cached: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)
    home: str = ""
    version: int = 1


_ALL = (
    Dataset(
        name="digits",
        title="Digits",
        doc="handwritten digits, 10 classes, 8x8 grey; embedded in scikit-learn, the default",
        tasks=5,
        find=digits.find,
        decode=digits.decode,
        classes=10,
        shape=(1, 8, 8),
        count=digits.count,
        defaults=digits.DEFAULTS,
        obtain="The digits are embedded in scikit-learn: nothing to get, --data.name digits works "
        "at once.",
    ),
    Dataset(
        name="cifar100",
        title="CIFAR-100",
        doc="100 classes, 32x32 colour (Krizhevsky, 2009)",
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
        doc="100 classes, 84x84 colour (Vinyals et al., 2016; ImageNet's terms of use)",
        tasks=20,
        find=mini_imagenet.find,
        decode=mini_imagenet.decode,
        classes=100,
        shape=(3, 84, 84),
        train=500,
        test=100,
        obtain=(
            "Mini-ImageNet has no official download: obtain the few-shot pickles "
            "mini-imagenet-cache-train.pkl, mini-imagenet-cache-val.pkl and "
            "mini-imagenet-cache-test.pkl and put them into {root}/mini_imagenet."
        ),
        count=mini_imagenet.count,
    ),
    Dataset(
        name="tiny_imagenet",
        title="Tiny-ImageNet",
        doc="200 classes, 64x64 colour (Stanford CS231n; ImageNet's terms of use)",
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
        count=tiny_imagenet.count,
    ),
    Dataset(
        name="folder",
        title="Your images",
        doc="your own images: --data.path DIR with <class>/*, or train/<class>/*, test/<class>/*",
        tasks=5,
        find=folder.find,
        decode=folder.decode,
        obtain="The data set folder is made of your own images: use --data.name folder "
        "--data.path DIR.",
        own=True,
        mixed=True,
        count=folder.count,
    ),
    Dataset(
        name="arrays",
        title="Your arrays",
        doc="your own arrays: --data.path FILE.npz with x_train, y_train, x_test, y_test, or x, y",
        tasks=5,
        find=arrays.find,
        decode=arrays.decode,
        obtain="The data set arrays is your own .npz file: use --data.name arrays "
        "--data.path FILE.npz.",
        own=True,
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
"""The data sets by name: the package's own, and those that plugins have added."""


def add_dataset(dataset: Dataset) -> None:
    """Make a data set known by its name; loading the same plugin again replaces its own."""
    if not isinstance(dataset.name, str) or not NAME.fullmatch(dataset.name):
        raise ConfigError(
            f"A data set cannot be called {dataset.name!r}: use letters, digits, - and _."
        )
    if not isinstance(dataset.tasks, int) or dataset.tasks < 1:
        raise ConfigError(
            f"The data set {dataset.name!r} must have a whole number of tasks from 1 on, not "
            f"{dataset.tasks!r:.40}."
        )
    for path in dataset.defaults:
        if path == "seed" or path.startswith("data."):
            raise ConfigError(
                f"The data set {dataset.name!r} cannot recommend {path}: only settings of method, "
                "network and stream."
            )
    known = DATASETS.get(dataset.name)
    if known is not None and (not known.home or known.home != dataset.home):
        raise ConfigError(
            f"Data set {dataset.name!r} is already defined in {known.home or 'dualmix'}: choose "
            "another name."
        )
    DATASETS[dataset.name] = dataset


def load_installed() -> None:
    """Load the data sets that installed packages offer as entry points ``dualmix.datasets``."""
    for point in entry_points(group="dualmix.datasets"):
        if point.name not in DATASETS:
            load_entry(point, "data set")


def recommended(name: str) -> Mapping[str, Any]:
    """Return the settings that suit a data set by dotted path; none where it is not known."""
    if name not in DATASETS:
        load_installed()
    return DATASETS[name].defaults if name in DATASETS else {}


def root(data_root: Path | str | None = None) -> Path:
    """Say where data lie: the folder given, else ``DUALMIX_DATA``, else the platform's cache
    folder.
    """
    given = data_root or os.environ.get("DUALMIX_DATA")
    return expanded(Path(given)).absolute() if given else cache.platform_folder()


def title(data: Data) -> str:
    """Give a data set's name in sentences: that of the user's file or folder where it is theirs."""
    entry = DATASETS[data.name]
    return str(data.path) if entry.own and data.path is not None else entry.title
