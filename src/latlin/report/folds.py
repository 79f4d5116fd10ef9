"""Folds of rows in memory: shuffled, and with the classes in equal shares."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from latlin.numerics.alerts import ConvergenceWarning, MisfitWarning
from latlin.numerics.arrays import Array
from latlin.report.held_out import Densities, HeldOut
from latlin.report.tasks import Task, checked_folds


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
    y = np.asarray(y)
    folds = min(checked_folds(how[0], len(y)), task.most_folds(y))
    density, baseline = np.empty(len(y)), np.empty(len(y))
    told: dict[str, Array] = {}
    unconverged = 0
    for train, test in task.split(folds, how[1]).split(np.zeros(len(y)), y):
        fitted = fit_quietly(estimator, _rows(X, train), y[train], **_offsets(offset, train))
        unconverged += not fitted.converged_
        density[test] = fitted.log_predictive_density(_rows(X, test), y[test], **_offsets(offset, test))
        baseline[test] = task.baseline(y[train]).log_density(y[test])
        for name, values in task.ask(fitted, _rows(X, test), y[test], **_offsets(offset, test)).items():
            told.setdefault(name, np.empty((len(y), *values.shape[1:])))[test] = values
        advance()
    return HeldOut(folds, Densities.of(density, baseline), y, told, getattr(fitted, "classes_", None), unconverged)


def fit_quietly(estimator: Any, X: Any, y: Any = None, **more: Any) -> Any:
    """A fitted clone; whether it converged is told by `converged_` alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", MisfitWarning)
        return clone(estimator).fit(X, y, **more)


def _rows(X: Any, index: Any) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def _offsets(offset: Any, index: Any) -> dict[str, Any]:
    return {} if offset is None else {"offset": np.asarray(offset)[index]}
