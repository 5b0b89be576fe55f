"""Digits: the 1,797 handwritten digits inside scikit-learn, the data set that is always there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualmix.data import split
from dualmix.data.images import Decoded
from dualmix.data.pixels import resize
from dualmix.data.source import Source, parsing, stamp
from dualmix.errors import DataError

if TYPE_CHECKING:
    from dualmix.data.config import Data

DEFAULTS: dict[str, Any] = {
    "method.lr": 0.03,
    "method.augment": "crop-0.5",
    "method.mix.augment": "crop-0.5",
    "model.width": 8,
    "model.engine": "auto",
}
"""A rate at which 146 steps are learned well, an augmentation that does not mirror (a digit in the
mirror is another sign), a network of the size that 8 x 8 pixels need, and the quicker engine.

The rate: er and er+dualmix with memory 20 and 200, mean over seeds 100 to 105, have 75.1 % with
0.05, 75.6 % with 0.03 and 72.6 % with 0.02. The worst seed of er with memory 200 has 62, 83 and
77 %."""


def find(root: Path, data: Data) -> Source:
    """Locate the table inside scikit-learn without importing it."""
    spec = find_spec("sklearn")
    for place in (spec and spec.submodule_search_locations) or []:
        table = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if table.is_file():
            return Source(
                "scikit-learn",
                table,
                (stamp(table, table.parent),),
                data.size,
                data.held_out,
                data.split_seed,
                data.fit,
            )
    raise DataError(
        "scikit-learn's handwritten digits are not installed: run `pip install scikit-learn`."
    )


def decode(source: Source) -> Decoded:
    """Read the digits as 8 x 8 grey images, 0..16 stretched to 0..255, and hold out a share of each
    class.
    """
    from sklearn.datasets import load_digits

    assert source.held_out is not None and source.seed is not None
    with parsing("scikit-learn's handwritten digits are damaged: install scikit-learn again."):
        table = load_digits()
    x = np.rint(table.images * (255 / 16)).astype(np.uint8)[:, :, :, None]
    x = resize(x, source.size, source.fit)
    y = table.target.astype(np.int64)
    test = split.draw(y, split.share(source.held_out), source.seed)
    return Decoded(
        train_x=x[~test],
        train_y=y[~test],
        test_x=x[test],
        test_y=y[test],
        classes=tuple(str(digit) for digit in range(10)),
        notes=(split.note(source.held_out, source.seed),),
        test_rows=np.flatnonzero(test),
    )


def count(source: Source) -> int:
    """Count the rows of the table."""
    import gzip

    with gzip.open(source.where) as table:
        return sum(1 for _ in table)
