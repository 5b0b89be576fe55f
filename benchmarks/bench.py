"""Steps, their parts, evaluation, snapshots and start-up, measured as ratios in one run."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.growth import weigh, weigh_engines
from benchmarks.peers import PEERS, Work, versions
from benchmarks.timing import Call, interleaved, ratio_rows
from dualmix.config.compose import compose
from dualmix.config.fields import Model
from dualmix.engine import available
from dualmix.errors import ConfigError
from dualmix.learn.arithmetic import Engine
from dualmix.learn.augment import NAMES, transform
from dualmix.learn.backbones import POOL, Block, ReducedResNet18
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.common import Parts, take_in
from dualmix.learn.network import Classifier
from dualmix.learn.replay import Replay
from dualmix.learn.types import Batch, Learner
from dualmix.methods.dualmix import AdpMix, EnMix
from dualmix.paper.numbers import ACCURACY
from dualmix.registry import get_method, get_preset, nearest
from dualmix.report.speed import Row, Stage
from dualmix.rng import generator
from dualmix.runs.build import build
from dualmix.runs.facts import facts
from dualmix.runs.process import settle
from dualmix.store import snapshot

SHAPE = (3, 32, 32)
CLASSES = 100
MEMORY = 1000
BATCH = 10
ENGINES: tuple[Engine, ...] = ("torch", "native")
LR = 0.001

STEPS: Mapping[str, tuple[str, Mapping[str, object], float | None]] = {
    "er": ("er", {}, 1.12),
    "er+dualmix": ("er+dualmix", {}, 3.3),
    "er+dualmix, joint": ("er+dualmix", {"forward": "joint"}, 2.4),
    "er+da": ("er+da", {}, None),
    "er+enmix": ("er+enmix", {}, None),
    "er+adpmix": ("er+adpmix", {}, None),
    "agem": ("agem", {}, 1.20),
    "mir": ("mir", {}, 2.70),
    "aser": ("aser", {}, 5.0),
    "gss": ("gss", {}, 7.5),
    "scr": ("scr", {}, 2.4),
    "scr-100": ("scr-100", {}, 10.5),
    "der++": ("der++", {}, 1.7),
    "er-ace": ("er-ace", {}, None),
    "dvc": ("dvc", {}, None),
    "finetune": ("finetune", {}, None),
    "er+ema": ("er+ema", {}, None),
    "er+mkd": ("er+mkd", {}, None),
    "er+dualmix+mkd": ("er+dualmix+mkd", {}, None),
}
"""What is measured: a preset, settings of its method, and at most how many times the floor a step
should cost.
"""


NATIVE: Mapping[str, float] = {
    "er": 0.55,
    "er+dualmix": 1.35,
    "mir": 1.4,
    "aser": 6.0,
    "gss": 3.7,
    "scr": 1.2,
}
"""Steps that are also measured on the native engine, and at most how many times torch's bare step
they should cost there.
"""
LARGE = (3, 84, 84)


def _images(
    count: int, seed: int = 0, shape: tuple[int, int, int] | None = None
) -> NDArray[np.uint8]:
    size = (count, *(shape or SHAPE))
    return generator(seed, "bench").integers(0, 256, size, dtype=np.uint8)


def _labels(count: int, seed: int = 0) -> NDArray[np.int64]:
    return generator(seed, "bench labels").integers(0, CLASSES, count)


def floor(
    images: int = 2 * BATCH,
    shape: tuple[int, int, int] | None = None,
    engine: Engine = "torch",
) -> Call:
    """Return the bare step: forward, backward and update of the network on one batch, channels
    last.
    """
    model = Classifier(shape or SHAPE, classes=CLASSES, seed=0, engine=engine)
    raw = torch.from_numpy(_images(images, shape=shape))
    x = model.pixels(raw.permute(0, 2, 3, 1).contiguous())
    y = torch.from_numpy(_labels(images))
    model.train()

    def step() -> None:
        model.zero_grad()
        model.arithmetic.cross_entropy(model(x), y).backward()
        model.arithmetic.descend(model.parameters(), LR)

    return step


def learner(preset: str, settings: Mapping[str, object], engine: Engine = "torch") -> Learner:
    """Return a learner of a preset whose memory is full, without pauses in its stream but the
    first.
    """
    values: dict[str, object] = {"lr": LR}
    if "memory" in get_method(get_preset(preset).kind).model_fields:
        values["memory"] = MEMORY
    values |= settings
    size = int(str(values.get("memory", MEMORY)))
    given = {f"method.{name}": value for name, value in values.items()}
    method = compose(preset, {"data.name": "cifar100", **given}).config.method
    made = build(method, SHAPE, classes=CLASSES, seed=0, model=Model(engine=engine))
    for number in range(2 * size // 100 if isinstance(made, Parts) else 1):
        made.observe(_images(100, number), _labels(100, number))
        if number == 0:
            made.consolidate()
    return made


def steps(names: Iterable[str], rounds: int, against: Iterable[str] = ()) -> list[Row]:
    """Measure a step of every method, and of experience replay by other packages, against the
    floor.

    The bare step of 50 images is what one joint pass over the five batches of DualMix comes to at
    the least."""
    calls: dict[str, Call] = {"floor": floor(), "floor, 50 images": floor(5 * BATCH)}
    parts: dict[str, int] = {}
    for peer in against:
        x = torch.from_numpy(_images(2 * MEMORY)).float() / 255
        network = partial(Classifier, SHAPE, classes=CLASSES, seed=0)
        work = Work(network, x, torch.from_numpy(_labels(2 * MEMORY)), MEMORY, BATCH, LR)
        for name, timed in PEERS[peer](work).items():
            calls[name], parts[name] = timed.call, timed.steps
    new = _images(BATCH, 7), _labels(BATCH, 7)
    for name in names:
        preset, settings, _ = STEPS[name]
        calls[name] = partial(learner(preset, settings).observe, *new)
    limits = {name: limit for name, (_, _, limit) in STEPS.items() if limit is not None}
    taken = interleaved(calls, rounds)
    per_step = {
        name: [seconds / parts.get(name, 1) for seconds in some] for name, some in taken.items()
    }
    return ratio_rows("step", per_step, "floor", limits)


def figure7(names: Iterable[str], rounds: int) -> list[Row]:
    """Measure a step of every method of the paper's Figure 7 at its memory, against er's: the paper
    has minutes of whole runs, which are other machines' and not ours to match.
    """
    new = _images(BATCH, 7), _labels(BATCH, 7)
    calls: dict[str, Call] = {
        name: partial(learner(name, {"memory": FIGURE7}).observe, *new)
        for name in dict.fromkeys(("er", *names))
    }
    return ratio_rows(f"Figure 7, memory {FIGURE7:,}", interleaved(calls, rounds), "er")


FIGURE7 = 2000
HEAVY = ("er", "er+dualmix")
"""Presets whose processes are weighed on both engines."""


def engines(names: Iterable[str], rounds: int) -> list[Row]:
    """Measure the native engine: steps against torch's bare step, torch's own steps beside them;
    bare steps of large images; answers and memory against torch's.
    """
    new, calls = (_images(BATCH, 7), _labels(BATCH, 7)), {"torch, bare step": floor()}
    calls["native, bare step"] = floor(engine="native")
    for name in names:
        for engine in ENGINES:
            made = learner(*STEPS[name][:2], engine)
            calls[f"{engine}, {name}"] = partial(made.observe, *new)
    limits = {f"native, {name}": limit for name, limit in NATIVE.items()}
    rows = ratio_rows("engine", interleaved(calls, rounds), "torch, bare step", limits)
    large: dict[str, Call] = {
        f"{engine}, bare step": floor(shape=LARGE, engine=engine) for engine in ENGINES
    }
    few = max(3, rounds // 3)
    rows += ratio_rows("engine, 84 px", interleaved(large, few), "torch, bare step")
    x = _images(500)
    answers: dict[str, Call] = {
        engine: partial(learner("finetune", {}, engine).predict, x) for engine in ENGINES
    }
    taken = interleaved(answers, rounds)
    at_least = {"native": 2.0}
    rows += ratio_rows("engine, 500 answers", taken, "torch", at_least, inverse=True, atleast=True)
    return rows + weigh_engines(HEAVY, few)


def profile(rounds: int, *, repeats: int = 10) -> list[Row]:
    """Measure which share of training is the network itself: what is left is all that this package
    adds.

    Training is what a run does in a step of experience replay: take a batch out of the data, learn
    it, keep it, count hits. The network is the same two forward and backward passes and the update,
    on tensors that are ready. The other rows are the parts of the rest that can be called alone.
    """
    made = learner("er", {})
    assert isinstance(made, Replay)
    data, labels = _images(5000).transpose(0, 2, 3, 1).copy(), _labels(5000)
    order = generator(0, "bench order").permutation(5000)
    hits = torch.zeros((), dtype=torch.int64)

    def batch() -> tuple[
        np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
        np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    ]:
        return data[order[:BATCH]].transpose(0, 3, 1, 2), labels[order[:BATCH]]

    def train() -> None:
        made.observe(*batch())
        hits.add_(made.hits)

    raw, columns, new = take_in(made, *batch())
    old = made.memory[np.arange(BATCH)]

    def network() -> None:
        made.model.zero_grad()
        for one in (new, old):
            F.cross_entropy(made.model(one.x), one.y).backward()
        made.model.arithmetic.descend(made.model.parameters(), LR)

    def rehearsed() -> None:
        made.memory[made.retrieve(made.memory, new, made.model, made.rng["retrieve"])]

    def filed() -> None:
        made.memory.write(
            made.update(made.memory, new, made.model, made.rng["update"]), raw, columns
        )

    parts: dict[str, Call] = {
        "training": train,
        "network": network,
        "taking a batch in": lambda: take_in(made, *batch()),
        "rehearsed batch": rehearsed,
        "filing in memory": filed,
    }

    def repeated(call: Call) -> Call:
        return lambda: [call() for _ in range(repeats)]

    taken = interleaved({name: repeated(call) for name, call in parts.items()}, rounds)
    per_step = {name: [seconds / repeats for seconds in some] for name, some in taken.items()}
    return ratio_rows("share of training", per_step, "training", {"network": 0.9}, atleast=True)


def evaluation(rounds: int) -> list[Row]:
    """Measure answers for 500 images against the naive loop: the network as it is written down,
    batches of 50.
    """
    made = learner("finetune", {})
    assert isinstance(made, Parts)
    x = _images(500)
    plain = Classifier(SHAPE, classes=CLASSES, seed=0).eval()
    backbone = plain.backbone
    assert isinstance(backbone, ReducedResNet18)
    plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def naive() -> None:
        with torch.no_grad():
            for part in torch.from_numpy(x).split(50):
                F.linear(
                    _as_written(backbone, part.float() / 255), plain.weight, plain.bias
                ).argmax(1)

    taken = interleaved({"naive loop": naive, "predict": lambda: made.predict(x)}, rounds)
    return ratio_rows(
        "500 answers", taken, "naive loop", {"predict": 1.45}, inverse=True, atleast=True
    )


def _as_written(network: ReducedResNet18, x: Tensor) -> Tensor:
    """Return the network's features layer by layer, nothing folded and nothing in place."""
    x = F.relu(network.bn(network.stem(x)))
    for block in network.blocks:
        assert isinstance(block, Block)
        out = F.relu(block.bn1(block.conv1(x)))
        x = F.relu(
            block.bn2(block.conv2(out)) + block.shortcut(x[:, :, :: block.thin, :: block.thin])
        )
    return F.avg_pool2d(x, POOL).flatten(1)


def augmentations(rounds: int) -> list[Row]:
    """Measure each augmentation and mix of a batch against the floor."""
    model = Classifier(SHAPE, classes=CLASSES, seed=0)
    rng = generator(0, "bench")
    ages = ClassAges()
    ages.note(np.arange(CLASSES))

    def batch(seed: int) -> Batch:
        x = torch.from_numpy(_images(BATCH, seed)).permute(0, 2, 3, 1).contiguous()
        return Batch(model.pixels(x), torch.from_numpy(_labels(BATCH, seed)))

    new, old = batch(1), batch(2)
    calls: dict[str, Call] = {"floor": floor()}
    for name in NAMES:
        calls[name] = partial(transform(name), old.x, rng)
    for name, mix in (
        ("enmix", EnMix(transform("standard"))),
        ("adpmix", AdpMix(transform("standard"))),
    ):
        calls[name] = partial(mix, new, old, model, ages, rng)
    return ratio_rows("augmentation of 10", interleaved(calls, rounds), "floor")


def filing(rounds: int) -> list[Row]:
    """Measure the way from the data to a batch, and a snapshot's writing and reading, against the
    floor.
    """
    made = learner("er+dualmix", {})
    store, order = (
        _images(5000).transpose(0, 2, 3, 1).copy(),
        generator(0, "bench order").permutation(5000),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.safetensors"
        calls: dict[str, Call] = {
            "floor": floor(),
            "gather a batch": lambda: store[order[:BATCH]].transpose(0, 3, 1, 2),
            "write a snapshot": lambda: snapshot.write(path, {"learner": made.state_dict()}),
            "resume from it": lambda: made.load_state_dict(snapshot.read(path)["learner"]),
        }
        calls["write a snapshot"]()
        return ratio_rows("data and snapshots", interleaved(calls, rounds), "floor")


def starting(rounds: int) -> list[Row]:
    """Measure the start of a process by the wall clock: nothing, the help, and a run until its
    first step.
    """

    def ran(*words: str) -> Call:
        command = [sys.executable, *words]
        return lambda: subprocess.run(command, check=True, capture_output=True)  # noqa: S603

    one_step = (
        "import dualmix, numpy; "
        "images = numpy.zeros((10, 3, 32, 32), numpy.uint8); "
        "dualmix.create('er', shape=(3, 32, 32)).observe(images, [1] * 10)"
    )
    calls = {
        "python": ran("-c", "pass"),
        "dualmix --help": ran("-m", "dualmix", "--help"),
        "to the first step": ran("-c", one_step),
    }
    return ratio_rows("start-up (wall)", interleaved(calls, rounds, time.perf_counter), "python")


GROUPS: Mapping[str, str] = {
    "step": "a step of every method, as a multiple of the bare step",
    "figure7": "a step of the paper's methods at a memory of 2,000, as a multiple of er's",
    "engine": "steps and answers on the native engine, against torch's",
    "profile": "the share of training that is the network itself",
    "evaluation": "answers, against the naive loop",
    "augmentation": "each augmentation and mix",
    "filing": "data path, snapshot, resume",
    "memory": "peak memory of a process as its memory and its classes grow",
    "start": "start of a process",
    "scale": "step time and memory as the stream and the number of classes grow",
}


def bench(
    groups: Sequence[str] = (),
    *,
    rounds: int = 15,
    methods: Sequence[str] = (),
    against: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Measure the groups named, or all but the scale run, and but the engine's where it was not
    built.

    Parameters
    ----------
    methods
        Only their steps; none: those of all.
    against
        Other packages whose steps are measured beside ours.
    say
        Is told what is measured next.

    Raises
    ------
    ConfigError
        There is no such group, method or package.
    DualmixError
        A package cannot be imported.
    """
    for known, given in ((GROUPS, groups), ({**STEPS, **ACCURACY}, methods), (PEERS, against)):
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"The benchmark has no {name!r}{nearest(name, known)} "
                    f"(known: {', '.join(known)})."
                )
    left_out = {"scale"} if available() else {"scale", "engine"}
    wanted = groups or [name for name in GROUPS if name not in left_out]
    if against and "step" not in wanted:
        raise ConfigError("Other packages are measured in the group step: name it too.")
    few = max(3, rounds // 3)
    measures: Mapping[str, Callable[[], list[Row]]] = {
        "step": lambda: steps([n for n in STEPS if not methods or n in methods], rounds, against),
        "figure7": lambda: figure7([n for n in ACCURACY if not methods or n in methods], rounds),
        "engine": lambda: engines([n for n in NATIVE if not methods or n in methods], rounds),
        "profile": lambda: profile(rounds),
        "evaluation": lambda: evaluation(rounds),
        "augmentation": lambda: augmentations(rounds),
        "filing": lambda: filing(rounds),
        "memory": lambda: weigh(few),
        "start": lambda: starting(few),
    }
    settle(1)
    gc.disable()
    try:
        measured: list[Row] = []
        for name in wanted:
            if name in measures:
                say(f"{name}: {GROUPS[name]}")
                measured += measures[name]()
        return measured
    finally:
        gc.enable()


def record(
    measured: Sequence[Row], stages: Sequence[Stage] = (), against: Iterable[str] = ()
) -> str:
    """Return what was measured as JSON, with what it was measured on and the versions of other
    packages.
    """
    plain = {
        **facts(),
        "peers": versions(against),
        "rows": [{**asdict(row), "verdict": row.verdict} for row in measured],
        "scale": [asdict(stage) for stage in stages],
    }
    return json.dumps(plain, indent=1)
