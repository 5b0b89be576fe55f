"""What a saved learner must hold: everything is checked against its recipe before any of it is
used.

A learner made anew from the recipe is the template. What varies with the stream (labels, rows of
the memory, columns of the head) has rules of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dualmix.errors import ConfigError
from dualmix.learn import backbones
from dualmix.learn.optimisers import LATER as MOMENTS
from dualmix.learn.types import Learner
from dualmix.rng import generator
from dualmix.store.snapshot import State

MOST = 2**53
"""Above every count: steps, rows and pauses stay far below it."""
WIDEST = 2**16
"""Numbers beside a row of the memory: its logits are the most there are."""


class UnsoundError(ValueError):
    """A state that no learner of the recipe can have."""


def check_recipe(recipe: Any, state: Any) -> None:
    """Raise `UnsoundError` unless a recipe can be made without more room than its state shows."""
    _demand(isinstance(recipe, dict) and isinstance(state, dict), "recipe or state is missing")
    shape, classes, model = (recipe.get(name) for name in ("shape", "classes", "model"))
    _demand(
        isinstance(shape, list) and len(shape) in (1, 3) and all(_whole(n, 1) for n in shape),
        f"its shape is {shape!r}",
    )
    _demand(classes is None or _whole(classes, 1), f"it has {classes!r} classes")
    names = recipe.get("names")
    if names is not None:
        _demand(
            isinstance(names, list)
            and all(isinstance(name, str) for name in names)
            and len(set(names)) == len(names),
            "its class names are none",
        )
        labels = state.get("labels")
        known = isinstance(labels, list) and all(_whole(n) and n < len(names) for n in labels)
        _demand(known, "its labels have no names")
    settings = recipe.get("method")
    _demand(isinstance(settings, dict) and isinstance(model, dict), "it has no settings")
    weights = state.get("model")
    _demand(isinstance(weights, dict), "it has no weights")
    head = weights.get("weight")
    _demand(isinstance(head, Tensor) and head.ndim == 2, "it has no head")
    _demand(classes in (None, len(head)), f"its head has {len(head)} columns, not {classes}")
    name = model.get("name", "auto")
    if name == "auto":
        name = "mlp" if len(shape) == 1 else "reduced-resnet18"
    first = {
        "reduced-resnet18": ("backbone.stem.weight", [model.get("width", 20), shape[0]]),
        "mlp": ("backbone.inner.weight", [model.get("hidden", 256), math.prod(shape)]),
    }
    if name in first and recipe.get("backbone") is None:
        layer, size = first[name]
        weight = weights.get(layer)
        fits = isinstance(weight, Tensor) and list(weight.shape[:2]) == size
        _demand(fits, "its network is of another width")
    if name == "reduced-resnet18" and recipe.get("backbone") is None:
        wanted = _features(shape, len(weights["backbone.stem.weight"]))
        _demand(head.shape[1] == wanted, f"its head is for no images {shape}")
    capacity = settings.get("memory", 0)
    _demand(_whole(capacity), f"its memory is {capacity!r}")
    needed = capacity * math.prod(shape) * (1 if len(shape) == 3 else 4)
    _demand(needed <= _machine(), f"its memory needs {needed:,} bytes, more than there are")


def _features(shape: list[int], width: int) -> int | None:
    channels, *sides = shape
    try:
        with torch.device("meta"):  # takes no room, however large the images are said to be
            return backbones.ReducedResNet18((channels, sides[0], sides[1]), width).features
    except (ConfigError, RuntimeError):
        return None


def check_state(learner: Learner, state: Any) -> None:
    """Raise `UnsoundError` unless a new learner can go on from a state."""
    template = learner.state_dict()
    _demand(isinstance(state, dict), "it is no state")
    _demand(state.keys() == template.keys(), f"it holds {sorted(map(str, state))[:20]}")
    columns = 0
    if "labels" in template and "model" in template:
        fixed = getattr(getattr(learner, "model", None), "classes", None)
        _labels(state["labels"], fixed)
        columns = fixed or len(state["labels"])
        template = {name: part for name, part in template.items() if name != "labels"}
    for name, wanted in template.items():
        match name:
            case "memory":
                _memory(state[name], wanted, learner, len(state.get("labels", ())))
            case "seen":
                _ages(state[name], wanted, len(state.get("labels", ())))
            case "rng":
                _chance(state[name], wanted)
            case "moments":
                _moments(state[name], learner, columns)
            case "tally":
                _tally(state[name])
            case _:
                _like(state[name], wanted, name, columns)


def _labels(labels: Any, fixed: int | None) -> None:
    _demand(isinstance(labels, list), "its labels are no list")
    kinds = {type(label) for label in labels}
    _demand(len(kinds) <= 1 and kinds <= {int, str}, "its labels are of several kinds")
    _demand(len(set(labels)) == len(labels), "a label stands twice")
    _demand(fixed is None or len(labels) <= fixed, f"it has {len(labels)} labels for {fixed}")
    _demand(kinds != {int} or all(-(2**63) <= n < 2**63 for n in labels), "a label is too large")


def _memory(state: Any, template: Mapping[str, Any], learner: Any, known: int) -> None:
    _demand(isinstance(state, dict) and state.keys() == template.keys(), "its memory is none")
    x, y, rows = state["x"], state["y"], learner.memory
    _demand(isinstance(x, Tensor) and isinstance(y, Tensor), "its memory has no rows")
    _demand(
        x.dtype == rows.x.dtype and x.shape[1:] == rows.x.shape[1:],
        f"its memory holds {x.dtype} {tuple(x.shape)}",
    )
    _demand(y.dtype == torch.int64 and y.shape == x.shape[:1], "its memory's labels do not fit")
    _finite(x, "its memory")
    _demand(len(y) <= rows.capacity, f"its memory holds {len(y)} rows of {rows.capacity}")
    _demand(
        not len(y) or (int(y.min()) >= 0 and int(y.max()) < known), "an unknown label is stored"
    )
    for name in template.keys() - {"x", "y"}:
        value = state[name]
        if name == "seen":
            _demand(_whole(value, len(y)), f"its memory has seen {value!r} rows")
            continue
        _demand(isinstance(value, dict), f"{name} of its memory are none")
        for inner, tensor in value.items():
            _finite(tensor, f"memory.{name}.{inner}")
            beside = name == "notes"
            _demand(not beside or tensor.shape[:1] == y.shape, f"{inner} has other rows")
            width = math.prod(tensor.shape[1:] if beside else tensor.shape)
            _demand(width <= WIDEST, f"{inner} is {tuple(tensor.shape)}")


def _ages(state: Any, template: Mapping[str, Any], known: int) -> None:
    """``counts`` is what earlier versions kept beside the rest; it is not read."""
    fits = isinstance(state, dict) and state.keys() - {"counts"} == template.keys()
    _demand(fits, "it has no ages")
    steps, border, first = state["steps"], state["border"], state["first"]
    _demand(_whole(steps) and _whole(border) and border <= known, f"it has made {steps!r} steps")
    fits = isinstance(first, list) and len(first) == known and all(map(_whole, first))
    _demand(fits and first == sorted(first), "its classes came in another order")
    _demand(all(step < steps for step in first), "a class is seen in the future")


def _chance(state: Any, template: Mapping[str, Any]) -> None:
    _demand(isinstance(state, dict) and state.keys() == template.keys(), "it has no chance")
    _demand(state["seed"] == template["seed"] and _whole(state["seed"]), "its seed is another")
    generators = state["generators"]
    _demand(isinstance(generators, dict), "it has no generators")
    for name, saved in generators.items():
        fresh: Any = generator(template["seed"], name).bit_generator.state
        _demand(isinstance(saved, dict) and saved.keys() == fresh.keys(), f"{name} is no generator")
        inner = saved["state"]
        _demand(
            isinstance(inner, dict) and inner.keys() == fresh["state"].keys(), f"{name} is none"
        )
        _demand(
            saved["bit_generator"] == fresh["bit_generator"]
            and type(inner["state"]) is int
            and 0 <= inner["state"] < 2**128
            and inner["inc"] == fresh["state"]["inc"]
            and saved["has_uint32"] in (0, 1)
            and _whole(saved["uinteger"])
            and saved["uinteger"] < 2**32,
            f"{name} is the generator of another learner",
        )


def _moments(state: Any, learner: Any, columns: int) -> None:
    """Demand moments of weights that the network has; those of a head may lag behind its columns,
    in one direction.
    """
    _demand(isinstance(state, dict), "its moments are none")
    weights = list(learner.network.parameters())
    for name, moment in state.items():
        _finite(moment, f"moments.{name}")
        place, _, kind = str(name).partition(".")
        known = place.isdecimal() and int(place) < len(weights) and kind in MOMENTS
        _demand(known, f"moments.{name} is of no weight")
        rows, *rest = weights[int(place)].shape or [1]
        wanted = [rows, *([1] * len(rest) if kind == "steps" else rest)]
        fits = moment.ndim == len(wanted)
        odd = [size for size, full in zip(moment.shape, wanted, strict=fits) if size != full]
        fits = fits and len(odd) <= 1 and max(odd, default=0) <= max(rows, columns)
        _demand(fits, f"moments.{name} is of another weight")


def _tally(state: Any) -> None:
    _demand(isinstance(state, dict), "its tally is none")
    for name, count in state.items():
        _finite(count, f"tally.{name}")
        fits = count.dtype in (torch.int64, torch.float32) and count.shape == ()
        _demand(fits and float(count) >= 0, f"tally.{name} is no count")


def _like(value: Any, template: Any, name: str, columns: int) -> None:
    """Demand what a part of the template has: kind, type and shape, in which 0 stands for the
    columns that a head may get.
    """
    match template:
        case Tensor():
            _finite(value, name)
            _demand(value.dtype == template.dtype, f"{name} is of {value.dtype}")
            grown = len(value.shape) == len(template.shape) and all(
                have == (want or columns)
                for have, want in zip(value.shape, template.shape, strict=True)
            )
            _demand(grown, f"{name} is {tuple(value.shape)}")
            positive = name.endswith(("running_var", "num_batches_tracked"))
            _demand(not positive or not value.numel() or float(value.min()) >= 0, f"{name} is < 0")
        case dict():
            _demand(isinstance(value, dict), f"{name} is no record")
            _demand(not template or value.keys() == template.keys(), f"{name} has other parts")
            for inner, part in value.items():
                _like(part, template.get(inner), f"{name}.{inner}", columns)
        case list():
            _demand(isinstance(value, list), f"{name} is no list")
            for part in value:
                _like(part, template[0] if template else None, name, columns)
        case bool() | str():
            _demand(type(value) is type(template), f"{name} is {value!r}")
        case int():
            _demand(_whole(value), f"{name} is {value!r}")
        case float():
            _demand(isinstance(value, float) and math.isfinite(value), f"{name} is {value!r}")
        case None:
            if isinstance(value, Tensor):
                _finite(value, name)
                _demand(value.numel() <= WIDEST, f"{name} is {tuple(value.shape)}")
            elif isinstance(value, dict | list):
                inner = value if isinstance(value, list) else list(value.values())
                for part in inner:
                    _like(part, None, name, columns)


def _finite(value: Any, name: str) -> None:
    _demand(isinstance(value, Tensor), f"{name} is no tensor")
    numbers = value.dtype.is_floating_point or value.dtype in (
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bool,
    )
    _demand(numbers, f"{name} is of {value.dtype}")
    _demand(bool(torch.isfinite(value).all()), f"{name} is not finite")


def _whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < MOST


def _machine() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _demand(sound: bool, fault: str) -> None:
    if not sound:
        raise UnsoundError(fault[:200])


def take_over(learner: Learner, state: State) -> None:
    """Let a new learner go on from a state, if it can.

    Raises
    ------
    UnsoundError
        It cannot; the learner is as new.
    """
    check_state(learner, state)
    learner.load_state_dict(state)
