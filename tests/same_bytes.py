"""Do two revisions train the same learners? Run each method on the digits with both.

    python tests/same_bytes.py dcf9c7f                 # the working tree against a commit
    python tests/same_bytes.py dcf9c7f --methods er mir

Weights, statistics, memory (images and columns), confusion counts and scores must be equal byte
for byte; names of files and settings may differ. It is no part of the suite: it trains every
method twice (some minutes).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
METHODS = ["er", "er+da", "er+enmix", "er+adpmix", "er+dualmix", "gss", "gss+dualmix", "mir"]
METHODS += ["mir+dualmix", "aser", "aser+dualmix", "scr", "dvc", "agem", "gdumb", "der++"]
METHODS += ["der+++dualmix", "er-ace", "er-ace+dualmix", "finetune"]
NOW = ["--model.engine", "torch"]
"""For the working tree: digits have the native engine by now, which old commits do not know."""
AS_BEFORE = {"aser": ["--method.bn", "once"], "aser+dualmix": ["--method.bn", "once"]}
"""Flags that give a preset which has changed since its earlier values, for the working tree."""
BOTH = ["--method.lr", "0.1", "--model.width", "20"]
"""For both trees: digits have a rate, a width and an augmentation of their own by now."""


def main() -> None:
    """Compare the working tree with a revision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    asked = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as work:
        other = Path(work) / "other"
        subprocess.run(
            ["git", "worktree", "add", "--detach", "-q", other, asked.revision],
            cwd=ROOT,
            check=True,
        )
        try:
            for method in asked.methods:
                sums = [
                    digest(tree, method, Path(work) / f"{n}-{method}")
                    for n, tree in enumerate((other, ROOT))
                ]
                same = sums[0] == sums[1]
                differing += not same
                print(f"{method:18} {'same' if same else 'DIFFERENT'} {sums[1][:16]}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
    sys.exit(1 if differing else 0)


def digest(tree: Path, method: str, store: Path) -> str:
    """Return the digest of what a run of a method leaves, trained with the source in `tree`."""
    flags = [*BOTH, *([*NOW, *AS_BEFORE.get(method, [])] if tree == ROOT else [])]
    if "+" in method.replace("der++", "der"):
        flags += ["--method.mix.augment", "standard"]
    elif method in ("scr", "dvc"):
        flags += ["--method.augment", "standard"]
    if method != "finetune":
        flags += ["--method.memory", "100"]
    words = ["run", method, *flags, "--seed", "3", "--store", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    run = [sys.executable, "-m", "dualmix", *words]
    subprocess.run(run, cwd=tree, env=environment, check=True, capture_output=True)
    (folder,) = store.glob(f"{method}-*")
    total = hashlib.sha256()
    arrays = load_file(folder / "learner.safetensors")
    wanted = sorted(
        name for name in arrays if "model" in name or name.endswith(("memory/x", "memory/y"))
    )
    assert len(wanted) > 50, sorted(arrays)
    for name in wanted:
        total.update(name.encode() + arrays[name].tobytes())
    with np.load(folder / "confusion.npz") as counts:
        total.update(counts["counts"].tobytes())
    total.update(
        json.dumps(json.loads((folder / "scores.json").read_text()), sort_keys=True).encode()
    )
    return total.hexdigest()


if __name__ == "__main__":
    main()
