"""What the data show of a linear model: residuals that a line misses, and features that say too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import gammaln, ndtr
from scipy.stats import binom, kurtosistest, rankdata, skewtest

from latlin.diagnostics.model_checks import Check
from latlin.numerics.arrays import Array

# --- What residuals show of a linear predictor and of Gaussian noise: curves that a line misses, outliers, uneven
# spread.
#
# A curve is looked for by score tests. With g_n and W_n the slope and the curvature of the log likelihood of row n in
# its linear predictor, and z a column (the square of a feature) made orthogonal to the features in the metric W,
#
#     t = Σ z_n g_n / √(φ Σ W_n z_n²),   φ = max(1, Σ g_n² / Σ W_n),
#
# is standard normal if the predictor is right, for every family, and t²/2 is the log likelihood that the column would
# gain. The sums of several blocks of rows add up. The limits keep false alarms below two in a hundred fits.


#: probability of a false alarm of one kind of finding
CHANCE = 0.002
#: gain in log likelihood per row from which on a curve matters
GAIN = 0.005
#: standard deviations at which features are cut before they are squared
CUT = 2.5
FEWEST_ROWS = 20
NAMED = 3
#: margin, of rows within ±1, from which on classes are separated and not only as good as
LEAST = 1e-7


class CurveSums(NamedTuple):
    """Sums over rows that add up: HᵀWH, HᵀWZ, diag ZᵀWZ, Zᵀg, Hᵀg, Σg², ΣW and the number of rows."""

    gram: Array
    cross: Array
    squares: Array
    slope: Array
    linear: Array
    spread: float
    weight: float
    rows: int


def curve_sums(H: Array, scale: Array, slope: Array, curvature: Array) -> CurveSums:
    """Of rows H (n, d) of a model, with squares of the first len(scale) columns in units of `scale`.

    Parameters
    ----------
    H : ndarray of shape (n, d)
    scale : ndarray
        Standard deviations of the features.
    slope, curvature : ndarray of shape (n,)
        First and negative second derivative of the log likelihood of every row, times its weight.
    """
    Z = np.clip(H[:, : len(scale)] / scale, -CUT, CUT) ** 2
    weighted = H * curvature[:, None]
    parts = (weighted.T @ H, weighted.T @ Z, np.einsum("n,nk,nk->k", curvature, Z, Z), Z.T @ slope, H.T @ slope)
    return CurveSums(*parts, float(slope @ slope), float(curvature.sum()), len(H))


def check_curves(sums: CurveSums, names: Sequence[str]) -> Check:
    """Whether the square of a feature would explain what the line leaves; the features are named."""
    ridge = 1e-10 * np.trace(sums.gram) / len(sums.gram)
    solved = np.linalg.solve(sums.gram + ridge * np.eye(len(sums.gram)), sums.cross)
    left = sums.squares - np.einsum("dk,dk->k", sums.cross, solved)
    slope = sums.slope - solved.T @ sums.linear
    excess = max(1.0, sums.spread / max(sums.weight, 1e-300))
    varies = left > 1e-6 * np.maximum(sums.squares, 1e-300)
    t = np.where(varies, slope / np.sqrt(excess * np.where(varies, left, 1.0)), 0.0)
    chance = 2.0 * ndtr(-np.abs(t)) * max(int(varies.sum()), 1)
    found = np.flatnonzero((chance < CHANCE) & (0.5 * t**2 / sums.rows > GAIN))
    if not len(found):
        return Check("residuals", True, "residuals show no pattern along a feature")
    order = found[np.argsort(-np.abs(t[found]))]
    shown = ", ".join(repr(str(names[j])) for j in order[:NAMED])
    more = f" and {len(order) - NAMED} more" if len(order) > NAMED else ""
    first = order[0]
    side = "above" if t[first] > 0.0 else "below"
    return Check(
        "residuals",
        False,
        f"residuals bend along {shown}{more}: rows at both ends of {str(names[first])!r} lie {side} the line "
        f"({abs(t[first]):.1f} standard errors)",
        f"Add a curve: the square of the feature, or a smooth term s({names[first]}) of an additive model",
    )


def check_neighbours(residual: Array, X: Array, names: Sequence[str]) -> Check | None:
    """A feature along which neighbouring rows err in the same direction, or None: what a square does not find.

    Of rows in the order of a feature, √n times the correlation of neighbouring residuals is standard normal if they are
    independent. Features with many equal values have no order of rows.
    """
    r = residual - residual.mean()
    size = float(r @ r)
    found = [_correlation_along(X[:, j], r) / max(size, 1e-300) for j in range(X.shape[1])]
    usable = np.count_nonzero(np.isfinite(found))
    for j, correlation in enumerate(found):
        # residuals of a fit are a little less alike than noise is
        if correlation > 0.15 and ndtr(-correlation * np.sqrt(len(r))) * usable < CHANCE:
            return Check(
                "residuals",
                False,
                f"residuals follow each other along {str(names[j])!r}: neighbouring rows err in the same direction "
                f"(correlation {correlation:.2f})",
                f"Add a smooth term s({names[j]}) of an additive model, or a Gaussian process",
            )
    return None


def _correlation_along(column: Array, r: Array) -> float:
    """Σ r_i r_{i+1} of rows in the order of a column; NaN where half of its values are equal to others."""
    order = np.argsort(column)
    distinct = 1 + np.count_nonzero(np.diff(column[order]))
    if distinct <= 0.5 * len(r):
        return np.nan
    if distinct < len(r):
        # equal values keep the order of their rows
        order = np.argsort(column, kind="stable")
    sorted_r = r[order]
    return float(sorted_r[1:] @ sorted_r[:-1])


#: what to do about noise that is not Gaussian, of the target and of its logarithm
OF_TARGET = {
    "far": "Look at these rows, or use noise with heavy tails: RobustRegression, --family robust",
    "uneven": "Look for outliers (--family robust), model the logarithm of the target, or choose a family whose "
    "variance grows with the mean (gamma)",
    "skewed": "Try a transformation of the target, or a family for positive amounts",
    "heavy": "Use noise with heavy tails: RobustRegression, --family robust",
}
ROBUST_LOG = "RobustRegression of the logarithm, or --formula with log(…) of the target and --family robust"
OF_LOGARITHM = {
    "far": f"Look at these rows, or use noise with heavy tails: {ROBUST_LOG}",
    "uneven": "Look for outliers, or try another family of positive amounts (gamma, inverse-gaussian)",
    "skewed": "Try another family of positive amounts (gamma, inverse-gaussian)",
    "heavy": f"Use noise with heavy tails: {ROBUST_LOG}",
}


def check_noise(residual: Array, fitted: Array, of_logarithm: bool = False) -> Check:
    """Whether residuals of unit variance look Gaussian and scatter evenly.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        Standardised residuals.
    fitted : ndarray of shape (n,)
        Predictions.
    of_logarithm : bool
        Whether they are those of the logarithm of the target, which decides what to do.
    """
    remedies = OF_LOGARITHM if of_logarithm else OF_TARGET
    if len(residual) < FEWEST_ROWS or np.std(residual) == 0.0:
        return Check("noise", True, "there are too few rows to look at the distribution of residuals")
    r = (residual - residual.mean()) / residual.std()
    worst = int(np.argmax(np.abs(r)))
    if 2.0 * ndtr(-abs(r[worst])) * len(r) < CHANCE:
        far = np.flatnonzero(2.0 * ndtr(-np.abs(r)) * len(r) < 0.05)
        rows = ", ".join(str(int(k) + 1) for k in far[np.argsort(-np.abs(r[far]))][:NAMED])
        return Check(
            "noise",
            False,
            f"some rows lie far from their prediction, the farthest row {worst + 1} by {abs(r[worst]):.1f} standard "
            f"deviations (rows {rows})",
            remedies["far"],
        )
    uneven = _uneven(r, fitted)
    if uneven:
        return Check("noise", False, uneven, remedies["uneven"])
    return _odd_shape(r, remedies)


def _uneven(r: Array, fitted: Array) -> str:
    """Squared residuals that grow or fall with the prediction (Koenker, 1981): n times their squared correlation."""
    spread = np.std(fitted)
    if spread <= 1e-12 * (1.0 + np.abs(fitted).max()):
        return ""
    correlation = float(np.corrcoef(r**2, fitted)[0, 1])
    middle = np.median(fitted)
    ratio = float(np.std(r[fitted > middle])) / max(float(np.std(r[fitted <= middle])), 1e-12)
    is_clear = 2.0 * ndtr(-abs(correlation) * np.sqrt(len(r))) < CHANCE
    if not (is_clear and max(ratio, 1.0 / max(ratio, 1e-12)) > 1.5):
        return ""
    return f"rows with large predictions scatter {ratio:.1f} times as much as those with small ones"


def _odd_shape(r: Array, remedies: Mapping[str, str]) -> Check:
    """Skew, or tails heavier than those of a normal distribution."""
    skew, tails = skewtest(r), kurtosistest(r)
    size = float(np.mean(r**3)), float(np.mean(r**4) - 3.0)
    if skew.pvalue < CHANCE / 2 and abs(size[0]) > 0.3:
        side = "high" if size[0] > 0 else "low"
        said = f"residuals are skewed: a few are far too {side} (skewness {size[0]:.2f}, 0 for Gaussian noise)"
        return Check("noise", False, said, remedies["skewed"])
    if tails.statistic > 0 and tails.pvalue < CHANCE and size[1] > 0.5:
        said = f"residuals have heavy tails (excess kurtosis {size[1]:.1f}, 0 for Gaussian noise)"
        return Check("noise", False, said, remedies["heavy"])
    return Check("noise", True, "residuals look like Gaussian noise")


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
    order = np.argsort(-np.abs(coefficients))[:NAMED]
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
