"""How good a model is on rows it has not seen: K folds, proper scores, reliability or coverage.

Each row is predicted once, by a model fitted to the other folds. Everything kept is small and plain, so that it can be
stored with a model and shown later without the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, poisson
from sklearn.base import clone, is_classifier
from sklearn.model_selection import KFold, StratifiedKFold

from latlin.diagnostics.reliability import reliability_curve
from latlin.numerics.alerts import ConvergenceWarning

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.9, 0.95)
MOST_POINTS = 300


@dataclass(frozen=True)
class Assessment:
    """Held-out predictions in a few numbers.

    Attributes
    ----------
    folds, rows : int
    log_density, log_density_error : float
        Mean log predictive density (or probability) a row, in nat, and its standard error.
    baseline : float
        The same of a model that ignores the features.
    gain_error : float
        Standard error of `log_density` − `baseline`, row by row.
    scores : dict
        Name → number: accuracy and Brier score, or root mean square error and R².
    curve : list of dict
        predicted, observed, low, high, size: groups of probabilities, or promised coverages.
    curve_kind : {"probability", "confidence", "coverage"}
        Of the second class; of the class found most probable; of intervals.
    points : list of [predicted, observed]
        Some rows, for numeric targets.
    unconverged : int
        Folds whose fit did not converge.
    """

    folds: int
    rows: int
    log_density: float
    log_density_error: float
    baseline: float
    gain_error: float
    scores: dict[str, float]
    curve: list[dict[str, float]]
    curve_kind: str
    points: list[list[float]]
    unconverged: int = 0

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Assessment:
        """Back from a JSON object, every number checked to be one."""
        return cls(
            folds=int(stored["folds"]),
            rows=int(stored["rows"]),
            log_density=float(stored["log_density"]),
            log_density_error=float(stored["log_density_error"]),
            baseline=float(stored["baseline"]),
            gain_error=float(stored["gain_error"]),
            scores={str(name): float(value) for name, value in stored["scores"].items()},
            curve=[{str(key): float(value) for key, value in group.items()} for group in stored["curve"]],
            curve_kind=str(stored["curve_kind"]),
            points=[[float(value) for value in point] for point in stored["points"]],
            unconverged=int(stored["unconverged"]),
        )


class HeldOut(NamedTuple):
    """What the folds said about each row, in the order of the rows."""

    log_density: Array
    baseline: Array
    told: dict[str, Array]  # what the kind of target needs, by name
    classes: Any
    unconverged: int


class Task(NamedTuple):
    """How to split, what to ask a fold, what a model without features would say, and how to sum up."""

    most_folds: Callable[[NDArray[Any]], int]
    split: Callable[[int, int | None], Any]
    ask: Callable[[Any, Any], dict[str, Array]]
    baseline: Callable[[NDArray[Any], NDArray[Any]], Array]
    sum_up: Callable[[NDArray[Any], HeldOut], dict[str, Any]]


def assess(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    folds: int = 5,
    random_state: int | None = 0,
    advance: Callable[[], None] = lambda: None,
) -> Assessment:
    """K-fold cross-validation of a regression or classification estimator of `latlin.linear`.

    Parameters
    ----------
    estimator : estimator
        Fitted or not; clones of it are fitted.
    X : array or data frame of shape (n, n_features)
    y : array of shape (n,)
    folds : int
    random_state : int or None
        For the split.
    advance : callable
        Called after each fold, for a progress bar.
    """
    y = np.asarray(y)
    task = _task(estimator)
    folds = min(_checked(folds, len(y)), task.most_folds(y))
    held_out = _held_out(task, estimator, X, y, (folds, random_state), advance)
    return Assessment(
        folds,
        len(y),
        float(held_out.log_density.mean()),
        _error(held_out.log_density),
        float(held_out.baseline.mean()),
        _error(held_out.log_density - held_out.baseline),
        unconverged=held_out.unconverged,
        **task.sum_up(y, held_out),
    )


def _error(values: Array) -> float:
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def held_out_density(
    estimator: Any, X: Any, y: Any, *, folds: int = 5, random_state: int | None = 0
) -> NDArray[np.float64]:
    """The log predictive density of each row, by a model fitted to the other folds: `assess` without the rest."""
    y = np.asarray(y)
    task = _task(estimator)._replace(ask=_ask_nothing)
    folds = min(_checked(folds, len(y)), task.most_folds(y))
    return _held_out(task, estimator, X, y, (folds, random_state), lambda: None).log_density


def _checked(folds: int, rows: int) -> int:
    if not 2 <= folds <= rows:
        raise ValueError(f"folds must be between 2 and the number of rows, {rows}, got {folds}")
    return folds


def _held_out(
    task: Task, estimator: Any, X: Any, y: NDArray[Any], how: tuple[int, int | None], advance: Callable[[], None]
) -> HeldOut:
    log_density, baseline = np.empty(len(y)), np.empty(len(y))
    told: dict[str, Array] = {}
    unconverged = 0
    for train, test in task.split(*how).split(np.zeros(len(y)), y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = clone(estimator).fit(_rows(X, train), y[train])
        unconverged += not fitted.converged_
        log_density[test] = fitted.log_predictive_density(_rows(X, test), y[test])
        baseline[test] = task.baseline(y[train], y[test])
        for name, values in task.ask(fitted, _rows(X, test)).items():
            told.setdefault(name, np.empty((len(y), *values.shape[1:])))[test] = values
        advance()
    return HeldOut(log_density, baseline, told, getattr(fitted, "classes_", None), unconverged)


def _rows(X: Any, index: Any) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def _task(estimator: Any) -> Task:
    """By what the estimator predicts: labels, counts, or numbers."""
    if is_classifier(estimator) or hasattr(estimator, "predict_proba"):
        return Task(_rarest, _stratified, _ask_labels, _baseline_labels, _sum_up_labels)
    if type(estimator).__name__ == "BayesianPoissonRegression":
        return Task(len, _shuffled, _ask_numbers, _baseline_counts, _sum_up_numbers)
    return Task(len, _shuffled, _ask_numbers, _baseline_numbers, _sum_up_numbers)


def _ask_nothing(fitted: Any, X: Any) -> dict[str, Array]:
    return {}


def _stratified(folds: int, seed: int | None) -> StratifiedKFold:
    return StratifiedKFold(folds, shuffle=True, random_state=seed)


def _shuffled(folds: int, seed: int | None) -> KFold:
    return KFold(folds, shuffle=True, random_state=seed)


# --- labels ----------------------------------------------------------------------------------------


def _rarest(y: NDArray[Any]) -> int:
    """Rows of the rarest class, which every fold must have one of."""
    classes, count = np.unique(y, return_counts=True)
    if count.min() < 2:
        raise ValueError(f"the class {classes[count.argmin()]} has one row only, too few to hold rows out")
    return int(count.min())


def _ask_labels(fitted: Any, X: Any) -> dict[str, Array]:
    return {"probability": np.asarray(fitted.predict_proba(X), float)}


def _baseline_labels(train: NDArray[Any], test: NDArray[Any]) -> Array:
    """Log frequencies of the classes, one more of each than there were."""
    classes = np.unique(train)
    count = np.array([np.sum(train == label) for label in classes]) + 1.0
    return np.log(count / count.sum())[np.searchsorted(classes, test)]


def _sum_up_labels(y: NDArray[Any], held_out: HeldOut) -> dict[str, Any]:
    table = held_out.told["probability"]
    place = np.argmax(y[:, None] == held_out.classes, axis=1)
    found = table.argmax(axis=1)
    indicator = np.eye(table.shape[1])[place]
    scores = {
        "accuracy": float(np.mean(found == place)),
        "Brier score": float(np.mean(np.sum((table - indicator) ** 2, axis=1)) / 2.0),
    }
    if table.shape[1] == 2:
        curve, kind = reliability_curve(place, np.clip(table[:, 1], 0.0, 1.0)), "probability"
    else:
        curve, kind = reliability_curve(found == place, np.clip(table.max(axis=1), 0.0, 1.0)), "confidence"
    groups = [dict(zip(curve._fields, map(float, group), strict=True)) for group in zip(*curve, strict=True)]
    return {"scores": scores, "curve": groups, "curve_kind": kind, "points": []}


# --- numbers ---------------------------------------------------------------------------------------


def _ask_numbers(fitted: Any, X: Any) -> dict[str, Array]:
    tails = [0.5 + side * level / 2 for level in LEVELS for side in (-1, 1)]
    ends = np.asarray(fitted.predict_quantiles(X, tails), float).reshape(-1, len(LEVELS), 2)
    return {"mean": np.asarray(fitted.predict(X), float), "ends": ends}


def _baseline_numbers(train: NDArray[Any], test: NDArray[Any]) -> Array:
    return np.asarray(norm.logpdf(test, train.mean(), train.std()))


def _baseline_counts(train: NDArray[Any], test: NDArray[Any]) -> Array:
    return np.asarray(poisson.logpmf(test, train.mean()))


def _sum_up_numbers(y: NDArray[Any], held_out: HeldOut) -> dict[str, Any]:
    mean, ends = held_out.told["mean"], held_out.told["ends"]
    wrong = y - mean
    scores = {
        "root mean square error": float(np.sqrt(np.mean(wrong**2))),
        "R²": float(1.0 - np.sum(wrong**2) / np.sum((y - y.mean()) ** 2)),
    }
    inside = (ends[:, :, 0] <= y[:, None]) & (y[:, None] <= ends[:, :, 1])
    curve = [_covered(level, inside[:, place]) for place, level in enumerate(LEVELS)]
    some = np.unique(np.linspace(0, len(y) - 1, min(MOST_POINTS, len(y))).astype(int))
    points = np.column_stack([mean, y])[some].tolist()
    return {"scores": scores, "curve": curve, "curve_kind": "coverage", "points": points}


def _covered(level: float, inside: NDArray[np.bool_]) -> dict[str, float]:
    """Share of rows inside their interval, with the 90 % interval of that share."""
    group = reliability_curve(inside, np.full(len(inside), level), bins=1)
    return dict(zip(group._fields, (float(values[0]) for values in group), strict=True))
