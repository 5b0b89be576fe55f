"""All that is needed to make a learner, and to make it again from a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from torch import nn

from dualmix.config.compose import walk
from dualmix.config.fields import Model
from dualmix.config.migrate import migrate
from dualmix.errors import ConfigError, DualmixError, StoreError, naming_arguments
from dualmix.learn.backbones import REDUCED, known, make
from dualmix.learn.common import MemoryLearner, with_answers
from dualmix.learn.network import Classifier
from dualmix.learn.types import Learner, Shape
from dualmix.methods.common import Descent
from dualmix.plugins import code_of, code_of_backbone
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
from dualmix.runs.weights import fill
from dualmix.store import snapshot
from dualmix.store.files import write_bytes

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
    backbone: nn.Module | None = None,
) -> Learner:
    """Make a learner from a method's settings.

    Parameters
    ----------
    method
        Settings such as ``ER(memory=500)``.
    shape
        (C, H, W) of the images, or (d,) of the vectors.
    classes
        Columns of a fixed head; None: the head grows with the classes that come.
    seed
        Decides weights, memory and augmentation.
    backbone
        A torch module of your own that returns a vector per row, instead of the one that `model`
        names; the learner trains it in place. Give such a module to `load` too.
    """
    if not isinstance(method, Method):
        raise ConfigError(f"A learner is made from a method's settings, not from {method!r}.")
    if not isinstance(model, Model | None):
        raise ConfigError(f"model must be the settings of a network (Model), not {model!r}.")
    check_device(device)
    shape, model = _shape(shape), model or Model()
    if isinstance(classes, Sequence | set) or (isinstance(classes, np.ndarray) and classes.ndim):
        raise ConfigError(
            f"classes is how many there will be, not which: give {len(classes)}, or leave it out "
            "and the head grows; names come with the labels of each batch."
        )
    if classes is not None:
        classes = _whole(classes, 1, MOST_CLASSES, "classes")
    seed = _whole(seed, 0, 2**32 - 1, "a seed")
    if model.name == "auto" and len(shape) == 1 and not method.trains:
        model = model.model_copy(update={"name": "linear"})
    try:
        network = _network(shape, classes, seed, model, device, backbone)
        learner = method.build(network, Rng(seed))
    except DualmixError:
        raise
    except (RuntimeError, MemoryError, NotImplementedError, ValueError) as fault:
        raise ConfigError(
            f"No learner for rows of {shape} and {classes} classes can be made on {device}: "
            f"{str(fault).partition(chr(10))[0][:200]}"
        ) from fault
    if isinstance(method, Descent) and (stepper := method.stepper()):
        if not isinstance(learner, MemoryLearner):
            raise ConfigError(f"{method.kind} takes steps of its own: give optimiser sgd.")
        learner.optimiser = stepper
    learner.recipe = {
        "kind": method.kind,
        "method": method.model_dump(mode="json"),
        "shape": list(shape),
        "classes": classes,
        "seed": seed,
        "model": {**model.model_dump(mode="json"), "engine": network.engine},
    }
    code = code_of(type(method)).joined(code_of_backbone(model.name))
    if where := code.where():
        learner.recipe["plugin"] = where
    if backbone is not None:
        learner.recipe["backbone"] = type(backbone).__qualname__
    return learner


def _network(
    shape: Shape,
    classes: int | None,
    seed: int,
    model: Model,
    device: str | torch.device,
    backbone: nn.Module | None,
) -> Classifier:
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise ConfigError(f"backbone must be a torch module, not {_shown(backbone)}.")
    if backbone is not None and (model.name != "auto" or model.engine == "native"):
        given = "--model.name" if model.name != "auto" else "--model.engine native"
        raise ConfigError(f"backbone is the network already: leave out {given}, or backbone.")
    engine = "torch" if backbone is not None else model.resolved(str(device), shape)
    if backbone is None:
        own = model.weights or model.name not in ("auto", REDUCED) or len(shape) != 3
        backbone = (
            make(
                model.name, shape, seed=seed, width=model.width, hidden=model.hidden, engine=engine
            )
            if own
            else None
        )
    if model.weights and backbone is not None:
        fill(backbone, Path(model.weights), model.weights_sha256)
    return Classifier(
        shape,
        classes=classes,
        seed=seed,
        width=model.width,
        mean=model.mean,
        std=model.std,
        precision=model.precision,
        device=device,
        engine=engine,
        backbone=backbone,
        frozen=model.frozen,
        unbiased=model.statistics == "unbiased",
    )


def _shape(given: Any) -> Shape:
    sides = given.tolist() if isinstance(given, np.ndarray | torch.Tensor) else given
    if not isinstance(sides, list | tuple) or len(sides) not in (1, 3):
        raise ConfigError(
            "A learner needs the shape of a row, (C, H, W) of images or (d,) of vectors, not "
            f"{_shown(given)}."
        )
    shape = tuple(_whole(side, 1, 2**31 - 1, "a side of a shape") for side in sides)
    if math.prod(shape) > MOST_NUMBERS:
        raise ConfigError(f"Rows of {'x'.join(map(str, shape))} are too large: make them smaller.")
    return shape


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
        raise ConfigError(
            f"There is no device {_shown(device)} for dualmix: give cpu, cuda or cuda:0."
        )
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"This machine has no CUDA device {device} that torch can use: give device cpu."
        )


@naming_arguments()
def create(
    name: str,
    shape: Sequence[int],
    *,
    classes: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    backbone: nn.Module | None = None,
    model: str | Mapping[str, Any] = "auto",
    **settings: Any,
) -> Learner:
    """Make a learner by a method's name, to which additions may be joined by a plus.

    Parameters
    ----------
    shape
        (C, H, W) of the images, or (d,) of the vectors.
    classes
        Columns of a fixed head; None: the head grows with the classes that come.
    backbone
        A torch module of your own, as in `build`.
    model
        The backbone's name, such as ``mlp``, or settings of the network by name; all but its name
        (``width``, ``mean``, ``engine``; `dualmix explain` lists them) may also be arguments of
        their own, where the method has no setting of that name.
    settings
        Of the method.

    Examples
    --------
    >>> create("er", shape=(768,), memory=200, hidden=64)
    <er for 768: 0 classes after 0 batches, memory 0 of 200>
    >>> learner = create("er", shape=(3, 32, 32), memory=200, seed=1)
    >>> learner = create("er+dualmix", shape=(3, 32, 32), memory=200, mix={"alpha": 0.4})
    """
    if not isinstance(name, str):
        raise ConfigError(f"A method goes by its name, such as 'er', not by {_shown(name)}.")
    host, additions = split_name(name)
    if (preset := presets().get(name)) and preset.kind != host:
        own = {part.removeprefix("method."): v for part, v in preset.values.items()}
        if any("." in part for part in own):
            raise ConfigError(
                f"{name!r} is a preset of the command line: create {preset.kind!r} with its "
                f"settings (`dualmix explain {name}` lists them)."
            )
        host, settings = preset.kind, {**own, **settings}
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
    if not isinstance(model, str | Mapping):
        raise ConfigError(f"model must be a name or settings by name, not {_shown(model)}.")
    if not isinstance(model, str) and not all(isinstance(part, str) for part in model):
        raise ConfigError(f"Settings of the network go by names, not as in {_shown(model)}.")
    network = {
        "statistics": "unbiased",
        **({"name": model} if isinstance(model, str) else model),
    }
    for part in Model.model_fields.keys() & settings.keys() - kind.model_fields.keys():
        network[part] = settings.pop(part)
    names = [*kind.model_fields, *Model.model_fields]
    unknown = [f"{s}{nearest(s, names)}" for s in settings if s not in kind.model_fields]
    if unknown:
        raise ConfigError(f"Method {name!r} has no setting {', '.join(unknown)}")
    try:
        method, made = kind(**settings), Model(**network)
    except ValidationError as fault:
        wrong = "; ".join(_told(e, kind) for e in fault.errors())
        end = "" if wrong.endswith((".", "?")) else "."
        raise ConfigError(f"Method {name!r} cannot be made: {wrong}{end}") from fault
    return build(
        method, shape, classes=classes, seed=seed, model=made, device=device, backbone=backbone
    )


def _told(error: ErrorDetails, kind: type[Method]) -> str:
    """Return what is wrong with an argument of `create`."""
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        known = [name for name, _ in walk(kind)] + list(Model.model_fields)
        return f"{path}: no such setting{nearest(path, known)}"
    told = error["msg"].removeprefix("Value error, ")
    return f"{path}: {told} (given: {_shown(error['input'])})" if path else told


def save(learner: Learner, to: Path | str | BinaryIO) -> None:
    """Save a learner with its memory and state of chance, to a file, which is replaced at once, or
    to an open binary file; what is written holds no code.
    """
    content = to_bytes(learner)
    if isinstance(to, str | Path):
        write_bytes(Path(to), content)
        return
    try:
        to.write(content)
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise StoreError(
            f"A learner cannot be written to {_shown(to)} ({fault}): give a path, or a file that "
            "is open for bytes."
        ) from fault


def to_bytes(learner: Learner) -> bytes:
    """Return what `save` writes."""
    if not isinstance(getattr(learner, "recipe", None), dict):
        raise StoreError(f"Only a learner that `create` made can be saved, not {_shown(learner)}.")
    return snapshot.state_bytes(state_of(learner))


def state_of(learner: Learner) -> snapshot.State:
    """Return all that `load` needs to make a learner again."""
    if not isinstance(getattr(learner, "recipe", None), dict):
        raise ConfigError(f"Only a learner can be saved, not {_shown(learner)}.")
    recipe = dict(learner.recipe)
    if recipe.get("grown"):
        recipe["classes"] = len(with_answers(learner).model.weight)
    return {"recipe": recipe, "learner": learner.state_dict()}


def load(
    path: Path | str | bytes | bytearray | memoryview | BinaryIO,
    device: str | torch.device = "cpu",
    *,
    backbone: nn.Module | None = None,
    head: Literal["saved", "growing"] | None = None,
) -> Learner:
    """Load a learner that goes on exactly where it was saved.

    A learner that a run has trained (``learner.safetensors`` in its folder) answers the names of
    classes that the data had; names that are all whole numbers become numbers.

    Parameters
    ----------
    path
        A file, an open binary file, or the bytes themselves.
    backbone
        A module like the one that the learner was made with, if it was one of your own; its weights
        are replaced.
    head
        ``growing``: a fixed head may get further columns for classes that come; ``saved``: it is as
        it was. None: growing for a learner of a run, else as saved.

    Raises
    ------
    StoreError
        The file is damaged, or holds what no learner of its recipe can have.
    """
    check_device(device)
    if head not in (None, "saved", "growing"):
        raise ConfigError(f"head must be 'growing' or 'saved', not {_shown(head)}.")
    if isinstance(path, str | Path):
        state = snapshot.read(Path(path))
    else:
        content = _content(path)
        path = Path("The learner")
        state = snapshot.parse_state(content, path)
    recipe: Any = state.get("recipe")
    try:
        check_recipe(recipe, state.get("learner"))
        names = recipe.get("names")
        settings = migrate(
            {"method": {"kind": recipe["kind"], **recipe["method"]}, "model": recipe["model"]}
        )
        kind = get_method(str(settings["method"].pop("kind")), recipe.get("plugin"))
    except (UnsoundError, KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StoreError(f"{path} is not a saved learner: {fault}.") from fault
    name, plugin = settings["model"].get("name", "auto"), recipe.get("plugin")
    if plugin and not known(str(name)):
        raise ConfigError(
            f"The backbone {name!s:.80} is not loaded, which {plugin!s:.400} defines: call "
            "dualmix.registry.load_plugin with that file."
        )
    if (recipe.get("backbone") is None) != (backbone is None):
        raise StoreError(
            f"{path} was made with a network of its maker's own, {recipe['backbone']!s:.80}: load "
            "it with backbone=, a module like it."
            if backbone is None
            else f"{path} was made with a network of dualmix's: load it without backbone=."
        )
    try:
        learner = build(
            kind(**settings["method"]),
            tuple(recipe["shape"]),
            classes=recipe["classes"],
            seed=recipe["seed"],
            model=Model(**settings["model"]).model_copy(update={"weights": ""}),
            device=device,
            backbone=backbone,
        )
        learner.recipe["model"] = settings["model"]
        take_over(learner, state["learner"])
        if names is not None:
            with_answers(learner).model.rename(_labels(names))
        if learner.recipe["classes"] is not None and (
            head == "growing" or recipe.get("grown") or (names is not None and head is None)
        ):
            with_answers(learner).model.classes = None
            learner.recipe["grown"] = True
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
        told = str(fault)[:200]
        raise StoreError(
            f"{path} is not a saved learner ({type(fault).__name__}: {told})."
            if backbone is None
            else f"{path} does not fit the backbone that was given, or is damaged ({told}): give a "
            "module like the one that it was made with."
        ) from fault
    return learner


def _content(given: bytes | bytearray | memoryview | BinaryIO) -> bytes:
    """Return the bytes themselves, or those of an open file."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    try:
        return bytes(given.read())
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise StoreError(
            f"A learner cannot be read from {_shown(given)} ({fault}): give a path, bytes, or a "
            "file that is open for bytes."
        ) from fault


def _labels(names: list[str]) -> list[int] | list[str]:
    """Return class names as a user's labels: numbers, where the data had numbers."""
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", name) for name in names)
    return [int(name) for name in names] if whole else names
