"""What is asked of held-out rows, by the kind of target: labels, counts, or measured numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import is_classifier
from sklearn.model_selection import KFold, StratifiedKFold

from latlin.diagnostics.calibration import concordance, reliability_curve
from latlin.diagnostics.model_checks import (
    OF_FEATURES,
    Check,
    Remedies,
    check_calibration,
    check_coverage,
    check_predictions,
    check_quantile,
)
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.report.baselines import Baseline, HeldOut, baseline_of, baseline_of_labels, quantile_of

LEVELS = (0.5, 0.8, 0.9, 0.95)
MOST_POINTS = 300
#: times of which the concordance is found, a sum over pairs
MOST_TIMES = 5000
#: shares of variance that are explained: of all, and of what a common rate of rows with exposures or trials leaves
R2, BEYOND_RATE = "R²", "R² beyond a common rate"
#: bars of a histogram of probability integral transforms
BARS = 20


class Task(NamedTuple):
    """How to split, what to ask a fold, what a model without features would say, and how to sum up."""

    most_folds: Callable[[NDArray[Any]], int]
    split: Callable[[int, int | None], Any]
    ask: Callable[..., dict[str, Array]]
    baseline: Callable[..., Baseline]
    sum_up: Callable[[HeldOut], dict[str, Any]]

    @property
    def has_labels(self) -> bool:
        return self.split is _stratified

    def without_questions(self) -> Task:
        """Log densities only."""
        return self._replace(ask=_ask_nothing)


def task_of(estimator: Any) -> Task:
    """By what the estimator predicts: labels, counts, or numbers."""
    if not hasattr(estimator, "get_params"):
        raise ValueError(f"estimator must be an estimator of latlin.linear, got {estimator!r:.80}")
    if is_classifier(estimator) or hasattr(estimator, "predict_proba"):
        return Task(_rarest, _stratified, _ask_labels, baseline_of_labels(estimator), _sum_up_labels)
    if (level := quantile_of(estimator)) is not None:
        return Task(len, _shuffled, _ask_quantile, baseline_of(estimator), partial(_sum_up_quantile, level))
    kind = getattr(estimator, "response_family", None)
    remedies = OF_FEATURES if kind is not None and kind().template.gaussian else None
    return Task(len, _shuffled, _ask_numbers, baseline_of(estimator), partial(_sum_up_numbers, remedies))


def check_folds(folds: int, rows: int) -> int:
    if not 2 <= check_whole("folds", folds) <= rows:
        raise ValueError(f"folds must be between 2 and the number of rows, {rows}, got {folds}")
    return folds


def _ask_nothing(fitted: Any, X: Any, y: NDArray[Any], **more: Any) -> dict[str, Array]:
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


def _ask_labels(fitted: Any, X: Any, y: NDArray[Any], **more: Any) -> dict[str, Array]:
    return {"probability": np.asarray(fitted.predict_proba(X, **more), float)}


def _sum_up_labels(seen: HeldOut) -> dict[str, Any]:
    table, y = seen.answers["probability"], seen.y
    place = np.argmax(y[:, None] == seen.classes, axis=1)
    found = table.argmax(axis=1)
    indicator = np.eye(table.shape[1])[place]
    scores = {
        "accuracy": float(np.mean(found == place)),
        "Brier score": float(np.mean(np.sum((table - indicator) ** 2, axis=1)) / 2.0),
    }
    if table.shape[1] == 2:
        happened, probability, kind = place, np.clip(table[:, 1], 0.0, 1.0), "probability"
    else:
        happened, probability, kind = found == place, np.clip(table.max(axis=1), 0.0, 1.0), "confidence"
    curve = reliability_curve(happened, probability)
    groups = [dict(zip(curve._fields, map(float, group), strict=True)) for group in zip(*curve, strict=True)]
    checks = [check_calibration(happened, probability)]
    return {"scores": scores, "curve": groups, "curve_kind": kind, "points": [], "checks": checks}


# --- numbers ---------------------------------------------------------------------------------------


def _ask_numbers(fitted: Any, X: Any, y: NDArray[Any], **more: Any) -> dict[str, Array]:
    """Point predictions, and probability integral transforms: even between zero and one if the model is right.

    They are drawn anew where an observation has a probability of its own, so that intervals of counts can be asked
    whether they hold what they promise.
    """
    residuals = fitted.quantile_residuals(X, y, random_state=0, **more)
    # successes are predicted among their trials
    among = {"trials": y[:, 1]} if y.ndim == 2 and "trials" in fitted.response_family().columns else {}
    answers = {"mean": np.asarray(fitted.predict(X, **more, **among), float), "pit": np.asarray(ndtr(residuals))}
    size = _size(fitted, y, **more)
    answers |= {} if size is None else {"size": size}
    if y.ndim == 2 and "event" in fitted.response_family().columns:
        answers["order"] = np.asarray(fitted.predict_latent(X, **more), float)
    return answers


def _size(fitted: Any, y: NDArray[Any], offset: Array | None = None) -> Array | None:
    """What an observation is in proportion to without any feature: its trials or its exposure, if it has such."""
    family = fitted.response_family()
    if y.ndim == 2 and "trials" in family.columns:
        return np.asarray(y[:, 1], float)
    return np.exp(offset) if offset is not None and family.link == "log" else None


def _sum_up_numbers(remedies: Remedies | None, seen: HeldOut) -> dict[str, Any]:
    mean, pit = seen.answers["mean"], seen.answers["pit"]
    y = seen.y if seen.y.ndim == 1 else seen.y[:, 0]
    order, size = (seen.answers.get(name, np.empty(0)) for name in ("order", "size"))
    # the mean of all, or with exposures or trials their common rate: R² is what features add to it
    without = size * (y.sum() / size.sum()) if size.size else np.full(len(y), y.mean())
    explained = BEYOND_RATE if size.size else R2
    scores, checks = _scores_of_times(seen.y, order) if order.size else _scores_of_numbers(y, mean, without, explained)
    curve = [_covered(level, np.abs(pit - 0.5) <= 0.5 * level) for level in LEVELS]
    shares = np.histogram(pit, BARS, (0.0, 1.0))[0] / len(pit)
    return {
        "scores": scores,
        "curve": curve,
        "curve_kind": "coverage",
        "points": _some_points(mean, y),
        "pit": shares.tolist(),
        "checks": [check_coverage(pit, remedies=remedies), *checks],
    }


def _scores_of_numbers(y: Array, mean: Array, without: Array, explained: str) -> tuple[dict[str, float], list[Check]]:
    wrong, found = y - mean, check_predictions(y, mean, without)
    scores = {
        "root mean square error": float(np.sqrt(np.mean(wrong**2))),
        explained: float(1.0 - np.sum(wrong**2) / np.sum((y - without) ** 2)),
    }
    return scores, [found] if found.is_caution else []


def _scores_of_times(y: Array, order: Array) -> tuple[dict[str, float], list[Check]]:
    """How far a time is off is not known where it is censored; whether rows come in the predicted order is."""
    known = dict(zip(("time", "event", "upper"), y[:MOST_TIMES].T, strict=False))
    try:
        return {"concordance": concordance(**known, predicted=order[:MOST_TIMES])}, []
    except ValueError:  # no pair whose order is known
        return {}, []


def _ask_quantile(fitted: Any, X: Any, y: NDArray[Any], **more: Any) -> dict[str, Array]:
    """The quantile alone: the density about it is a device, and its transforms would say nothing of the rows."""
    return {"quantile": np.asarray(fitted.predict(X, **more), float)}


def _sum_up_quantile(level: float, seen: HeldOut) -> dict[str, Any]:
    """Whether as many rows lie below their quantile as should, and its loss ⟨(y − q)(level − [y < q])⟩."""
    q, y = seen.answers["quantile"], seen.y
    below = y < q
    scores = {"share below": float(below.mean()), "quantile loss": float(np.mean((y - q) * (level - below)))}
    return {
        "scores": scores,
        "curve": [_covered(level, below)],
        "curve_kind": "quantile",
        "points": _some_points(q, y),
        "checks": [check_quantile(below, level)],
    }


def _some_points(predicted: Array, y: Array) -> list[list[float]]:
    some = np.unique(np.linspace(0, len(y) - 1, min(MOST_POINTS, len(y))).astype(int))
    points: list[list[float]] = np.column_stack([predicted, y])[some].tolist()
    return points


def _covered(level: float, inside: NDArray[np.bool_]) -> dict[str, float]:
    """Share of rows inside their interval, with the 90 % interval of that share."""
    group = reliability_curve(inside, np.full(len(inside), level), bins=1)
    return dict(zip(group._fields, (float(values[0]) for values in group), strict=True))
