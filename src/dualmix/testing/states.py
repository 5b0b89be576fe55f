"""States as bytes, and demands on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dualmix.errors import InputError
from dualmix.learn.types import Learner

Leaves = dict[str, tuple[str, tuple[int, ...], bytes] | str]


def demand_refusal(action: Callable[[], Any], what: str) -> None:
    """Raise AssertionError unless an action raises `InputError` with a sentence."""
    try:
        action()
    except InputError as fault:
        demand(
            str(fault).endswith("."),
            f"The fault for {what} must be a sentence, not {str(fault)!r}.",
        )
        return
    except Exception as fault:
        raise AssertionError(
            f"{what} must raise InputError, not {type(fault).__name__}: {fault}"
        ) from fault
    raise AssertionError(f"{what} must raise InputError, but went through.")


def demand(met: bool, sentence: str) -> None:
    """Raise AssertionError with a sentence unless a demand is met."""
    if not met:
        raise AssertionError(sentence)


def demand_same(one: Leaves, other: Leaves, sentence: str) -> None:
    """Raise AssertionError that names the parts in which two states differ."""
    changed = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    demand(
        not changed,
        f"{sentence}, but {len(changed)} parts differ, the first {', '.join(changed[:3])}.",
    )


def leaves(learner: Learner) -> Leaves:
    """Return a copy of a learner's state."""
    return flat(learner.state_dict())


def flat(state: dict[str, Any]) -> Leaves:
    """Return a copy of every value by its path, tensors as bytes."""
    return {
        path: (
            str(leaf.dtype),
            tuple(leaf.shape),
            leaf.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes(),
        )
        if isinstance(leaf, Tensor)
        else repr(leaf)
        for path, leaf in walk(state)
    }


def tensors(state: Leaves) -> Leaves:
    """Return the tensors of a state alone."""
    return {path: leaf for path, leaf in state.items() if not isinstance(leaf, str)}


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dictionaries and lists by their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from walk(inner, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from walk(inner, f"{path}/{number}")
    else:
        yield path, value


def global_chance() -> dict[str, str | bytes]:
    """Return the states of the generators that a learner must leave alone."""
    numpys = np.random.get_state()  # noqa: NPY002
    return {
        "Python's random": repr(random.getstate()),
        "numpy.random": repr([np.asarray(part).tolist() for part in numpys]),
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
    }
