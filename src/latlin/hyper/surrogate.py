"""The log density of hyperparameters between the points where it is known, and few points with its moments.

In coordinates t of the curvature at the optimum, drawn in where tails are long (see `axes`), it is that of a
normal plus a smooth rest, log p = c − ½|t|² + r(t).
This remainder has a Gaussian process as its prior whose Taylor coefficients shrink with their degree,

    cov(r(t), r(t')) = a e(t·t'/ℓ²),   e(s) = exp(s) − 1,

which has every skewness and interaction between axes, and is learnt from values and gradients (O'Hagan, 1991, has such
processes for integrals). Where there are no gradients, the slope and the curvature at the centre are taken as they were
found, and e(s) = exp(s) − 1 − s − ½s². ℓ is that of the highest marginal likelihood, a its optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

from latlin.numerics.arrays import Array

#: lengths that are tried, and the variance of noise in units of that of a typical value
LENGTHS, NOISE = (1.5, 2.0, 3.0, 4.0, 6.0), 1e-8
#: the same for values of fits that ended early, and by how many nat it must be the more probable one
ROUGH, CLEARLY = 1e-4, 20.0
#: nothing is said about points where a normal would be lower than at the centre by so many nat
FAR = 60.0
#: of squared differences between moments beside those of weights, and the least weight to start from
PENALTY, LEAST = 1e3, 1e-6


@dataclass(frozen=True)
class LogDensity:
    """A log density, up to its value at the centre, as a function of t.

    Parameters
    ----------
    at : ndarray of shape (K, m)
        Points where it is known.
    sloped : bool
        Whether gradients are known there too.
    slope : ndarray of shape (m,)
        That at the centre, where it is taken as given.
    length, amplitude : float
        ℓ and a.
    root : ndarray of shape (N, N)
        Lower Cholesky factor of the covariance of everything known, in units of a.
    dual : ndarray of shape (N,)
        Its solve with what is known.
    """

    at: Array
    sloped: bool
    slope: Array
    length: float
    amplitude: float
    root: Array
    dual: Array

    def __call__(self, t: Array) -> Array:
        """Log densities at rows of t."""
        remainder = _covariance(t, self.at, self.length, self.sloped) @ self.dual
        return np.asarray(remainder + t @ self.slope - 0.5 * np.sum(t**2, axis=1))

    def covariance(self, t: Array) -> Array:
        """How unsure the log densities at rows of t are, together."""
        across = solve_triangular(self.root, _covariance(t, self.at, self.length, self.sloped).T, lower=True)
        own = _growth(t @ t.T / self.length**2, 0 if self.sloped else 2)
        return np.asarray(self.amplitude * (own - across.T @ across))


def log_density_from(
    t: Array, values: Array, slopes: Array | None, slope: Array, before: LogDensity | None = None
) -> LogDensity:
    """Learn a log density from its values, less that at the centre, and its gradients at rows of t.

    `slope` is the gradient at the centre, for which other gradients than `slopes` are not needed. `before` was learnt
    from fewer points: lengths next to its own are tried.
    """
    slope = slope if slopes is None else np.zeros_like(slope)
    known = [values + 0.5 * np.sum(t**2, axis=1) - t @ slope]
    if slopes is not None:
        known.extend((slopes + t).T)
    y = np.concatenate(known)
    best, found = -np.inf, None
    place = None if before is None else LENGTHS.index(before.length)
    lengths = LENGTHS if place is None else LENGTHS[max(place - 1, 0) : place + 2]
    for length, noise in product(lengths, (NOISE, ROUGH)):
        K = _full_covariance(t, length, slopes is not None)
        K[np.diag_indices_from(K)] += noise * max(float(np.mean(np.diagonal(K))), 1e-300)
        root = cholesky(K, lower=True, check_finite=False)
        dual = cho_solve((root, True), y)
        # log N(y; 0, aK) at the best a
        amplitude = max(float(y @ dual) / len(y), 1e-300)
        likelihood = -0.5 * len(y) * np.log(amplitude) - float(np.log(np.diagonal(root)).sum())
        # values of fits that end within a tolerance contradict each other where points are close
        likelihood -= CLEARLY if noise == ROUGH else 0.0
        if likelihood > best:
            best, found = likelihood, LogDensity(t, slopes is not None, slope, length, amplitude, root, dual)
    assert found is not None  # the first length has a finite likelihood
    return found


def _growth(s: Array, degree: int) -> Array:
    """exp(s) without the terms of its series up to a degree."""
    s = np.minimum(s, FAR)
    if not degree:
        return np.asarray(np.expm1(s))
    return np.asarray(np.exp(s) - 1.0 - s - 0.5 * s**2)


def _covariance(t: Array, at: Array, length: float, sloped: bool) -> Array:
    """Of r at rows of t with everything known at rows of `at`: values first, then one derivative after the other."""
    s = t @ at.T / length**2
    if not sloped:
        return _growth(s, 2)
    grown = np.exp(np.minimum(s, FAR)) / length**2
    return np.concatenate([_growth(s, 0), *(grown * t[:, [j]] for j in range(t.shape[1]))], axis=1)


def _full_covariance(at: Array, length: float, sloped: bool) -> Array:
    """Of everything known with itself."""
    top = _covariance(at, at, length, sloped)
    if not sloped:
        return top
    K, m = len(at), at.shape[1]
    whole = np.empty((K * (m + 1), K * (m + 1)))
    whole[:K], whole[K:, :K] = top, top[:, K:].T
    grown = np.exp(np.minimum(at @ at.T / length**2, FAR)) / length**2
    for i in range(m):
        for j in range(m):
            # ∂²/∂t_i∂t'_j exp(t·t'/ℓ²) = exp(t·t'/ℓ²) (δ_ij + t'_i t_j/ℓ²)/ℓ²
            block = grown * (np.outer(at[:, j], at[:, i]) / length**2 + float(i == j))
            whole[K * (i + 1) : K * (i + 2), K * (j + 1) : K * (j + 2)] = block
    return whole


# --- Few points whose moments are those of the density.


def match_moments(t: Array, x: Array, draws: tuple[Array, Array], share: Array) -> Array:
    """Weights of points under which 1, t, ttᵀ, x and x² have the means that they have over the draws of t and x.

    min Σ (w − w₀)²/w₀ subject to w ≥ 0, the moments by a large penalty; w₀ is the share of the draws that are nearest
    to a point. x are the numbers themselves, on which variances of coefficients depend.
    """
    nearest = np.argmin(np.sum(t**2, axis=1) - 2.0 * draws[0] @ t.T, axis=1)
    start = np.maximum(np.bincount(nearest, share, len(t)), LEAST)
    middle = share @ draws[1]
    unit = np.sqrt(np.maximum(share @ (draws[1] - middle) ** 2, 1e-300))

    def moments(t: Array, x: Array) -> Array:
        i, j = np.triu_indices(t.shape[1])
        away = (x - middle) / unit
        return np.concatenate([np.ones((len(t), 1)), t, t[:, i] * t[:, j], away, away**2], axis=1)

    root = np.sqrt(start / start.sum())
    A = PENALTY * moments(t, x).T * root
    b = PENALTY * (share @ moments(*draws))
    w = root * nnls(np.concatenate([A, np.eye(len(t))]), np.concatenate([b, root]))[0]
    return np.asarray(w / w.sum())


def corners(m: int) -> Array:
    """±1 corners of a cube: a half, quarter, … of them in which second moments and their products do not mix."""
    # generators of two-level designs of resolution V (Box, Hunter and Hunter, 2005); m: (free factors, products)
    generators: dict[int, tuple[int, list[tuple[int, ...]]]] = {
        4: (4, []),
        5: (4, [(0, 1, 2, 3)]),
        6: (5, [(0, 1, 2, 3, 4)]),
        7: (6, [(0, 1, 2, 3, 4, 5)]),
        8: (6, [(0, 1, 2, 3), (0, 1, 4, 5)]),
    }
    free, rest = generators.get(m, (m, []))
    base = np.array(list(product((-1.0, 1.0), repeat=free)))
    return np.column_stack([base, *(base[:, list(columns)].prod(axis=1) for columns in rest)])
