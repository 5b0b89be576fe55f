"""Momentum knowledge distillation: what ``+mkd`` adds to a rehearsal method.

N. Michel, M. Wang, L. Xiao and T. Yamasaki, 2024, "Rethinking Momentum Knowledge Distillation in
Online Continual Learning", ICML, arXiv:2309.02870.

The teacher's weights are a moving average of the student's, after every step

    theta_T = alpha * theta + (1 - alpha) * theta_T,

and the loss of a step is

    L = L_host + lambda * (D(x) + D(g(x))) / 2,
    D(v) = t^2 * KL(softmax(f_T(g(x)) / t) || softmax(f(v) / t)),

over the new and the rehearsed images x together, raw and as augmented views g(x). The teacher sees
the views; student and teacher use the statistics of the batch. Answers come from the mean of the
student's and the teacher's weights. Nothing needs a task border.

The rate alpha, lambda = 5.5, the two views and the mean of weights are the paper's; t = 4 and which
images the teacher sees are read in the code behind it. Ours: lambda does not scale with the host's
weights, the host's own terms stay as they are (the paper's hosts train on augmented images), the
teacher starts as the student, its running statistics are those of its own passes, and what answers
has the mean of both networks' statistics too."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from dualmix.learn.arithmetic import Arithmetic
from dualmix.learn.averaging import WeightAverage
from dualmix.learn.class_ages import ClassAges
from dualmix.learn.lazy import torch
from dualmix.learn.types import Batch, Mix, Transform
from dualmix.methods.common import Augmenting
from dualmix.registry import Addition, add_addition
from dualmix.settings import Range, setting

if TYPE_CHECKING:
    from torch import Tensor

    from dualmix.learn.network import Classifier

CITE = "Michel et al., 2024, arXiv:2309.02870"
WEIGHT = 5.5
SHARES = {"student": 0.0, "average": 0.5, "teacher": 1.0}
"""What answers, and the share of the teacher in its weights."""


def distillation(
    logits: Tensor, teacher: Tensor, *, scaled: Tensor, temperature: float, by: Arithmetic
) -> Tensor:
    """Return t^2 * KL(teacher || student), the mean over rows.

    Its gradient in the student's logits is t * (softmax(logits / t) - teacher) / rows.

    Parameters
    ----------
    logits
        (n, K) logits of the student.
    teacher
        (n, K) probabilities of the teacher at the temperature t.
    scaled
        The teacher's logits over t.
    by
        Whose arithmetic it is.
    """
    entropy = by.cross_entropy(scaled, teacher)
    return temperature**2 * (by.cross_entropy(logits / temperature, teacher) - entropy)


@dataclass(eq=False)
class Lesson:
    """What the teacher says of a step's images: asked once, for both of the student's views."""

    teacher: WeightAverage
    g: Transform
    temperature: float
    step: tuple[Batch, Batch] | None = field(default=None, repr=False)
    views: Tensor = field(init=False, repr=False)
    logits: Tensor = field(init=False, repr=False)

    def hear(
        self, new: Batch, old: Batch, model: Classifier, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return augmented views of the new and the rehearsed images, and the teacher's logits of
        them over the temperature.
        """
        if self.step is None or self.step[0] is not new or self.step[1] is not old:
            self.step = new, old
            self.views = self.g(torch.cat([new.x, old.x]), rng)
            with torch.no_grad(), self.teacher.inside(model, keep=True):
                self.logits = model(self.views) / self.temperature
        return self.views, self.logits


@dataclass(frozen=True)
class Distil:
    """The new and the rehearsed images, for which the student must say what the teacher says of
    their augmented views.

    Parameters
    ----------
    weight
        Of this view: half of lambda.
    augmented
        The student sees the teacher's views, or the images as they are.
    """

    lesson: Lesson
    weight: float
    augmented: bool
    blind: ClassVar[bool] = True

    def __call__(
        self, new: Batch, old: Batch, model: Classifier, ages: ClassAges, rng: np.random.Generator
    ) -> Batch | None:
        """Return the images with the teacher's probabilities."""
        views, scaled = self.lesson.hear(new, old, model, rng)
        by = model.arithmetic
        loss = partial(distillation, scaled=scaled, temperature=self.lesson.temperature, by=by)
        x = views if self.augmented else torch.cat([new.x, old.x])
        return Batch(x, by.softmax(scaled), loss=loss)


class Distilling(Augmenting):
    """Momentum knowledge distillation; off unless its weight is above 0."""

    weight: float = setting(
        0.0,
        f"lambda: weight of the distillation from an average of the weights ({WEIGHT:g} in the "
        "MKD paper); 0: no teacher",
        ge=0,
        tune=Range(0.5, 10.0, log=True, needs=("weight",)),
    )
    rate: float = setting(
        0.01,
        "alpha: what each step moves the teacher by (0.01 in the MKD paper)",
        gt=0,
        le=1,
        tune=Range(0.001, 0.1, log=True, needs=("weight",)),
    )
    temperature: float = setting(
        4.0, "of both softmaxes of the distillation", gt=0, source="reference"
    )
    answers: Literal["average", "teacher", "student"] = setting(
        "average",
        "answers by the mean of the student's and the teacher's weights (the MKD paper), or by one "
        "of them",
    )

    def average(self, model: Classifier) -> WeightAverage | None:
        """Return the teacher, or nothing where it is off."""
        return WeightAverage(model, self.rate, SHARES[self.answers]) if self.weight else None

    def build(self, teacher: WeightAverage | None, model: Classifier) -> dict[str, Mix]:
        """Return the distillation of both views by name."""
        if teacher is None:
            return {}
        lesson = Lesson(teacher, self.transform(model), self.temperature)
        return {
            "mkd view": Distil(lesson, self.weight / 2, augmented=True),
            "mkd raw": Distil(lesson, self.weight / 2, augmented=False),
        }


add_addition(
    Addition(
        "mkd",
        "mkd",
        "momentum knowledge distillation from an average of its weights",
        {},
        {"weight": WEIGHT},
        "ours",
        CITE,
    )
)
