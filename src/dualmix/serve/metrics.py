"""Numbers of the service as Prometheus reads them (text format 0.0.4)."""

from __future__ import annotations

import os
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualmix.serve.service import Service

PATHS = (
    "/observe",
    "/pause",
    "/predict",
    "/probabilities",
    "/top-k",
    "/labels",
    "/settings",
    "/snapshot",
    "/progress",
    "/memory",
    "/metrics",
    "/health",
    "/ready",
    "/",
    "/docs",
    "/openapi.json",
)
"""Paths that are counted by name; all others count together."""
BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counts of requests by path and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._below: Counter[tuple[str, int]] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count one request; status 0: whoever asked went away."""
        name = path if path in PATHS else "other"
        with self._lock:
            self._requests[name, status] += 1
            self._seconds[name] += seconds  # type: ignore[assignment]
            self._below[name, bisect_left(BOUNDS, seconds)] += 1

    def text(self, service: Service) -> str:
        """Return all numbers."""
        return "\n".join([*self._of_requests(), *_of_service(service)]) + "\n"

    def _of_requests(self) -> Iterator[str]:
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
            below = dict(self._below)
        yield from _head("dualmix_requests_total", "counter", "Requests by path and status.")
        for (path, status), count in sorted(requests.items()):
            yield _line("dualmix_requests_total", {"path": path, "status": str(status)}, count)
        name = "dualmix_request_seconds"
        yield from _head(name, "histogram", "Seconds from a request's first byte to its answer.")
        for path in sorted(seconds):
            total = 0
            for place, bound in enumerate([*map(str, BOUNDS), "+Inf"]):
                total += below.get((path, place), 0)
                yield _line(f"{name}_bucket", {"path": path, "le": bound}, total)
            yield _line(f"{name}_sum", {"path": path}, seconds[path])
            yield _line(f"{name}_count", {"path": path}, total)


def _of_service(service: Service) -> Iterator[str]:
    with service.books():
        accuracy = service.accuracy
        classes = {str(k): (one.images, one.correct) for k, one in accuracy.classes.items()}
        images, correct, late = accuracy.images, accuracy.correct, accuracy.late
        learned, refused = service.learned, service.refusals
    learner = service.learner
    numbers = (
        ("ready", "gauge", "1 when batches and questions are taken.", int(service.ready)),
        ("queue_batches", "gauge", "Batches acknowledged and not yet learned.", service.waiting),
        ("records_total", "counter", "Batches and pauses in the journal so far.", learned),
        ("batches_refused_total", "counter", "Batches whose loss was not finite.", refused),
        ("images_total", "counter", "Images learned.", images),
        ("images_correct_total", "counter", "Of these, recognised before.", correct),
        ("accuracy", "gauge", "Prequential accuracy of all images.", accuracy.overall),
        ("accuracy_recent", "gauge", "The same of the latest 1,000 images.", late),
        ("classes", "gauge", "Classes known.", len(learner.model.labels)),
        ("memory_rows", "gauge", "Rows in the memory.", len(learner.memory)),
        ("request_ids", "gauge", "Request ids that are remembered.", len(service.ids)),
        ("journal_bytes", "gauge", "Journal on the disk.", service.journal.size),
        ("snapshot_timestamp_seconds", "gauge", "The last snapshot.", service.snapshot_time),
        ("snapshot_failed", "gauge", "1 if it failed.", int(service.snapshot_fault is not None)),
        ("resident_bytes", "gauge", "Memory of the process.", resident_bytes()),
    )
    for name, kind, doc, value in numbers:
        if value is not None:
            yield from _head(f"dualmix_{name}", kind, doc)
            yield _line(f"dualmix_{name}", {}, value)
    for place, (name, doc) in enumerate(
        (("class_images_total", "Images by class."), ("class_correct_total", "Recognised before."))
    ):
        yield from _head(f"dualmix_{name}", "counter", doc)
        for label, counts in classes.items():
            yield _line(f"dualmix_{name}", {"class": label}, counts[place])


def resident_bytes() -> int | None:
    """Return the memory of this process, where the system tells it."""
    statm = Path("/proc/self/statm")
    if sys.platform != "linux":
        return None
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _head(name: str, kind: str, doc: str) -> Iterator[str]:
    yield f"# HELP {name} {doc}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.15g}" if inner else f"{name} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
