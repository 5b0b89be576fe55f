"""The files of a run's folder, by name."""

from __future__ import annotations

import re

SCORES, SUMS, CLEARING, LOG = "scores.json", "sums.json", "clearing.json", "log.jsonl"
ASKED = ("config.json", "plan.json", "plan.npz")
"""What a run was asked for: whoever asks again can write them anew."""
LEARNER = "learner.safetensors"
FILED = (LEARNER, "confusion.npz", "probes.json", "times.json", SUMS, SCORES)
"""What a finished run leaves, the scores last."""
LARGE = (LEARNER, "plan.npz")
"""What is fetched or kept only for those who go on with a run."""
OWN = frozenset((*ASKED, "facts.json", LOG, *FILED))
SNAPSHOT = re.compile(r"snapshot-(\d{9,18})\.safetensors")
TRASH = re.compile(r"\.trash-[0-9a-f]{16}")


def is_own(name: str) -> bool:
    """Whether a file of that name is one that a run writes."""
    return name in OWN or SNAPSHOT.fullmatch(name) is not None
