"""All that is needed to make a learner, and to make it again from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ValidationError

from dualmix.config.fields import Model
from dualmix.config.migrate import migrate
from dualmix.errors import ConfigError, StoreError
from dualmix.learn.network import Classifier
from dualmix.learn.types import Learner
from dualmix.plugins import code_of
from dualmix.registry import (
    Method,
    check_additions,
    get_addition,
    get_method,
    nearest,
    presets,
    split_name,
)
from dualmix.rng import Rng
from dualmix.runs.saved import UnsoundError, check_recipe, take_over
from dualmix.store import snapshot

MOST_CLASSES = 100_000
"""Columns of a fixed head: each is drawn on its own, which takes seconds for so many."""
MOST_NUMBERS = 2**28
"""Pixels of an image times its channels."""


def build(
    method: Method,
    shape: Sequence[int],
    *,
    classes: int | None = None,
    seed: int = 0,
    model: Model | None = None,
    device: str | torch.device = "cpu",
) -> Learner:
    """Make a learner from a method's settings.

    Parameters
    ----------
    method
        Settings such as ``ER(memory=500)``.
    shape
        (C, H, W) of the images.
    classes
        Columns of a fixed head; None: the head grows with the classes that come.
    seed
        Decides weights, memory and augmentation.
    """
    if not isinstance(method, Method):
        raise ConfigError(f"A learner is made from a method's settings, not from {method!r}.")
    if not isinstance(model, Model | None):
        raise ConfigError(f"model must be the settings of a network (Model), not {model!r}.")
    check_device(device)
    shape, model = _shape(shape), model or Model()
    if classes is not None:
        classes = _whole(classes, 1, MOST_CLASSES, "classes")
    seed = _whole(seed, 0, 2**32 - 1, "a seed")
    try:
        network = Classifier(
            shape,
            classes=classes,
            seed=seed,
            width=model.width,
            mean=model.mean,
            std=model.std,
            precision=model.precision,
            device=device,
            engine=model.resolved(str(device)),
        )
    except (RuntimeError, MemoryError, NotImplementedError) as fault:
        raise ConfigError(
            f"No network for images {shape} and {classes} classes can be made on {device}: "
            f"{str(fault).splitlines()[0][:200]}"
        ) from fault
    learner = method.build(network, Rng(seed))
    learner.recipe = {
        "kind": method.kind,
        "method": method.model_dump(mode="json"),
        "shape": list(shape),
        "classes": classes,
        "seed": seed,
        "model": {**model.model_dump(mode="json"), "engine": network.backbone.engine},
    }
    if where := code_of(type(method)).where():
        learner.recipe["plugin"] = where
    return learner


def _shape(given: Any) -> tuple[int, int, int]:
    sides = given.tolist() if isinstance(given, np.ndarray | torch.Tensor) else given
    if not isinstance(sides, list | tuple) or len(sides) != 3:
        raise ConfigError(f"A learner needs a shape (C, H, W) of its images, not {_shown(given)}.")
    channels, height, width = (_whole(side, 1, 2**31 - 1, "a side of a shape") for side in sides)
    if channels * height * width > MOST_NUMBERS:
        raise ConfigError(f"Images of {channels}x{height}x{width} are too large: resize them.")
    return channels, height, width


def _whole(given: Any, least: int, most: int, what: str) -> int:
    fits = isinstance(given, int | np.integer) and not isinstance(given, bool | np.bool_)
    if not fits or not least <= given <= most:
        raise ConfigError(
            f"{what[0].upper()}{what[1:]} must be a whole number from {least} to {most}, not "
            f"{_shown(given)}."
        )
    return int(given)


def _shown(given: Any) -> str:
    return repr(given)[:80]


def check_device(device: str | torch.device) -> None:
    """Raise `ConfigError` where torch has no such device."""
    try:
        kind = torch.device(device) if isinstance(device, str | torch.device) else None
    except RuntimeError:
        kind = None
    if kind is None or kind.type not in ("cpu", "cuda"):
        raise ConfigError(f"There is no device {_shown(device)}: give cpu, cuda or cuda:0.")
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"This machine has no CUDA device {device} that torch can use: give --device cpu."
        )


def create(
    name: str,
    shape: Sequence[int],
    *,
    classes: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    **settings: Any,
) -> Learner:
    """Make a learner by a method's name, to which additions may be joined by a plus.

    Examples
    --------
    >>> learner = create("er", shape=(3, 32, 32), memory=200, seed=1)
    >>> learner = create("er+dualmix", shape=(3, 32, 32), memory=200, mix={"alpha": 0.4})
    """
    if not isinstance(name, str):
        raise ConfigError(f"A method goes by its name, such as 'er', not by {_shown(name)}.")
    host, additions = split_name(name)
    if (preset := presets().get(name)) and preset.kind != host:
        raise ConfigError(
            f"{name!r} is a preset of the command line: create {preset.kind!r} with its settings "
            f"(`dualmix explain {name}` lists them)."
        )
    kind = get_method(host)
    check_additions(additions, kind)
    for addition in additions:
        group, values = get_addition(addition, kind)
        given = settings.get(group, {})
        if isinstance(given, BaseModel):
            given = given.model_dump(exclude_unset=True)
        if not isinstance(given, dict):
            raise ConfigError(f"{group} must be settings by name, not {_shown(given)}.")
        settings[group] = {**values, **given}
    unknown = [
        f"{s}{nearest(s, kind.model_fields)}" for s in settings if s not in kind.model_fields
    ]
    if unknown:
        raise ConfigError(f"Method {name!r} has no setting {', '.join(unknown)}")
    try:
        method = kind(**settings)
    except ValidationError as fault:
        wrong = [
            f"{'.'.join(map(str, e['loc']))}: {e['msg']} (given: {e['input']!r})"
            for e in fault.errors()
        ]
        raise ConfigError(f"Method {name!r} cannot be made: {'; '.join(wrong)}.") from fault
    return build(method, shape, classes=classes, seed=seed, device=device)


def save(learner: Learner, path: Path | str) -> None:
    """Save a learner with its memory and state of chance; the file holds no code and is replaced at
    once.
    """
    snapshot.write(Path(path), {"recipe": learner.recipe, "learner": learner.state_dict()})


def load(path: Path | str, device: str | torch.device = "cpu") -> Learner:
    """Load a learner that goes on exactly where it was saved.

    Raises
    ------
    StoreError
        The file is damaged, or holds what no learner of its recipe can have.
    """
    check_device(device)
    state = snapshot.read(Path(path))
    recipe: Any = state.get("recipe")
    try:
        check_recipe(recipe, state.get("learner"))
        settings = migrate(
            {"method": {"kind": recipe["kind"], **recipe["method"]}, "model": recipe["model"]}
        )
        kind = get_method(str(settings["method"].pop("kind")), recipe.get("plugin"))
    except (UnsoundError, KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StoreError(f"{path} is not a saved learner: {fault}.") from fault
    try:
        learner = build(
            kind(**settings["method"]),
            tuple(recipe["shape"]),
            classes=recipe["classes"],
            seed=recipe["seed"],
            model=Model(**settings["model"]),
            device=device,
        )
        take_over(learner, state["learner"])
    except (
        ConfigError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
        IndexError,
        OverflowError,
        MemoryError,
    ) as fault:
        raise StoreError(
            f"{path} is not a saved learner ({type(fault).__name__}: {str(fault)[:200]})."
        ) from fault
    return learner
