"""What residuals show of a linear predictor and of Gaussian noise: curves that a line misses, outliers, uneven spread.

A curve is looked for by score tests. With g_n and W_n the slope and the curvature of the log likelihood of row n in its
linear predictor, and z a column (the square of a feature) made orthogonal to the features in the metric W,

    t = Σ z_n g_n / √(φ Σ W_n z_n²),   φ = max(1, Σ g_n² / Σ W_n),

is standard normal if the predictor is right, for every family, and t²/2 is the log likelihood that the column would
gain. The sums of several blocks of rows add up. The limits keep false alarms below two in a hundred fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom, kurtosistest, skewtest

from latlin.diagnostics.model_checks import Check
from latlin.numerics.arrays import Array

#: probability of a false alarm of one kind of finding
CHANCE = 0.002
#: gain in log likelihood per row from which on a curve matters
GAIN = 0.005
#: standard deviations at which features are cut before they are squared
CUT = 2.5
FEWEST_ROWS = 20
NAMED = 3


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


def check_noise(residual: Array, fitted: Array) -> Check:
    """Whether residuals of unit variance look Gaussian and scatter evenly.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        Standardised residuals.
    fitted : ndarray of shape (n,)
        Predictions.
    """
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
            "Look at these rows, or use noise with heavy tails: RobustRegression, --family robust",
        )
    uneven = _uneven(r, fitted)
    if uneven is not None:
        return uneven
    return _odd_shape(r)


def _uneven(r: Array, fitted: Array) -> Check | None:
    """Squared residuals that grow or fall with the prediction (Koenker, 1981): n times their squared correlation."""
    spread = np.std(fitted)
    if spread <= 1e-12 * (1.0 + np.abs(fitted).max()):
        return None
    correlation = float(np.corrcoef(r**2, fitted)[0, 1])
    middle = np.median(fitted)
    ratio = float(np.std(r[fitted > middle])) / max(float(np.std(r[fitted <= middle])), 1e-12)
    is_clear = 2.0 * ndtr(-abs(correlation) * np.sqrt(len(r))) < CHANCE
    if not (is_clear and max(ratio, 1.0 / max(ratio, 1e-12)) > 1.5):
        return None
    return Check(
        "noise",
        False,
        f"rows with large predictions scatter {ratio:.1f} times as much as those with small ones",
        "Look for outliers (--family robust), model the logarithm of the target, or choose a family whose variance "
        "grows with the mean (gamma)",
    )


def _odd_shape(r: Array) -> Check:
    """Skew, or tails heavier than those of a normal distribution."""
    skew, tails = skewtest(r), kurtosistest(r)
    size = float(np.mean(r**3)), float(np.mean(r**4) - 3.0)
    if skew.pvalue < CHANCE / 2 and abs(size[0]) > 0.3:
        side = "high" if size[0] > 0 else "low"
        said = f"residuals are skewed: a few are far too {side} (skewness {size[0]:.2f}, 0 for Gaussian noise)"
        return Check("noise", False, said, "Try a transformation of the target, or a family for positive amounts")
    if tails.statistic > 0 and tails.pvalue < CHANCE and size[1] > 0.5:
        said = f"residuals have heavy tails (excess kurtosis {size[1]:.1f}, 0 for Gaussian noise)"
        return Check("noise", False, said, "Use noise with heavy tails: RobustRegression, --family robust")
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
    if not np.all(margin > 0.0) or separable_by_chance(len(margin), len(coefficients) + 1) > 0.001:
        return None
    order = np.argsort(-np.abs(coefficients))[:NAMED]
    shown = ", ".join(repr(str(names[j])) for j in order)
    return Check(
        "separation",
        False,
        f"a combination of features, {shown} before all, separates {label} without an error",
        "The prior decides how large coefficients are and how near to 0 and 1 the probabilities: check that the "
        "features are known before the outcome, and give prior_scale a number that you believe",
    )


def separable_by_chance(rows: int, dim: int) -> float:
    """Probability that random labels of rows in general position are separated by a plane (Cover, 1965).

    2^{1−n} Σ_{k<d} (n−1 over k)

    Examples
    --------
    >>> separable_by_chance(4, 4), round(separable_by_chance(20, 10), 3)
    (1.0, 0.5)
    """
    return float(binom.cdf(dim - 1, rows - 1, 0.5))
