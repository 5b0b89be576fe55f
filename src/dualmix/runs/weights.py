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
LEARNER = f"/learner/model/{OURS}"
"""Beginning of names in the file of a saved learner, whose backbone is taken."""


def fill(backbone: nn.Module, path: Path, sha256: str) -> None:
    """Put the weights of a file, or those of a saved learner's backbone, into a backbone: every one
    it has must be there and fit.

    Raises
    ------
    ConfigError
        The file is no safetensors file, of another network, or not the one with this sha256.
    """
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigError(
            f"{path} is not the file that the settings were made with (sha256 {sha256[:12]}): "
            "give that one, or leave out weights_sha256."
        )
    try:
        tensors = parse(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as fault:
        raise ConfigError(
            f"{path} is no safetensors file of weights: {str(fault)[:200]}"
        ) from fault
    if any(name.startswith(LEARNER) for name in tensors):
        tensors = {n.removeprefix(LEARNER): t for n, t in tensors.items() if n.startswith(LEARNER)}
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
        if name in tensors and not bool(tensors[name].to(weight.dtype).isfinite().all()):
            raise ConfigError(f"{name} in {path} holds NaN or infinite numbers.")
    extra = [n for n in tensors if n not in wanted and not n.startswith(HEADS)]
    if extra:
        raise ConfigError(f"{path} also has {extra[0]}: it holds the weights of another network.")
    backbone.load_state_dict(tensors, strict=False)
