"""Other packages on the same work: their own training loops as their users run them, timed beside
ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import Call
from dualmix.errors import DualmixError

LONG = 10
"""Steps of the long experience."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a peer is given: a maker of the network, images in [0, 1], labels, and the sizes of
    memory and batches.
    """

    network: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    memory: int
    batch: int
    lr: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A call to be timed, and how many steps it takes."""

    call: Call
    steps: int = 1


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep a peer's warnings to itself, also where it switches them on again."""
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        yield


def avalanche(work: Work) -> dict[str, Timed]:
    """Return steps of experience replay by Avalanche: its `Naive` strategy with its `ReplayPlugin`,
    evaluation off.

    A step is one forward and backward pass over the new and the rehearsed images together and
    `torch.optim.SGD`, with a memory that is full. The images are float tensors in memory, which is
    the quickest data it can be given.

    ``avalanche er`` is its online stream: one experience per batch, made by `split_online_stream`,
    and reservoir sampling after each, as ours does. ``nhwc`` is the same with the network's weights
    laid out channels last, which a user can ask of torch in a line; otherwise they have torch's
    default. ``long`` is a tenth of a call that trains on ten batches as one experience: the memory
    is updated once in ten steps, so it does less than ours.

    Raises
    ------
    DualmixError
        It cannot be imported.
    """
    try:
        with _hushed():
            from avalanche.benchmarks.scenarios import benchmark_from_datasets
            from avalanche.benchmarks.scenarios.online import split_online_stream
            from avalanche.benchmarks.utils import as_classification_dataset
            from avalanche.training.plugins import ReplayPlugin
            from avalanche.training.storage_policy import ReservoirSamplingBuffer
            from avalanche.training.supervised import Naive
    except Exception as fault:
        raise DualmixError(
            f"Avalanche cannot be imported ({type(fault).__name__}: {str(fault).splitlines()[0]}): "
            "pip install 'avalanche-lib>=0.6,<0.7' and a torchvision that fits this torch, or "
            "leave --against out."
        ) from fault
    from torch.utils.data import TensorDataset

    images: Any = TensorDataset(work.x, work.y)
    images.targets = work.y.tolist()
    data = as_classification_dataset(images)
    stream = benchmark_from_datasets(train=[data]).train_stream

    def steps(size: int, layout: torch.memory_format) -> Call:
        model = work.network().to(memory_format=layout)  # type: ignore[call-overload]
        memory = ReservoirSamplingBuffer(max_size=work.memory)
        memory.update_from_dataset(data)
        with _hushed():
            strategy = Naive(
                model=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=work.lr),
                criterion=nn.CrossEntropyLoss(),
                train_mb_size=work.batch,
                plugins=[ReplayPlugin(work.memory, work.batch, work.batch, storage_policy=memory)],
                evaluator=None,
            )

        def endless() -> Iterator[Any]:
            while True:
                yield from split_online_stream(stream, size)

        experiences = endless()

        def train() -> None:
            with _hushed():
                strategy.train(next(experiences))

        return train

    return {
        "avalanche er": Timed(steps(work.batch, torch.contiguous_format)),
        "avalanche er, nhwc": Timed(steps(work.batch, torch.channels_last)),
        "avalanche er, long": Timed(steps(LONG * work.batch, torch.contiguous_format), LONG),
    }


PEERS: Mapping[str, Callable[[Work], dict[str, Timed]]] = {"avalanche": avalanche}
"""The packages that can be measured, by name."""

PACKAGES: Mapping[str, str] = {"avalanche": "avalanche-lib"}
"""What each is installed as."""


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that were measured."""
    return {PACKAGES[name]: version(PACKAGES[name]) for name in names}
