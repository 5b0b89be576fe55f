"""Nested state in one safetensors file: tensors as they are, the rest as JSON. Nothing in it can
run code.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor

from dualmix.errors import StoreError
from dualmix.store.files import read_bytes, write_bytes

State = dict[str, Any]
"""Nested plain dicts, lists, numbers, strings and tensors."""

_TENSOR = "tensor:"


def write(path: Path, state: State) -> None:
    """Save a state so that the file is either the old one or the new one, whole, whenever the
    process dies.
    """
    write_bytes(path, state_bytes(state))


def state_bytes(state: State) -> bytes:
    """Return a state as a file holds it; equal states, equal bytes."""
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_strip(state, "", tensors), sort_keys=True, allow_nan=False)
    header = {
        "dualmix": json.dumps(
            {"sha256": _digest(skeleton, tensors), "state": skeleton}, sort_keys=True
        )
    }
    try:
        return serialise(tensors, header)
    except BaseException as fault:  # safetensors panics where it gets no memory: no Exception
        if not isinstance(fault, MemoryError) and type(fault).__name__ != "PanicException":
            raise
        size = sum(tensor.nbytes for tensor in tensors.values())
        raise StoreError(
            f"A state of {size:,} bytes does not fit into the memory once more, as saving it needs."
        ) from fault


def read(path: Path) -> State:
    """Load a state that `write` saved.

    Raises
    ------
    StoreError
        The file is missing, cut short, changed or not ours.
    """
    return parse_state(read_bytes(path), path)


def parse_state(content: bytes, path: Path) -> State:
    """Return the state that a file's content holds, as `read` does."""
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["dualmix"])
        tensors = parse(content)
        if _digest(header["state"], tensors) != header["sha256"]:
            raise StoreError(f"{path} is damaged: its checksum does not match.")
        filled: set[str] = set()
        state = _fill(json.loads(header["state"], parse_constant=_no_number), tensors, filled)
        if not isinstance(state, dict) or filled != tensors.keys():
            raise ValueError("it holds more, or other things, than a state")
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        RuntimeError,
        MemoryError,
        SafetensorError,
    ) as fault:
        reason = "nested too deep" if isinstance(fault, RecursionError) else str(fault)[:200]
        raise StoreError(
            f"{path} cannot be read as a snapshot ({type(fault).__name__}: {reason})."
        ) from fault
    return state


def _no_number(text: str) -> None:
    raise ValueError(f"it holds {text}")


def _strip(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return _TENSOR + path
    if isinstance(value, dict):
        return {
            _text(name): _strip(inner, f"{path}/{_escaped(name)}", tensors)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_strip(inner, f"{path}/{i}", tensors) for i, inner in enumerate(value)]
    if isinstance(value, str):
        return "text:" + value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"a snapshot cannot hold {type(value).__name__} (at {path})")


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a snapshot's names are text, not {name!r}")
    return name


def _escaped(name: str) -> str:
    """Return a name that holds no slash, different for different names, so that no two tensors
    share a path.
    """
    return name.replace("~", "~0").replace("/", "~1")


def _fill(value: Any, tensors: dict[str, Tensor], filled: set[str]) -> Any:
    """Return a skeleton with its tensors, each at one place only; note their names."""
    if isinstance(value, dict):
        return {name: _fill(inner, tensors, filled) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, tensors, filled) for inner in value]
    if not isinstance(value, str):
        return value
    name = value.removeprefix(_TENSOR)
    if name == value:
        return value.removeprefix("text:")
    if name in filled:
        raise ValueError(f"the tensor {name} stands at two places")
    filled.add(name)
    return tensors[name]


def _digest(skeleton: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(skeleton.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
