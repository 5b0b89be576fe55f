"""Fuzz the engine: random layers and networks against torch in float64.

    python -m tests.engine.fuzz [shapes] [seed] [build]

Draws shapes of convolutions, batch-norms and whole networks, and says which was the worst. A shape
whose error is more than 20 times torch's own float32 error ends it."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from dualmix import engine
from tests.engine.building import HERE, compiled
from tests.engine.layers import TIMES, Convolution, Network, Norm, compare


def main(shapes: int = 2000, seed: int = 0, build: str | None = None) -> int:
    torch.set_num_threads(1)
    name = engine.select(build)
    rng, worst, counts = np.random.default_rng(seed), {}, Counter()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(HERE / "probe.c", Path(folder), build=name)
        for number in range(shapes):
            kind = (Convolution, Norm, Convolution, Network)[number % 4]
            drawn = kind.draw(rng)
            made = drawn.run(number) if isinstance(drawn, Network) else drawn.run(library, number)
            for part, times in compare(made).items():
                counts[kind.__name__] += 1
                label = part if kind is not Network else part.rpartition(".")[2]
                if times > worst.get((kind.__name__, label), (0.0,))[0]:
                    worst[kind.__name__, label] = times, drawn
                if times > TIMES:
                    print(f"shape {number}: {drawn}: {part}: {times:.1f} times torch's error")
                    return 1
            if number % 100 == 99:
                print(f"{number + 1} shapes", flush=True)
    for (kind, part), (times, drawn) in sorted(worst.items(), key=str):
        print(f"{kind} {part}: at most {times:.1f} times torch's error ({drawn})")
    print(
        f"{shapes} shapes on {name}, {dict(counts)} comparisons, "
        f"none above {TIMES} times torch's error"
    )
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(*(int(word) for word in words[:2]), *words[2:]))
