"""Kernels with derivatives, between two sets of inputs and pair by pair: Σ_nm G_nm k(x_n, z_m) and its slopes.

scikit-learn's kernels have gradients for one set of inputs alone, and as arrays of N×N×P. Here only sums are formed.
For a stationary kernel of r² = Σ_d (x_d − z_d)²/ℓ_d²,

    ∂k/∂ log ℓ_d = w (x_d − z_d)²/ℓ_d²,   ∂k/∂z_d = w (x_d − z_d)/ℓ_d²,   w = −2 ∂k/∂r²,

so that a sum over all pairs costs a product of matrices. Sums, products and powers of kernels follow by the chain rule,
and any other kernel by differences of the fourth order, whose error is near that of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels
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

from latlin.gp.kernels import Columns, Cosine
from latlin.numerics.arrays import Array, empty_array

#: step of differences, in a logarithm or in a spread of the inputs, and the weights at −2, −1, 1, 2 steps
STEP = 1e-3
STENCIL = {-2: 1.0 / 12.0, -1: -2.0 / 3.0, 1: 2.0 / 3.0, 2: -1.0 / 12.0}
#: half squares of scaled inputs up to which distances are differences of them: they are then right to 1e-12
FAR = 1e3
#: powers of Matérn kernels that have a closed form
SMOOTHNESS = (0.5, 1.5, 2.5, np.inf)


class Pull(NamedTuple):
    """Gradient of Σ G∘K in the free parameters, in the order of `kernel.theta`, and in the second inputs.

    `total` is Σ G∘K itself, where it came along.
    """

    theta: Array
    inputs: Array
    total: float | None = None


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
    if isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel):
        # Σ G∘K is its own slope in the logarithm of a constant
        scaled = np.multiply(G, kernel.k1.constant_value, out=empty_array(*G.shape))
        inner = pull(kernel.k2, X, Z, scaled)
        total = float(np.vdot(G, _values(kernel, X, Z))) if inner.total is None else inner.total
        return Pull(np.concatenate([np.full(kernel.k1.n_dims, total), inner.theta]), inner.inputs, total)
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
        return _in_place(np.add, _values(kernel.k1, X, Z), _values(kernel.k2, X, Z))
    if isinstance(kernel, Product):
        return _in_place(np.multiply, _values(kernel.k1, X, Z), _values(kernel.k2, X, Z))
    if isinstance(kernel, Exponentiation):
        return _values(kernel.kernel, X, Z) ** kernel.exponent
    if isinstance(kernel, ConstantKernel):
        return float(kernel.constant_value)
    if isinstance(kernel, WhiteKernel):
        return 0.0
    if type(kernel) is RBF:
        halves = _half_squares(*_scaled(kernel, X, Z))
        return np.exp(np.negative(halves, out=halves), out=halves)
    # a kernel of the user's may give what others hold
    return np.array(kernel(X, Z), float)


def _in_place(operation: Any, one: Any, other: Any) -> Any:
    """A sum or product of values, in the memory of one of them, as nobody else has them."""
    held = one if np.ndim(one) else other
    return operation(one, other, out=held) if np.ndim(held) else operation(one, other)


def _scaled(kernel: Kernel, X: Array, Z: Array) -> tuple[Array, Array]:
    """Inputs in units of the length scales, counted from the middle of the second ones."""
    length = np.broadcast_to(np.asarray(kernel.length_scale, float), X.shape[1])
    centre = Z.mean(axis=0)
    return (X - centre) / length, (Z - centre) / length


def _half_squares(x: Array, z: Array) -> Array:
    """½‖x_n − z_m‖²: by one product of matrices, where what it rounds off is small beside one."""
    own, other = (0.5 * np.einsum("nd,nd->n", each, each) for each in (x, z))
    if own.max(initial=0.0) + other.max(initial=0.0) > FAR:
        return 0.5 * cdist(x, z, "sqeuclidean")
    # ½|x|² + ½|z|² − xᵀz
    left = np.column_stack([-x, own, np.ones(len(x))])
    right = np.column_stack([z, np.ones(len(z)), other])
    found = np.matmul(left, right.T, out=empty_array(len(x), len(z)))
    return np.maximum(found, 0.0, out=found)


def _is_stationary(kernel: Kernel) -> bool:
    return type(kernel) is RBF or (type(kernel) is Matern and kernel.nu in SMOOTHNESS)


def _slopes(kernel: Kernel, halves: Array) -> Array:
    """w = −2 ∂k/∂r² of a stationary kernel, from ½r²; where it has no limit at r = 0, zero, as no sum needs it."""
    nu = kernel.nu if isinstance(kernel, Matern) else np.inf
    if nu == np.inf:
        return np.exp(np.negative(halves, out=halves), out=halves)
    r = np.sqrt(2.0 * halves)
    if nu == 0.5:
        return np.divide(np.exp(-r), r, out=np.zeros_like(r), where=r > 0.0)
    if nu == 1.5:
        return 3.0 * np.exp(-np.sqrt(3.0) * r)
    scaled = np.sqrt(5.0) * r
    return 5.0 / 3.0 * (1.0 + scaled) * np.exp(-scaled)


def _pull_stationary(kernel: Kernel, X: Array, Z: Array, G: Array) -> Pull:
    length = np.broadcast_to(np.asarray(kernel.length_scale, float), X.shape[1])
    x, z = _scaled(kernel, X, Z)
    # a rough kernel needs its smallest distances exactly
    halves = _half_squares(x, z) if type(kernel) is RBF else 0.5 * cdist(x, z, "sqeuclidean")
    A = _slopes(kernel, halves)
    A *= G
    columns, rows, mixed = A.sum(axis=0), A.sum(axis=1), A.T @ x
    # Σ A (x_d − z_d)² = Σ_n A_n x² + Σ_m A_m z² − 2 Σ_m z (Aᵀx)_m
    by_length = rows @ x**2 + columns @ z**2 - 2.0 * np.einsum("md,md->d", z, mixed)
    theta = by_length if np.ndim(kernel.length_scale) and len(length) > 1 else by_length.sum(keepdims=True)
    free = theta[: kernel.n_dims] if kernel.n_dims else np.zeros(0)
    # w is the kernel itself where that is a squared exponential
    total = float(columns.sum()) if type(kernel) is RBF else None
    return Pull(free, (mixed - columns[:, None] * z) / length, total)


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


# --- Kernels pair by pair: k(a_i, b_i) for a list of pairs of inputs, with derivatives in the kernel's parameters.
#
# A scikit-learn kernel gives whole matrices. Approximations by neighbours need a few hundred entries per input, none of
# them twice, so its algebra is walked here once for all pairs: sums, products and powers of the named kernels, with
# derivatives in the logarithms of the free parameters, in the order of `kernel.theta`.


Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Pairs of inputs; what is asked of them again and again is kept.

    Parameters
    ----------
    a, b : ndarray of shape (n, n_features)
    same : ndarray of bool, shape (n,)
        Pairs of a row with itself, which share white noise.
    """

    a: Array
    b: Array
    same: Mask

    @cached_property
    def squares(self) -> list[Array]:
        """(a_j − b_j)² of every column."""
        return [(self.a[:, j] - self.b[:, j]) ** 2 for j in range(self.a.shape[1])]

    @cached_property
    def square(self) -> Array:
        """‖a − b‖²."""
        return sum(self.squares[1:], self.squares[0])

    def columns(self, chosen: list[int]) -> Pairs:
        """The same pairs in some of the columns."""
        known: dict[tuple[int, ...], Pairs] = vars(self).setdefault("_parts", {})
        if tuple(chosen) not in known:
            known[tuple(chosen)] = Pairs(self.a[:, chosen], self.b[:, chosen], self.same)
        return known[tuple(chosen)]


#: values (n,) and derivatives, one (n,) per free parameter; the latter only where they are wanted
Evaluated = tuple[Array, list[Array]]


def pair_covariances(kernel: Any, pairs: Pairs, slopes: bool = False) -> Evaluated:
    """k(a_i, b_i), and ∂k/∂θ_j of every free parameter where `slopes` are wanted.

    Parameters
    ----------
    kernel : scikit-learn kernel
    pairs : Pairs
    slopes : bool

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> a, b = np.zeros((1, 1)), np.ones((1, 1))
    >>> value, (slope,) = pair_covariances(RBF(1.0), Pairs(a, b, np.array([False])), slopes=True)
    >>> [round(float(part[0]), 4) for part in (value, slope)]
    [0.6065, 0.6065]
    """
    rule = _RULES.get(type(kernel))
    if rule is None:
        known = ", ".join(sorted(known.__name__ for known in _RULES))
        raise ValueError(
            f"kernel must be made of {known} to be evaluated pair by pair, got {type(kernel).__name__}; "
            "use approximation='exact' or 'inducing' for it"
        )
    return rule(kernel, pairs, slopes)


def _sum(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    (one, d_one), (two, d_two) = (pair_covariances(part, pairs, slopes) for part in (kernel.k1, kernel.k2))
    return one + two, d_one + d_two


def _product(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    (one, d_one), (two, d_two) = (pair_covariances(part, pairs, slopes) for part in (kernel.k1, kernel.k2))
    return one * two, [slope * two for slope in d_one] + [slope * one for slope in d_two]


def _power(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    inner, d_inner = pair_covariances(kernel.kernel, pairs, slopes)
    outer = kernel.exponent * inner ** (kernel.exponent - 1.0) if slopes else inner
    return inner**kernel.exponent, [outer * slope for slope in d_inner]


def _constant(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    value = np.full(len(pairs.a), float(kernel.constant_value))
    return value, _free(slopes, (kernel.hyperparameter_constant_value, lambda: value))


def _white(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    value = kernel.noise_level * pairs.same
    return value, _free(slopes, (kernel.hyperparameter_noise_level, lambda: value))


def _linear(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    shift = kernel.sigma_0**2
    value = np.einsum("nd,nd->n", pairs.a, pairs.b) + shift
    return value, _free(slopes, (kernel.hyperparameter_sigma_0, lambda: np.full(len(value), 2.0 * shift)))


def _squares(kernel: Any, pairs: Pairs) -> list[Array]:
    """((a − b)/ℓ)², one per length scale: summed over the columns where all of them share it."""
    scale = np.atleast_1d(np.asarray(kernel.length_scale, float))
    if len(scale) == 1:
        return [pairs.square / scale[0] ** 2]
    return [part / one**2 for part, one in zip(pairs.squares, scale, strict=True)]


def _squared_exponential(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    squares = _squares(kernel, pairs)
    value = np.exp(-0.5 * sum(squares[1:], squares[0]))
    return value, _free(slopes, (kernel.hyperparameter_length_scale, lambda: [value * part for part in squares]))


def _matern(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    if kernel.nu == np.inf:
        return _squared_exponential(kernel, pairs, slopes)
    squares = _squares(kernel, pairs)
    # r = √(2ν) ‖(a − b)/ℓ‖; k = p(r)e⁻ʳ and ∂k/∂log ℓ_j = 2ν ((a_j − b_j)/ℓ_j)² · s(r)e⁻ʳ
    r = np.sqrt(2.0 * kernel.nu * sum(squares[1:], squares[0]))
    decay = np.exp(-r)
    if kernel.nu == 0.5:
        value, steep = decay, np.divide(decay, r, out=np.zeros_like(r), where=r > 0.0)
    elif kernel.nu == 1.5:
        value, steep = (1.0 + r) * decay, decay
    elif kernel.nu == 2.5:
        value, steep = (1.0 + r + r**2 / 3.0) * decay, (1.0 + r) / 3.0 * decay
    else:
        raise ValueError(f"Matern nu must be 0.5, 1.5, 2.5 or inf to be evaluated pair by pair, got {kernel.nu!r}")
    steep = 2.0 * kernel.nu * steep
    return value, _free(slopes, (kernel.hyperparameter_length_scale, lambda: [steep * part for part in squares]))


def _rational(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    (square,), alpha = _squares(kernel, pairs), kernel.alpha
    base = 1.0 + square / (2.0 * alpha)
    value = base**-alpha
    return value, _free(
        slopes,
        (kernel.hyperparameter_alpha, lambda: value * (0.5 * square / base - alpha * np.log(base))),
        (kernel.hyperparameter_length_scale, lambda: value * square / base),
    )


def _periodic(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    angle = np.pi / kernel.periodicity * np.sqrt(pairs.square)
    sine, factor = np.sin(angle), 4.0 / kernel.length_scale**2
    value = np.exp(-0.5 * factor * sine**2)
    return value, _free(
        slopes,
        (kernel.hyperparameter_length_scale, lambda: factor * sine**2 * value),
        (kernel.hyperparameter_periodicity, lambda: factor * angle * np.cos(angle) * sine * value),
    )


def _waves(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    angles = kernel.angles([pairs.a[:, j] - pairs.b[:, j] for j in range(pairs.a.shape[1])])
    angle = sum(angles[1:], angles[0])
    found = (kernel.hyperparameter_frequency, lambda: [-np.sin(angle) * one for one in angles])
    return np.cos(angle), _free(slopes, found)


def _columns(kernel: Any, pairs: Pairs, slopes: bool) -> Evaluated:
    return pair_covariances(kernel.kernel, pairs.columns(kernel.places(pairs.a.shape[1])), slopes)


def _free(slopes: bool, *parameters: tuple[Any, Callable[[], Any]]) -> list[Array]:
    """Derivatives in those parameters that are not fixed, where they are wanted."""
    found: list[Array] = []
    for parameter, slope in parameters if slopes else ():
        if not parameter.fixed:
            value = slope()
            found += value if isinstance(value, list) else [value]
    return found


_RULES: dict[type, Callable[[Any, Pairs, bool], Evaluated]] = {
    kernels.Sum: _sum,
    kernels.Product: _product,
    kernels.Exponentiation: _power,
    kernels.ConstantKernel: _constant,
    kernels.WhiteKernel: _white,
    kernels.DotProduct: _linear,
    kernels.RBF: _squared_exponential,
    kernels.Matern: _matern,
    kernels.RationalQuadratic: _rational,
    kernels.ExpSineSquared: _periodic,
    Columns: _columns,
    Cosine: _waves,
}
