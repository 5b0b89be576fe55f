"""What Tables 1 to 3 of the paper print (Fan et al. 2023, arXiv:2303.07864)."""

from __future__ import annotations

DATA = ("cifar100", "mini_imagenet", "tiny_imagenet")
MEMORY = (1000, 2000, 5000)
SEEDS = 10
"""Runs behind each number of the paper."""

Published = tuple[float, float]
"""A mean in per cent, and what stands behind the paper's plus-minus sign."""


def _table(text: str) -> dict[str, tuple[Published, ...]]:
    rows = (line.split() for line in text.strip().splitlines())
    return {
        name: tuple((float(c.split("±")[0]), float(c.split("±")[1])) for c in cells)
        for name, *cells in rows
    }


ACCURACY = _table("""
    agem          3.2±0.3  3.4±0.2  3.2±0.3  2.9±0.3  3.2±0.3  3.7±0.3  2.6±0.2  2.5±0.2  2.6±0.3
    scr          14.3±0.8 16.6±0.5 17.5±0.4 13.1±0.4 14.8±0.6 15.9±0.6  6.2±0.7  7.8±0.4  9.4±0.6
    dvc          16.3±0.7 17.8±0.9 20.2±1.5 14.0±0.8 16.4±2.0 16.8±1.1  6.8±1.2  8.4±1.4 12.0±1.2
    er            8.4±0.5 12.7±0.8 18.0±1.1  7.8±0.7 11.9±1.2 15.0±2.6  4.6±0.4  6.3±0.6 10.4±0.8
    er+dualmix   17.5±1.0 20.3±0.9 22.5±1.2 13.2±0.8 16.7±0.8 17.9±1.1  6.9±0.9  9.4±1.4 13.6±1.1
    gss           7.9±0.6 11.1±0.9 15.1±0.9  7.7±0.9 11.5±0.9 12.8±1.0  4.1±0.4  5.7±0.7  9.7±1.0
    gss+dualmix   9.4±0.8 13.4±1.1 15.7±1.5  9.5±1.2 12.3±1.5 13.7±0.9  5.5±0.8  6.4±1.0 10.9±0.9
    mir           8.7±0.4 13.2±0.9 18.6±1.2  8.0±0.6 12.8±1.1 16.5±2.2  4.2±0.5  6.0±0.5 11.3±1.0
    mir+dualmix  17.8±0.8 17.2±2.3 19.2±2.8 11.1±1.3 14.8±1.8 17.1±2.7  7.1±1.2  9.9±0.8 13.9±0.4
    aser         13.1±0.7 16.4±0.6 21.0±0.8  8.9±1.3 11.7±0.9 16.3±2.1  7.1±0.3  8.8±0.9 11.6±0.7
    aser+dualmix 13.8±0.8 17.9±2.4 21.7±1.5  9.6±0.9 13.1±1.8 16.9±1.9  6.3±0.5  9.5±0.6 12.2±1.0
""")
"""Table 1: average accuracy, data set by data set, and in each by memory."""

BOUNDS = _table("""
    finetune      3.4±0.4  3.2±0.2  2.4±0.5
    iid-offline  48.8±2.1 52.1±1.0 39.4±2.2
""")
"""Table 1, above: average accuracy by data set, without a memory."""

FORGETTING = _table("""
    agem         57.4±0.8 58.0±1.1 57.3±1.2 52.3±1.2 52.1±1.3 52.5±1.5 44.4±1.0 43.8±1.1 44.5±0.6
    er           52.1±1.5 47.9±1.1 44.4±1.1 46.8±1.8 43.6±1.8 42.1±1.6 45.6±1.5 43.0±1.4 39.1±1.6
    gss          51.1±1.1 47.5±1.1 44.5±1.8 47.4±1.8 41.6±1.4 39.4±1.3 45.1±1.0 42.9±1.2 41.1±1.4
    mir          50.2±1.0 42.9±1.7 40.6±1.5 44.9±1.1 39.8±1.6 37.4±2.1 44.9±2.0 40.9±1.8 36.7±1.9
    aser         52.1±1.0 46.6±0.8 37.9±1.4 48.1±1.4 44.8±1.3 38.7±2.2 46.4±0.8 43.1±0.6 39.7±0.4
    dvc          40.2±1.0 38.8±1.1 37.2±1.4 40.0±1.0 37.0±1.7 36.6±2.4 40.5±1.6 36.7±1.7 33.2±3.1
    er+dualmix   36.7±1.4 31.8±1.7 32.8±1.1 35.7±1.1 31.2±1.7 30.4±2.1 29.5±2.1 22.7±2.0 26.5±1.9
""")
"""Table 2: average forgetting, data set by data set, and in each by memory."""

ABLATION_ACCURACY = _table("""
    er            8.4±0.5 12.7±0.8 18.1±1.1
    er+da        14.6±1.6 15.5±2.0 18.5±1.4
    er+enmix     15.7±1.1 17.2±4.0 18.7±1.4
    er+adpmix    16.6±1.2 18.9±1.8 21.3±2.2
    er+dualmix   17.5±1.0 20.3±0.9 22.5±1.2
""")
ABLATION_FORGETTING = _table("""
    er           52.1±1.5 47.9±1.1 44.4±1.1
    er+da        48.0±2.4 48.5±2.6 43.2±1.9
    er+enmix     42.7±1.6 43.4±3.9 43.8±2.3
    er+adpmix    38.7±1.8 33.5±3.8 33.3±2.4
    er+dualmix   36.7±1.4 31.8±1.7 32.8±1.1
""")
"""Table 3, CIFAR-100: average accuracy and forgetting by memory."""

ROWS = (
    *BOUNDS,
    "iid-online",
    *dict.fromkeys(
        row for name in ACCURACY for row in (ABLATION_ACCURACY if name == "er" else (name,))
    ),
)
"""Methods in the order of the paper's tables."""


def rank(label: str) -> int:
    """Return a method's place in the paper's tables."""
    return ROWS.index(label) if label in ROWS else len(ROWS)
