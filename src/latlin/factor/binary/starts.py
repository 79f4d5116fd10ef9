"""Where mean-field EM for binary factors starts: non-negative factorisation, independent components, chance.

From chance it finds three to seven of the eight 4×4 features of Lau (2020); from a factorisation usually all.
Every start gives activations Λ, N×K: inside (0, 1), or 1 for a factor that takes a constant background.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import skew
from sklearn.decomposition import NMF, FastICA
from sklearn.exceptions import ConvergenceWarning

from latlin.numerics.linalg import Array

Start = Callable[[Array, int, np.random.Generator], Array]
#: starting activations stay this far from 0 and 1
EDGE = 0.02
#: share of the sum of squares from which negative values, or a background, count
SHARE = 0.05


def by_factorisation(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Weights of a non-negative factorisation, each scaled by its largest.

    Data with negative values, or with a background, are shifted first; a factor that is always on takes the shift.
    """
    least = np.quantile(rows, 0.01, axis=0)
    negative = float((np.minimum(rows, 0.0) ** 2).sum())
    shifts = count > 1 and (negative > SHARE * float((rows**2).sum()) or _is_large(np.maximum(least, 0.0), rows))
    shifted = np.maximum(rows - least if shifts else rows, 0.0)
    seed = int(rng.integers(2**31))
    nmf = NMF(count - shifts, init="random", max_iter=300, tol=1e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = nmf.fit_transform(shifted)
    tops = np.quantile(weights, 0.98, axis=0)
    return np.hstack([_clipped(weights / np.where(tops > 0.0, tops, 1.0)), np.ones((len(rows), int(shifts)))])


def by_components(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Independent components read as two-valued; factors beyond their number start at chance."""
    number = min(count, *rows.shape, np.linalg.matrix_rank(rows - rows.mean(axis=0)))
    if number < 1:
        return by_chance(rows, count, rng)
    seed = int(rng.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ica = FastICA(number, whiten="unit-variance", max_iter=300, random_state=seed)
        sources = ica.fit_transform(rows)
    # a standardised Bernoulli(p) has skewness (1 − 2p)/√(p(1 − p)) and values −√(p/(1−p)), √((1−p)/p)
    skewness = np.nan_to_num(skew(sources, axis=0))
    p = np.clip(0.5 * (1.0 - skewness / np.sqrt(4.0 + skewness**2)), 0.01, 0.99)
    low, gap = -np.sqrt(p / (1.0 - p)), 1.0 / np.sqrt(p * (1.0 - p))
    on = (sources - low) / gap
    # x = Σ s_i μ_i + b: swap on and off, s_i → 1 − s_i, where that brings b to zero
    features = ica.mixing_ * gap
    rest = rows.mean(axis=0) - features @ on.mean(axis=0)
    swap = np.linalg.lstsq(features, -rest, rcond=None)[0] > 0.5
    on = np.hstack([_clipped(np.where(swap, 1.0 - on, on)), by_chance(rows, count - number, rng)])
    if count > 1 and _is_large(rest + features @ swap, rows):
        on[:, -1] = 1.0
    return on


def by_chance(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Activations uniform on (¼, ¾), as in the source."""
    return 0.25 + 0.5 * rng.random((len(rows), count))


def _is_large(background: Array, rows: Array) -> bool:
    """Whether a constant row explains more than its share of the data."""
    return float((background**2).sum()) > SHARE * float((rows**2).sum()) / len(rows)


def _clipped(activations: Array) -> Array:
    return np.clip(activations, EDGE, 1.0 - EDGE)


STARTS: dict[str, Start] = {"nmf": by_factorisation, "ica": by_components, "random": by_chance}
