"""Loss and online accuracy between the ends of tasks, as ``--log_every`` writes them to a run's
log.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualmix.store.folder import Folder
from dualmix.store.log import STEP


@dataclass(frozen=True, slots=True)
class Stage:
    """A logged step.

    Attributes
    ----------
    loss
        Of this step's batch.
    online_accuracy
        Share of the images since the logged step before that were recognised before they were
        learned.
    """

    task: int
    step: int
    loss: float
    online_accuracy: float


def steps(folder: Folder) -> list[Stage]:
    """Return the logged steps of a run in their order, each once: what was logged after the
    snapshot from which a run went on was logged again.
    """
    logged: dict[int, tuple[int, float, int, int]] = {}
    for entry in folder.entries(None, steps=True):
        try:
            if entry.get("event") == "begin":
                logged = {step: line for step, line in logged.items() if step <= entry["step"]}
            elif entry.get("event") == STEP:
                logged[int(entry["step"])] = (
                    int(entry["task"]),
                    float(entry["loss"]),
                    int(entry["hits"]),
                    int(entry["images"]),
                )
        except (KeyError, TypeError, ValueError):
            continue
    stages, before = [], (0, 0)
    for step, (task, loss, hits, images) in sorted(logged.items()):
        fresh = images - before[1]
        if fresh > 0:
            stages.append(Stage(task, step, loss, (hits - before[0]) / fresh))
            before = (hits, images)
    return stages
