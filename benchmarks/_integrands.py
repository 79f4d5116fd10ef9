"""Integrands with known integrals in one to five dimensions: Genz's families, Gaussian mixtures, an evidence."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import erf, expit

from latlin.quadrature import Gaussian, Uniform

Array = NDArray[np.float64]
HALF = np.sqrt(3.0)


class Problem(NamedTuple):
    """An integrand, its measure, its integral, and whether it is nowhere negative."""

    name: str
    f: Callable[[Array], Array]
    measure: Gaussian | Uniform
    truth: float
    positive: bool


def problems(d: int, seed: int = 0) -> list[Problem]:
    """Eight problems in d dimensions."""
    rng = np.random.default_rng([seed, d])
    return [*genz(d, rng), gaussian_mixture(d, rng), logistic_evidence(d, rng)]


def genz(d: int, rng: np.random.Generator) -> list[Problem]:
    """Genz's six families on the unit cube, with difficulties that grow with d."""
    u = rng.uniform(size=d)

    def rates(total: float) -> Array:
        raw = rng.uniform(0.2, 1.0, size=d)
        return raw * total / raw.sum()

    a, b, e, g, h, k = (rates(t) for t in (3.0 * d**0.5 + 1.0, 4.0 * d, 1.5 * d, 3.0 * d, 2.5 * d, 1.5 * d))
    cut = 0.4 + 0.4 * u[:2]
    corners = sum((-1) ** sum(s) / (1.0 + np.dot(s, e)) for s in itertools.product((0, 1), repeat=d))
    ends = np.append(cut, np.ones(max(d - 2, 0)))[:d]
    wave = np.exp(2j * np.pi * u[0]) * np.prod((np.exp(1j * a) - 1.0) / (1j * a))
    peak = np.prod((np.arctan(b * (1.0 - u)) + np.arctan(b * u)) / b)
    bump = np.prod(np.sqrt(np.pi) / 2.0 / g * (erf(g * (1.0 - u)) + erf(g * u)))
    kink = np.prod((2.0 - np.exp(-h * u) - np.exp(-h * (1.0 - u))) / h)
    jump = np.prod(np.expm1(k * ends) / k)

    def product_peak(x: Array) -> Array:
        return np.prod(1.0 / (1.0 + (b * (x - u)) ** 2), axis=1)

    def discontinuous(x: Array) -> Array:
        return np.where((x[:, :2] > cut).any(axis=1), 0.0, np.exp(x @ k))

    box = Uniform(0.0, 1.0, dim=d)
    corner = corners / (factorial(d) * np.prod(e))
    return [
        Problem("oscillatory", lambda x: np.cos(2.0 * np.pi * u[0] + x @ a), box, float(wave.real), False),
        Problem("product peak", product_peak, box, float(peak), True),
        Problem("corner peak", lambda x: (1.0 + x @ e) ** -(d + 1.0), box, float(corner), True),
        Problem("gaussian", lambda x: np.exp(-np.sum((g * (x - u)) ** 2, axis=1)), box, float(bump), True),
        Problem("continuous", lambda x: np.exp(-np.abs(x - u) @ h), box, float(kink), True),
        Problem("discontinuous", discontinuous, box, float(jump), True),
    ]


def gaussian_mixture(d: int, rng: np.random.Generator) -> Problem:
    """Three bumps under a standard normal."""
    centre, s, w = 0.8 * rng.standard_normal((3, d)), rng.uniform(0.5, 1.0, (3, d)), rng.uniform(0.3, 1.0, 3)
    truth = w @ np.prod(s / np.sqrt(1.0 + s**2) * np.exp(-0.5 * centre**2 / (1.0 + s**2)), axis=1)

    def f(x: Array) -> Array:
        return np.exp(-0.5 * np.sum(((x[:, None] - centre) / s) ** 2, axis=2)) @ w

    return Problem("mixture", f, Gaussian(0.0, 1.0, dim=d), float(truth), True)


def logistic_evidence(d: int, rng: np.random.Generator) -> Problem:
    """The likelihood of 30 labels under a standard normal prior, relative to its value at the mode."""
    x = rng.standard_normal((30, d))
    y = np.where(rng.uniform(size=30) < expit(1.2 * x @ rng.standard_normal(d)), 1.0, -1.0)

    def log_likelihood(t: Array) -> Array:
        return -np.logaddexp(0.0, -(t @ x.T) * y).sum(axis=1)

    mode = minimize(lambda t: -log_likelihood(t[None])[0] + 0.5 * t @ t, np.zeros(d)).x
    top = log_likelihood(mode[None])[0]
    p = expit(x @ mode)
    factor = np.linalg.cholesky(np.linalg.inv(np.eye(d) + (x.T * (p * (1.0 - p))) @ x))
    nodes, weights = np.polynomial.hermite_e.hermegauss(24 if d <= 3 else 14)
    z = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
    w = np.prod(np.stack(np.meshgrid(*[weights] * d, indexing="ij"), axis=-1).reshape(-1, d), axis=1)
    t = mode + z @ factor.T
    inside = np.exp(log_likelihood(t) - top - 0.5 * np.sum(t**2, axis=1) + 0.5 * np.sum(z**2, axis=1))
    truth = (w @ inside) * np.prod(np.diagonal(factor)) / (2.0 * np.pi) ** (0.5 * d)
    return Problem("logistic", lambda t: np.exp(log_likelihood(t) - top), Gaussian(0.0, 1.0, dim=d), float(truth), True)


def process_draw(d: int, gaussian: bool, rng: np.random.Generator) -> Problem:
    """A draw of a squared-exponential process, by random Fourier features."""
    length = rng.uniform(0.4, 1.0) * np.sqrt(d)
    w, a = rng.standard_normal((400, d)) / length, rng.standard_normal(400) * np.sqrt(2.0 / 400.0)
    phase = rng.uniform(0.0, 2.0 * np.pi, 400)
    damping = np.exp(-0.5 * np.sum(w**2, axis=1)) if gaussian else np.prod(np.sinc(w * HALF / np.pi), axis=1)
    truth = float(np.sum(a * np.cos(phase) * damping))
    return Problem("process", lambda x: np.cos(x @ w.T + phase) @ a, standard(d, gaussian), truth, False)


def standard(d: int, gaussian: bool) -> Gaussian | Uniform:
    """The measure of unit variance in d dimensions."""
    return Gaussian(0.0, 1.0, dim=d) if gaussian else Uniform(-HALF, HALF, dim=d)
