"""All that is needed to make a learner, and to make it again from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from dualmix.config.fields import Model
from dualmix.config.migrate import migrate
from dualmix.errors import ConfigError, StoreError
from dualmix.learn.network import Classifier
from dualmix.learn.types import Learner
from dualmix.registry import Method, get_addition, get_method, nearest, presets, split_name
from dualmix.rng import Rng
from dualmix.runs.saved import UnsoundError, check_recipe, take_over
from dualmix.store import snapshot


def build(
    method: Method,
    shape: tuple[int, int, int],
    *,
    classes: int | None = None,
    seed: int = 0,
    model: Model | None = None,
    device: str = "cpu",
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
    check_device(device)
    whole = all(isinstance(side, int | np.integer) for side in shape)
    if not whole or len(shape) != 3 or min(shape) < 1 or (classes is not None and classes < 1):
        raise ConfigError(
            "A learner needs a shape (C, H, W) and classes above 0 or none, not "
            f"{shape} and {classes}."
        )
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ConfigError(f"A seed is a whole number from 0 to {2**32 - 1}, not {seed!r}.")
    model = model or Model()
    network = Classifier(
        shape,
        classes=classes,
        seed=seed,
        width=model.width,
        mean=model.mean,
        std=model.std,
        precision=model.precision,
        device=device,
        engine=model.resolved(device),
    )
    learner = method.build(network, Rng(seed))
    learner.recipe = {
        "kind": method.kind,
        "method": method.model_dump(mode="json"),
        "shape": list(shape),
        "classes": classes,
        "seed": seed,
        "model": model.model_dump(mode="json"),
    }
    return learner


def check_device(device: str) -> None:
    """Raise `ConfigError` where torch has no such device."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("This machine has no CUDA device that torch can use: give --device cpu.")
    try:
        torch.device(device)
    except (RuntimeError, TypeError) as fault:
        raise ConfigError(f"There is no device {device!r}: give cpu, cuda or cuda:0.") from fault


def create(
    name: str,
    shape: tuple[int, int, int],
    *,
    classes: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    **settings: Any,
) -> Learner:
    """Make a learner by a method's name, to which additions may be joined by a plus.

    Examples
    --------
    >>> learner = create("er", shape=(3, 32, 32), memory=200, seed=1)
    >>> learner = create("er+dualmix", shape=(3, 32, 32), memory=200, mix={"alpha": 0.4})
    """
    host, additions = split_name(name)
    if (preset := presets().get(name)) and preset.kind != host:
        raise ConfigError(
            f"{name!r} is a preset of the command line: create {preset.kind!r} with its settings "
            f"(`dualmix explain {name}` lists them)."
        )
    kind = get_method(host)
    for addition in additions:
        group, values = get_addition(addition, kind)
        given = settings.get(group, {})
        settings[group] = {
            **values,
            **(given if isinstance(given, dict) else given.model_dump(exclude_unset=True)),
        }
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


def load(path: Path | str, device: str = "cpu") -> Learner:
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
        kind = get_method(str(recipe.get("kind")))
        settings = migrate(
            {"method": {"kind": kind.kind, **recipe["method"]}, "model": recipe["model"]}
        )
    except (UnsoundError, KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StoreError(f"{path} is not a saved learner: {fault}.") from fault
    try:
        settings["method"].pop("kind")
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
