"""Benchmark: steps, evaluation, augmentations and start-up as ratios in one run, on this machine."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from dualmix import snapshot
from dualmix.augmentations import NAMES
from dualmix.errors import ConfigError
from dualmix.learners.parts import Parts, descend
from dualmix.mixing import AdpMix, EnMix
from dualmix.model import Classifier
from dualmix.process import settle
from dualmix.recipe import build
from dualmix.registry import get_method, get_preset, nearest
from dualmix.rng import generator
from dualmix.sightings import Sightings
from dualmix.transforms import transform
from dualmix.types import Batch, Learner

SHAPE = (3, 32, 32)
CLASSES = 100
MEMORY = 1000
BATCH = 10

Call = Callable[[], object]

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
}
"""What is measured: a preset, settings of its method, and at most how many times the floor a step should cost."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured thing.

    Attributes
    ----------
    seconds
        Median CPU time of a call.
    spread
        Half the distance of the quartiles, as a share of the median.
    ratio, low, high
        Median and quartiles of the time as a multiple of the reference's in the same round; none for the reference.
    limit
        What the ratio should be at most, or at least where `atleast`.
    """

    group: str
    name: str
    seconds: float
    spread: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    atleast: bool = False

    @property
    def verdict(self) -> str:
        """Whether the limit is kept: nothing where there is none, and "unclear" where the quartiles straddle it."""
        if self.limit is None or self.low is None or self.high is None:
            return ""
        if self.low <= self.limit <= self.high and self.low < self.high:
            return "unclear"
        return "met" if (self.low >= self.limit if self.atleast else self.high <= self.limit) else "missed"


def interleaved(
    calls: Mapping[str, Call], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Return the seconds of every call in every round; each round makes all calls, in an order that rotates.

    What disturbs the machine for a while disturbs all of them alike.
    """
    names = list(calls)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for call in calls.values():
        call()
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            began = clock()
            calls[name]()
            taken[name].append(clock() - began)
    return taken


def rows(
    group: str,
    taken: Mapping[str, Sequence[float]],
    reference: str,
    limits: Mapping[str, float] | None = None,
    *,
    inverse: bool = False,
) -> list[Row]:
    """Return medians, spreads and ratios to the reference, which comes first.

    Parameters
    ----------
    inverse
        Ratios say how many times faster than the reference, and limits are the least of them.
    """
    found = []
    for name in sorted(taken, key=lambda name: name != reference):
        low, middle, high = np.quantile(taken[name], [0.25, 0.5, 0.75])
        spread = float((high - low) / 2 / middle)
        if name == reference:
            found.append(Row(group, name, float(middle), spread))
            continue
        pairs = zip(taken[name], taken[reference], strict=True)
        ratios = [b / a if inverse else a / b for a, b in pairs]
        quartiles = [float(q) for q in np.quantile(ratios, [0.25, 0.5, 0.75])]
        limit = (limits or {}).get(name)
        found.append(Row(group, name, float(middle), spread, quartiles[1], quartiles[0], quartiles[2], limit, inverse))
    return found


def _images(count: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return generator(seed, "bench").integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def _labels(count: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return generator(seed, "bench labels").integers(0, CLASSES, count)


def floor() -> Call:
    """Return the bare step: forward, backward and update of the network on 20 images in one batch, channels last."""
    model = Classifier(SHAPE, classes=CLASSES, seed=0)
    x = model.pixels(torch.from_numpy(_images(2 * BATCH)).permute(0, 2, 3, 1).contiguous())
    y = torch.from_numpy(_labels(2 * BATCH))
    model.train()

    def step() -> None:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        descend(model.parameters(), 0.001, 0.0)

    return step


def learner(preset: str, settings: Mapping[str, object]) -> Learner:
    """Return a learner of a preset whose memory is full, without pauses in its stream but the first."""
    found = get_preset(preset)
    kind = get_method(found.kind)
    given: dict[str, object] = {}
    for path, value in {**found.values, **{f"method.{name}": v for name, v in settings.items()}}.items():
        *groups, name = path.removeprefix("method.").split(".")
        at = given
        for group in groups:
            at = at.setdefault(group, {})  # type: ignore[assignment]
        at[name] = value
    given |= {"memory": MEMORY} if "memory" in kind.model_fields else {}
    made = build(kind.model_validate({**given, "lr": 0.001}), SHAPE, classes=CLASSES, seed=0)
    for number in range(2 * MEMORY // 100 if isinstance(made, Parts) else 1):
        made.observe(_images(100, number), _labels(100, number))
        if number == 0:
            made.consolidate()
    return made


def steps(names: Iterable[str], rounds: int) -> list[Row]:
    """Measure a step of every method against the floor."""
    calls: dict[str, Call] = {"floor": floor()}
    x, y = _images(BATCH, 7), _labels(BATCH, 7)
    for name in names:
        preset, settings, _ = STEPS[name]
        made = learner(preset, settings)
        calls[name] = partial(made.observe, x, y)
    limits = {name: limit for name, (_, _, limit) in STEPS.items() if limit is not None}
    return rows("step", interleaved(calls, rounds), "floor", limits)


def evaluation(rounds: int) -> list[Row]:
    """Measure answers for 500 images against the naive loop: the plain network, its default layout, batches of 50."""
    made = learner("finetune", {})
    assert isinstance(made, Parts)
    x = _images(500)
    plain = Classifier(SHAPE, classes=CLASSES, seed=0).to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]

    def naive() -> None:
        with torch.no_grad():
            for part in torch.from_numpy(x).split(50):
                plain(part.float() / 255).argmax(1)

    taken = interleaved({"naive loop": naive, "predict": lambda: made.predict(x)}, rounds)
    return rows("500 answers", taken, "naive loop", {"predict": 1.45}, inverse=True)


def augmentations(rounds: int) -> list[Row]:
    """Measure each augmentation and mix of a batch against the floor."""
    model = Classifier(SHAPE, classes=CLASSES, seed=0)
    rng = generator(0, "bench")
    seen = Sightings()
    seen.note(np.arange(CLASSES))

    def batch(seed: int) -> Batch:
        x = torch.from_numpy(_images(BATCH, seed)).permute(0, 2, 3, 1).contiguous()
        return Batch(model.pixels(x), torch.from_numpy(_labels(BATCH, seed)))

    new, old = batch(1), batch(2)
    calls: dict[str, Call] = {"floor": floor()}
    for name in NAMES:
        calls[name] = partial(transform(name), old.x, rng)
    for name, mix in (("enmix", EnMix(transform("standard"))), ("adpmix", AdpMix(transform("standard")))):
        calls[name] = partial(mix, new, old, model, seen, rng)
    return rows("augmentation of 10", interleaved(calls, rounds), "floor")


def filing(rounds: int) -> list[Row]:
    """Measure the way from the data to a batch, and a snapshot's writing and reading, against the floor."""
    made = learner("er+dualmix", {})
    store, order = _images(5000).transpose(0, 2, 3, 1).copy(), generator(0, "bench order").permutation(5000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.safetensors"
        calls: dict[str, Call] = {
            "floor": floor(),
            "gather a batch": lambda: store[order[:BATCH]].transpose(0, 3, 1, 2),
            "write a snapshot": lambda: snapshot.write(path, {"learner": made.state_dict()}),
            "resume from it": lambda: made.load_state_dict(snapshot.read(path)["learner"]),
        }
        calls["write a snapshot"]()
        return rows("data and snapshots", interleaved(calls, rounds), "floor")


def starting(rounds: int) -> list[Row]:
    """Measure the start of a process by the wall clock: nothing, the help, and a run until its first step."""

    def ran(*words: str) -> Call:
        return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True)  # noqa: S603

    one_step = (
        "import dualmix, numpy; "
        "dualmix.create('er', shape=(3, 32, 32)).observe(numpy.zeros((10, 3, 32, 32), numpy.uint8), [1] * 10)"
    )
    calls = {
        "python": ran("-c", "pass"),
        "dualmix --help": ran("-m", "dualmix", "--help"),
        "to the first step": ran("-c", one_step),
    }
    return rows("start-up (wall)", interleaved(calls, rounds, time.perf_counter), "python")


GROUPS: Mapping[str, str] = {
    "step": "a step of every method, as a multiple of the bare step",
    "evaluation": "answers, against the naive loop",
    "augmentation": "each augmentation and mix",
    "filing": "data path, snapshot, resume",
    "start": "start of a process",
    "scale": "step time and memory as the stream and the number of classes grow",
}


def bench(groups: Sequence[str] = (), *, rounds: int = 15, methods: Sequence[str] = ()) -> list[Row]:
    """Measure the groups named, or all but the scale run.

    Raises
    ------
    ConfigError
        There is no such group or method.
    """
    for known, given in ((GROUPS, groups), (STEPS, methods)):
        for name in given:
            if name not in known:
                raise ConfigError(f"The benchmark has no {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    settle(1)
    gc.disable()
    try:
        found: list[Row] = []
        for name in groups or [name for name in GROUPS if name != "scale"]:
            match name:
                case "step":
                    found += steps(methods or STEPS, rounds)
                case "evaluation":
                    found += evaluation(rounds)
                case "augmentation":
                    found += augmentations(rounds)
                case "filing":
                    found += filing(rounds)
                case "start":
                    found += starting(max(3, rounds // 3))
        return found
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the scale run: images seen, classes known, seconds a step and the process's memory."""

    images: int
    classes: int
    step_seconds: float
    memory_mb: float


def scale(images: int, classes: int, *, side: int = 8, stages: int = 20) -> list[Stage]:
    """Stream synthetic images of ever new classes through experience replay; return how its cost develops."""
    settle(1)
    shape = (3, side, side)
    made = build(get_method("er").model_validate({"memory": 5000}), shape, seed=0)
    rng = generator(0, "scale")
    found = []
    per_stage = max(images // stages // BATCH, 1)
    for stage in range(stages):
        taken = []
        for number in range(per_stage):
            seen = (stage * per_stage + number) * BATCH
            newest = max(1, round(classes * (seen + BATCH) / images))
            y = rng.integers(max(0, newest - 50), newest, BATCH)
            x = rng.integers(0, 256, (BATCH, *shape), dtype=np.uint8)
            began = time.process_time()
            made.observe(x, y)
            taken.append(time.process_time() - began)
        assert isinstance(made, Parts)
        found.append(
            Stage((stage + 1) * per_stage * BATCH, len(made.model.labels), statistics.median(taken), _resident())
        )
    return found


def _resident() -> float:
    """Return the process's memory now, in MB."""
    status = Path("/proc/self/status")
    if not status.is_file():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def record(found: Sequence[Row], stages: Sequence[Stage] = ()) -> str:
    """Return what was measured as JSON, with what it was measured on."""
    from dualmix.store import facts

    measured = [{**asdict(row), "verdict": row.verdict} for row in found]
    return json.dumps({**facts(), "rows": measured, "scale": [asdict(stage) for stage in stages]}, indent=1)
