"""Bodies of requests, in three forms: JSON, numpy's array files, and pictures.

Whatever is wrong with one is an `InputError` of one sentence.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.data.npy import PickledError, read_header
from dualmix.data.source import Fit
from dualmix.errors import InputError
from dualmix.learn.types import Shape
from dualmix.serve import pictures
from dualmix.serve.faults import RefusalError

NPY = ("application/x-npy", "application/octet-stream")
JSON = "application/json"
FORM = "multipart/form-data"
MOST_FILES = 256
"""Pictures of one form."""
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Body:
    """What a body holds: rows, and where it says so labels and an id."""

    x: NDArray[Any]
    y: Any = None
    name: str = ""


def media_type(header: str) -> str:
    """Return the media type of a Content-Type, one that is known here.

    Raises
    ------
    RefusalError
        It is none of those.
    """
    kind = header.partition(";")[0].strip().lower()
    if kind in (JSON, FORM, *NPY) or kind.startswith("image/"):
        return kind
    raise RefusalError(
        415,
        f"The Content-Type {ascii(kind)[1:-1][:60] or 'is missing and'} is none that is known "
        "here: send application/json, application/x-npy (numpy.save), image/png, image/jpeg, or "
        "multipart/form-data.",
    )


def decode(content: bytes, kind: str, shape: Shape, fit: Fit) -> Body:
    """Return what a body of a known media type holds."""
    if kind == JSON:
        return _from_json(content, shape)
    if kind in NPY:
        return _from_npy(content)
    return Body(pictures.decode([content], shape, fit))


def from_form(content: bytes, header: str, shape: Shape, fit: Fit) -> tuple[Body, list[str]]:
    """Return the pictures of a form as one batch, and the texts of its labels.

    Parameters
    ----------
    header
        The whole Content-Type, which says what stands between the parts.
    """
    files, labels = [], []
    for name, inner in _parts(content, header):
        if name == "image":
            files.append(inner)
        elif name == "label":
            labels.append(inner.decode("utf-8", "replace"))
        else:
            raise InputError("A form has files called image, and fields called label.")
    if not 0 < len(files) <= MOST_FILES:
        raise InputError(f"A form has 1 to {MOST_FILES} pictures, each in a field called image.")
    return Body(pictures.decode(files, shape, fit)), labels


def _parts(content: bytes, header: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each part of a form (RFC 7578); names of files are not read."""
    edge = _parameter(header, "boundary").encode("latin-1", "replace")
    _, *parts = (b"\r\n" + content).split(b"\r\n--" + edge)
    if not 0 < len(edge) <= 70 or not parts or not parts[-1].startswith(b"--"):
        raise InputError("The form cannot be read: send multipart/form-data, whole.")
    for part in parts[:-1]:
        head, gap, inner = part.partition(b"\r\n\r\n")
        about = [
            line
            for line in head.decode("utf-8", "replace").split("\r\n")
            if line.lower().startswith("content-disposition:")
        ]
        if not gap or len(about) != 1 or len(head) > 4096:
            raise InputError("A part of the form cannot be read: give each a name.")
        yield _parameter(about[0].partition(":")[2], "name"), inner


def _parameter(header: str, name: str) -> str:
    """Return a parameter of a header, or nothing."""
    message = Message()
    message["content-type"] = header.replace("\r", " ").replace("\n", " ")
    value = message.get_param(name)
    return value if isinstance(value, str) else ""


def plain_json(content: bytes) -> Any:
    """Return what JSON says; NaN and infinity are no JSON."""
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as fault:
        why = "it is nested too deep" if isinstance(fault, RecursionError) else ascii(str(fault))
        raise InputError(f"The body is no JSON ({why[:120]}): send an object with x.") from fault


def _no_number(text: str) -> None:
    raise ValueError(f"it holds {text}")


def _from_json(content: bytes, shape: Shape) -> Body:
    plain = plain_json(content)
    if not isinstance(plain, dict) or "x" not in plain or plain.keys() - {"x", "y", "id"}:
        raise InputError(
            "The JSON must be an object with x, and to observe also y, id if you like."
        )
    name = plain.get("id")
    if not isinstance(name, str | None):
        raise InputError("id must be text.")
    if not isinstance(plain["x"], list):
        raise InputError("x must be nested lists of numbers, one for each row.")
    if not isinstance(y := plain.get("y"), list | None):
        raise InputError("y must be a list of labels, one for each row.")
    return Body(_numbers(plain["x"], shape), y, name or "")


def _numbers(x: list[Any], shape: Shape) -> NDArray[Any]:
    try:
        rows = np.asarray(x)
    except (ValueError, TypeError, OverflowError, RecursionError) as fault:
        raise InputError("x must be rows of one shape, of numbers only.") from fault
    if rows.dtype.kind not in "iuf":
        raise InputError("x must hold numbers only, none of them larger than 64 bits.")
    if len(shape) == 3 and rows.dtype.kind in "iu":
        if rows.size and not (rows.min() >= 0 and rows.max() <= 255):
            raise InputError("Pixels as whole numbers must lie from 0 to 255.")
        return rows.astype(np.uint8)
    return rows


def _from_npy(content: bytes) -> Body:
    """Read one array, or two of which the second holds the labels, as `numpy.save` writes them one
    after the other.
    """
    stream = io.BytesIO(content)
    arrays: list[NDArray[Any]] = []
    while len(arrays) < 2 and stream.tell() < len(content):
        arrays.append(_array(stream, len(content)))
    if stream.tell() < len(content) or not arrays:
        raise InputError(
            "The body must be one array as numpy.save writes it, and to observe a second one after "
            "it, the labels."
        )
    return Body(arrays[0], arrays[1] if len(arrays) > 1 else None)


def _array(stream: io.BytesIO, length: int) -> NDArray[Any]:
    try:
        header = read_header(stream)
        if header.size > length - stream.tell():
            raise EOFError("it is cut short")
        raw = stream.read(header.size)
        flat = np.frombuffer(bytearray(raw), header.dtype)
        if header.dtype.kind == "U" and flat.size:
            letters = flat.view(np.dtype("u4").newbyteorder(header.dtype.byteorder))
            if letters.max() > sys.maxunicode:  # numpy makes no text of it, but a SystemError
                raise ValueError("it holds what is no letter")
        return flat.reshape(header.shape, order="F" if header.fortran else "C")
    except PickledError as fault:
        raise InputError("The array holds Python objects: save numbers or text.") from fault
    except Exception as fault:  # numpy's parser of headers has faults of every kind
        raise InputError(
            f"The body is no array as numpy.save writes it ({ascii(str(fault))[:100]})."
        ) from fault


def labels_of(texts: Sequence[str], known: int | str | None) -> list[int] | list[str]:
    """Return labels that came as text in an address: of the kind of one that is known, and where
    none is whole numbers if all look like it.
    """
    numbers = all(WHOLE_NUMBER.fullmatch(text) for text in texts)
    if isinstance(known, str):
        return list(texts)
    if not numbers and known is not None:
        raise InputError("Labels so far are whole numbers: give label such a one.")
    return [int(text) for text in texts] if numbers else list(texts)
