"""Length scales and nugget from the evaluations: a point, an ensemble around it, or as told.

"ml" takes the most probable length scales under a weak log-normal prior (which keeps those of a few points
finite; with many it does not matter). "marginal" adds importance-weighted draws from a Laplace approximation
there, so that what is not known about the length scales widens the integral's error bar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from latlin.quadrature.kernels import Kernel
from latlin.quadrature.surrogate import SMALLEST_NUGGET, Basis, Hyperparameters, log_likelihood

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

SHORTEST, LONGEST = 0.02, 30.0  # length scales, in standard coordinates
PRIOR_SPREAD = 1.5  # of log ℓ, around ½ log d
DRAWS = 16


class Weighted(NamedTuple):
    """Hyperparameters and the share of belief in them; the first of an ensemble is its mode."""

    weight: float
    hyperparameters: Hyperparameters


Ensemble = tuple[Weighted, ...]


class Fit(Protocol):
    """A way to hyperparameters."""

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble: ...


class Told(NamedTuple):
    """Hyperparameters that were given."""

    hyperparameters: Hyperparameters

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        return (Weighted(1.0, self.hyperparameters),)


class Point(NamedTuple):
    """The mode alone."""

    noisy: bool

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        d = points.shape[1]
        if np.ptp(values) == 0.0:
            return _default(d)
        theta = _mode(_objective(kernel, basis(points), points, values), d, self.noisy, previous)
        return (Weighted(1.0, _unpack(theta, d)),)


class Marginal(NamedTuple):
    """The mode and draws around it."""

    noisy: bool

    def __call__(
        self, kernel: Kernel, basis: Basis, points: Array, values: Array, previous: Ensemble | None
    ) -> Ensemble:
        d = points.shape[1]
        if np.ptp(values) == 0.0:
            return _default(d)
        objective = _objective(kernel, basis(points), points, values)
        theta = _mode(objective, d, self.noisy, previous)
        draws, weights = _draws(objective, theta, _bounds(d, self.noisy))
        return tuple(Weighted(float(w), _unpack(t, d)) for w, t in zip(weights, draws, strict=True))


def resolve_fit(hyperparameters: str | Hyperparameters, noisy: bool, dim: int) -> Fit:
    """The way of this name, or the given numbers."""
    if isinstance(hyperparameters, Hyperparameters):
        return Told(_check(hyperparameters, dim))
    ways: dict[str, Fit] = {"ml": Point(noisy), "marginal": Marginal(noisy)}
    if hyperparameters not in ways:
        raise ValueError(f"hyperparameters must be 'marginal', 'ml' or a Hyperparameters, got {hyperparameters!r}")
    return ways[hyperparameters]


def _default(d: int) -> Ensemble:
    """A constant says nothing about length scales."""
    return (Weighted(1.0, Hyperparameters(np.full(d, np.sqrt(d)))),)


def _check(h: Hyperparameters, dim: int) -> Hyperparameters:
    lengths = np.broadcast_to(np.asarray(h.lengths, dtype=float), (dim,)).copy()
    variance_is_good = h.variance is None or h.variance > 0.0
    if not (np.all(lengths > 0.0) and h.nugget >= 0.0 and variance_is_good):
        raise ValueError(f"hyperparameters must have positive lengths and variance and nugget ≥ 0, got {h}")
    return Hyperparameters(lengths, max(h.nugget, SMALLEST_NUGGET), h.variance)


def _objective(kernel: Kernel, b: Array, points: Array, values: Array) -> Objective:
    d = points.shape[1]
    centre = 0.5 * np.log(d)

    def negative_log_posterior(theta: Array) -> tuple[float, Array]:
        nugget = float(np.exp(theta[d])) if len(theta) > d else SMALLEST_NUGGET
        value, slopes = log_likelihood(kernel, b, points, values, np.exp(theta[:d]), nugget)
        away = (theta[:d] - centre) / PRIOR_SPREAD
        gradient = slopes[: len(theta)]
        gradient[:d] -= away / PRIOR_SPREAD
        return -(value - 0.5 * float(away @ away)), -gradient

    return negative_log_posterior


def log_posterior(kernel: Kernel, basis: Basis, points: Array, values: Array, h: Hyperparameters) -> float:
    """Log of likelihood times prior of these length scales and nugget, by which kernels can be compared."""
    theta = np.log(np.append(h.lengths, h.nugget))
    return -_objective(kernel, basis(points), points, values)(theta)[0]


def _mode(objective: Objective, d: int, noisy: bool, previous: Ensemble | None) -> Array:
    starts = [np.full(d, np.log(s * np.sqrt(d))) for s in (0.3, 1.0, 3.0)]
    nugget = np.log([1e-4])
    if previous is not None:
        starts = [np.log(previous[0].hyperparameters.lengths), starts[1]]
        nugget = np.log([previous[0].hyperparameters.nugget])
    bounds = _bounds(d, noisy)
    fits = [
        minimize(
            objective,
            np.append(s, nugget) if noisy else s,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 60},
        )
        for s in starts
    ]
    return min(fits, key=lambda fit: fit.fun).x


def _bounds(d: int, noisy: bool) -> list[tuple[float, float]]:
    nugget = [(float(np.log(SMALLEST_NUGGET)), float(np.log(10.0)))] if noisy else []
    return [(float(np.log(SHORTEST)), float(np.log(LONGEST)))] * d + nugget


def _draws(objective: Objective, theta: Array, bounds: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Draws from the Laplace approximation at `theta` (itself the first) and their importance weights."""
    precision, axes = np.linalg.eigh(_hessian(objective, theta))
    precision = np.maximum(precision, 0.25)
    sobol = qmc.Sobol(len(theta), rng=np.random.default_rng(0)).random(DRAWS)
    white = ndtri(np.clip(sobol, 1e-6, 1.0 - 1e-6))
    white[0] = 0.0
    low, high = np.array(bounds).T
    draws = np.clip(theta + (white / np.sqrt(precision)) @ axes.T, low, high)
    log_weights = np.array([-objective(draw)[0] for draw in draws]) + 0.5 * np.sum(white**2, axis=1)
    return draws, np.exp(log_weights - logsumexp(log_weights))


def _hessian(objective: Objective, theta: Array, step: float = 0.02) -> Array:
    rows = [(objective(theta + e)[1] - objective(theta - e)[1]) / (2.0 * step) for e in step * np.eye(len(theta))]
    hessian = np.array(rows)
    return 0.5 * (hessian + hessian.T)


def _unpack(theta: Array, d: int) -> Hyperparameters:
    nugget = float(np.exp(theta[d])) if len(theta) > d else SMALLEST_NUGGET
    return Hyperparameters(np.exp(theta[:d]), nugget)
