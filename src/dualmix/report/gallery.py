"""Real images of a batch and what the augmentations make of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dualmix.data import Data, Images, load
from dualmix.errors import DualmixError
from dualmix.rng import generator
from dualmix.runs.records import Collection, Run

if TYPE_CHECKING:
    from torch import Tensor

COUNT = 10
LIGHTEST = 0.005
"""Shares of a label below this are not written."""
TILT = 2.5
"""How much the new classes' rows of the head outweigh the old ones' in the gallery: above the
paper's kappa of 2.
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a data address, and its label, one line per class."""

    uri: str
    lines: tuple[str, ...]

    @property
    def label(self) -> str:
        """The label as one line."""
        return ", ".join(self.lines)


@dataclass(frozen=True, slots=True)
class PictureRow:
    """Images of one kind."""

    title: str
    caption: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Gallery:
    """Rows of images, or a sentence that says why there are none."""

    caption: str
    rows: tuple[PictureRow, ...] = ()


def gallery(collection: Collection) -> Gallery:
    """Return a batch of the data that the runs saw, if those are on this machine."""
    faults, vectors = [], False
    for run in sorted(
        collection.runs, key=lambda run: (not run.label.endswith("+dualmix"), run.label)
    ):
        place = (run.content.name, str(run.settings["data.path"]))
        if place in faults:
            continue
        try:
            settings = {
                name.removeprefix("data."): v
                for name, v in run.settings.items()
                if name.startswith("data.")
            }
            images = load(Data(**settings))
        except (DualmixError, ValueError):
            faults.append(place)
            continue
        if images.fingerprint == run.content.fingerprint and len(images.shape) == 3:
            return _drawn(run, images)
        vectors = vectors or len(images.shape) == 1
        faults.append(place)
    if vectors:
        return Gallery("No pictures: what the runs learned are vectors.")
    names = ", ".join(sorted({name for name, _ in faults})) or "any data"
    return Gallery(
        f"No pictures: the images of the runs ({names}) are not on this machine; DUALMIX_DATA can "
        "name their folder."
    )


def _drawn(run: Run, images: Images) -> Gallery:
    """Mix one batch of new classes with one of old classes, as er+dualmix does."""
    import torch

    from dualmix.learn.replay import Replay
    from dualmix.learn.types import Batch
    from dualmix.runs.build import create

    rng = generator(0, "gallery")
    tasks = [task["classes"] for task in run.plan["tasks"]]
    order = [c for task in tasks for c in task]
    half = len(tasks[0]) if len(tasks) > 1 else max(1, len(order) // 2)
    old_rows, new_rows = (
        rng.permutation(np.flatnonzero(np.isin(images.train_y, classes)))[:COUNT]
        for classes in (order[:half], order[half : 2 * half] or order)
    )
    learner = create("er+dualmix", images.shape, classes=len(images.classes), memory=COUNT)
    assert isinstance(learner, Replay)
    model = learner.model
    batches = []
    for rows in (old_rows, new_rows):
        columns = model.admit(images.train_y[rows])
        learner.ages.note(columns.numpy())
        x = torch.from_numpy(np.ascontiguousarray(images.train_x[rows]))
        batches.append(Batch(model.pixels(x), columns))
    old, new = batches
    with torch.no_grad():
        model.weight[new.y.unique()] *= TILT
    names = [images.classes[int(label)] for label in model.labels]
    made = {name: mix(new, old, model, learner.ages, rng) for name, mix in learner.mixes.items()}
    mixing = learner.recipe["method"]["mix"]
    said = {
        "view": (
            "Augmented",
            "The rehearsed images through the augmentation, with their own labels (Eq. 2).",
        ),
        "enmix": (
            "EnMix",
            "Pairs of augmented rehearsed images and their labels, mixed by a ratio from "
            f"Beta({mixing['alpha']}, {mixing['alpha']}) (Eq. 7).",
        ),
        "adpmix": (
            "AdpMix",
            "Rehearsed images mixed with new ones (Eqs. 8 and 9). Here the head's rows of the new "
            f"classes outweigh the old ones' by about {TILT}, above kappa {mixing['kappa']}: where "
            f"the old image's share is above tau {mixing['tau']}, the label leans further to the "
            "old class.",
        ),
    }
    shown = [
        PictureRow(
            "Rehearsed",
            "From the memory: classes of the first task.",
            _pictures(old.x, old.y, names),
        ),
        PictureRow(
            "New", "The incoming batch: classes of the second task.", _pictures(new.x, new.y, names)
        ),
        *(
            PictureRow(*said[name], _pictures(batch.x, batch.y, names))
            for name, batch in made.items()
            if batch is not None
        ),
    ]
    return Gallery(
        f"{COUNT} images of {run.content.title} and what er+dualmix makes of them; the shares are "
        "the labels' weights.",
        tuple(shown),
    )


def _pictures(x: Tensor, y: Tensor, names: Sequence[str]) -> tuple[Picture, ...]:
    pictures = []
    pixels = (x.detach().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    for image, label in zip(pixels, y, strict=True):
        if label.ndim == 0:
            lines = [names[int(label)]]
        else:
            shares = {
                names[i]: float(share)
                for i, share in enumerate(label[: len(names)])
                if share >= LIGHTEST
            }
            lines = [
                f"{share:.2f} {name}"
                for name, share in sorted(shares.items(), key=lambda item: -item[1])
            ]
        pictures.append(Picture(_uri(image), tuple(lines)))
    return tuple(pictures)


def _uri(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(
        buffer, "PNG", optimize=True
    )
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
