"""Kernels between two sets of inputs, and gradients of sums over them: Σ_nm G_nm k(x_n, z_m) in parameters and in z.

scikit-learn's kernels have gradients for one set of inputs alone, and as arrays of N×N×P. Here only sums are formed.
For a stationary kernel of r² = Σ_d (x_d − z_d)²/ℓ_d²,

    ∂k/∂ log ℓ_d = w (x_d − z_d)²/ℓ_d²,   ∂k/∂z_d = w (x_d − z_d)/ℓ_d²,   w = −2 ∂k/∂r²,

so that a sum over all pairs costs a product of matrices. Sums, products and powers of kernels follow by the chain rule,
and any other kernel by differences of the fourth order, whose error is near that of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Exponentiation,
    Kernel,
    Matern,
    Product,
    Sum,
    WhiteKernel,
)

from latlin.numerics.arrays import Array

#: step of differences, in a logarithm or in a spread of the inputs, and the weights at −2, −1, 1, 2 steps
STEP = 1e-3
STENCIL = {-2: 1.0 / 12.0, -1: -2.0 / 3.0, 1: 2.0 / 3.0, 2: -1.0 / 12.0}
#: powers of Matérn kernels that have a closed form
SMOOTHNESS = (0.5, 1.5, 2.5, np.inf)


class Pull(NamedTuple):
    """Gradient of Σ G∘K in the free parameters, in the order of `kernel.theta`, and in the second inputs."""

    theta: Array
    inputs: Array


def cross(kernel: Kernel, X: Array, Z: Array) -> Array:
    """k(x_n, z_m), white noise left out."""
    values = _values(kernel, X, Z)
    return values if np.ndim(values) else np.full((len(X), len(Z)), float(values))


def diagonal(kernel: Kernel, X: Array) -> Array:
    """k(x_n, x_n), white noise left out."""
    if isinstance(kernel, Sum):
        return diagonal(kernel.k1, X) + diagonal(kernel.k2, X)
    if isinstance(kernel, Product):
        return diagonal(kernel.k1, X) * diagonal(kernel.k2, X)
    return np.zeros(len(X)) if isinstance(kernel, WhiteKernel) else np.asarray(kernel.diag(X), float)


def pull(kernel: Kernel, X: Array, Z: Array, G: Array) -> Pull:
    """Gradients of Σ_nm G_nm k(x_n, z_m)."""
    if isinstance(kernel, Sum):
        first, second = pull(kernel.k1, X, Z, G), pull(kernel.k2, X, Z, G)
        return Pull(np.concatenate([first.theta, second.theta]), first.inputs + second.inputs)
    if isinstance(kernel, Product):
        first = pull(kernel.k1, X, Z, G * _values(kernel.k2, X, Z))
        second = pull(kernel.k2, X, Z, G * _values(kernel.k1, X, Z))
        return Pull(np.concatenate([first.theta, second.theta]), first.inputs + second.inputs)
    if isinstance(kernel, Exponentiation):
        p = kernel.exponent
        return pull(kernel.kernel, X, Z, G * p * _values(kernel.kernel, X, Z) ** (p - 1.0))
    if isinstance(kernel, ConstantKernel):
        slope = kernel.constant_value * float(G.sum())
        return Pull(np.full(kernel.n_dims, slope), np.zeros_like(Z))
    if isinstance(kernel, WhiteKernel):
        return Pull(np.zeros(kernel.n_dims), np.zeros_like(Z))
    if _is_stationary(kernel):
        return _pull_stationary(kernel, X, Z, G)
    return _pull_differences(kernel, X, Z, G)


def pull_diagonal(kernel: Kernel, X: Array, g: Array) -> Array:
    """Gradient of Σ_n g_n k(x_n, x_n), white noise included, in the free parameters."""
    if isinstance(kernel, Sum):
        return np.concatenate([pull_diagonal(kernel.k1, X, g), pull_diagonal(kernel.k2, X, g)])
    if isinstance(kernel, Product):
        first, second = kernel.k1.diag(X), kernel.k2.diag(X)
        return np.concatenate([pull_diagonal(kernel.k1, X, g * second), pull_diagonal(kernel.k2, X, g * first)])
    if isinstance(kernel, ConstantKernel):
        return np.full(kernel.n_dims, kernel.constant_value * float(g.sum()))
    if isinstance(kernel, WhiteKernel):
        return np.full(kernel.n_dims, kernel.noise_level * float(g.sum()))
    if _is_stationary(kernel):
        return np.zeros(kernel.n_dims)
    return _in_parameters(kernel, lambda there: float(g @ there.diag(X)))


def _values(kernel: Kernel, X: Array, Z: Array) -> Any:
    """k(x_n, z_m), or one number where all are the same."""
    if isinstance(kernel, Sum):
        return _values(kernel.k1, X, Z) + _values(kernel.k2, X, Z)
    if isinstance(kernel, Product):
        return _values(kernel.k1, X, Z) * _values(kernel.k2, X, Z)
    if isinstance(kernel, Exponentiation):
        return _values(kernel.kernel, X, Z) ** kernel.exponent
    if isinstance(kernel, ConstantKernel):
        return float(kernel.constant_value)
    if isinstance(kernel, WhiteKernel):
        return 0.0
    return kernel(X, Z)


def _is_stationary(kernel: Kernel) -> bool:
    return type(kernel) is RBF or (type(kernel) is Matern and kernel.nu in SMOOTHNESS)


def _slopes(kernel: Kernel, squares: Array) -> Array:
    """w = −2 ∂k/∂r² of a stationary kernel, from r²; where it has no limit at r = 0, zero, as no sum needs it."""
    nu = kernel.nu if isinstance(kernel, Matern) else np.inf
    if nu == np.inf:
        return np.exp(-0.5 * squares)
    r = np.sqrt(squares)
    if nu == 0.5:
        return np.divide(np.exp(-r), r, out=np.zeros_like(r), where=r > 0.0)
    if nu == 1.5:
        return 3.0 * np.exp(-np.sqrt(3.0) * r)
    scaled = np.sqrt(5.0) * r
    return 5.0 / 3.0 * (1.0 + scaled) * np.exp(-scaled)


def _pull_stationary(kernel: Kernel, X: Array, Z: Array, G: Array) -> Pull:
    length = np.broadcast_to(np.asarray(kernel.length_scale, float), X.shape[1])
    centre = Z.mean(axis=0)
    x, z = (X - centre) / length, (Z - centre) / length
    A = G * _slopes(kernel, cdist(x, z, "sqeuclidean"))
    columns, rows, mixed = A.sum(axis=0), A.sum(axis=1), A.T @ x
    # Σ A (x_d − z_d)² = Σ_n A_n x² + Σ_m A_m z² − 2 Σ_m z (Aᵀx)_m
    by_length = rows @ x**2 + columns @ z**2 - 2.0 * np.einsum("md,md->d", z, mixed)
    theta = by_length if np.ndim(kernel.length_scale) and len(length) > 1 else by_length.sum(keepdims=True)
    free = theta[: kernel.n_dims] if kernel.n_dims else np.zeros(0)
    return Pull(free, (mixed - columns[:, None] * z) / length)


def _pull_differences(kernel: Kernel, X: Array, Z: Array, G: Array) -> Pull:
    theta = _in_parameters(kernel, lambda there: float(np.einsum("nm,nm->", G, there(X, Z))))
    inputs, spread = np.zeros_like(Z), np.maximum(Z.std(axis=0), 1e-3 * np.abs(Z).max(axis=0) + 1e-300)
    for d in range(Z.shape[1]):
        for step, weight in STENCIL.items():
            moved = Z.copy()
            moved[:, d] += step * STEP * spread[d]
            inputs[:, d] += weight / (STEP * spread[d]) * np.einsum("nm,nm->m", G, kernel(X, moved))
    return Pull(theta, inputs)


def _in_parameters(kernel: Kernel, value: Callable[[Kernel], float]) -> Array:
    """∂value/∂theta by differences."""
    slopes = np.zeros(kernel.n_dims)
    for j, step in np.ndindex(kernel.n_dims, len(STENCIL)):
        count, weight = list(STENCIL.items())[step]
        theta = kernel.theta.copy()
        theta[j] += count * STEP
        slopes[j] += weight / STEP * value(kernel.clone_with_theta(theta))
    return slopes
