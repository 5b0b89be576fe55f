"""Learners as a scikit-learn classifier, for Pipeline, GridSearchCV and all that takes one.

Only what scikit-learn asks of a classifier belongs here. It imports from runs and above it, and
scikit-learn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from dualmix.errors import ConfigError, InputError
from dualmix.learn.common import with_answers
from dualmix.learn.types import Learner
from dualmix.rng import generator
from dualmix.runs.build import create, load, to_bytes

OWN = {"backbone": "model", "model": "model", "seed": "random_state", "device": "device"}
"""Arguments of `dualmix.create` that are parameters here, and their names."""


class StreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A learner of a stream with scikit-learn's methods.

    `partial_fit` takes rows as they come, and new classes at any time; `fit` begins anew and
    shuffles. `learner_` is the learner itself, with all that scikit-learn has no name for.

    Parameters
    ----------
    method
        As for `dualmix.create`. The default is exact and has no learning rate; methods that train,
        such as ``er+dualmix``, want `settings` and a few `epochs`.
    settings
        Of the method and of the network, by name.
    shape
        (C, H, W) of images, which may be rows of C * H * W numbers; none: rows are vectors.
    model
        The backbone's name, settings of the network by name, or a torch module of your own.
    batch_size
        Rows per step; more rows are learned in several steps.
    epochs
        Passes of `fit` over its rows.
    random_state
        The seed, or a generator of numpy's to draw it from; none: 0, so that two calls give the
        same.

    Attributes
    ----------
    classes_
        The labels seen so far, or named by `classes` in the first `partial_fit`, sorted.
    learner_
        The learner; its own labels are places in the order in which classes came.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> StreamClassifier().fit(x[:1000], y[:1000]).score(x[1000:], y[1000:]) > 0.85
    True
    """

    def __init__(
        self,
        method: str = "slda",
        *,
        settings: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        model: Any = "auto",
        batch_size: int = 10,
        epochs: int = 1,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.method, self.settings, self.shape, self.model = method, settings, shape, model
        self.batch_size, self.epochs, self.device = batch_size, epochs, device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> StreamClassifier:  # noqa: N803
        """Learn rows from the beginning, in a shuffled order, and end with a pause."""
        rows, labels = self._checked(X, y, reset=True)
        self._begin(rows)
        self.classes_ = np.unique(labels)
        for epoch in range(self.epochs):
            order = generator(self._seed, "fit", epoch).permutation(len(rows))
            self._learn(rows[order], labels[order])
        self.learner_.consolidate()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> StreamClassifier:  # noqa: N803
        """Go on with more rows, in their order.

        Parameters
        ----------
        classes
            Labels that will come, for those who need `classes_` to stay as it is; others may come
            all the same.
        """
        first = not hasattr(self, "learner_")
        rows, labels = self._checked(X, y, reset=first)
        if first:
            self._begin(rows)
            self.classes_ = np.unique(labels if classes is None else np.asarray(classes))
        if not np.isin(labels, self.classes_).all():
            self.classes_ = np.unique(np.concatenate([self.classes_, labels]))
        self._learn(rows, labels)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most likely label of each row among those learned so far."""
        rows = self._rows(X)
        answers: NDArray[Any] = np.asarray(self._labels)[self.learner_.predict(rows)]
        return answers

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return a probability per row and class, in the order of `classes_`; a class that was
        named and has not come has 0.
        """
        rows = self._rows(X)
        said = np.asarray(with_answers(self.learner_).predict_proba(rows), dtype=np.float64)
        whole = np.zeros((len(said), len(self.classes_)))
        whole[:, np.searchsorted(self.classes_, np.asarray(self._labels))] = said
        whole /= whole.sum(1, keepdims=True)
        return whole

    def _begin(self, rows: NDArray[Any]) -> None:
        for name, least in (("batch_size", 1), ("epochs", 1)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least:
                raise ConfigError(f"{name} must be a whole number from {least} on, not {given!r}.")
        for name, own in OWN.items():
            if name in (self.settings or {}):
                raise ConfigError(f"{name} is no setting: give {own} to StreamClassifier.")
        self._labels: list[Any] = []
        given = self.random_state
        self._seed = int(given.randint(2**31)) if hasattr(given, "randint") else given or 0
        self.learner_: Learner = create(
            self.method,
            rows.shape[1:],
            seed=self._seed,
            device=self.device,
            backbone=self._backbone(),
            model=self.model if self._named() else "auto",
            **(self.settings or {}),
        )

    def _named(self) -> bool:
        return isinstance(self.model, str | Mapping)

    def _backbone(self) -> Any:
        """Return a copy of a module of one's own: a parameter stays as it was given, so that `fit`
        can begin anew.
        """
        return None if self._named() else copy.deepcopy(self.model)

    def _learn(self, rows: NDArray[Any], labels: NDArray[Any]) -> None:
        known = {label: place for place, label in enumerate(self._labels)}
        for start in range(0, len(rows), self.batch_size):
            part = labels[start : start + self.batch_size].tolist()
            for label in part:
                known.setdefault(label, len(known))
            self.learner_.observe(rows[start : start + self.batch_size], [known[n] for n in part])
            self._labels = list(known)

    def _checked(self, given: Any, y: Any, *, reset: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        flat, labels = validate_data(self, self._flat(given), y, reset=reset, dtype="numeric")
        check_classification_targets(labels)
        return self._shaped(flat), column_or_1d(labels, warn=True)

    def _rows(self, given: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._shaped(validate_data(self, self._flat(given), reset=False, dtype="numeric"))

    def _flat(self, given: Any) -> Any:
        """Return images as rows of numbers, which is what scikit-learn can check."""
        if self.shape is None or np.ndim(given) != 1 + len(self.shape):
            return given
        images = np.asarray(given)
        if images.shape[1:] != tuple(self.shape):
            raise InputError(f"Images must be (n, *{tuple(self.shape)}), not {images.shape}.")
        return images.reshape(len(images), -1)

    def _shaped(self, flat: NDArray[Any]) -> NDArray[Any]:
        if self.shape is None:
            return flat
        if flat.shape[1] != int(np.prod(self.shape)):
            raise InputError(f"Rows of {flat.shape[1]} numbers are no images {tuple(self.shape)}.")
        return flat.reshape(len(flat), *self.shape)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "learner_" in state:
            state = {**state, "learner_": to_bytes(state["learner_"])}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "learner_" in state:
            self.learner_ = load(state["learner_"], self.device, backbone=self._backbone())
