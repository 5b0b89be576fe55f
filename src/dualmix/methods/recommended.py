"""What we recommend at the paper's budget: er+dualmix, answered by the nearest class mean under a
moving average of the weights.

It was chosen by `python -m studies.recommend` on class orders 100 to 102 and is reported on others
(docs/results.md). A step is that of er+dualmix: only the answers differ. Y. Fan et al., 2023,
arXiv:2303.07864 (DualMix); A. Soutif-Cormerais et al., 2023, arXiv:2306.16817 (the average); Z. Mai
et al., 2022, arXiv:2101.10423 (the nearest class mean as a trick); A. Chaudhry et al., 2019,
arXiv:1902.10486 (experience replay)."""

from __future__ import annotations

from dualmix.registry import Preset, add_preset

_MIX = dict.fromkeys(("stream", "replay", "view", "enmix", "adpmix"), 1 / 5)
_BASE = {"method.reservoir": "ref", **{f"method.mix.{name}": w for name, w in _MIX.items()}}
"""er+dualmix as its preset."""
add_preset(
    Preset(
        "recommended",
        "er",
        "er+dualmix, answered by the nearest class mean under a moving average of the weights.",
        "-",
        {**_BASE, "method.ema.rate": 0.01, "method.readout": "ncm"},
        {path: "calibrated" if ".mix." in path else "reference" for path in _BASE},
        "Chaudhry et al., 2019, arXiv:1902.10486; Fan et al., 2023, arXiv:2303.07864; "
        "Soutif-Cormerais et al., 2023, arXiv:2306.16817; Mai et al., 2022, arXiv:2101.10423",
    )
)
