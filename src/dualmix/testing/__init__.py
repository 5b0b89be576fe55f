"""The contract that every learner keeps, for the author of a method to hold it against.

The demands, what they are tried on and how states are compared belong here. It may import every
room.

>>> from dualmix import ER
>>> check(ER(memory=20), shape=(1, 8, 8))
"""

from __future__ import annotations

import copy
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from dualmix.learn.types import Learner, Shape
from dualmix.registry import Method
from dualmix.runs.build import load, save
from dualmix.store import snapshot
from dualmix.testing.states import (
    demand,
    demand_refusal,
    demand_same,
    flat,
    global_chance,
    leaves,
    tensors,
    walk,
)
from dualmix.testing.trial import (
    CAPACITY,
    ROWS,
    STEPS,
    bad_batches,
    bad_images,
    images,
    small_learner,
    stream,
    taught,
)

Check = Callable[[Method, Shape], None]
C = TypeVar("C", bound=Check)

CHECKS: dict[str, Check] = {}
"""Every demand by name: a function of a method's settings and an image shape that raises
AssertionError.
"""


def check(
    method: Method,
    shape: Shape = (3, 32, 32),
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Hold a method against every demand of the contract, with a small network and at most 20
    images of memory.

    Parameters
    ----------
    method
        Settings such as ``ER(memory=500)``.
    shape
        (C, H, W) of the images to try it on.
    progress
        Is told the demand that is tried next, how many are met and of how many; if not given, a
        line on the terminal says so, where there is one.

    Raises
    ------
    AssertionError
        The first demand that is not met, as a sentence.
    """
    if progress is None:
        from dualmix.cli.progress import Counting
        from dualmix.cli.terminal import make_console

        with Counting(make_console(stderr=True)) as shown:
            check(method, shape, shown)
        return
    for number, (name, try_) in enumerate(CHECKS.items()):
        progress(f"{type(method).__name__}: {name.replace('_', ' ')}", number, len(CHECKS))
        try:
            try_(method, shape)
        except AssertionError:
            raise
        except Exception as fault:
            raise AssertionError(
                f"{type(method).__name__} fails at {name!r} with {type(fault).__name__}: {fault}"
            ) from fault


def _demanded(function: C) -> C:
    CHECKS[function.__name__] = function
    return function


@_demanded
def keeps_the_protocol(method: Method, shape: Shape) -> None:
    """A learner has the protocol's parts; `observe` returns one finite number and counts hits
    within the batch.
    """
    learner = small_learner(method, shape)
    demand(isinstance(learner, Learner), "The learner must have every part of dualmix.Learner.")
    for x, y in stream(shape, steps=3):
        loss = learner.observe(x, y)
        demand(
            isinstance(loss, Tensor)
            and loss.numel() == 1
            and not loss.requires_grad
            and bool(torch.isfinite(loss)),
            f"observe must return one finite number in a tensor without gradient, not {loss!r}.",
        )
        demand(
            0 <= int(learner.hits) <= len(x), f"hits must lie in 0..{len(x)}, not {learner.hits}."
        )


@_demanded
def predict_is_pure(method: Method, shape: Shape) -> None:
    """`predict` changes nothing: neither the state, nor its own next answer, nor what is learned
    afterwards.
    """
    asked, silent = small_learner(method, shape), small_learner(method, shape)
    for x, y in stream(shape):
        asked.observe(x, y)
        silent.observe(x, y)
        before = leaves(asked)
        first, second = asked.predict(x), asked.predict(x)
        demand_same(before, leaves(asked), "predict must not change the state")
        demand(
            first.tolist() == second.tolist(), "predict must give the same answer when asked twice."
        )
    demand_same(leaves(asked), leaves(silent), "predict must not change what is learned afterwards")


@_demanded
def a_seed_decides_everything(method: Method, shape: Shape) -> None:
    """Two learners from one seed end with the same bytes; another seed ends with other tensors."""
    ends = [
        leaves(taught(small_learner(method, shape, seed=seed), stream(shape))) for seed in (3, 3, 4)
    ]
    demand_same(ends[0], ends[1], "the same seed and stream must give the same state")
    other = [tensors(end) for end in (ends[0], ends[2])]
    demand(
        other[0] != other[1],
        "Another seed must give other tensors: where does the learner's chance come from?",
    )


@_demanded
def resume_is_exact(method: Method, shape: Shape) -> None:
    """Saving to a file and loading it, while the memory fills and after it is full, leaves no trace
    in the bytes.
    """
    whole, parts = small_learner(method, shape), small_learner(method, shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        for step, (x, y) in enumerate(stream(shape, steps=12)):
            losses = [float(learner.observe(x, y)) for learner in (whole, parts)]
            demand(
                losses[0] == losses[1],
                f"After a resume the loss of step {step} was {losses[1]}, not {losses[0]}.",
            )
            if step % 3 == 1:
                save(parts, path)
                parts = load(path)
            demand_same(
                leaves(whole),
                leaves(parts),
                f"going on from a saved file must be exact (step {step})",
            )
    for learner in (whole, parts):
        learner.consolidate()
    demand_same(leaves(whole), leaves(parts), "consolidate must be exact after a resume")
    demand(
        whole.predict(x).tolist() == parts.predict(x).tolist(),
        "A resumed learner must predict what the other does.",
    )


@_demanded
def an_old_state_can_be_taken_up_again(method: Method, shape: Shape) -> None:
    """`load_state_dict` goes back to an earlier state even when classes were learned since."""
    batches = stream(shape)
    learner = taught(small_learner(method, shape), batches[:3])
    kept = copy.deepcopy(learner.state_dict())
    straight = leaves(taught(learner, batches[3:]))
    learner.load_state_dict(kept)
    again = leaves(taught(learner, batches[3:]))
    demand_same(straight, again, "load_state_dict must go back to an earlier state exactly")


@_demanded
def label_ids_are_arbitrary(method: Method, shape: Shape) -> None:
    """Negative, huge and text labels give the same weights as 0, 1, 2, ... and come back from
    `predict` as given.
    """
    batches = stream(shape)
    kinds: list[list[Any]] = [
        list(range(STEPS)),
        [-(2**63), 2**63 - 1, -1, 0, 7, 10**12, -5, 3],
        ["cat", "", "3", "été", "-1", "a longer name of a class", "Cat", "nan"],
    ]
    ends, answers = [], []
    for names in kinds:
        learner = small_learner(method, shape)
        for x, y in batches:
            learner.observe(x, [names[label] for label in y])
        learner.consolidate()
        ends.append(tensors(leaves(learner)))
        said = learner.predict(batches[-1][0]).tolist()
        demand(
            all(label in names for label in said),
            f"predict must return labels as they were given, not {said}.",
        )
        answers.append([names.index(label) for label in said])
    demand(
        ends[0] == ends[1] == ends[2], "What is learned must not depend on how classes are called."
    )
    demand(
        answers[0] == answers[1] == answers[2],
        "What is predicted must not depend on how classes are called.",
    )


@_demanded
def a_batch_of_one_works(method: Method, shape: Shape) -> None:
    """Single images are learned and predicted."""
    learner = taught(small_learner(method, shape), stream(shape, rows=1))
    demand(
        learner.predict(images(shape, 1, 9)).shape == (1,),
        "predict must give one label for one image.",
    )


@_demanded
def one_class_works(method: Method, shape: Shape) -> None:
    """A stream of one class is learned, and that class is then the only answer."""
    learner = small_learner(method, shape)
    for x, _ in stream(shape, steps=4):
        learner.observe(x, [5] * len(x))
    learner.consolidate()
    demand(
        learner.predict(images(shape, 3, 9)).tolist() == [5, 5, 5],
        "With one class learned, it is every answer.",
    )


@_demanded
def answers_are_classes_seen(method: Method, shape: Shape) -> None:
    """`predict` names only classes that were observed, also where a fixed head has columns left."""
    for classes in (None, STEPS + 3):
        learner = small_learner(method, shape, classes=classes)
        seen: set[int] = set()
        for x, y in stream(shape):
            learner.observe(x, y)
            seen.update(y.tolist())
            demand(
                set(learner.predict(x).tolist()) <= seen,
                "predict must name only classes that were observed.",
            )


@_demanded
def a_small_memory_works(method: Method, shape: Shape) -> None:
    """A memory of 0, 1 or 3 images, fewer than are rehearsed, works or is refused (methods with a
    `memory` setting).
    """
    if "memory" in type(method).model_fields:
        for memory in (0, 1, 3):
            try:
                small = type(method)(**{**method.model_dump(), "memory": memory})
            except ValidationError:
                demand(
                    memory == 0,
                    f"A memory of {memory} images must be allowed: only 0 may be refused.",
                )
                continue
            learner = small_learner(small, shape)
            taught(learner, stream(shape, steps=4)).predict(images(shape, 2, 9))


@_demanded
def memory_stays_in_bounds(method: Method, shape: Shape) -> None:
    """A learner's `memory` never holds more rows than its capacity, nor a column that no class
    has.
    """
    learner = small_learner(method, shape)
    memory = getattr(learner, "memory", None)
    if memory is None:
        return
    seen: set[int] = set()
    for x, y in stream(shape, steps=10):
        learner.observe(x, y)
        seen.update(y.tolist())
        demand(
            len(memory) <= memory.capacity <= CAPACITY,
            f"The memory holds {len(memory)} images, more than its capacity {memory.capacity}.",
        )
        columns = memory.y[: len(memory)].tolist()
        demand(
            all(0 <= c < len(seen) for c in columns),
            f"The memory holds columns {columns} of {len(seen)} classes.",
        )


@_demanded
def a_new_class_can_come_at_any_moment(method: Method, shape: Shape) -> None:
    """With a growing head every batch may bring new classes, also right after a resume."""
    learner = small_learner(method, shape)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(6):
            learner.observe(images(shape, 3, step), [2 * step, 2 * step + 1, 0])
            if step == 3:
                save(learner, Path(folder) / "learner.safetensors")
                learner = load(Path(folder) / "learner.safetensors")
    answers = learner.predict(images(shape, 8, 9)).tolist()
    demand(
        set(answers) <= set(range(12)),
        f"predict must name classes that were observed, not {answers}.",
    )


@_demanded
def too_many_classes_are_refused(method: Method, shape: Shape) -> None:
    """A fixed head takes exactly its number of classes; one more is an InputError that changes
    nothing.
    """
    learner = small_learner(method, shape, classes=3)
    learner.observe(images(shape, 3, 0), [7, 8, 9])
    before = leaves(learner)
    demand_refusal(
        lambda: learner.observe(images(shape, 2, 1), [7, 10]),
        "a class more than a fixed head has columns",
    )
    demand_same(before, leaves(learner), "a refused class must leave the learner unchanged")


@_demanded
def bad_input_is_refused(method: Method, shape: Shape) -> None:
    """Whatever cannot be learned or predicted is an InputError, and the learner is unchanged."""
    learner = taught(small_learner(method, shape), stream(shape, steps=2))
    before = leaves(learner)
    for what, x, y in bad_batches(shape):
        demand_refusal(partial(learner.observe, x, y), what)
        demand_same(before, leaves(learner), f"refusing {what} must leave the learner unchanged")
    for what, x in bad_images(shape):
        demand_refusal(partial(learner.predict, x), what)
        demand_same(before, leaves(learner), f"refusing {what} must leave the learner unchanged")


@_demanded
def nothing_learned_is_said(method: Method, shape: Shape) -> None:
    """`predict` before anything was learned is an InputError."""
    for classes in (None, 3):
        learner = small_learner(method, shape, classes=classes)
        demand_refusal(partial(learner.predict, images(shape, 2, 0)), "predict before observe")


@_demanded
def the_state_is_plain(method: Method, shape: Shape) -> None:
    """The state holds plain values and tensors only: it is saved and loaded without pickle."""
    learner = taught(small_learner(method, shape), stream(shape))
    for path, leaf in walk(learner.state_dict()):
        demand(
            leaf is None or isinstance(leaf, Tensor) or type(leaf) in (bool, int, float, str),
            f"The state holds {type(leaf).__name__} at {path!r}: use plain values and tensors.",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        snapshot.write(file, learner.state_dict())
        demand_same(
            leaves(learner),
            flat(snapshot.read(file)),
            "the state must come back from a file as it was",
        )


@_demanded
def global_chance_is_untouched(method: Method, shape: Shape) -> None:
    """Python's, numpy's and torch's global generators are neither drawn from nor seeded."""
    before = global_chance()
    learner = small_learner(method, shape)
    for x, y in stream(shape):
        learner.observe(x, y)
        learner.predict(x)
    learner.consolidate()
    learner.predict(x)
    moved = [name for name, state in global_chance().items() if state != before[name]]
    demand(
        not moved,
        f"All chance must come from the Rng given to build, but {' and '.join(moved)} moved.",
    )


@_demanded
def the_future_is_unseen(method: Method, shape: Shape) -> None:
    """What is learned from a stream depends on nothing behind the batch, and no batch is kept by
    reference.
    """
    past = stream(shape, steps=5)
    rows = len(past) * ROWS
    ends = []
    for future in (0, 255):
        x = np.concatenate([*(x for x, _ in past), np.full((rows, *shape), future, np.uint8)])
        y = np.concatenate([*(y for _, y in past), np.full(rows, 100 + future)])
        learner = small_learner(method, shape)
        for start in range(0, rows, ROWS):
            now = slice(start, start + ROWS)
            given = x[now].copy(), y[now].copy()
            learner.observe(x[now], y[now])
            demand(
                bool((x[now] == given[0]).all() and (y[now] == given[1]).all()),
                "observe must not write into the arrays it is given.",
            )
            x[now], y[now] = future, 100 + future
        ends.append(leaves(learner))
    demand_same(
        ends[0], ends[1], "what comes later, or becomes of an array after observe, must not matter"
    )


@_demanded
def images_may_be_floats_or_tensors(method: Method, shape: Shape) -> None:
    """uint8, floats in [0, 1], arrays, tensors, read-only and strided views of the same images, or
    vectors of any type of number, teach the same.
    """
    batches = stream(shape, steps=4)
    most = 255 if len(shape) == 3 else 1

    def frozen(x: NDArray[Any]) -> NDArray[Any]:
        x = x.copy()
        x.flags.writeable = False
        return x

    ways: dict[str, Callable[[NDArray[Any]], Any]] = {
        "uint8 arrays": lambda x: x,
        "uint8 tensors": torch.from_numpy,
        "float32 arrays": lambda x: (x / most).astype(np.float32),
        "float64 tensors": lambda x: torch.from_numpy(x / most),
        "read-only arrays": frozen,
        "views with other strides": lambda x: np.ascontiguousarray(x.T).T,
        "mirrored views": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    }
    ends = {}
    for way, turn in ways.items():
        learner = small_learner(method, shape)
        for x, y in batches:
            learner.observe(turn(x), y)
        ends[way] = leaves(learner)
    for way, end in ends.items():
        demand_same(ends["uint8 arrays"], end, f"{way} must teach the same as uint8 arrays")


@_demanded
def every_choice_works(method: Method, shape: Shape) -> None:
    """Each value of every setting with named choices, and two `iterations`, learns, repeats and
    resumes exactly. A value that the method refuses beside its other settings is no choice.
    """
    fields = type(method).model_fields
    variants: list[dict[str, Any]] = [
        {name: choice}
        for name, field in fields.items()
        if get_origin(field.annotation) is Literal
        for choice in get_args(field.annotation)
        if choice != getattr(method, name)
    ]
    if "iterations" in fields:
        variants.append({"iterations": 2})
    for variant in variants:
        try:
            changed = type(method).model_validate(method.model_dump() | variant)
        except ValidationError:
            continue
        whole = leaves(taught(small_learner(changed, shape), stream(shape)))
        part = taught(small_learner(changed, shape), stream(shape)[: STEPS // 2], consolidate=False)
        with tempfile.TemporaryDirectory() as folder:
            save(part, Path(folder) / "learner.safetensors")
            part = load(Path(folder) / "learner.safetensors")
        demand_same(
            whole,
            leaves(taught(part, stream(shape)[STEPS // 2 :])),
            f"with {variant} a resume must be exact",
        )


@_demanded
def threads_may_share_it(method: Method, shape: Shape) -> None:
    """Predictions of three threads beside a batch belong to the state before or after it and leave
    no trace; two threads that observe are learned in one order or the other.
    """
    shared, alone = small_learner(method, shape), small_learner(method, shape)
    x, batches = images(shape, 3, 9), stream(shape)
    said: list[list[Any]] = []
    faults: list[str] = []
    for b in batches:
        alone.observe(*b)
        said.append(alone.predict(x).tolist())
    shared.observe(*batches[0])
    learned, done = [0], threading.Event()

    def ask() -> None:
        while not done.is_set() and not faults:
            first = learned[0]
            try:
                if shared.predict(x).tolist() not in said[first : learned[0] + 2]:
                    faults.append("a prediction belongs to no state")
            except Exception as fault:
                faults.append(f"predict raised {type(fault).__name__}: {fault}")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for b in batches[1:]:
            shared.observe(*b)
            learned[0] += 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
    demand(not faults, f"predict beside observe must be safe, but {faults[:1]}.")
    demand_same(leaves(shared), leaves(alone), "predictions beside observe must leave no trace")

    orders = [
        leaves(taught(small_learner(method, shape), order, consolidate=False))
        for order in (batches[:2], batches[1::-1])
    ]
    both = small_learner(method, shape)
    threads = [threading.Thread(target=both.observe, args=b) for b in batches[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    demand(leaves(both) in orders, "Two threads that observe must be learned one after the other.")
