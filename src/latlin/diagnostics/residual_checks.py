"""What residuals show of a linear predictor and of its noise: curves that a line misses, slopes that differ between
groups, outliers, uneven spread, skew and heavy tails.

A curve is looked for by score tests. With g_n and W_n the slope and the curvature of the log likelihood of row n in its
linear predictor, and z a column (the square of a feature) made orthogonal to the features in the metric W,

    t = Σ z_n g_n / √(φ Σ W_n z_n²),   φ = max(1, Σ g_n² / Σ W_n),

is standard normal if the predictor is right, for every family, and t²/2 is the log likelihood that the column would
gain. The sums of several blocks of rows add up. Where coefficients have a prior with the precision Q, as those of
groups have, the gradient has the covariance V = W − WH(HᵀWH + Q)⁻¹HᵀW, and zᵀVz takes the place of the sum. A slope
along z that differs between groups is looked for in the same way, by one such t_j of the rows of each group: Σ_j t_j²
is a χ² variable with one degree of freedom per group if all have the same slope. The limits keep false alarms below two
in a hundred fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2, kurtosistest, skewtest

from latlin.diagnostics.model_checks import OF_FEATURES, Check, Remedies, is_lopsided
from latlin.numerics.arrays import Array

#: probability of a false alarm of one kind of finding
CHANCE = 0.002
#: gain in log likelihood per row from which on a curve matters
GAIN = 0.005
#: standard deviations at which features are cut before they are squared, and residuals before their spread is compared
CUT, CUT_RESIDUAL = 2.5, 3.0
FEWEST_ROWS = 20
NAMED = 3
#: share of its sum of squares that a column must keep beside the others to be told from them
APART = 1e-6


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

    @property
    def scores(self) -> Scores:
        """Those of the columns Z beside coefficients that nothing holds back."""
        ridge = 1e-10 * np.trace(self.gram) / len(self.gram)
        solved = np.linalg.solve(self.gram + ridge * np.eye(len(self.gram)), self.cross)
        left = self.squares - np.einsum("dk,dk->k", self.cross, solved)
        slope = self.slope - solved.T @ self.linear
        return Scores(slope, left, self.squares, excess_of(self.spread, self.weight), self.rows)


class Scores(NamedTuple):
    """Score tests of columns that a model does not have.

    Attributes
    ----------
    slope : ndarray of shape (k,)
        Of the log likelihood in the coefficient of each column.
    left : ndarray of shape (k,)
        Its variance if the model is right.
    squares : ndarray of shape (k,)
        ΣWz², of which `left` is what the model's own columns leave.
    excess : float, or ndarray of shape (k,) or (1,)
        φ.
    rows : float
    """

    slope: Array
    left: Array
    squares: Array
    excess: Array | float
    rows: float

    @property
    def varies(self) -> Array:
        """Columns that are no combination of those of the model."""
        return np.asarray(self.left > APART * np.maximum(self.squares, 1e-300))

    @property
    def t(self) -> Array:
        """Standard normal where the model is right."""
        left = np.where(self.varies, self.left, 1.0)
        return np.where(self.varies, self.slope / np.sqrt(self.excess * left), 0.0)


def excess_of(spread: float, weight: float) -> float:
    """φ from Σg² and ΣW."""
    return max(1.0, spread / max(weight, 1e-300))


def curved(columns: Array, scale: Array) -> Array:
    """Squares of columns in units of `scale`, cut where a few rows would decide."""
    return np.asarray(np.clip(columns / scale, -CUT, CUT) ** 2)


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
    Z = curved(H[:, : len(scale)], scale)
    weighted = H * curvature[:, None]
    parts = (weighted.T @ H, weighted.T @ Z, np.einsum("n,nk,nk->k", curvature, Z, Z), Z.T @ slope, H.T @ slope)
    return CurveSums(*parts, float(slope @ slope), float(curvature.sum()), len(H))


def check_curves(scores: Scores, names: Sequence[str], remedies: Remedies = OF_FEATURES) -> Check:
    """Whether the square of a feature would explain what the line leaves; the features are named."""
    t = scores.t
    chance = 2.0 * ndtr(-np.abs(t)) * max(int(scores.varies.sum()), 1)
    found = np.flatnonzero((chance < CHANCE) & (0.5 * t**2 / scores.rows > GAIN))
    if not len(found):
        return Check("residuals", True, f"residuals show no pattern along a {remedies.feature}")
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
        remedies.curve.format(name=names[first]),
    )


def check_neighbours(residual: Array, X: Array, names: Sequence[str], remedies: Remedies = OF_FEATURES) -> Check | None:
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
                remedies.waves.format(name=names[j]),
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


def check_slopes(found: Sequence[tuple[str, str, Scores]], units: Sequence[float], remedies: Remedies) -> Check:
    """Whether the slope of a column differs between the levels of a group that gives it one slope.

    Parameters
    ----------
    found : sequence of (column, group, Scores)
        One score per level, that of a slope of its own.
    units : sequence of float
        What one unit of each column is where these scores count its values in others.
    remedies : Remedies
    """
    chances = []
    for _, _, scores in found:
        levels = int(scores.varies.sum())
        chi = float(scores.t @ scores.t)
        matters = 0.5 * (chi - levels) / scores.rows > GAIN
        chances.append(float(chi2.sf(chi, levels)) * len(found) if levels > 1 and matters else 1.0)
    if not chances or min(chances) >= CHANCE:
        return Check("slopes", True, "slopes do not clearly differ between the levels of groups")
    first = int(np.argmin(chances))
    column, group, scores = found[first]
    known = scores.varies
    slope, left = scores.slope[known], scores.left[known]
    # ⟨s²⟩ = φV + τ²V² with τ² the variance of slopes
    variance = max(float(np.sum(slope**2 - scores.excess * left) / np.sum(left**2)), 0.0)
    return Check(
        "slopes",
        False,
        f"the slope of {column!r} differs between the levels of {group!r}, by a standard deviation of about "
        f"{np.sqrt(variance) / units[first]:.2g} (χ² = {float(scores.t @ scores.t):.0f} where {int(known.sum())} is "
        "expected)",
        remedies.slopes.format(name=column, group=group),
    )


def standardised(slope: Array, curvature: Array, variance: Array) -> Array:
    """Residuals of Gaussian rows in units of their own standard deviation, from that of their predictor."""
    # Var(y − x) = σ² − v at the rows that were fitted, with v the posterior variance of the predictor
    own = 1.0 / curvature
    return slope * own / np.sqrt(np.maximum(own - variance, 0.05 * own))


def check_noise(
    residual: Array,
    along: Sequence[tuple[str, Array]],
    remedies: Remedies = OF_FEATURES,
    row: Sequence[int] | NDArray[np.int64] | None = None,
) -> Check:
    """Whether residuals of unit variance look Gaussian and scatter evenly.

    Parameters
    ----------
    residual : ndarray of shape (n,)
        Standardised residuals.
    along : sequence of (name, ndarray of shape (n,))
        What their spread may grow or fall with; the name of predictions is empty.
    remedies : Remedies
    row : sequence of int, optional
        Of the table, where these are not all of its rows.
    """
    row = range(len(residual)) if row is None else row
    if len(residual) < FEWEST_ROWS or np.std(residual) == 0.0:
        return Check("noise", True, "there are too few rows to look at the distribution of residuals")
    uneven = check_spread(residual, along, remedies)
    if not uneven.passed:
        return uneven
    r = (residual - residual.mean()) / residual.std()
    worst = int(np.argmax(np.abs(r)))
    if 2.0 * ndtr(-abs(r[worst])) * len(r) < CHANCE:
        far = np.flatnonzero(2.0 * ndtr(-np.abs(r)) * len(r) < 0.05)
        names = ", ".join(str(int(row[k]) + 1) for k in far[np.argsort(-np.abs(r[far]))][:NAMED])
        return Check(
            "noise",
            False,
            f"some rows lie far from their prediction, the farthest row {row[worst] + 1} by {abs(r[worst]):.1f} "
            f"standard deviations (rows {names})",
            remedies.skewed if is_lopsided(r) else remedies.far,
        )
    return _odd_shape(r, remedies)


def check_spread(residual: Array, along: Sequence[tuple[str, Array]], remedies: Remedies = OF_FEATURES) -> Check:
    """Whether residuals scatter evenly: n times the squared correlation of r² with a column (Koenker, 1981).

    Residuals are cut, so that a few far rows, which another check speaks of, do not decide.
    """
    away = residual - np.median(residual)
    # the median of |r| is 0.6745 for a normal variable
    scale = float(np.median(np.abs(away))) / 0.6745 or float(residual.std())
    r = np.clip(away / scale, -CUT_RESIDUAL, CUT_RESIDUAL)
    for name, values in along:
        if np.std(values) <= 1e-12 * (1.0 + np.abs(values).max()):
            continue
        correlation = float(np.corrcoef(r**2, values)[0, 1])
        middle = np.median(values)
        above = values > middle if np.any(values > middle) else values >= middle
        ratio = float(np.std(r[above])) / max(float(np.std(r[~above])), 1e-12) if np.any(~above) else 1.0
        is_clear = 2.0 * ndtr(-abs(correlation) * np.sqrt(len(r))) * len(along) < CHANCE
        if is_clear and max(ratio, 1.0 / max(ratio, 1e-12)) > 1.5:
            what = f"values of {name!r}" if name else "predictions"
            said = f"rows with large {what} scatter {ratio:.1f} times as much as those with small ones"
            return Check("noise", False, said, remedies.uneven)
    return Check("noise", True, "residuals scatter evenly")


def _odd_shape(r: Array, remedies: Remedies) -> Check:
    """Skew, or tails heavier than those of a normal distribution."""
    skew, tails = skewtest(r), kurtosistest(r)
    size = float(np.mean(r**3)), float(np.mean(r**4) - 3.0)
    if skew.pvalue < CHANCE / 2 and abs(size[0]) > 0.3:
        side = "high" if size[0] > 0 else "low"
        said = f"residuals are skewed: a few are far too {side} (skewness {size[0]:.2f}, 0 for Gaussian noise)"
        return Check("noise", False, said, remedies.skewed)
    if tails.statistic > 0 and tails.pvalue < CHANCE and size[1] > 0.5:
        said = f"residuals have heavy tails (excess kurtosis {size[1]:.1f}, 0 for Gaussian noise)"
        return Check("noise", False, said, remedies.heavy)
    return Check("noise", True, "residuals look like Gaussian noise")
