"""Library calls with odd arguments, written as code so that each failure is a line to paste."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import dualmix
from tests.torture.jail import Kind, Outcome, WrongError, equal, judged
from tests.torture.shallow import shallow

SHAPE = (1, 8, 8)
EACH = 20


def _codes(text: str) -> list[str]:
    return [code.strip() for code in text.split("|")]


NUMBERS = _codes("""
0 | 1 | 2 | -1 | 10**4 | 10**19 | 2**31 | 2**32 | 2**63 | -2**63 | 2.0 | 1.5 | float('nan') |
float('inf') | 1e39 | True | None | '3' | 'x' | '' | [1] | {} | np.int64(3) | np.uint8(3) |
np.float32(3) | torch.tensor(3) | np.array(3) | b'3' | 3j
""")
SHAPES = _codes("""
[1, 8, 8] | None | () | (8, 8) | (1, 8, 8, 1) | (0, 8, 8) | (1, -8, 8) | '188' | 8 |
(np.int64(1), 8, 8) | np.array([1, 8, 8]) | (1.0, 8, 8) | (True, 8, 8) | (1, 8, None) |
(1, 10**7, 10**7) | (2**63, 8, 8) | torch.Size([1, 8, 8]) | (1, 1, 1) | (7, 9, 3) | range(1, 4) |
iter((1, 8, 8)) | {1, 8} | (1, '8', 8) | (1, 8, float('nan'))
""")
DEVICES = _codes("""
'cpu' | 'mps' | 'cuda' | 'cuda:99' | 'nonsense' | '' | None | 0 | 'meta' | 'cpu:1' |
torch.device('cpu') | 'xla' | b'cpu' | 'CPU' | ['cpu']
""")
NAMES = _codes("""
'err' | '' | None | 3 | 'er+' | 'er+x' | '+da' | 'er+da+da' | 'iid-online' | b'er'
""")
IMAGES = _codes("""
pixels(3) | pixels(3) | pixels(1) | pixels(0) | pixels(3)[0] | pixels(3).astype(float) |
pixels(3) / 255 | (pixels(3) / 255).astype(np.float16) | pixels(3).astype(np.int64) |
pixels(3).astype(bool) | pixels(3).astype(complex) | pixels(3).astype(object) | None |
np.array(3, np.uint8) | np.zeros((3, 0, 8, 8), np.uint8) | 'image' | [] | [[[[0]]]] | {} |
np.full((3, 1, 8, 8), np.nan) | np.full((3, 1, 8, 8), np.inf) | -pixels(3) / 255.0 |
pixels(3).transpose(0, 2, 3, 1) | np.zeros((3, 3, 8, 8), np.uint8) | np.datetime64('2020') |
torch.nested.nested_tensor([torch.zeros(1, 8, 8)] * 3) | torch.zeros(3, 1, 8, 8).bfloat16() |
torch.quantize_per_tensor(torch.zeros(3, 1, 8, 8), 0.1, 0, torch.quint8) | object() |
[pixels(1)[0], np.zeros((2, 2))] | memoryview(pixels(3)) | (p for p in pixels(3)) |
np.zeros(3, dtype=[('x', 'u1')]) | np.array(['a', 'b', 'c']) | torch.zeros(3, 1, 8, 8).double()
""")
LABELS = _codes("""
[0, 1, 2] | [0, 1, 2] | [5] | [] | ['a', 'b', 'c'] | [0, 'a', 1] | [0.0, 1.0, 2.0] | None |
[0.5, 1, 2] | [np.nan, 0, 1] | [10**19, 0, 1] | [-2**63, 2**63 - 1, 0] | [2.0**60, 0, 1] |
['', ' ', chr(0)] | ['é' * 1000, 'b', 'c'] | [None, 1, 2] | [True, False, True] | 'abc' | 7 |
np.array([0, 1, 2], np.uint8) | np.array([0, 1, 2], np.float16) | [[0], [1], [2]] | [0, 1, 2, 3] |
np.array([0, 1, 2], object) | np.array(['a', 'b', 'c'], 'S1') | np.array([1, 2, 3], 'M8[s]') |
torch.nested.nested_tensor([torch.zeros(1)] * 3) | torch.tensor([0, 1, 2]).to('meta') | {} |
torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8) |
torch.zeros(3, dtype=torch.cfloat) | np.array([0, 1, 2], np.longdouble) | ['\\ud800', 'b', 'c'] |
iter([0, 1, 2]) | {0, 1, 2} | torch.tensor([0., 1., 2.], requires_grad=True) |
torch.tensor([0, 1, 2]).to_sparse() | [0, 1, 2.5] | np.zeros(3, dtype=[('y', 'i8')]) |
torch.tensor([0, 1, 2], dtype=torch.uint64) | [[0, 1], [2]]
""")
WRAPPERS = _codes("""
np.asfortranarray({}) | np.ma.masked_array({}, mask=True) | np.ma.masked_array({}) | {}[::-1] |
np.ma.masked_greater({}, 1) | torch.as_tensor({}) | torch.as_tensor({}).to('meta') | list({}) |
torch.as_tensor({}).to_sparse() | np.asarray({}).view(np.matrix) | frozen({}) | tuple({}) |
np.asarray({}).byteswap().view(np.asarray({}).dtype.newbyteorder()) |
np.asarray({}).repeat(2, 0)[::2] | np.asarray({}).astype(np.int16) | np.asarray({})[None] |
np.asarray({}).tolist() | [{}]
""")
PATHS = (
    *("good", "good", "no/such/folder/x", ".", "", "x" * 300, "a\0b", "é\udc80", "/dev/null"),
    *("/proc/x", "good/x", "/", "~", "x" * 256, "/dev/full", "/dev/stdin"),
)


def pixels(rows: int) -> np.ndarray:
    """Return some images."""
    return np.random.default_rng(rows).integers(0, 256, (rows, *SHAPE), dtype=np.uint8)


def frozen(given: Any) -> np.ndarray:
    """Return an array that cannot be written."""
    array = np.array(given)
    array.flags.writeable = False
    return array


WORLD = {"np": np, "torch": torch, "pixels": pixels, "frozen": frozen, "dualmix": dualmix}


def tiny(name: str, seed: int = 0, classes: int | None = None) -> Any:
    """Return a learner of a method whose network and memory are very small."""
    config = settings(name)
    return dualmix.build(config.method, SHAPE, classes=classes, seed=seed, model=config.model)


@cache
def settings(name: str) -> Any:
    """Return the configuration of a method whose network and memory are very small."""
    fields = type(dualmix.compose(name).config.method).model_fields
    small = {
        "memory": 8,
        "memory_batch": 3,
        "epochs": 1,
        "projection": 4,
        "candidates": 5,
        "batch": 4,
    }
    values = {f"method.{key}": value for key, value in small.items() if key in fields}
    return dualmix.compose(name, {**values, "model.width": 2}).config


@cache
def methods() -> list[str]:
    """Return every method of the registry, alone and with each of its additions."""
    from dualmix.registry import presets, split_name

    return [name for name, found in presets().items() if found.kind == split_name(name)[0]]


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Try one odd creation, then odd calls on a good learner; every twentieth time on the network
    that users have.
    """
    with shallow(index % 20 != 0):
        yield _creation(chance)
        subject = _Subject(chance)
        verbs = (subject.observe,) * 3 + (subject.predict, subject.consolidate, subject.save)
        for _ in range(EACH - 1):
            yield chance.choice(verbs)(chance)


def _creation(chance: Random) -> Outcome:
    from dualmix.registry import get_method, split_name

    name = chance.choice(methods())
    fields = list(get_method(split_name(name)[0]).model_fields)
    given = {"shape": "(1, 8, 8)", **({"memory": "8"} if "memory" in fields else {})}
    odd = {"shape": SHAPES, "device": DEVICES, "seed": NUMBERS, "classes": NUMBERS}
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        argument = chance.choice([*odd, *chance.sample(fields, min(1, len(fields))), "nonsense"])
        given[argument] = chance.choice(odd.get(argument, NUMBERS))
    called = repr(name) if chance.random() < 0.9 else chance.choice(NAMES)
    words = ", ".join(f"{key}={value}" for key, value in given.items())
    return judged(
        f"dualmix.create({called}, {words})", lambda: _usable(f"dualmix.create({called}, {words})")
    )


def _usable(code: str) -> None:
    """Demand that a new learner learns, answers and goes on the same after a save."""
    learner = eval(code, dict(WORLD))
    with accepted():
        _exercised(learner)


@contextmanager
def accepted() -> Iterator[None]:
    """Turn a typed error into a broken promise: it comes too late, the learner is there already.

    Lawful settings may end in a loss that is not finite, or in more than the memory of a case.
    """
    try:
        yield
    except dualmix.DualmixError as fault:
        if any(word in str(fault) for word in ("finite", "diverge", "fit into the memory")):
            raise
        raise WrongError(f"accepted, and then refused to work ({type(fault).__name__})") from fault


def _exercised(learner: Any) -> None:
    recipe = learner.recipe["shape"]
    x = np.random.default_rng(0).integers(0, 256, (2, *recipe), dtype=np.uint8)
    classes = learner.recipe["classes"]
    y = [0, 1] if classes is None or classes > 1 else [0, 0]
    learner.observe(x, y)
    dualmix.save(learner, "made.safetensors")
    again = dualmix.load("made.safetensors")
    for other in (learner, again):
        other.observe(x, y)
        if not set(other.predict(x).tolist()) <= {0, 1}:
            raise WrongError("predict gave a label that was never seen")
    if not equal(learner.state_dict(), again.state_dict()):
        raise WrongError("a loaded learner went on otherwise than the one saved")


def _odd(chance: Random, pool: list[str]) -> str:
    code = chance.choice(pool)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        wrapper = chance.choice(WRAPPERS)
        code = wrapper.replace("{}", code)
    return code


def _value(code: str) -> Any:
    """Return what code makes, or nothing where torch or numpy cannot make it themselves."""
    try:
        return eval(code, dict(WORLD))
    except Exception:
        return None


class _Subject:
    """A good learner that odd calls are tried on, and its state, which is taken anew only after a
    call that may have changed it.
    """

    def __init__(self, chance: Random) -> None:
        self.name, classes = chance.choice(methods()), chance.choice((None, None, 12))
        self.learner, self.twin = (tiny(self.name, classes=classes) for _ in range(2))
        self.learner.observe(pixels(3), ["a", "b", "c"] if chance.random() < 0.2 else [0, 1, 2])
        self.state = self.learner.state_dict()

    def observe(self, chance: Random) -> Outcome:
        """Learn a batch, or be refused and stay the same."""
        x = _odd(chance, IMAGES) if chance.random() < 0.6 else "pixels(3)"
        y = _odd(chance, LABELS) if chance.random() < 0.6 else "[0, 1, 2]"
        given = _value(x), _value(y)

        def call() -> None:
            try:
                self.learner.observe(*given)
            except BaseException:
                self.unchanged("a refused batch changed the learner")
                raise
            before, self.state = self.state, self.learner.state_dict()
            self.taken(before, given)

        return self.settled(f"observe({x}, {y})", call)

    def taken(self, before: Any, given: tuple[Any, Any]) -> None:
        """Demand that what was taken is a batch, and was learned as its plain copy would be."""
        for value in given:
            if np.ma.is_masked(value):
                raise WrongError("a masked array was taken and its mask dropped")
        x, y = map(_plain, given)
        if x is None or y is None:
            raise WrongError(f"a batch was taken that is none ({', '.join(map(_kind, given))})")
        if x.shape[1:] != SHAPE or y.shape != x.shape[:1]:
            raise WrongError("a batch of another shape was taken")
        plain = type(given[0]) is np.ndarray and type(given[1]) is list  # its own plain copy
        if not plain and x.dtype == np.uint8 and y.dtype.kind in "iuU":
            self.twin.load_state_dict(before)
            self.twin.observe(x, y)
            if not equal(self.twin.state_dict(), self.state):
                raise WrongError("a batch was learned otherwise than its plain copy")

    def predict(self, chance: Random) -> Outcome:
        """Answer, and stay the same."""
        x = _odd(chance, IMAGES)
        given, known = _value(x), set(self.learner.model.labels)

        def call() -> None:
            try:
                answers = self.learner.predict(given)
            finally:
                self.unchanged("predict changed the learner")
            if np.ma.is_masked(given):
                raise WrongError("a masked array was taken and its mask dropped")
            if len(answers) != len(given) or not set(answers.tolist()) <= known:
                raise WrongError("predict gave other than one known label for each image")

        return self.settled(f"predict({x})", call)

    def consolidate(self, chance: Random) -> Outcome:
        """Take note of a pause."""

        def call() -> None:
            self.learner.consolidate()
            self.state = self.learner.state_dict()

        return self.settled("consolidate()", call)

    def save(self, chance: Random) -> Outcome:
        """Save and load the same learner again."""
        path = chance.choice(PATHS)

        def call() -> None:
            dualmix.save(self.learner, path)
            if not equal(dualmix.load(path).state_dict(), self.state):
                raise WrongError("a loaded learner differs from the one saved")

        return self.settled(f"save(path={path!r})", call)

    def unchanged(self, fault: str) -> None:
        """Demand the state of before the call."""
        if not equal(self.learner.state_dict(), self.state):
            raise WrongError(fault) from None

    def settled(self, story: str, call: Callable[[], None]) -> Outcome:
        """Judge a call and put the learner back, so that one failure does not make the next."""
        outcome = judged(f"tiny({self.name!r}).{story}", call)
        if outcome.verdict not in ("right", "typed"):
            self.learner.load_state_dict(self.state)
        return outcome


def _kind(value: Any) -> str:
    return f"{type(value).__name__} of {getattr(value, 'dtype', 'things')}"


def _plain(value: Any) -> np.ndarray | None:
    try:
        if isinstance(value, torch.Tensor):
            value = value.detach().double() if value.is_floating_point() else value.detach()
        array = np.array(value)
    except Exception:
        return None
    fine = array.dtype.kind in "iufU" and (array.dtype.kind != "f" or np.isfinite(array).all())
    return array if fine or array.dtype.kind in "bO" else None


KIND = Kind("calls", "library calls with odd arguments", 100_000, EACH, 30, attempt)
