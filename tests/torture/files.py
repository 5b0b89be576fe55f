"""Every kind of file that is read, damaged: right, or a typed error, or left out by name."""

from __future__ import annotations

import csv
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from filelock import FileLock
from safetensors.torch import save_file

import dualmix
from dualmix.data import load
from dualmix.learn.backbones import MLP
from dualmix.serve.journal import Journal
from dualmix.store.run_files import SCORES
from tests.data import makers
from tests.torture import mutations
from tests.torture.calls import accepted, pixels, tiny
from tests.torture.jail import Kind, Outcome, WrongError, digest, judged
from tests.torture.line import RESULTS, AtOnce, answer, checked, run_words, stop_early, tiny_arrays
from tests.torture.shallow import shallow


@dataclass(frozen=True, slots=True)
class Subject:
    """Files made by the package, how they are read again, and which of two answers is right.

    Attributes
    ----------
    make
        Writes the files into the current folder.
    files
        What is damaged.
    read
        Returns plain data; in the current folder.
    fits
        Raises `WrongError` where an answer is wrong, given the right one and the damaged file.
    weight
        How often it is chosen.
    warm
        Read once before the damage, which is to what the reading has left.
    alone
        Each file is read for itself, so that only the damaged one need be there.
    """

    make: Callable[[], None]
    files: str
    read: Callable[[], Any]
    fits: Callable[[Any, Any, Path], None]
    weight: int = 2
    warm: bool = False
    alone: bool = False


def same(got: Any, right: Any, damaged: Path) -> None:
    """Demand the right answer."""
    if got != right:
        raise WrongError(f"another answer, without a word, from a damaged {damaged.name}")


def listed(got: Any, right: Any, damaged: Path) -> None:
    """Demand every row right; only the damaged run's may be left out, and then it is named."""
    run = damaged.parent.name
    named = run in got["named"]
    for name in {*got["rows"], *right["rows"]}:
        if got["rows"].get(name) != right["rows"].get(name) and not (named and name == run):
            raise WrongError(f"another row, without a word, from a damaged {damaged.name}")


def archived(got: Any, right: Any, damaged: Path) -> None:
    """Demand that every row is right or its run is named, since the archive holds them all."""
    for name, row in right["rows"].items():
        if got["rows"].get(name) != row and name not in got["named"]:
            raise WrongError(f"another row, without a word, from a damaged {damaged.name}")


def reported(got: Any, right: Any, damaged: Path) -> None:
    """Demand the same table, or a word about the damaged run."""
    if damaged.parent.name not in got["named"]:
        same(got["rows"], right["rows"], damaged)


def loosely(got: Any, right: Any, damaged: Path) -> None:
    """Accept any answer that the reader found to be consistent: the files are the user's own."""


def _store() -> None:
    probes = (
        "--probes.on",
        "true",
        "--probes.draws",
        "2",
        "--probes.rows",
        "4",
        "--probes.past",
        "9",
    )
    checked(*run_words("er"))
    checked(*run_words("er+dualmix"))
    checked(*run_words("aser"), *probes)
    stop_early("mir", 9)


def _folder(name: str) -> Path:
    return next(
        path for path in sorted(Path("store").iterdir()) if path.name.startswith(f"{name}-")
    )


def _status() -> Any:
    rows = answer("status", "--all", "--store", "store")
    return {"rows": {r["name"]: r for r in rows}, "named": [r["name"] for r in rows if r["fault"]]}


def _export(store: str = "store") -> Any:
    said = answer("export", "--store", store, "--out", "out", "--format", "csv")
    with Path("out.csv").open() as file:
        # A column that only a run left out has is no column any more.
        table = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    rows = {row["run"]: row for row in table}
    return {"rows": rows, "named": _named(said)}


def _named(said: Any) -> list[str]:
    return [r["run"] for part in ("left_out", "unfinished", "remarks") for r in said[part]]


def _report() -> Any:
    said = answer("report", "--store", "store", "--out", "out.csv")
    return {"rows": Path("out.csv").read_text(), "named": _named(said)}


def _archive() -> None:
    _store()
    checked("archive", "--store", "store", "--to", "kept")


def _filed() -> Any:
    (folder,) = Path("store").iterdir()
    return {n: digest((folder / n).read_bytes()) for n in RESULTS if (folder / n).is_file()}


def _goes_on() -> Any:
    checked(*run_words("er"))
    return _filed()


def _over_cache() -> Any:
    words = run_words("er")
    data = ("--data.name", "arrays", "--data.path", "tiny.npz", "--data.root", "data")
    checked(*words, *data, "--stream.tasks", "3", "--stream.batch", "12")
    found = _filed()
    shutil.rmtree("store")
    return found


def _images(name: str, path: str | None = None) -> Callable[[], Any]:
    def read() -> Any:
        found = load(dualmix.Data(name=name, root=Path("data"), path=path))
        parts = [
            np.array(part) for part in (found.train_x, found.train_y, found.test_x, found.test_y)
        ]
        for x, y in (parts[:2], parts[2:]):
            pixels = x.dtype == np.uint8 and x.ndim == 4
            vectors = x.dtype == np.float32 and x.ndim == 2 and np.isfinite(x).all()
            if not (pixels or vectors) or len(x) != len(y) or not len(x):
                raise WrongError("images of another kind were read")
            if y.min() < 0 or y.max() >= len(found.classes):
                raise WrongError("labels without a class were read")
        return found.fingerprint, digest([part.tobytes() for part in parts])

    return read


def own_images(got: Any, right: Any, damaged: Path) -> None:
    """Accept other images only under another fingerprint: no checksum was given with them."""
    if got[0] == right[0] and got[1] != right[1]:
        raise WrongError(f"other images under the same fingerprint from a damaged {damaged.name}")


def _cifar(form: str) -> Callable[[], None]:
    def make() -> None:
        files = (makers.cifar_python if "python" in form else makers.cifar_binary)(
            *makers.cifar_parts()
        )
        Path("data").mkdir()
        if form.endswith(".tar.gz"):
            makers.put_archive(Path("data") / form, files)
        else:
            makers.put_files(Path("data") / form, files)

    return make


def _mini() -> None:
    Path("data/mini_imagenet").mkdir(parents=True)
    for part in ("train", "val", "test"):
        members = {f"{part}{i}": list(range(i * 12, i * 12 + 12)) for i in range(2)}
        plain = {"image_data": makers.random_images(24, 84, 84), "class_dict": members}
        Path(f"data/mini_imagenet/mini-imagenet-cache-{part}.pkl").write_bytes(
            pickle.dumps(plain, 3)
        )


def _tiny_zip() -> None:
    base = Path("tiny-imagenet-200")
    for wnid in ("n01", "n02"):
        for i in range(2):
            place = base / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            makers.picture(place, size=(64, 64), format="JPEG")
        makers.picture(base / "val/images" / f"val_{wnid}.JPEG", size=(64, 64), format="JPEG")
    (base / "wnids.txt").write_text("n01\nn02\n")
    lines = [f"val_{wnid}.JPEG\t{wnid}\t0\t0\t63\t63\n" for wnid in ("n01", "n02")]
    (base / "val/val_annotations.txt").write_text("".join(lines))
    Path("data").mkdir()
    shutil.make_archive("data/tiny-imagenet-200", "zip", ".", str(base))


def _pictures() -> None:
    Path("data").mkdir()
    for number, ending in enumerate(("png", "jpg", "bmp", "gif", "webp", "tiff", "ppm", "png")):
        for name in ("cat", "dog"):
            makers.picture(Path(f"mine/{name}/{number}.{ending}"), seed=number)


def _npz() -> None:
    Path("data").mkdir()
    tiny_arrays("tiny.npz")


def _vectors() -> None:
    Path("data").mkdir()
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    np.savez("vectors.npz", x=x, y=np.repeat(np.arange(6), 10))


def _weights() -> None:
    save_file(MLP((6,), 4).state_dict(), "w.safetensors")


def _begun_with() -> None:
    settings = {"name": "mlp", "weights": "w.safetensors"}
    learner = dualmix.create("er", (6,), model=settings, hidden=4, memory=3)
    with accepted():
        _exercised(learner)


def _service() -> None:
    Path("service").mkdir()
    journal = Journal(Path("service"), "mine", 0, keep=True)
    for number in range(9):
        journal.append(bytes([number]) * (50 * number))
        if number in (3, 6):
            journal.forget(number)
    journal.close()


def _recovered() -> Any:
    journal = Journal(Path("service"), "mine", 0, keep=True)
    journal.close()
    return [payload for _, payload in journal.records(0)]


def first_ones(got: Any, right: Any, damaged: Path) -> None:
    """Demand the records that were written; a write that was cut off is the last one's end."""
    last = damaged.name == "0000000000000007.journal"
    if got != right and not (last and len(got) >= 7 and got == right[: len(got)]):
        raise WrongError(f"other records, without a word, from a damaged {damaged.name}")


def _learner() -> None:
    for name in ("er+dualmix", "gdumb", "gss", "scr", "aser", "der++", "dvc"):
        learner = tiny(name)
        for seed in range(4):
            learner.observe(pixels(3 + seed), np.arange(3 + seed))
        learner.consolidate()
        dualmix.save(learner, f"{name}.safetensors")


def _loaded() -> Any:
    return {
        path.name: digest(dualmix.load(path).state_dict())
        for path in sorted(Path().glob("*.safe*"))
    }


def _composed(name: str) -> Callable[[], Any]:
    def read() -> Any:
        found = dualmix.compose(name).config
        Path("again.json").write_text(json.dumps({"config": found.record()}))
        if dualmix.compose("again.json").config != found:
            raise WrongError("a configuration is another one when it is saved and read")
        checked("explain", name, "--json")
        return None

    return read


def _config() -> None:
    plain = {"config": dualmix.compose("er+dualmix", {"seed": 1}).config.record(), "label": "mine"}
    Path("mine.json").write_text(json.dumps(plain, indent=1))
    Path("mine.yaml").write_text(yaml.safe_dump(plain))
    grid = {
        "presets": ["er"],
        "seeds": 1,
        "grid": {"method.memory": [5]},
        "values": {"stream.first": 1},
    }
    Path("grid.yaml").write_text(yaml.safe_dump(grid))


def _bench() -> None:
    shutil.copy(Path(__file__).parents[2] / "results" / "bench.json", "bench.json")


def _speed() -> Any:
    from dualmix.report.speed import read_speed

    read_speed(Path("bench.json"))


def _tune() -> Any:
    words = [word for word in run_words("er")[2:] if word != "--quiet"]
    with patch("dualmix.sweeps.executors.Process", AtOnce):
        said = answer(
            "tune", "er", "--trials", "2", "--only", "method.lr", "--workers", "1", *words
        )
    return {"best": said["best"], "trials": len(said["trials"])}


def _far() -> Any:
    os.environ["DUALMIX_CACHE"] = str(Path("cache").absolute())
    rows = answer("status", "--all", "--store", f"file://{Path('store').absolute()}")
    return {"rows": {r["name"]: r for r in rows}, "named": [r["name"] for r in rows if r["fault"]]}


def _done() -> Any:
    return answer(*run_words("er"))


RUN_FILES = "store/*/*.[jsn]*"
SUBJECTS: dict[str, Subject] = {
    "learner": Subject(_learner, "*.safetensors", _loaded, same, 6, alone=True),
    "status": Subject(_store, RUN_FILES, _status, listed, 6),
    "export": Subject(_store, RUN_FILES, _export, listed, 4),
    "report": Subject(_store, RUN_FILES, _report, reported, 4),
    "archive": Subject(_archive, "kept/*.*", lambda: _export("kept"), archived, 3),
    "done already": Subject(_store, "store/er-*/*.[jsn]*", _done, same, 4),
    "show": Subject(_store, "store/er-*/*.[jsn]*", lambda: answer("show", _folder("er")), same, 4),
    "compare": Subject(
        _store,
        "store/er-*/*.[jsn]*",
        lambda: answer("compare", _folder("er"), _folder("aser")),
        same,
        4,
    ),
    "goes on": Subject(lambda: stop_early("er", 9), "store/*/[a-z]*.*", _goes_on, same, 4),
    "cache": Subject(_npz, "data/.decoded/*/*.*", _over_cache, same, 4, warm=True),
    "cifar python": Subject(
        _cifar("cifar-100-python"), "data/*/*", _images("cifar100"), own_images, 3
    ),
    "cifar binary": Subject(
        _cifar("cifar-100-binary"), "data/*/*", _images("cifar100"), own_images
    ),
    "cifar archive": Subject(
        _cifar("cifar-100-python.tar.gz"), "data/*.gz", _images("cifar100"), own_images, 4
    ),
    "mini pickle": Subject(_mini, "data/*/*.pkl", _images("mini_imagenet"), own_images),
    "tiny zip": Subject(_tiny_zip, "data/*.zip", _images("tiny_imagenet"), own_images, 3),
    "pictures": Subject(_pictures, "mine/*/*", _images("folder", "mine"), own_images, 4),
    "npz": Subject(_npz, "tiny.npz", _images("arrays", "tiny.npz"), own_images, 5),
    "vectors": Subject(_vectors, "vectors.npz", _images("arrays", "vectors.npz"), own_images, 3),
    "weights": Subject(_weights, "w.safetensors", _begun_with, loosely, 3),
    "service": Subject(_service, "service/*.journal", _recovered, first_ones, 3),
    "yaml": Subject(_config, "mine.yaml", _composed("mine.yaml"), loosely, 4),
    "json": Subject(_config, "mine.json", _composed("mine.json"), loosely, 4),
    "grid": Subject(
        _config, "grid.yaml", lambda: checked("sweep", "grid.yaml", "--dry-run"), loosely, 3
    ),
    "bench": Subject(_bench, "bench.json", _speed, loosely, 2),
    "journal": Subject(_tune, "store/tune/*/*.*", _tune, same, 1),
    "mirror": Subject(_store, "cache/*/*/*/*.[jsn]*", _far, listed, 2, warm=True),
}


def _template(shared: Path, name: str) -> tuple[Path, Any]:
    """Return the whole files of a subject and the right answer, made when first asked for."""
    subject, here = SUBJECTS[name], Path.cwd()
    home = shared / ("store" if subject.make is _store else name)
    with FileLock(shared / "lock"):
        if not home.is_dir():
            (shared / "new").mkdir()
            os.chdir(shared / "new")
            subject.make()
            (shared / "new").rename(home)
        if not (right := shared / f"{name}.right").is_file():
            shutil.copytree(home, shared / "copy")
            os.chdir(shared / "copy")
            right.write_bytes(pickle.dumps(subject.read()))
            shutil.rmtree(shared / "copy")
    os.chdir(here)
    return home, pickle.loads(right.read_bytes())


def attempt(shared: Path, chance: Random, index: int) -> Iterator[Outcome]:
    """Damage one file and read it."""
    with shallow():
        yield _forged(shared, chance) if index % 6 == 5 else _damaged(shared, chance)


def _damaged(shared: Path, chance: Random) -> Outcome:
    name = chance.choice(
        [name for name, subject in SUBJECTS.items() for _ in range(subject.weight)]
    )
    subject = SUBJECTS[name]
    home, right = _template(shared, name)
    shutil.copytree(home, ".", dirs_exist_ok=True)
    if subject.warm:
        subject.read()
    damaged = chance.choice(sorted(path for path in Path().glob(subject.files) if path.is_file()))
    if subject.alone:
        for path in set(Path().glob(subject.files)) - {damaged}:
            path.unlink()
        right = {damaged.name: right[damaged.name]}
    how, content = mutations.mutate(damaged.name, damaged.read_bytes(), chance)
    filed = damaged.parent.parent.name == "store" and damaged.name != SCORES
    if filed and chance.random() < 0.03:  # without scores a run is one that is not done
        how = "removed"
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    # the log of a run that is not done carries no digest, and no result depends on it
    fits = loosely if damaged.suffix == ".jsonl" and subject.fits is listed else subject.fits
    return judged(f"{name}: {how} {damaged}", lambda: fits(subject.read(), right, damaged))


MISFIT = ", of another type or shape"


def _forged(shared: Path, chance: Random) -> Outcome:
    """Change a saved learner, with a digest that fits: refused, or a learner that works."""
    from dualmix.store import snapshot

    home, _ = _template(shared, "learner")
    name = chance.choice(sorted(path.name for path in home.iterdir()))
    state = snapshot.read(home / name)
    path: list[str] = []
    forged = _altered(state, chance, path)
    try:
        snapshot.write(Path("forged.safetensors"), forged)
    except (TypeError, ValueError):
        return Outcome("typed", "a forgery that no file can hold")
    return judged(f"forged {name} at {'/'.join(path)}", lambda: _works(path[-1].endswith(MISFIT)))


def _altered(plain: Any, chance: Random, path: list[str]) -> Any:
    import torch

    if isinstance(plain, dict) and plain:
        key = chance.choice(sorted(plain))
        path.append(key)
        return {**plain, key: _altered(plain[key], chance, path)}
    if not isinstance(plain, torch.Tensor):
        made = mutations.edited(plain, chance)
        path.append(repr(made)[:80])
        return made
    ways: dict[str, Callable[[], Any]] = {
        "t.double()": plain.double,
        "t.to(torch.int8)": lambda: plain.to(torch.int8),
        "t[:0]": lambda: plain.reshape(-1)[:0],
        "t[None]": lambda: plain[None],
        "cat([t, t])": lambda: torch.cat([plain.reshape(-1)] * 2),
        "t * nan": lambda: plain * float("nan"),
        "t * 0 - 1": lambda: (plain * 0 - 1).to(plain.dtype),
        "t + 2**40": lambda: plain + 2**40 if plain.dtype == torch.int64 else plain + 1e38,
        "t.T": lambda: plain.reshape(plain.shape[::-1]),
        "7": lambda: 7,
    }
    how = chance.choice(sorted(ways))
    made = ways[how]()
    fits = isinstance(made, torch.Tensor) and (made.dtype, made.shape) == (plain.dtype, plain.shape)
    path.append(how if fits else f"{how}{MISFIT}")
    return made


def _works(misfit: bool) -> None:
    learner = dualmix.load("forged.safetensors")
    if misfit:
        raise WrongError("a forged learner was loaded with a tensor of another type or shape")
    with accepted():
        _exercised(learner)


def _exercised(learner: Any) -> None:
    import torch

    shape = tuple(learner.recipe["shape"])
    draw = np.random.default_rng(0)
    x = (
        draw.integers(0, 256, (3, *shape), dtype=np.uint8)
        if len(shape) == 3
        else draw.random((3, *shape))
    )
    if not learner.model.labels:
        learner.observe(x, [0, 1, 2])
    before = learner.predict(x)
    learner.observe(x, before)
    learner.predict(x)
    learner.consolidate()
    weights = learner.model.state_dict().values()
    if not all(torch.isfinite(weight).all() for weight in weights if weight.is_floating_point()):
        raise WrongError("a forged learner was loaded and its weights are not finite")
    dualmix.save(learner, "again.safetensors")
    dualmix.load("again.safetensors")


KIND = Kind("files", "damaged and forged files of every kind", 20_000, 1, 90, attempt)
