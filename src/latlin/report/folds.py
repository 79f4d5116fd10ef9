"""Folds of rows in memory: shuffled with the classes in equal shares, by groups, or in the order of time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from latlin.numerics.alerts import ConvergenceWarning, MisfitWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import real_array
from latlin.numerics.rng import generator
from latlin.report.held_out import Densities, HeldOut
from latlin.report.tasks import Task, checked_folds

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


def grouped_splits(groups: Any, y: Any, folds: int, labelled: bool) -> list[Split]:
    """Folds in which the rows of one group are held out together."""
    names, place = np.unique(np.asarray(groups), return_inverse=True)
    if not 2 <= folds <= len(names):
        raise ValueError(f"folds must be between 2 and the number of groups, {len(names)}, got {folds}")
    chosen = StratifiedGroupKFold(folds, shuffle=True, random_state=0) if labelled else GroupKFold(folds)
    return list(chosen.split(np.zeros(len(place)), y, place))


def ordered_splits(times: Any, folds: int) -> list[Split]:
    """Folds in which rows are predicted from earlier ones only; rows of the same time stay together.

    Examples
    --------
    >>> [(train.tolist(), test.tolist()) for train, test in ordered_splits([3, 1, 2, 2], 2)]
    [([1], [2, 3]), ([1, 2, 3], [0])]
    """
    place = np.unique(np.asarray(times), return_inverse=True)[1]
    count = int(place.max()) + 1
    if not 1 <= folds < count:
        raise ValueError(f"folds must be below the number of different times, {count}, got {folds}")
    ends = np.linspace(0, count, folds + 2).round().astype(int)[1:]
    pairs = pairwise(ends)
    return [(np.flatnonzero(place < low), np.flatnonzero((place >= low) & (place < high))) for low, high in pairs]


def held_out_densities(estimator: Any, X: Any, y: Any, splits: Sequence[Split], offset: Any = None) -> Array:
    """Log predictive density of every row by a model fitted to its training rows; NaN for rows never held out."""
    y, density = np.asarray(y), np.full(len(y), np.nan)
    for train, test in splits:
        fitted = fit_quietly(estimator, _rows(X, train), y[train], **_offsets(offset, train))
        density[test] = fitted.log_predictive_density(_rows(X, test), y[test], **_offsets(offset, test))
    return density


def usual_splits(task: Task, y: Any, folds: int, seed: int | None = 0) -> list[Split]:
    """Folds of shuffled rows, with the classes in equal shares."""
    y = np.asarray(y)
    folds = min(checked_folds(folds, len(y)), task.most_folds(y))
    return list(task.split(folds, seed).split(np.zeros(len(y)), y))


def hold_out(
    task: Task,
    estimator: Any,
    X: Any,
    y: Any,
    how: tuple[int, int | None],
    advance: Callable[[], None],
    offset: Any = None,
) -> HeldOut:
    """Predict each row by a model fitted to the other folds; `how` is their number and the seed of the split."""
    X, y = _numbers(X), np.asarray(y)
    if not y.ndim or not hasattr(X, "shape") or len(y) != X.shape[0]:
        raise ValueError(f"X and y must have as many rows, got {type(X).__name__} and shape {y.shape}")
    if offset is not None and real_array("offset", offset).shape != (len(y),):
        raise ValueError(f"offset must have one number per row, {len(y)}, got shape {np.shape(offset)}")
    generator(how[1])
    folds = min(checked_folds(how[0], len(y)), task.most_folds(y))
    density, baseline = np.empty(len(y)), np.empty(len(y))
    answers: dict[str, Array] = {}
    unconverged = 0
    for train, test in task.split(folds, how[1]).split(np.zeros(len(y)), y):
        fitted = fit_quietly(estimator, _rows(X, train), y[train], **_offsets(offset, train))
        unconverged += not fitted.converged_
        density[test] = fitted.log_predictive_density(_rows(X, test), y[test], **_offsets(offset, test))
        baseline[test] = task.baseline(y[train]).log_density(y[test])
        for name, values in task.ask(fitted, _rows(X, test), y[test], **_offsets(offset, test)).items():
            answers.setdefault(name, np.empty((len(y), *values.shape[1:])))[test] = values
        advance()
    return HeldOut(folds, Densities.of(density, baseline), y, answers, getattr(fitted, "classes_", None), unconverged)


def fit_quietly(estimator: Any, X: Any, y: Any = None, **more: Any) -> Any:
    """A fitted clone; `converged_` and `checks_` say what it would warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(X, y, **more)


def _numbers(X: Any) -> Any:
    """A data frame of plain numbers as an array: names of columns are nothing to folds, and cost time when many."""
    plain = hasattr(X, "iloc") and set(X.dtypes) == {np.dtype(float)}
    return X.to_numpy() if plain else X


def _rows(X: Any, index: Any) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def _offsets(offset: Any, index: Any) -> dict[str, Any]:
    return {} if offset is None else {"offset": np.asarray(offset)[index]}
