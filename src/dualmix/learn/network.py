"""A classifier: a backbone and a linear head that is fixed or grows with the classes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix import engine as native
from dualmix.errors import ConfigError, InputError, TrainingError
from dualmix.learn.arithmetic import Arithmetic, Engine, arithmetic
from dualmix.learn.backbones import ReducedResNet18, Standardise, initialise, length_of
from dualmix.learn.memory import floats
from dualmix.learn.types import Labels, Shape
from dualmix.learn.vector_augment import of_batch
from dualmix.rng import generator

MANY = 1_000_000
"""Batches after which running statistics have forgotten their start."""


class Classifier(nn.Module):
    """Backbone and linear head over raw labels, which take head columns in the order in which they
    are first seen.

    Parameters
    ----------
    shape
        (C, H, W) of the images, or (d,) of the vectors.
    classes
        Columns of a fixed head, all of which take part in the softmax from the start; None: the
        head grows.
    seed
        Decides every initial weight; the row of a column is the same in a fixed and in a growing
        head.
    width
        Channels of the first stage.
    mean, std
        Channel statistics that normalise pixels in [0, 1]; empty: no normalisation.
    precision
        ``bfloat16``: the network is run under `torch.autocast`; weights, features and logits are
        float32 all the same.
    engine
        What runs the network: ``torch``, or ``native``, the C kernels of `dualmix.engine`.
    backbone
        A module that returns a vector per row, with the weights it has; none: a reduced ResNet-18
        with weights drawn from the seed.
    frozen
        The backbone stays as it is: only the head learns.
    unbiased
        Answers use batch-norm's running statistics without their start at 0 and 1, as Adam corrects
        its moments: a tenth per batch takes some 20 batches to forget it. What is learned does not
        change.

    Attributes
    ----------
    features
        Length of the backbone's vectors.
    cosine
        Above 0: logits are this many times the cosines of features and head rows, without a bias.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        classes: int | None = None,
        seed: int = 0,
        width: int = 20,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        precision: Literal["float32", "bfloat16"] = "float32",
        device: str | torch.device = "cpu",
        engine: Engine = "torch",
        backbone: nn.Module | None = None,
        frozen: bool = False,
        unbiased: bool = False,
    ) -> None:
        super().__init__()
        if engine == "native" and (precision != "float32" or torch.device(device).type != "cpu"):
            raise ConfigError(
                "The native engine runs in float32 on a CPU: give --model.engine torch, or "
                "--device cpu and --model.precision float32."
            )
        if engine == "native":
            native.current()
        if mean and len(mean) != shape[0]:
            raise ConfigError(f"--model.mean has {len(mean)} numbers, but the {_rows_of(shape)}.")
        self.shape, self.classes, self.seed = shape, classes, seed
        self.engine, self.frozen, self.unbiased = engine, frozen, unbiased
        self.precision: Literal["float32", "bfloat16"] = precision
        self.cosine = 0.0
        self.labels: list[int | str] = []
        self._fused: Callable[[Tensor], Tensor] | None = None
        self._columns: dict[int | str, int] = {}
        self._initial: dict[str, Tensor] | None = None
        self.backbone: nn.Module
        if backbone is None:
            self.backbone = ReducedResNet18(shape, width, engine)
            initialise(self.backbone, seed)
        else:
            self.backbone = backbone
            _count_statistics(backbone)
            self._initial = copy.deepcopy(backbone.state_dict())
        self.backbone.requires_grad_(not frozen)
        self.train()
        self.features = length_of(self.backbone, shape)
        self.weight = nn.Parameter(torch.empty(0, self.features))
        self.bias = nn.Parameter(torch.empty(0))
        self._grow(classes or 0)
        axes = (-1, 1, 1) if len(shape) == 3 else (-1,)
        self.register_buffer("mean", torch.tensor(tuple(mean)).view(axes), persistent=False)
        self.register_buffer("std", torch.tensor(tuple(std)).view(axes), persistent=False)
        self._parts = tuple(self.modules())[1:]
        self.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "backbone" and "backbone" in self.__dict__.get("_modules", {}):
            raise ConfigError(
                "A learner's backbone cannot be exchanged, since its head and its optimiser belong "
                "to it: make the learner with backbone=, or load its weights into the backbone."
            )
        super().__setattr__(name, value)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weight.device

    @property
    def arithmetic(self) -> Arithmetic:
        """The engine's sums and products."""
        return arithmetic(self.engine)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Yield the weights that learn, not those of a frozen backbone, in torch's order; torch's
        own walk costs a twentieth of a step.
        """
        for module in (self, *self._parts) if recurse else (self,):
            for weight in module._parameters.values():
                if weight is not None and weight.requires_grad:
                    yield weight

    def train(self, mode: bool = True) -> Classifier:
        """Set training or evaluation mode; a frozen backbone stays in evaluation."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def pixels(self, raw: Tensor) -> Tensor:
        """Turn rows as they are stored into what the network takes (`memory.floats`)."""
        return floats(raw.to(self.device, non_blocking=True))

    def normalised(self, x: Tensor) -> Tensor:
        """Return images in [0, 1], or vectors, as the backbone takes them."""
        return (x - self.mean) / self.std if len(self.mean) else x

    def spread(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of each number of vectors: over all rows learned so far where
        the network counts them, else over the batch `x`.
        """
        scale = getattr(self.backbone, "scale", None)
        if not isinstance(scale, Standardise):
            return of_batch(x)
        deviation = (scale.spread / scale.count.clamp(min=1)).sqrt()
        counted = scale.mean, deviation
        if len(self.mean):
            counted = scale.mean * self.std + self.mean, deviation * self.std
        pairs = zip(counted, of_batch(x), strict=True)
        mean, deviation = (torch.where(scale.count > 0, a.to(b.dtype), b) for a, b in pairs)
        return mean, deviation

    def embed(self, x: Tensor, groups: Sequence[int] | None = None) -> Tensor:
        """Return the features of images in [0, 1]; groups as in `ReducedResNet18.forward`."""
        normal = self.normalised(x)
        network = self._fused or partial(self._run, groups=groups)
        if self.precision == "float32":
            return network(normal)
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            return network(normal).float()

    def forward(self, x: Tensor, groups: Sequence[int] | None = None) -> Tensor:
        """Return logits over all columns; groups as in `ReducedResNet18.forward`."""
        features = self.embed(x, groups)
        if self.precision == "float32":
            return self._logits(features)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self._logits(features).float()

    def _run(self, x: Tensor, groups: Sequence[int] | None) -> Tensor:
        with torch.no_grad() if self.frozen else nullcontext():
            if isinstance(self.backbone, ReducedResNet18):
                return self.backbone.forward(x, groups)
            sizes = [len(x)] if groups is None else list(groups)
            return torch.cat([self._vectors(part) for part in x.split(sizes)])

    def _vectors(self, x: Tensor) -> Tensor:
        try:
            vectors: Tensor = self.backbone(x)
        except Exception as fault:  # the module may be the user's own: it may raise anything
            told = (str(fault) or "no message").splitlines()[0][:200]
            raise TrainingError(
                f"The backbone failed at a batch of {len(x)} ({type(fault).__name__}: {told}), and "
                "the learner is as it was before: give batches that it can take, or mend it."
            ) from fault
        return vectors

    def _logits(self, features: Tensor) -> Tensor:
        if not self.cosine:
            return self.arithmetic.linear(features, self.weight, self.bias)
        return self.cosine * F.linear(F.normalize(features), F.normalize(self.weight))

    def admit(self, labels: Labels) -> Tensor:
        """Return the head column of each raw label; a label never seen takes the next column.

        Raises
        ------
        InputError
            Text after numbers or numbers after text, or more classes than a fixed head has columns.
            Nothing changed.
        """
        raw = labels.tolist()
        fresh = list(dict.fromkeys(label for label in raw if label not in self._columns))
        if fresh and self.labels and type(fresh[0]) is not type(self.labels[0]):
            raise InputError(
                f"Labels so far are {type(self.labels[0]).__name__}, but {fresh[0]!r} is "
                f"{type(fresh[0]).__name__}: use one kind of label."
            )
        total = len(self.labels) + len(fresh)
        if self.classes is not None and total > self.classes:
            raise InputError(
                f"Label {fresh[-1]!r} is class number {total}, but the head was fixed at "
                f"{self.classes} classes: make the learner without classes and its head grows."
            )
        for label in fresh:
            self._columns[label] = len(self.labels)
            self.labels.append(label)
        if total > len(self.weight):
            self._grow(total)
        return torch.tensor([self._columns[label] for label in raw])

    def names(self, columns: Tensor) -> Labels:
        """Return the raw labels of head columns."""
        names: Labels = np.asarray(self.labels)[columns.cpu().numpy()]
        return names

    def restore(self, labels: Sequence[int] | Sequence[str], state: dict[str, Tensor]) -> None:
        """Take over labels and weights of another classifier of the same shape."""
        self.labels = list(labels)
        self._columns = {label: column for column, label in enumerate(self.labels)}
        self.weight = nn.Parameter(torch.empty_like(state["weight"], device=self.device))
        self.bias = nn.Parameter(torch.empty_like(state["bias"], device=self.device))
        self.load_state_dict(state)

    def rename(self, names: Sequence[int] | Sequence[str]) -> None:
        """Give classes other labels: those that were 0, 1, 2 and so on get the names there."""
        self.labels = [names[int(label)] for label in self.labels]
        self._columns = {label: column for column, label in enumerate(self.labels)}

    def reset(self) -> None:
        """Go back to the initial weights and statistics; labels keep their columns."""
        if self._initial is None:
            initialise(self.backbone, self.seed)
        else:
            self.backbone.load_state_dict(self._initial)
        columns, device = len(self.weight), self.device
        self.weight = nn.Parameter(torch.empty(0, self.features, device=device))
        self.bias = nn.Parameter(torch.empty(0, device=device))
        self._grow(columns)

    def _grow(self, total: int) -> None:
        rows = [
            _head_row(self.seed, column, self.weight.shape[1])
            for column in range(len(self.weight), total)
        ]
        if rows:
            fresh = torch.from_numpy(np.stack(rows)).to(self.device)
            self.weight = nn.Parameter(_longer(self.weight.detach(), fresh[:, :-1]))
            self.bias = nn.Parameter(_longer(self.bias.detach(), fresh[:, -1]))


def _count_statistics(backbone: nn.Module) -> None:
    """Let batch-norms that come with statistics, but with a count of 0 batches, as converted
    weights have them, say that many batches made them: nothing of the start at 0 and 1 is left.
    """
    for norm in backbone.modules():
        if not isinstance(norm, nn.modules.batchnorm._BatchNorm):
            continue
        mean, spread, tracked = norm.running_mean, norm.running_var, norm.num_batches_tracked
        if mean is None or spread is None or tracked is None or int(tracked):
            continue
        if bool((mean != 0).any()) or bool((spread != 1).any()):
            tracked.fill_(MANY)


def _rows_of(shape: Shape) -> str:
    if len(shape) == 1:
        return f"vectors have {shape[0]}"
    return f"images have {shape[0]} channels"


def _longer(rows: Tensor, more: Tensor) -> Tensor:
    """Return `rows` with `more` behind them, in the same storage where it has room for them.

    What is moved gets room for half as many rows again, so that a head which grows by one class per
    step is seldom moved."""
    known, total = len(rows), len(rows) + len(more)
    if rows.untyped_storage().nbytes() >= total * more[0].numel() * rows.element_size():
        longer = rows.as_strided((total, *rows.shape[1:]), rows.stride())
    else:
        longer = rows.new_empty((max(total, known * 3 // 2), *rows.shape[1:]))[:total]
        longer[:known] = rows
    longer[known:] = more
    return longer


def _head_row(
    seed: int, column: int, features: int
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    bound = 1 / math.sqrt(features)
    return generator(seed, "head", column).uniform(-bound, bound, features + 1).astype(np.float32)
