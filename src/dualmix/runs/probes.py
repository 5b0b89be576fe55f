"""Measurements at task borders that change nothing: Eqs. 4-6, head norms, AdpMix's gate, the
memory's classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dualmix.config.fields import Probes
from dualmix.data import Images
from dualmix.data.stream import Plan
from dualmix.learn.answers import Answers
from dualmix.learn.augment import transform
from dualmix.learn.common import MemoryLearner, Parts
from dualmix.learn.mixing import head_norms
from dualmix.learn.modes import CHUNK, fused_bn, replica
from dualmix.learn.nearest_mean import class_means, nearest
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.types import Batch, Learner, Mix, Shape
from dualmix.methods.dualmix import EnMix, View
from dualmix.rng import generator

Floats = NDArray[np.float64]


def covariance(losses: Floats) -> float:
    """Eq. 5: the covariance of two samples' losses over draws of g, averaged over all pairs of
    samples.

    It equals the variance, over draws, of the mean loss.

    Parameters
    ----------
    losses
        (draws, samples): the loss of every sample of the memory and its views in each draw.
    """
    return float(losses.mean(1).var())


@dataclass(frozen=True, slots=True)
class Gap:
    """Eq. 4 and its two parts: what varies with the augmentation, and how far its mean is from the
    goal.
    """

    total: float
    variance: float
    bias: float


def forgetting_gap(losses: Floats, goal: float, factor: float) -> Gap:
    """Eq. 4: the mean over draws of (factor * mean loss - goal)^2; the variance part is factor^2 *
    CO.

    Parameters
    ----------
    losses
        (draws, samples) as in `covariance`.
    goal
        The mean loss over all past training data, Eq. 3.
    factor
        beta * lambda of Eq. 1.
    """
    risk = factor * losses.mean(1)
    return Gap(
        total=float(((risk - goal) ** 2).mean()),
        variance=factor**2 * covariance(losses),
        bias=float((risk.mean() - goal) ** 2),
    )


def risk_factor(next_images: int, memory: int, seen_images: int) -> float:
    """Eq. 1: beta * lambda, with lambda = |D_t| / |M| and beta = 1 / (1 + 2 |D_t| / |D_[1,t]|)."""
    return (next_images / memory) / (1 + 2 * next_images / seen_images)


def mean_variance(outputs: Floats) -> float:
    """Eq. 6 as written: the deviation over draws of each class's mean output probability, averaged
    over classes.

    Parameters
    ----------
    outputs
        (draws, classes): the mean softmax over the memory and its views in each draw.
    """
    return float(outputs.std(0).mean())


def measure(
    learner: Learner, images: Images, order: Plan, task: int, settings: Probes, seed: int
) -> dict[str, Any]:
    """Measure a learner after a task, with chance of its own; the learner is left as it was.

    Parameters
    ----------
    task
        The task just finished, from 0.
    seed
        With the task's number, decides which rows and views are looked at.
    """
    record: dict[str, Any] = {"task": task + 1}
    if not isinstance(learner, Parts):
        return record
    model, memory = learner.model, learner.memory
    known = len(model.labels)
    norms = head_norms(model)[:known].double().cpu().numpy()
    fresh = np.isin(np.asarray(model.labels), order.tasks[task].classes)
    record |= {
        "labels": list(model.labels),
        "head_norms": norms.tolist(),
        "norm_ratio": float(norms[fresh].mean() / norms[~fresh].mean())
        if 0 < fresh.sum() < known
        else None,
        "memory_counts": memory.counts(known).tolist(),
    }
    own: dict[str, Mix] = {}
    if isinstance(learner, Replay):
        record["tally"] = {name: float(count) for name, count in sorted(learner.tally.items())}
        own = {name: mix for name, mix in learner.mixes.items() if isinstance(mix, View | EnMix)}
    operators: dict[str, Mix] = {**named_operators(settings.operators, model.shape), **own}
    if len(memory) and operators:
        rng = generator(seed, "probe", task)
        rows = rng.permutation(len(memory))[: settings.rows]
        goal = _past_risk(model, images, order, task, settings.past, rng)
        record |= {"rows": len(rows), "draws": settings.draws, "past_risk": goal, "operators": {}}
        for name, mix in operators.items():
            outputs, spread, losses = _draws(
                learner, mix, memory[np.sort(rows)], settings.draws, rng
            )
            figures = {
                "mean_variance": mean_variance(outputs),
                "sample_spread": spread,
                "covariance": covariance(losses),
                "covariance_interval": _bootstrap(losses, rng),
            }
            if task + 1 < len(order.tasks):
                sizes = [part.train.shape[1] for part in order.tasks[: task + 2]]
                gap = forgetting_gap(losses, goal, risk_factor(sizes[-1], len(memory), sum(sizes)))
                figures |= {"gap": gap.total, "gap_variance": gap.variance, "gap_bias": gap.bias}
            record["operators"][name] = figures
    if task + 1 == len(order.tasks):
        if settings.linear and isinstance(learner, MemoryLearner):
            record["linear"] = linear_probe(learner, images, order)
        if settings.answers and isinstance(learner, Replay):
            record["answers"] = answer_probe(learner, images, order)
    return record


def answer_probe(learner: Replay, images: Images, order: Plan) -> dict[str, float]:
    """Return the average accuracy of every way to answer: training is the same for all of them."""
    networks = {"weights": replica(learner.model)}
    if learner.average is not None:
        with learner.average.inside(learner.model):
            networks["average"] = replica(learner.model)
    ways: dict[str, tuple[Classifier, Callable[[Tensor], Tensor]]] = {
        f"{name}, head": (network, network) for name, network in networks.items()
    }
    if len(learner.memory):
        for name, network in networks.items():
            means = class_means(network, learner.memory)
            ways[f"{name}, ncm"] = network, nearest(network, means)
    found = {}
    for way, (network, score) in ways.items():
        answers = Answers(network, score, learner.ages.steps)
        shares = []
        for task in order.tasks:
            predicted = answers.predict(images.as_rows(images.test_x[task.test]))
            shares.append(np.mean(predicted == images.test_y[task.test]))
        found[way] = float(np.mean(shares))
    return found


def linear_probe(learner: MemoryLearner, images: Images, order: Plan) -> dict[str, Any]:
    """Fit a linear classifier to frozen features and score it: what the features hold, whatever the
    head makes of them.

    It is a logistic regression with an L2 penalty (C = 1) over the classes of the stream, on
    standardised features of every training image that was in the stream, all tasks together
    (linear probes: Alain and Bengio, 2016, arXiv:1610.01644)."""
    from sklearn.linear_model import LogisticRegression

    network = learner.answers().network
    rows = {
        "train": np.sort(np.concatenate([part.train[0] for part in order.tasks])),
        "test": np.sort(np.concatenate([part.test for part in order.tasks])),
    }
    x = {
        "train": _features(network, images.train_x, rows["train"]),
        "test": _features(network, images.test_x, rows["test"]),
    }
    mean, spread = x["train"].mean(0), x["train"].std(0)
    spread[spread == 0] = 1
    scaled = {part: (features - mean) / spread for part, features in x.items()}
    fitted = LogisticRegression(max_iter=LINEAR_STEPS).fit(
        scaled["train"], images.train_y[rows["train"]]
    )
    hits = fitted.predict(scaled["test"]) == images.test_y[rows["test"]]
    return {
        "accuracy": float(hits.mean()),
        "train_images": len(rows["train"]),
        "steps": int(fitted.n_iter_.max()),
    }


LINEAR_STEPS = 500
"""Steps after which the fit of a linear probe ends, converged or not."""


def _features(network: Classifier, x: NDArray[np.uint8], rows: NDArray[np.int64]) -> Floats:
    with torch.no_grad():
        parts = [
            network.embed(network.pixels(torch.from_numpy(x[some])))
            for some in np.array_split(rows, max(1, len(rows) // CHUNK))
        ]
    return torch.cat(parts).double().cpu().numpy()


def named_operators(names: Sequence[str], shape: Shape) -> dict[str, Mix]:
    """Return augmentations of the memory by name: plain views, or ``enmix`` on the standard
    augmentation.

    Raises
    ------
    ConfigError
        One is for images and rows are vectors, or the other way round.
    """
    vectors = len(shape) == 1
    return {
        name: EnMix(transform("standard", vectors=vectors))
        if name == "enmix"
        else View(transform(name, vectors=vectors))
        for name in names
    }


def _draws(
    learner: Parts, mix: Mix, old: Batch, draws: int, rng: np.random.Generator
) -> tuple[Floats, float, Floats]:
    """Return class means, the mean deviation over samples (Eq. 6 read the other way) and losses of
    each draw.
    """
    known = len(learner.model.labels)
    kept_p, kept_q = _outputs(learner.model, old)
    outputs, losses, spreads = [], [], []
    for _ in range(draws):
        batch = mix(old, old, learner.model, learner.ages, rng)
        if batch is None:
            continue
        p, q = _outputs(learner.model, batch)
        both = torch.cat([kept_p, p])[:, :known].double().cpu().numpy()
        outputs.append(both.mean(0))
        spreads.append(both.std(0).mean())
        losses.append(torch.cat([kept_q, q]).double().cpu().numpy())
    return np.stack(outputs), float(np.mean(spreads)), np.stack(losses)


def _outputs(model: Classifier, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the softmax and the cross-entropy of each image."""
    with fused_bn(model):
        logits = torch.cat([model(part) for part in batch.x.split(CHUNK)])
        return logits.softmax(1), F.cross_entropy(logits, batch.y, reduction="none")


def _past_risk(
    model: Classifier, images: Images, order: Plan, task: int, most: int, rng: np.random.Generator
) -> float:
    """Eq. 3 over a draw of the training images of all tasks so far."""
    rows = np.concatenate([part.train[0] for part in order.tasks[: task + 1]])
    rows = np.sort(rng.permutation(rows)[:most])
    columns = {label: column for column, label in enumerate(model.labels)}
    y = torch.tensor([columns[int(label)] for label in images.train_y[rows]])
    x = model.pixels(torch.from_numpy(images.train_x[rows]))
    return float(_outputs(model, Batch(x, y.to(model.device)))[1].double().mean())


def _bootstrap(losses: Floats, rng: np.random.Generator) -> list[float]:
    """Return the middle 95 % of the covariance over resampled draws."""
    means = losses.mean(1)
    drawn = means[rng.integers(0, len(means), (500, len(means)))].var(1)
    return [float(v) for v in np.quantile(drawn, [0.025, 0.975])]
