"""What the service shows of its learner: classes, accuracy over time, rows of the memory."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from dualmix.serve import answers, pictures
from dualmix.serve.service import Service

NO_SNAPSHOT = "The snapshot cannot be written; the journal has all that was accepted"
SHOWN = 60
"""Rows of the memory that are shown."""


def utc(seconds: float) -> str:
    """Return a time as answers hold it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def classes(service: Service) -> list[answers.OfClass]:
    """Return every class, in the order in which they came."""
    learner = service.learner
    with learner.guard.reading(learner):
        labels = list(learner.model.labels)
        stored = learner.memory.counts(len(labels)).tolist()
    with service.books():
        known = service.accuracy.classes
        return [
            answers.OfClass(
                label=label,
                first_batch=one.first_batch,
                first_seen=None if one.first_seen is None else utc(one.first_seen),
                images=one.images,
                correct=one.correct,
                accuracy=one.correct / one.images if one.images else None,
                stored=count,
            )
            for label, count in zip(labels, stored, strict=True)
            if (one := known.get(label)) is not None
        ]


def progress(service: Service) -> answers.Progress:
    """Return how the service goes."""
    learner = service.learner
    with service.books():
        accuracy = service.accuracy
        return answers.Progress(
            batches=learner.ages.steps,
            images=accuracy.images,
            accuracy=accuracy.overall,
            accuracy_recent=accuracy.late,
            course=[
                answers.Point(
                    time=utc(time), batches=int(batches), images=int(n), accuracy=right / n
                )
                for time, batches, n, right in accuracy.course
            ],
            waiting=service.waiting,
            refused=service.refusals,
            last_refusal=next(reversed(service.refused.values()), None),
            memory=len(learner.memory),
            capacity=learner.memory.capacity,
            snapshot=None if service.snapshot_time is None else utc(service.snapshot_time),
            snapshot_fault=None if service.snapshot_fault is None else f"{NO_SNAPSHOT}.",
        )


def stored(service: Service) -> list[answers.Stored]:
    """Return some rows of the memory, of every class in turn."""
    learner = service.learner
    if len(service.shape) != 3 or service.shape[0] not in (1, 3):
        return []
    with learner.guard.reading(learner):
        labels, rows = list(learner.model.labels), len(learner.memory)
        y = learner.memory.y[:rows].numpy()
        ranks = np.zeros(rows, np.int64)
        for column in np.unique(y):
            held = np.flatnonzero(y == column)
            ranks[held] = np.arange(len(held))
        picked = np.lexsort((y, ranks))[:SHOWN]
        x, columns = learner.memory.x[picked].cpu().numpy(), y[picked].tolist()
    return [
        answers.Stored(label=labels[column], picture=pictures.thumbnail(row))
        for row, column in zip(x, columns, strict=True)
    ]
