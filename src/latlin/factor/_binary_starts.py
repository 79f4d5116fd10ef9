"""Where mean-field EM for binary factors starts: non-negative factorisation, independent components, chance.

From chance it finds three to seven of the eight 4×4 features of 003_acda9ca72b6854ce; from a factorisation usually all.
Every start gives activations Λ in (0, 1), N×K.
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


def by_factorisation(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Weights of a non-negative factorisation, each scaled by its largest; negative data are shifted first."""
    least = np.minimum(rows.min(axis=0), 0.0)
    negative = float((np.minimum(rows, 0.0) ** 2).sum())
    few = negative <= 0.05 * float((rows**2).sum())
    shifted = np.maximum(rows, 0.0) if few else rows - least
    seed = int(rng.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = NMF(count, init="random", max_iter=300, tol=1e-4, random_state=seed).fit_transform(shifted)
    tops = np.quantile(weights, 0.98, axis=0)
    return _clipped(weights / np.where(tops > 0.0, tops, 1.0))


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
    on = _clipped(np.where(swap, 1.0 - on, on))
    return np.hstack([on, by_chance(rows, count - number, rng)])


def by_chance(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Activations uniform on (¼, ¾), as in the source."""
    return 0.25 + 0.5 * rng.random((len(rows), count))


def _clipped(activations: Array) -> Array:
    return np.clip(activations, EDGE, 1.0 - EDGE)


STARTS: dict[str, Start] = {"nmf": by_factorisation, "ica": by_components, "random": by_chance}
