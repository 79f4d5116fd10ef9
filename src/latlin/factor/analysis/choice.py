"""How many factors: the Bayesian information criterion, or the likelihood of held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold

from latlin.distributed.opening import is_blocked
from latlin.factor.fit import parameter_count
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_list, check_whole

# --- Heywood cases: a noise variance that the likelihood drives to zero.

NEAR = 10.0


class HeywoodWarning(UserWarning):
    """A noise variance went to its floor: the factors reproduce that feature without error."""


def heywood_features(noise: Array, variance: Array, floor: float) -> np.ndarray:
    """Indices of the features whose noise variance is within a factor of ten of its floor."""
    return np.flatnonzero(noise <= NEAR * floor * variance)


def warn_heywood(features: np.ndarray, noise: Array, names: Sequence[str] | None = None) -> None:
    """Say which features, by their names or else their numbers, and what to do."""
    if len(features) == 0:
        return
    shown = ", ".join(str(i) if names is None else repr(str(names[i])) for i in features[:10])
    shown += ", …" if len(features) > 10 else ""
    text = (
        f"Heywood case: the noise variance of feature(s) {shown} went to its floor "
        f"({noise[features].min():.2g}); use fewer components, more data, or noise='isotropic'"
    )
    warnings.warn(text, HeywoodWarning, stacklevel=4)


class ComponentChoice(NamedTuple):
    """The chosen number, and what every candidate scored (higher is better)."""

    n_components: int
    candidates: tuple[int, ...]
    scores: Array
    criterion: str

    def joined(self, more: ComponentChoice) -> ComponentChoice:
        """The choice among the candidates of both."""
        candidates, scores = (*self.candidates, *more.candidates), np.append(self.scores, more.scores)
        return ComponentChoice(candidates[int(scores.argmax())], candidates, scores, self.criterion)


def choose_onwards(estimator: Any, X: Array, most: int, last: int, criterion: str) -> ComponentChoice:
    """Try 1 … `most`, and more one by one for as long as the last is the best, to `last` at most."""
    found = choose_components(estimator, X, range(1, most + 1), criterion=criterion)
    while found.n_components == found.candidates[-1] < last:
        found = found.joined(choose_components(estimator, X, [found.n_components + 1], criterion=criterion))
    return found


def choose_components(
    estimator: Any, X: Array, candidates: Sequence[int], *, criterion: str = "bic", cv: int = 5, seed: int = 0
) -> ComponentChoice:
    """Fit `estimator` with each candidate and keep the best.

    Parameters
    ----------
    estimator : FactorAnalysis
        Its `n_components` is replaced.
    X : ndarray of shape (n, d), or blocks of rows ("bic" only)
    candidates : sequence of int
    criterion : {"bic", "held-out"}
        −½ BIC = log-likelihood − ½ p log n with p free parameters, or the mean held-out log-likelihood over
        `cv` folds.
    """
    judge = _CRITERIA[check_choice("criterion", criterion, sorted(_CRITERIA))]
    if not isinstance(estimator, BaseEstimator):
        raise ValueError(f"estimator must be a FactorAnalysis, got {estimator!r:.80}")
    candidates = [check_whole("candidates", k, 1) for k in check_list("candidates", candidates, "numbers of factors")]
    if not candidates:
        raise ValueError("candidates must name at least one number of factors, got none")
    if not is_blocked(X) and np.ndim(X) != 2:
        raise ValueError(f"X must be a matrix, one row per observation, got {X!r:.80}")
    cv, seed = check_whole("cv", cv, 2), check_whole("seed", seed)
    fits = [clone(estimator).set_params(n_components=k) for k in candidates]
    with warnings.catch_warnings():
        # a trial with too many factors; the chosen fit says it
        warnings.simplefilter("ignore", HeywoodWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = np.array([judge(fit, X, cv, seed) for fit in fits])
    return ComponentChoice(int(candidates[int(scores.argmax())]), tuple(candidates), scores, criterion)


def _bic(estimator: Any, X: Array, cv: int, seed: int) -> float:
    fit = estimator.fit(X)
    count = parameter_count(len(fit.mean_), len(fit.components_), fit.noise == "isotropic")
    return fit.log_likelihood_ - 0.5 * count * float(np.log(fit.n_samples_seen_))


def _held_out(estimator: Any, X: Array, cv: int, seed: int) -> float:
    if is_blocked(X):
        raise ValueError("n_components='held-out' needs the rows in memory; 'bic' works for blocks of rows")
    folds = KFold(min(cv, len(X)), shuffle=True, random_state=seed).split(X)
    return float(np.mean([clone(estimator).fit(X[train]).score(X[test]) for train, test in folds]))


_CRITERIA = {"bic": _bic, "held-out": _held_out}
