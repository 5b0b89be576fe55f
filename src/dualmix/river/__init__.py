"""Learners as a river classifier, for its metrics, pipelines and `progressive_val_score`.

Only what river asks of a classifier belongs here. It imports from runs and above it, and river
(`pip install 'dualmix[river]'`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualmix.errors import ConfigError, InputError
from dualmix.learn.common import with_answers
from dualmix.learn.types import Learner
from dualmix.runs.build import create, load, to_bytes

try:
    from river.base import MiniBatchClassifier
except ModuleNotFoundError as missing:
    raise ConfigError("dualmix.river needs river: pip install 'dualmix[river]'.") from missing


class StreamClassifier(MiniBatchClassifier):
    """A learner of a stream with river's methods; new classes may come at any time.

    The features of the first row make the vector, by name; a feature that is missing later is 0,
    and one that is new later has no place and is left out, as river asks of its models.

    Parameters
    ----------
    method
        As for `dualmix.create`. The default is exact and has no learning rate.
    settings
        Of the method and of the network, by name.
    seed
        Decides weights, memory and augmentation.

    Attributes
    ----------
    learner
        What `dualmix.create` made when the first row came; before that none.

    Examples
    --------
    >>> model = StreamClassifier("ncm")
    >>> model.learn_one({"length": 1.0, "width": 0.0}, "long")
    >>> model.learn_one({"length": 0.0, "width": 1.0}, "wide")
    >>> model.predict_one({"length": 0.1, "width": 0.9})
    'wide'
    """

    def __init__(
        self, method: str = "slda", settings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self.method, self.settings, self.seed = method, settings, seed
        self.learner: Learner | None = None
        self._features: list[Any] = []
        self._labels: list[Any] = []

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn one row."""
        self._learn([x], [y])

    def learn_many(self, X: Any, y: Any) -> None:  # noqa: N803
        """Learn a data frame, or a list of rows, in one step."""
        self._learn(_records(X), list(y))

    def predict_proba_one(self, x: Mapping[Any, Any], **_: Any) -> dict[Any, float]:
        """Return a probability per label seen so far; nothing before the first row."""
        return self._said([x])[0] if self.learner is not None else {}

    def predict_proba_many(self, X: Any) -> Any:  # noqa: N803
        """Return a data frame of probabilities, rows as in `X` and a column per label; of a list of
        rows a list.
        """
        said = self._said(_records(X)) if self.learner is not None else []
        if type(X) is list:
            return said or [{} for _ in X]
        return type(X)(said, index=X.index if said else None, columns=self._labels)

    def _learn(self, rows: list[Mapping[Any, Any]], labels: list[Any]) -> None:
        if not rows:
            return
        if self.learner is None:
            self._features = sorted(rows[0], key=str)
            if not self._features:
                raise InputError("The first row has no features: give at least one.")
            made = self._made()
        else:
            made = self.learner
        known = {label: place for place, label in enumerate(self._labels)}
        for label in labels:
            known.setdefault(label, len(known))
        made.observe(self._vectors(rows), [known[label] for label in labels])
        self.learner, self._labels = made, list(known)

    def _made(self) -> Learner:
        settings = dict(self.settings or {})
        if "seed" in settings:
            raise ConfigError("seed is no setting: give it to StreamClassifier.")
        settings["backbone"] = self._backbone()
        return create(self.method, (len(self._features),), seed=self.seed, **settings)

    def _backbone(self) -> Any:
        """Return a copy of a module of one's own, so that clones do not share its weights."""
        return copy.deepcopy((self.settings or {}).get("backbone"))

    def _said(self, rows: list[Mapping[Any, Any]]) -> list[dict[Any, float]]:
        assert self.learner is not None
        answers = with_answers(self.learner).predict_proba(self._vectors(rows))
        said = np.asarray(answers, dtype=np.float64)
        said /= said.sum(1, keepdims=True)
        return [dict(zip(self._labels, map(float, row), strict=True)) for row in said]

    def _vectors(self, rows: list[Mapping[Any, Any]]) -> NDArray[np.float64]:
        found = [[row.get(name, 0.0) for name in self._features] for row in rows]
        try:
            return np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError) as fault:
            raise InputError(
                f"A feature is no number ({fault}): encode it first, for example by "
                "river.preprocessing.OneHotEncoder."
            ) from fault

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        state["learner"] = None if self.learner is None else to_bytes(self.learner)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        kept = state["learner"]
        self.learner = None if kept is None else load(kept, backbone=self._backbone())

    def __deepcopy__(self, memo: dict[int, Any]) -> StreamClassifier:
        twin = StreamClassifier.__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin


def _records(frame: Any) -> list[Mapping[Any, Any]]:
    """Return the rows of a data frame (pandas, polars or any with `to_dicts`) or of a list."""
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        return frame
    if hasattr(frame, "to_dicts"):
        return list(frame.to_dicts())
    if hasattr(frame, "to_dict"):
        return list(frame.to_dict("records"))
    raise InputError(
        f"Many rows are a data frame or a list of rows by name, not {type(frame).__name__}."
    )
