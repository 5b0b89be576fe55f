"""Train a network with the engine and print a hash of its weights: one step of er+dualmix after the
other.

python -m tests.engine.trained build [steps] [side] [width]
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import torch

from dualmix import engine
from dualmix.learn.augment import GREY, Crop, turn_hue
from dualmix.learn.network import Classifier

BATCH = 4


def view(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Crop, change contrast and hue."""
    x = engine.crop(x, Crop().boxes(len(x), tuple(x.shape[-2:]), rng))
    base = engine.means(engine.grey(x, GREY))
    by = torch.from_numpy(rng.uniform(0.6, 1.4, (len(x), 1, 1, 1)).astype(np.float32))
    return turn_hue((base + (x - base) * by).clamp_(0, 1), by - 1)


def main(build: str, steps: int = 12, side: int = 12, width: int = 3) -> str:
    torch.set_num_threads(1)
    engine.select(build)
    rng = np.random.default_rng(0)
    model = Classifier(
        (3, side, side), classes=10, seed=0, width=width, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25)
    )
    model.train()
    stored, labels = (
        rng.integers(0, 256, (20, side, side, 3), dtype=np.uint8),
        rng.integers(0, 10, 20),
    )
    for _ in range(steps):
        raw = rng.integers(0, 256, (BATCH, side, side, 3), dtype=np.uint8)
        y = torch.from_numpy(rng.integers(0, 10, BATCH))
        slots = rng.choice(20, BATCH, replace=False)
        new, old = (
            model.pixels(torch.from_numpy(raw)),
            model.pixels(torch.from_numpy(stored[slots])),
        )
        old_y, seen = torch.from_numpy(labels[slots]), view(old, rng)
        mu = torch.from_numpy(rng.beta(0.2, 0.2, BATCH).astype(np.float32))
        share, rest = mu.view(-1, 1, 1, 1), 1 - mu.view(-1, 1, 1, 1)
        hot = torch.nn.functional.one_hot(old_y, 10).float()
        fresh = torch.nn.functional.one_hot(y, 10).float()
        norms = engine.row_norms(model.weight)
        tilt = torch.where(norms[y] / norms[old_y] > 1, mu * 0.5, mu)[:, None]
        batches = [new, old, seen, share * seen + rest * seen.flip(0), share * old + rest * new]
        targets = [
            y,
            old_y,
            old_y,
            mu[:, None] * hot + (1 - mu[:, None]) * hot.flip(0),
            tilt * hot + (1 - tilt) * fresh,
        ]
        model.zero_grad()
        normal = (torch.cat(batches) - model.mean) / model.std
        features = engine.features(model.backbone, normal, [BATCH] * 5)
        logits = engine.linear(features, model.weight, model.bias).split(BATCH)
        losses = [
            engine.cross_entropy(z, target) for z, target in zip(logits, targets, strict=True)
        ]
        torch.autograd.backward(losses)
        engine.descend(model.parameters(), 0.1, 1e-4)
    whole = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        whole.update(name.encode() + value.contiguous().numpy().tobytes())
    assert all(value.isfinite().all() for value in model.state_dict().values())
    return whole.hexdigest()


if __name__ == "__main__":
    build, *numbers = sys.argv[1:]
    print(main(build, *map(int, numbers)))
