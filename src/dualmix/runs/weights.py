"""Weights of a backbone in a safetensors file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as parse
from torch import nn

from dualmix.errors import ConfigError
from dualmix.store.files import read_bytes

HEADS = ("fc.", "head.", "classifier.")
"""Beginnings of names that published classifiers give to their own heads, which are left out."""
OURS = "backbone."


def digest(path: Path) -> str:
    """Return the sha256 of a weight file."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def fill(backbone: nn.Module, path: Path) -> None:
    """Put the weights of a file into a backbone: every one it has must be there and fit.

    Raises
    ------
    ConfigError
        The file is no safetensors file, or of another network.
    """
    try:
        tensors = parse(read_bytes(path))
    except (SafetensorError, ValueError, KeyError, RuntimeError) as fault:
        raise ConfigError(
            f"{path} is no safetensors file of weights: {str(fault)[:200]}"
        ) from fault
    tensors = {name.removeprefix(OURS): tensor for name, tensor in tensors.items()}
    wanted = backbone.state_dict()
    for name, weight in wanted.items():
        if name not in tensors and not name.endswith("num_batches_tracked"):
            raise ConfigError(f"{path} has no {name}: it holds the weights of another network.")
        if name in tensors and tensors[name].shape != weight.shape:
            raise ConfigError(
                f"{name} in {path} is {tuple(tensors[name].shape)}, but the network's is "
                f"{tuple(weight.shape)}: it holds the weights of another network."
            )
        if name in tensors and not bool(tensors[name].isfinite().all()):
            raise ConfigError(f"{name} in {path} holds NaN or infinite numbers.")
    extra = [n for n in tensors if n not in wanted and not n.startswith(HEADS)]
    if extra:
        raise ConfigError(f"{path} also has {extra[0]}: it holds the weights of another network.")
    backbone.load_state_dict(tensors, strict=False)
