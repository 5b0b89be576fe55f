"""Trackers of other makers, fed by what a run tells: TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from dualmix.config.compose import Composed, flatten
from dualmix.errors import quoted
from dualmix.runs.events import Began, Ended, Event, Scored, Stepped
from dualmix.runs.extras import extra

EVERY = 50
"""Steps from one loss to the next: to read a number stops the device."""


class Tracker(Protocol):
    """One place that numbers are sent to."""

    def begin(self, path: Path, label: str, step: int, settings: Mapping[str, Any]) -> None:
        """Open the run's record, or the record there is where `step` is above 0."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record numbers of a step."""

    def close(self, done: bool) -> None:
        """Close the record."""


class TensorBoard:
    """Event files in the run's own folder: ``tensorboard --logdir runs`` shows all of a store."""

    def __init__(self) -> None:
        extra("tensorboard", "tensorboard", "--track tensorboard")
        self.writers = extra("torch.utils.tensorboard", "tensorboard", "--track tensorboard")

    def begin(self, path: Path, label: str, step: int, settings: Mapping[str, Any]) -> None:
        """Open an event file; what an earlier session wrote past `step` is void."""
        self.writer = self.writers.SummaryWriter(str(path / "tensorboard"), purge_step=step + 1)
        text = "\n".join(f"    {name}: {value}" for name, value in settings.items())
        self.writer.add_text("settings", f"{label}\n\n{text}", step)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)
        self.writer.flush()

    def close(self, done: bool) -> None:
        """Close the event file."""
        self.writer.close()


class MLflow:
    """A run of the experiment ``dualmix`` at MLFLOW_TRACKING_URI, else in the folder ``mlruns`` of
    the store.
    """

    def __init__(self) -> None:
        self.tracking = extra("mlflow.tracking", "mlflow", "--track mlflow")

    def begin(self, path: Path, label: str, step: int, settings: Mapping[str, Any]) -> None:
        """Make a run with all settings, or go on with the one of the same name."""
        given = os.environ.get("MLFLOW_TRACKING_URI")
        if not given:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self.client = self.tracking.MlflowClient(
            given or (path.parent / "mlruns").absolute().as_uri()
        )
        known = self.client.get_experiment_by_name("dualmix")
        experiment = known.experiment_id if known else self.client.create_experiment("dualmix")
        wanted = f"tags.`mlflow.runName` = '{path.name}'"
        runs = self.client.search_runs([experiment], wanted) if step else []
        if runs:
            self.run = runs[0].info.run_id
            self.client.update_run(self.run, status="RUNNING")
            return
        self.run = self.client.create_run(experiment, run_name=path.name).info.run_id
        for name, value in {"label": label, **settings}.items():
            self.client.log_param(self.run, name, value)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log metrics."""
        for name, number in numbers.items():
            self.client.log_metric(self.run, name, number, step=step)

    def close(self, done: bool) -> None:
        """Say whether the run is done or was cut off."""
        self.client.set_terminated(self.run, "FINISHED" if done else "KILLED")


class WandB:
    """An offline run in the run's own folder, which ``wandb sync`` uploads; WANDB_MODE=online sends
    it at once.
    """

    def __init__(self) -> None:
        self.wandb = extra("wandb", "wandb", "--track wandb")

    def begin(self, path: Path, label: str, step: int, settings: Mapping[str, Any]) -> None:
        """Make a run named after the folder; a later session has the same id."""
        self.run = self.wandb.init(
            project="dualmix",
            name=path.name,
            id=path.name.rpartition("-")[2],
            resume="allow",
            config={"label": label, **settings},
            dir=str(path),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self.wandb.Settings(
                silent=True, console="off", disable_git=True, x_disable_stats=True
            ),
        )

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log numbers."""
        self.run.log(dict(numbers), step=step)

    def close(self, done: bool) -> None:
        """Finish the run."""
        self.run.finish(exit_code=0 if done else 1)


TRACKERS: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


class Tracking:
    """Feeds events to trackers; give it to `run` as `watch` and use it as a context.

    A tracker that fails is given up with one warning, and the run goes on.

    Parameters
    ----------
    trackers
        By name.
    warn
        Is told a sentence; a Python warning unless another is given.
    """

    def __init__(
        self,
        trackers: Mapping[str, Tracker],
        composed: Composed,
        warn: Callable[[str], None] = lambda text: warnings.warn(text, stacklevel=3),
    ) -> None:
        self.trackers, self.composed, self.warn = dict(trackers), composed, warn
        self.begun = self.done = False
        self.step = 0
        self.last: Stepped | None = None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: object, trace: TracebackType | None
    ) -> None:
        if self.begun:
            self._each(lambda tracker: tracker.close(self.done))

    def __call__(self, event: Event) -> None:
        """Pass on what happened."""
        match event:
            case Began():
                settings = dict(flatten(self.composed.config.record()))
                self.begun = True
                self._each(
                    lambda tracker: tracker.begin(event.path, event.label, event.step, settings)
                )
            case Stepped() if event.step % EVERY == 0 and self.trackers:
                self._add(event.step, self._progress(event))
                self.last = event
            case Scored():
                self._add(event.step, {"accuracy": event.accuracy, "forgetting": event.forgetting})
            case Ended():
                self.done = True
                final = {
                    f"final/{name}": at for name, at in {**event.scores, **event.times}.items()
                }
                self._add(
                    self.step,
                    {name: at for name, at in final.items() if isinstance(at, int | float)},
                )
        if isinstance(event, Stepped | Scored):
            self.step = event.step

    def _progress(self, event: Stepped) -> dict[str, float]:
        """Return the loss, and the share of the images since the last time that were recognised
        before learning.
        """
        hits, images = (self.last.hits, self.last.images) if self.last else (0, 0)
        fresh = event.images - images
        return {
            "loss": float(event.loss),
            "online_accuracy": float(event.hits - hits) / max(fresh, 1),
        }

    def _add(self, step: int, numbers: Mapping[str, float]) -> None:
        finite = {name: float(at) for name, at in numbers.items() if math.isfinite(at)}
        self._each(lambda tracker: tracker.add(step, finite))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(tracker)
            except Exception as fault:
                del self.trackers[name]
                self.warn(f"{name} stopped tracking, the run goes on: {quoted(fault)}")


def all_of(*watchers: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return one watcher that passes events on to several, in turn."""

    def watch(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    return watch


def trackers(names: Sequence[str]) -> dict[str, Tracker]:
    """Return trackers by name, each once.

    Raises
    ------
    DualmixError
        A package is missing.
    """
    return {name: TRACKERS[name]() for name in dict.fromkeys(names)}
