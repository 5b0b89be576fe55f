"""The settings of a run by group, and the key that stands for all of them that affect a result."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import SerializeAsAny, field_validator, model_validator

from dualmix.config.migrate import first_names
from dualmix.data.config import Data
from dualmix.data.source import open_file
from dualmix.data.stream import Stream
from dualmix.engine.library import available
from dualmix.errors import DataError, worded
from dualmix.learn.augment import check_name
from dualmix.learn.types import Shape
from dualmix.plugins import Code, code_of, code_of_backbone
from dualmix.registry import Method
from dualmix.settings import Settings, setting

RESULTS_VERSION = 1
"""Raised when a change of code or of a default changes the results of the same settings."""

UNMEASURED = "measured only if probes are on: add --probes.on true"
MethodT = TypeVar("MethodT", bound=Method)


class Model(Settings):
    """The network."""

    name: str = setting(
        "auto",
        "backbone: reduced-resnet18, resnet18 (as for ImageNet), mlp, linear (the head alone), one "
        "of a plugin, or a name of timm where it is installed; auto: reduced-resnet18 for images, "
        "mlp for vectors",
        paper="reduced ResNet-18",
        source="reference",
    )
    hidden: int = setting(256, "units of each hidden layer of an mlp", ge=1, le=65_536)
    weights: str = setting(
        "", "safetensors file of weights that the backbone begins with; none: drawn from the seed"
    )
    weights_sha256: str = setting(
        "", "of that file; it is found by itself, and stands in the run's key instead of the path"
    )
    frozen: bool = setting(False, "the backbone stays as it is: only the head learns")
    statistics: Literal["ref", "unbiased"] = setting(
        "ref",
        "batch-norm in answers: running statistics as the reference code has them, which begin at "
        "0 and 1 and lag behind for the first batches; or unbiased, without that start (the "
        "default of dualmix.create)",
        source="reference",
    )
    width: int = setting(
        20,
        "channels of the first stage",
        paper="reduced ResNet-18",
        source="reference",
        ge=1,
        le=512,
    )
    head: Literal["fixed", "growing"] = setting(
        "fixed",
        "fixed: a column for every class of the stream from step 0; growing: a column when a class "
        "is first seen",
        paper="a single head for all classes",
        source="paper",
    )
    mean: tuple[float, ...] = setting(
        (),
        "channel means to subtract from pixels in [0, 1], e.g. [0.5,0.5,0.5]; []: no normalisation",
        source="reference",
    )
    std: tuple[float, ...] = setting(
        (), "channel deviations to divide by; []: no normalisation", source="reference"
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32",
        "bfloat16: the network is run under torch.autocast, its weights, logits and losses stay "
        "float32; other results, and untested on CUDA",
    )

    engine: Literal["torch", "native", "auto"] = setting(
        "torch",
        "torch, or the native engine: C kernels for CPUs, quicker, other rounding; auto: native on "
        "a CPU where it was built, else torch",
    )

    def resolved(self, device: str, shape: Shape = (3, 32, 32)) -> Literal["torch", "native"]:
        """Return the engine that runs the network: what ``auto`` stands for on this machine."""
        if self.engine != "auto":
            return self.engine
        known = self.name in ("auto", "reduced-resnet18") and len(shape) == 3
        usable = known and device == "cpu" and self.precision == "float32" and available()
        return "native" if usable else "torch"

    @model_validator(mode="before")
    @classmethod
    def _known_by_content(cls, given: Any) -> Any:
        """Look at a file of weights once: what is filed goes by its content, wherever it lies."""
        if not isinstance(given, dict) or not (path := given.get("weights")):
            return given
        if given.get("weights_sha256") or not isinstance(path, str | Path):
            return given
        try:
            with open_file(Path(path)) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, DataError, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or fault
            raise ValueError(f"weights: {str(path)!a} cannot be read ({reason})") from fault
        return {**given, "weights": str(path), "weights_sha256": digest}

    @model_validator(mode="after")
    def _normalisation_fits(self) -> Model:
        if len(self.mean) != len(self.std) or any(s <= 0 for s in self.std):
            raise ValueError("mean and std need one number per channel each, and std above 0")
        return self


class Probes(Settings):
    """Measurements at task borders, which change nothing in the training."""

    on: bool = setting(
        False,
        "measure Eqs. 4-6, head norms, AdpMix's gate and the memory's classes after each task",
    )
    draws: int = setting(32, "draws of the augmentation for Eqs. 4-6", ge=2, le=10_000)
    rows: int = setting(
        200,
        "images of the memory that Eqs. 4-6 are measured on; fewer make CO and m-bar larger",
        ge=1,
        le=1_000_000,
    )
    past: int = setting(1000, "past training images that stand for Eq. 3", ge=1, le=1_000_000)
    operators: tuple[str, ...] = setting(
        (),
        "further augmentations to measure on the same model, e.g. [flip,crop-0.8,standard,enmix]",
    )

    linear: bool = setting(
        False,
        "after the last task fit a linear classifier to the features of all images of the stream, "
        "and score it on the test images",
    )
    answers: bool = setting(
        False,
        "after the last task score every way to answer of a rehearsal method: by the head or the "
        "nearest class mean, with the weights or their average where it has one (+ema, +mkd)",
    )

    @field_validator("operators")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != "enmix":
                check_name(name)
        return names

    @model_validator(mode="after")
    def _measured_at_all(self) -> Probes:
        if self.operators and not self.on:
            raise ValueError(worded(f"operators are {UNMEASURED}"))
        for name in ("linear", "answers"):
            if getattr(self, name) and not self.on:
                raise ValueError(worded(f"{name} is {UNMEASURED}"))
        return self


class Common(Settings):
    """Everything a run depends on but its method."""

    data: Data = Data()
    stream: Stream = Stream()
    model: Model = Model()
    probes: Probes = Probes()
    seed: int = setting(
        0, "the seed from which all chance comes", paper="10 runs", source="ours", ge=0, lt=2**32
    )
    order_seed: int | None = setting(
        None, "seed of class and sample order; none: seed", source="ours", ge=0, lt=2**32
    )
    run_seed: int | None = setting(
        None, "seed of weights, memory and augmentation; none: seed", source="ours", ge=0, lt=2**32
    )
    device: str = setting(
        "cpu",
        "where to train: cpu, cuda, cuda:1",
        paper="one GPU",
        source="ours",
        pattern=r"^(cpu|cuda(:\d+)?)$",
    )
    threads: int = setting(1, "torch threads of the process", source="ours", ge=1, le=1024)
    save_every: int = setting(
        500,
        "steps between snapshots (one is also made after each task)",
        source="ours",
        ge=1,
        le=10**12,
    )
    log_every: int = setting(
        0,
        "steps between lines of loss and online accuracy in the run's log.jsonl; 0: none",
        source="ours",
        ge=0,
        le=10**12,
    )


class Config(Common, Generic[MethodT]):
    """Everything a run depends on."""

    method: SerializeAsAny[MethodT]

    def record(self) -> dict[str, Any]:
        """Return the configuration as plain JSON, which `compose` reads back."""
        plain = self.model_dump(mode="json")
        plain["method"] = {"kind": self.method.kind, **plain["method"]}
        return plain

    def seeds(self) -> tuple[int, int]:
        """Return the order seed and the run seed."""
        return (
            self.seed if self.order_seed is None else self.order_seed,
            self.seed if self.run_seed is None else self.run_seed,
        )

    def code(self) -> Code:
        """Return the code of a method and a backbone that are not the package's own."""
        return code_of(type(self.method)).joined(code_of_backbone(self.model.name))

    def key(self, fingerprint: str, code: str | None = None) -> str:
        """Return the sha256 of all that affects the result, the data's content included, and the
        code of a method and a backbone that are not the package's own.

        Parameters
        ----------
        fingerprint
            Of the data.
        code
            Of a plugin (`plugins.Code.identity`); none: what is loaded now.

        Notes
        -----
        A value equal to its default is left out, so that a setting added later does not orphan the
        results there are; in return, changing a default raises `RESULTS_VERSION`. Settings go by
        the names that they first had, so that a rename does not orphan results either. A plugin's
        file counts with what it imports beside it, not with data that it reads.
        """
        set_apart = {"seed", "save_every", "log_every", "data", "probes"}
        plain = self.model_dump(mode="json", exclude_defaults=True, exclude=set_apart)
        plain = first_names({**plain, "method": {"kind": self.method.kind, **plain["method"]}})
        plain["kind"] = plain["method"].pop("kind")
        plain.get("model", {}).pop("weights", None)
        plain["order_seed"], plain["run_seed"] = self.seeds()
        plain["data"] = fingerprint
        if code := self.code().identity() if code is None else code:
            plain["code"] = code
        plain["results_version"] = RESULTS_VERSION
        return hashlib.sha256(canonical(plain).encode()).hexdigest()


def canonical(plain: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
