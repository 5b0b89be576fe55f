"""Unpickle: read the dictionaries of arrays that old data sets come in, without being able to run
anything.

A pickle is a program for a small stack machine that may call any function of Python. The machine
here knows only the steps that a dictionary of texts, numbers, lists and numpy arrays needs. The
names such files mention (``numpy.ndarray`` and its few helpers) never become the real objects: they
are tokens that this file interprets itself. So there is no call to misuse, no class to look up, no
object whose attributes could be set, and everything else is refused when it is met."""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import DataError

LARGEST = 4 << 30
"""Bytes; the largest file of the kind (Mini-ImageNet's training classes) has 0.8 GB."""

MOST_STEPS = 3_000_000
"""CIFAR-100's training file takes about 0.3 million steps."""

NUMBERS = {"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"}


class _RefusedError(Exception):
    """The file asks for something that it has no business with."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A name that may be mentioned; it stands for itself and cannot be called."""

    name: str


@dataclass(slots=True)
class _Kind:
    """A dtype under construction: one of `NUMBERS` and its byte order."""

    code: str
    order: str = ""

    def build(self, state: Any, _: Callable[[str], bytes]) -> _Kind:
        match state:
            case (3, "|" | "<" | ">" as order, None, None, None, -1, -1, 0):
                self.order = order
                return self
        raise _RefusedError("an array of something else than whole numbers")

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order.replace("|", "") + self.code)


@dataclass(slots=True)
class _Array:
    """An array under construction; `array` is there once its state was seen."""

    array: NDArray[Any] | None = None

    def build(self, state: Any, latin: Callable[[str], bytes]) -> NDArray[Any]:
        match state:
            case (1, tuple(shape), _Kind() as kind, bool(fortran), bytes() | str() as raw):
                data = latin(raw) if isinstance(raw, str) else raw
                self.array = _array(data, kind, shape, "F" if fortran else "C")
                return self.array
        raise _RefusedError("an array of something else than whole numbers")


_NDARRAY, _DTYPE, _RECONSTRUCT = _Token("ndarray"), _Token("dtype"), _Token("reconstruct")
_FROMBUFFER, _ENCODE = _Token("frombuffer"), _Token("encode")
_ADMITTED = {
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy.core.numeric _frombuffer": _FROMBUFFER,
    "numpy._core.numeric _frombuffer": _FROMBUFFER,
    "_codecs encode": _ENCODE,
}


def _array(raw: bytes | bytearray, kind: _Kind, shape: tuple[Any, ...], order: Any) -> NDArray[Any]:
    if (
        len(shape) > 4
        or not all(type(n) is int and n >= 0 for n in shape)
        or order not in ("C", "F")
    ):
        raise _RefusedError("an array of an impossible shape")
    dtype = kind.dtype()
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise _RefusedError("an array whose bytes do not fill its shape")
    return np.frombuffer(raw, dtype).reshape(shape, order=order)


def _apply(token: Any, arguments: Any, latin: Callable[[str], bytes]) -> Any:
    """Do what an admitted name would do with the arguments such files give it, and with no
    others.
    """
    match token, arguments:
        case _Token("reconstruct"), (_Token("ndarray"), (0,), b"b" | "b"):
            return _Array()
        case _Token("dtype"), (str(code), 0, 1) if code in NUMBERS:
            return _Kind(code)
        case _Token("frombuffer"), (
            bytes() | bytearray() as raw,
            _Kind() as kind,
            tuple(shape),
            order,
        ):
            return _array(raw, kind, shape, order)
        case _Token("encode"), (str(text), "latin1" | "latin-1"):
            return latin(text)
    raise _RefusedError("a call")


class _Machine:
    """The stack, the memo and the permitted steps."""

    def __init__(self, size: int) -> None:
        self.room = size
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: IO[bytes]) -> Any:
        for steps, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            name = opcode.name
            if steps > MOST_STEPS:
                raise _RefusedError("far more parts than such a file has")
            if name in _LITERALS:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name not in ("PROTO", "FRAME", "STOP"):
                raise _RefusedError(f"the step {name}")
        (result,) = self.stack
        return result

    def latin(self, text: str) -> bytes:
        """Turn a text into bytes; all together are no more than the file has, or one text would be
        turned again and again until the memory is full.
        """
        self.room -= len(text)
        if self.room < 0:
            raise _RefusedError("the same text many times over")
        return text.encode("latin-1")

    def mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, index: Any) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        kept = self.memo[index]
        self.stack.append(
            kept.array if isinstance(kept, _Array) and kept.array is not None else kept
        )

    def append(self, _: Any) -> None:
        item = self.stack.pop()
        self.extend([item])

    def appends(self, _: Any) -> None:
        self.extend(self.since_mark())

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _RefusedError("an addition to something that is no list")
        self.stack[-1].extend(items)

    def set_item(self, _: Any) -> None:
        pair = self.stack[-2:]
        del self.stack[-2:]
        self.fill(pair)

    def set_items(self, _: Any) -> None:
        self.fill(self.since_mark())

    def fill(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or not all(
            type(key) in (str, bytes) for key in items[::2]
        ):
            raise _RefusedError("an entry that is not filed under a text")
        keys = [key.decode("latin-1") if isinstance(key, bytes) else key for key in items[::2]]
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    def make_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.since_mark()))

    def make_list(self, _: Any) -> None:
        self.stack.append(self.since_mark())

    def make_dict(self, _: Any) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.fill(items)

    def pack(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        if len(items) != count:
            raise IndexError
        self.stack[-count:] = [items]

    def name(self, argument: str) -> None:
        if argument not in _ADMITTED:
            raise _RefusedError(argument.replace(" ", ".")[:80])
        self.stack.append(_ADMITTED[argument])

    def stack_name(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _RefusedError("a name that is no text")
        self.name(f"{module} {name}")

    def reduce(self, _: Any) -> None:
        arguments, token = self.stack.pop(), self.stack.pop()
        self.stack.append(_apply(token, arguments, self.latin))

    def build(self, _: Any) -> None:
        state, target = self.stack.pop(), self.stack.pop()
        if not isinstance(target, _Array | _Kind):
            raise _RefusedError("a change of an object")
        self.stack.append(target.build(state, self.latin))


_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1"),
    *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "TUPLE": _Machine.make_tuple,
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "TUPLE1": lambda machine, _: machine.pack(1),
    "TUPLE2": lambda machine, _: machine.pack(2),
    "TUPLE3": lambda machine, _: machine.pack(3),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}


def read(stream: IO[bytes], name: str, remedy: str) -> dict[str, Any]:
    """Read a pickled dictionary of texts, numbers, lists and arrays of whole numbers.

    Parameters
    ----------
    stream
        The pickle, at its beginning.
    name
        The file's name for messages.
    remedy
        What the user should do when it is refused or broken, as the end of a sentence.

    Returns
    -------
    dict
        Texts as keys; the caller must check that the values are what it expects.

    Raises
    ------
    DataError
        When the file asks for anything else, is cut short, or is no pickle. Nothing in it has run.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if size > LARGEST:
        raise DataError(f"{name} is far larger than such a file can be: {remedy}.")
    try:
        result = _Machine(size).run(stream)
    except _RefusedError as reason:
        raise DataError(
            f"{name} was refused before anything in it could run, because it holds {reason}, "
            f"which such a file never needs: {remedy}."
        ) from None
    except Exception as fault:  # pickletools raises whatever its readers of numbers raise
        raise DataError(f"{name} is cut short or damaged: {remedy}.") from fault
    if type(result) is not dict:
        raise DataError(
            f"{name} does not hold a dictionary, so it is not the file it should be: {remedy}."
        )
    return result
