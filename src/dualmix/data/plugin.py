"""Plugin: a function that returns images becomes a data set, in the way a class becomes a method.

    @register_dataset("stripes", tasks=2)
    def stripes(folder: Path) -> Decoded:
        \"\"\"Two kinds of stripes, made up on the spot.\"\"\"
        ...
        return Decoded(train_x, train_y, test_x, test_y, classes)

A file with such a function is given to a command by ``--plugin FILE``; an installed package names
the function in its entry points ``dualmix.datasets``. ``examples/my_data.py`` is one to copy.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualmix.data.catalog import Dataset, add_dataset
from dualmix.data.config import Data, describe_names
from dualmix.data.images import Decoded, check
from dualmix.data.pixels import resize
from dualmix.data.source import Source, Stamp, locate, stamps
from dualmix.errors import DataError, quoted

Reader = Callable[[Path], Decoded]


def register_dataset(
    name: str,
    *,
    title: str = "",
    tasks: int = 5,
    files: Sequence[str] = (),
    own: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Reader], Reader]:
    """Make a data set known by name; the decorated function reads it.

    The function gets the data root, or the user's ``--data.path`` where ``own``, and returns a
    `Decoded`: images as uint8 ``(n, H, W, C)`` with C = 1 or 3, labels as int64 ``0..K-1``, class
    names, and notes that belong to every figure computed from them. ``--data.size`` and
    ``--data.fit`` are applied to what it returns. The first line of its docstring is shown by
    ``dualmix data list``.

    Parameters
    ----------
    name
        What users type after ``--data.name``.
    title
        The name in sentences; the name itself if not given.
    tasks
        The number of tasks a stream of it has unless the user says otherwise.
    files
        What the function reads, as patterns below its folder (``"shapes/*.png"``). If given, the
        images are decoded once and kept, until one of these files or the function's own file
        changes. If not, the function is called at the start of every run.
    own
        Whether the user names the place by ``--data.path``.
    defaults
        Settings that suit it, by dotted path, for example ``{"method.lr": 0.03}``; users' values
        and presets come before them.

    Examples
    --------
    >>> import numpy as np
    >>> from dualmix.data import DATASETS, Data, load
    >>> @register_dataset("noise", tasks=2)
    ... def noise(folder):
    ...     "Pixels that mean nothing."
    ...     x = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 1)).astype(np.uint8)
    ...     y = np.arange(8) % 2
    ...     return Decoded(x, y, x, y, ("even", "odd"))
    >>> load(Data(name="noise")).shape
    (1, 4, 4)
    >>> del DATASETS["noise"]
    """

    def enter(read: Reader) -> Reader:
        code = Path(inspect.getfile(read))
        doc = " ".join((inspect.getdoc(read) or "").split("\n\n")[0].split())

        def find(root: Path, data: Data) -> Source:
            place = locate(data.path, root) if data.path is not None else root
            marks = _marks(place, files, code) if files else ()
            if files and len(marks) == 1:
                raise DataError(f"{name} is not in {place}: there is no {' or '.join(files)}.")
            return Source("plugin", place, marks, data.size, fit=data.fit)

        def decode(source: Source) -> Decoded:
            try:
                decoded = read(source.where)
            except (DataError, OSError, MemoryError):
                raise
            except (Exception, SystemExit) as fault:
                raise DataError(
                    f"The data set {name!r} ({code}) failed: {quoted(fault)}."
                ) from fault
            if not isinstance(decoded, Decoded):
                raise DataError(
                    f"The data set {name!r} ({code}) must return dualmix.Decoded, not "
                    f"{type(decoded).__name__}."
                )
            check(decoded, name)
            x = [resize(x, source.size, source.fit) for x in (decoded.train_x, decoded.test_x)]
            return replace(decoded, train_x=x[0], test_x=x[1])

        add_dataset(
            Dataset(
                name=name,
                title=title or name,
                doc=doc,
                tasks=tasks,
                find=find,
                decode=decode,
                obtain=f"The data set {name} comes from the plugin {code}: see there.",
                own=own,
                cached=bool(files),
                defaults=defaults or {},
                home=read.__module__,
            )
        )
        describe_names()
        return read

    return enter


def _marks(place: Path, files: Sequence[str], code: Path) -> tuple[Stamp, ...]:
    """Stamp the files that the function reads, and the text of its own file."""
    text = code.read_bytes()
    try:
        paths = {path for pattern in files for path in place.glob(pattern)}
    except (NotImplementedError, ValueError, TypeError) as fault:
        raise DataError(
            f"The patterns {', '.join(map(repr, files))} of {code} name no files below a folder: "
            f"{fault}."
        ) from fault
    marks = stamps(paths, place)
    return (*marks, (f"sha256:{hashlib.sha256(text).hexdigest()}", len(text), 0))
