"""What the data show of a linear model: features that separate the classes, or copy the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import gammaln
from scipy.stats import binom, rankdata

from latlin.diagnostics.model_checks import Check
from latlin.numerics.arrays import Array

#: margin, of rows within ±1, from which on classes are separated and not only as good as
LEAST = 1e-7


def check_joint_separation(margin: Array, coefficients: Array, names: Sequence[str], label: str) -> Check | None:
    """A combination of features that separates two classes without an error, or None.

    Parameters
    ----------
    margin : ndarray of shape (n,)
        Linear predictor times ±1, positive where a row is on its own side.
    coefficients : ndarray
        Of the features in units of their standard deviations.
    names : sequence of str
    label : str
        The classes, in words.
    """
    if not np.all(margin > 0.0) or chance_of_separation(len(margin), len(coefficients) + 1) > 0.001:
        return None
    order = np.argsort(-np.abs(coefficients))[:NAMED_FEATURES]
    shown = ", ".join(repr(str(names[j])) for j in order)
    return Check(
        "separation",
        False,
        f"a combination of features, {shown} above all, separates {label} without an error",
        "The prior decides how large coefficients are and how near to 0 and 1 the probabilities: check that the "
        "features are known before the outcome, and give prior_scale a number that you believe",
    )


def separating_direction(H: Array, is_one: NDArray[np.bool_]) -> Array | None:
    """Weights with which H w has the sign of every row's class, or None where there are none.

    The largest margin t with ±h_nᵀw ≥ t and |w_j| ≤ 1, a linear program, is above zero where there are.
    """
    signed = np.where(is_one, 1.0, -1.0)[:, None] * H / np.maximum(np.abs(H).max(axis=0), 1e-300)
    program = np.column_stack([-signed, np.ones(len(H))])
    ends = [(-1.0, 1.0)] * H.shape[1] + [(0.0, None)]
    found = linprog(np.append(np.zeros(H.shape[1]), -1.0), A_ub=program, b_ub=np.zeros(len(H)), bounds=ends)
    return found.x[:-1] / np.maximum(np.abs(H).max(axis=0), 1e-300) if found.success and found.x[-1] > LEAST else None


def chance_of_separation(rows: int, dim: int) -> float:
    """Probability that random labels of rows in general position are separated by a plane (Cover, 1965).

    2^{1−n} Σ_{k<d} (n−1 over k)

    Examples
    --------
    >>> chance_of_separation(4, 4), round(chance_of_separation(20, 10), 3)
    (1.0, 0.5)
    """
    return float(binom.cdf(dim - 1, rows - 1, 0.5))


# --- Features that say too much: those that separate the classes, and those that copy the target.
#
# Where a feature separates two classes no coefficient is large enough for the likelihood, so that the prior alone
# decides how large it is. A feature that copies the target was often made from it, and is not known for new rows.


#: probability, for all features together, with which chance may separate classes
CHANCE_OF_SEPARATION = 0.001
#: correlation, of numbers or of ranks, from which on a feature is a copy; and from which on ranks are looked at
COPY, LIKELY = 0.999, 0.7
FEWEST_LABELLED = 8
NAMED_FEATURES = 3

SEPARATED = (
    "The prior alone decides how large its coefficient is: check that the feature is known before the outcome, leave "
    "it out if it is not, and otherwise give prior_scale a number that you believe"
)
COPIED = "Leave it out if it was made from the target or is known only after it"


def check_separation(X: Any, is_one: NDArray[np.bool_], names: Sequence[str], label: str) -> Check:
    """Name the features that separate two classes, completely or by values that only one class has.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
    is_one : bool array of shape (n,)
        Rows of the class `label`.
    names : sequence of str
        Of the features.
    label : str
        The class, in words.
    """
    low, high = _ends(X, is_one), _ends(X, ~is_one)
    rows, ones = len(is_one), int(is_one.sum())
    apart = (low[0] > high[1]) | (low[1] < high[0])
    # log of 2 / (n over n₁), the probability that a feature without any relation orders the rows so
    log_chance = np.log(2.0) + gammaln(ones + 1) + gammaln(rows - ones + 1) - gammaln(rows + 1)
    found = list(np.flatnonzero(apart)) if log_chance < np.log(CHANCE_OF_SEPARATION / max(X.shape[1], 1)) else []
    if found:
        return Check(
            "separation", False, f"{_listed(found, names)} {_verb(found, 'separates')} {label} completely", SEPARATED
        )
    partial = _one_sided(X, is_one, low, high)
    if len(partial):
        said = f"{_listed(partial, names)} {_verb(partial, 'has')} a value that occurs only with one outcome of {label}"
        return Check("separation", False, said, SEPARATED)
    return Check("separation", True, f"no single feature separates {label}")


def _one_sided(X: Any, is_one: NDArray[np.bool_], low: Any, high: Any) -> NDArray[np.intp]:
    """Features of two values, one of which has rows of a single class, more of them than chance allows."""
    share = float(np.mean(is_one))
    least, most = np.minimum(low[0], high[0]), np.maximum(low[1], high[1])
    found = []
    constant = np.flatnonzero((least < most) & ((low[0] == low[1]) | (high[0] == high[1])))
    for j in constant:
        column = _column(X, j)
        for value in (least[j], most[j]):
            rows = is_one[column == value]
            if not len(rows) or rows.any() != rows.all():
                continue
            log_chance = len(rows) * np.log(share if rows[0] else 1.0 - share)
            is_binary = np.all((column == least[j]) | (column == most[j]))
            if is_binary and log_chance < np.log(CHANCE_OF_SEPARATION / X.shape[1]):
                found.append(j)
                break
    return np.array(found, dtype=np.intp)


def check_copied_labels(X: Any, place: NDArray[np.intp], names: Sequence[str], target: str = "the target") -> Check:
    """Name the features whose values stand for the classes one by one, or whose ranges or levels do, for three classes
    or more.

    Two classes with ranges of their own are separated; see `check_separation`.
    """
    present, firsts = np.unique(place, return_index=True)
    enough = len(place) >= FEWEST_LABELLED and len(present) == int(place.max()) + 1
    found = [j for j in range(X.shape[1]) if enough and _stands_for(_column(X, j), place, firsts)]
    if found:
        return Check("leakage", False, f"{_listed(found, names)} {_verb(found, 'copies')} {target}", COPIED)
    if enough and len(present) > 2 and len(ranges := _own_ranges(X, place)):
        said = f"every class of {target} has a range of {_listed(ranges, names)} of its own"
        return Check("leakage", False, said, COPIED)
    if enough and len(together := _copying_levels(X, place)):
        said = f"the levels {_listed(together, names)} together copy {target}: each of them occurs with one class only"
        return Check("leakage", False, said, COPIED)
    return Check("leakage", True, f"no single feature copies {target}")


def _own_ranges(X: Any, place: NDArray[np.intp]) -> NDArray[np.intp]:
    """Features whose ranges in the classes do not overlap, unless chance may sort the rows so."""
    size = np.bincount(place)
    # log of K! ∏ n_k! / n!, the probability that a feature without any relation sorts the rows by class
    log_chance = gammaln(len(size) + 1) + gammaln(size + 1).sum() - gammaln(len(place) + 1)
    if log_chance >= np.log(CHANCE_OF_SEPARATION / max(X.shape[1], 1)):
        return np.empty(0, np.intp)
    low, high = np.array([_ends(X, place == k) for k in range(len(size))]).transpose(1, 0, 2)
    order = np.argsort(low, axis=0)
    low, high = np.take_along_axis(low, order, 0), np.take_along_axis(high, order, 0)
    return np.flatnonzero(np.all(low[1:] > high[:-1], axis=0))


def _copying_levels(X: Any, place: NDArray[np.intp]) -> NDArray[np.intp]:
    """Features with two values whose larger one occurs with one class only, where the rows without any of these have
    one class too: levels of a text that stand for the classes. None where chance may do so."""
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    low, high = dense.min(axis=0), dense.max(axis=0)
    is_high = dense == high
    pairs = np.flatnonzero((low < high) & np.all(is_high | (dense == low), axis=0))
    classes = np.eye(int(place.max()) + 1)[place]
    counts = is_high[:, pairs].T.astype(float) @ classes
    is_pure = np.count_nonzero(counts, axis=1) == 1
    pure = pairs[is_pure]
    rest = ~is_high[:, pure].any(axis=1)
    if not len(pure) or len(np.unique(place[rest])) > 1:
        return np.empty(0, np.intp)
    # log of a bound on the probability that the rows of a level all have one class, for as many levels of all features
    rows = [*counts[is_pure].sum(axis=1), max(1, np.count_nonzero(rest))]
    log_chance = np.sum(np.array(rows) - 1.0) * np.log(classes.mean(axis=0).max()) + len(pure) * np.log(X.shape[1])
    return pure if log_chance < np.log(CHANCE_OF_SEPARATION) else np.empty(0, np.intp)


def _stands_for(column: Array, place: NDArray[np.intp], firsts: NDArray[np.intp]) -> bool:
    """One value per class, the one in its first row; a glance at a few rows excludes most columns."""
    values = column[firsts]
    glance = slice(0, 200)
    if not np.array_equal(column[glance], values[place[glance]]) or len(np.unique(values)) < len(values):
        return False
    return np.array_equal(column, values[place])


def check_copied_numbers(X: Any, y: Array, names: Sequence[str], target: str = "the target") -> Check:
    """Name the features that grow or fall with the target without exception."""
    correlation = _correlations(X, y) if len(y) >= FEWEST_LABELLED else np.zeros(X.shape[1])
    for j in np.flatnonzero((np.abs(correlation) > LIKELY) & (np.abs(correlation) < COPY)):
        correlation[j] = _correlations(rankdata(_column(X, j))[:, None], rankdata(y))[0]
    found = list(np.flatnonzero(np.abs(correlation) >= COPY))
    if found:
        said = f"{_listed(found, names)} {_verb(found, 'copies')} {target} (correlation {correlation[found[0]]:.4f})"
        return Check("leakage", False, said, COPIED)
    return Check("leakage", True, f"no single feature copies {target}")


def _correlations(X: Any, y: Array) -> Array:
    """Pearson's, zero for what does not vary."""
    apart = np.asarray(y, float) - np.mean(y)
    mean = np.asarray(X.mean(axis=0), float).ravel()
    squares = np.asarray(X.multiply(X).sum(axis=0)).ravel() if sparse.issparse(X) else np.einsum("nd,nd->d", X, X)
    spread = np.sqrt(np.maximum(squares / len(y) - mean**2, 0.0)) * np.sqrt(np.mean(apart**2))
    varies = spread > 1e-12 * (1.0 + np.abs(mean))
    return np.where(varies, np.asarray(X.T @ apart).ravel() / len(y) / np.where(varies, spread, 1.0), 0.0)


def _ends(X: Any, rows: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Smallest and largest value of every feature in some rows."""
    part = X[np.flatnonzero(rows)]
    if sparse.issparse(part):
        return part.min(axis=0).toarray().ravel(), part.max(axis=0).toarray().ravel()
    return part.min(axis=0), part.max(axis=0)


def _column(X: Any, j: Any) -> Array:
    return X[:, [j]].toarray().ravel() if sparse.issparse(X) else X[:, j]


def _listed(places: Any, names: Sequence[str]) -> str:
    """The features by name; of many, the first ones."""
    shown = ", ".join(repr(str(names[j])) for j in list(places)[:NAMED_FEATURES])
    return shown + (f" and {len(places) - NAMED_FEATURES} more" if len(places) > NAMED_FEATURES else "")


def _verb(places: Any, verb: str) -> str:
    """The verb in the plural where several features are meant."""
    several = {"separates": "separate", "copies": "copy", "has": "have"}
    return verb if len(places) == 1 else several[verb]
