"""Sums of Matérn kernels on a line as Gauss–Markov chains, with derivatives in their parameters.

A Matérn process of smoothness ν = p + ½ and length ℓ is the first entry of a Markov state of p + 1 derivatives
(Hartikainen and Särkkä 2010). In the time s = λΔ, λ = √(2ν)/ℓ, and with derivatives in that unit, all depends on s:

    Φ(s) = exp(Fs),   W(s) = q ∫₀ˢ φ(τ)φ(τ)ᵀdτ,   φ(τ) = Φ(τ)e_p,   dΦ/ds = FΦ,   dW/ds = q φ(s)φ(s)ᵀ,

times the variance. The integrals of e^−2τ τᵏ are incomplete gamma functions, so short steps cost no digits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import factorial, gammainc
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, Product, Sum

from latlin.densities.chain import Chain
from latlin.gp.kernels import Columns
from latlin.numerics.arrays import Array


class Shape(NamedTuple):
    """A Matérn process in its own time: F, the stationary covariance, q, and φ(τ)eᵗ as polynomials (rows)."""

    F: Array
    stationary: Array
    q: float
    push: Array


SHAPES: dict[float, Shape] = {
    0.5: Shape(np.array([[-1.0]]), np.array([[1.0]]), 2.0, np.array([[1.0]])),
    1.5: Shape(np.array([[0.0, 1.0], [-1.0, -2.0]]), np.eye(2), 4.0, np.array([[0.0, 1.0], [1.0, -1.0]])),
    2.5: Shape(
        np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -3.0, -3.0]]),
        np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]]),
        16.0 / 3.0,
        np.array([[0.0, 0.0, 0.5], [0.0, 1.0, -0.5], [1.0, -2.0, 0.5]]),
    ),
}


class MaternPart(NamedTuple):
    """One Matérn process: its smoothness, length and variance, and which free parameters these are.

    Parameters
    ----------
    nu, length, variance : float
    by_variance : tuple of int
        Places in `kernel.theta` of the factors of the variance.
    by_length : int or None
    """

    nu: float
    length: float
    variance: float
    by_variance: tuple[int, ...]
    by_length: int | None

    @property
    def rate(self) -> float:
        """λ = √(2ν)/ℓ."""
        return float(np.sqrt(2.0 * self.nu)) / self.length


def parts_of(kernel: Any) -> list[MaternPart]:
    """The Matérn processes whose sum a kernel is; a ValueError where it is no such sum."""
    found, used = _walk(kernel, 0)
    assert used == kernel.n_dims
    return found


def _walk(kernel: Any, first: int) -> tuple[list[MaternPart], int]:
    """Parts of a kernel whose free parameters begin at a place, and where they end."""
    if isinstance(kernel, Columns):
        return _walk(kernel.kernel, first)
    if isinstance(kernel, Matern) and kernel.nu in SHAPES and np.size(kernel.length_scale) == 1:
        free = not kernel.hyperparameter_length_scale.fixed
        part = MaternPart(kernel.nu, float(np.ravel(kernel.length_scale)[0]), 1.0, (), first if free else None)
        return [part], first + free
    if isinstance(kernel, Sum):
        one, split = _walk(kernel.k1, first)
        other, last = _walk(kernel.k2, split)
        return one + other, last
    if isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel):
        free = not kernel.k1.hyperparameter_constant_value.fixed
        inner, last = _walk(kernel.k2, first + free)
        return [_scaled(part, kernel.k1, first, free) for part in inner], last
    if isinstance(kernel, Product) and isinstance(kernel.k2, ConstantKernel):
        inner, split = _walk(kernel.k1, first)
        free = not kernel.k2.hyperparameter_constant_value.fixed
        return [_scaled(part, kernel.k2, split, free) for part in inner], split + free
    raise ValueError(
        "a state space on a line needs a sum of Matern kernels (nu 0.5, 1.5 or 2.5) times constants, "
        f"got {kernel!r:.120}"
    )


def _scaled(part: MaternPart, constant: Any, place: int, free: bool) -> MaternPart:
    own = (*part.by_variance, place) if free else part.by_variance
    return part._replace(variance=part.variance * float(constant.constant_value), by_variance=own)


def transitions(part: MaternPart, spacing: Array) -> tuple[Array, Array]:
    """Φ and W over steps of some length, of shape (n, d, d)."""
    shape, s = SHAPES[part.nu], part.rate * spacing
    width = len(shape.F)
    nilpotent = shape.F + np.eye(width)
    # exp(Fs) = e⁻ˢ Σ_k (F + I)ᵏsᵏ/k!
    phi, power = np.zeros((len(s), width, width)), np.eye(width)
    for k in range(width):
        phi += (np.exp(-s) * s**k / factorial(k))[:, None, None] * power
        power = power @ nilpotent
    # ∫₀ˢ e^−2τ τᵏ dτ = k! P(k + 1, 2s)/2ᵏ⁺¹
    moments = [gammainc(k + 1, 2.0 * s) * factorial(k) / 2.0 ** (k + 1) for k in range(2 * width - 1)]
    W = np.zeros_like(phi)
    for i in range(width):
        for j in range(width):
            products = np.convolve(shape.push[i], shape.push[j])
            W[:, i, j] = sum(c * moment for c, moment in zip(products, moments, strict=True))
    return phi, part.variance * shape.q * W


def length_slopes(part: MaternPart, spacing: Array, phi: Array) -> tuple[Array, Array]:
    """∂Φ/∂log ℓ and ∂W/∂log ℓ, with ∂s/∂log ℓ = −s."""
    shape, s = SHAPES[part.nu], part.rate * spacing
    push = np.exp(-s)[:, None] * (s[:, None] ** np.arange(len(shape.F))) @ shape.push.T
    d_phi = -s[:, None, None] * (shape.F @ phi)
    d_W = -(part.variance * shape.q * s)[:, None, None] * push[:, :, None] * push[:, None, :]
    return d_phi, d_W


def stationary(part: MaternPart) -> Array:
    """The covariance of a state without neighbours."""
    return part.variance * SHAPES[part.nu].stationary


def blocks_of(parts: list[MaternPart]) -> list[slice]:
    """Where the states of the parts stand in a state of their sum."""
    edges = np.cumsum([0, *(len(SHAPES[part.nu].F) for part in parts)])
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


def steps_between(parts: list[MaternPart], spacing: Array) -> tuple[Array, Array]:
    """Φ and W of the sum of parts."""
    spans = blocks_of(parts)
    width = spans[-1].stop
    phi, W = np.zeros((len(spacing), width, width)), np.zeros((len(spacing), width, width))
    for part, span in zip(parts, spans, strict=True):
        phi[:, span, span], W[:, span, span] = transitions(part, spacing)
    return phi, W


def chain_of(parts: list[MaternPart], times: Array) -> Chain:
    """The chain of a sum of Matérn processes at increasing times."""
    spacing = np.diff(times)
    # regular times have few different steps
    distinct, which = np.unique(spacing, return_inverse=True)
    phi, W = steps_between(parts, distinct)
    first = np.zeros((1, *phi.shape[1:]))
    h = np.zeros(phi.shape[1])
    for part, span in zip(parts, blocks_of(parts), strict=True):
        first[0, span, span] = stationary(part)
        h[span.start] = 1.0
    return Chain(np.concatenate([np.zeros_like(first), phi[which]]), np.concatenate([first, W[which]]), h)


def pull_back(parts: list[MaternPart], times: Array, chain: Chain, by_w: Array, by_phi: Array, count: int) -> Array:
    """∂ log Z/∂θ of `count` free parameters from ∂ log Z/∂W_t and ∂ log Z/∂Φ_t."""
    total, spacing = np.zeros(count), np.diff(times)
    for part, span in zip(parts, blocks_of(parts), strict=True):
        inside = (slice(None), span, span)
        for place in part.by_variance:
            total[place] += np.sum(by_w[inside] * chain.W[inside])
        if part.by_length is not None:
            own = chain.phi[inside][1:]
            d_phi, d_W = length_slopes(part, spacing, own)
            total[part.by_length] += np.sum(by_phi[inside][1:] * d_phi) + np.sum(by_w[inside][1:] * d_W)
    return total
