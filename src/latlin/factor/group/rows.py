"""Where the rows of group factor analysis are, and the only thing asked of them: sums that belong to their latents.

Everything that a sweep needs of the rows, given how latents follow from them, are the sums of `LatentSums`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, qr

from latlin.numerics.linalg import Array
from latlin.numerics.threads import njit

# --- Compiled sums of group factor analysis: small K×K work for every feature and every row, in one pass each.
#
# Features with the same prior precisions and the same pattern of missing rows form a class c, rows with the same
# pattern of missing features a pattern r. The loadings of feature d have covariance B_c diag(s_d) B_cᵀ, see
# `loading_step`.


Labels = NDArray[np.int64]

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})


@_compiled
def outer_sums(rows: Array, weights: Array, labels: Labels, n_labels: int) -> Array:
    """Σ_{i: label i = r} weight_i v_i v_iᵀ for every label r, shape (n_labels, K, K)."""
    n, rank = rows.shape
    total = np.zeros((n_labels, rank, rank))
    for i in range(n):
        sums = total[labels[i]]
        for k in range(rank):
            share = weights[i] * rows[i, k]
            for l in range(rank):
                sums[k, l] += share * rows[i, l]
    return total


@_compiled
def weighted_sums(values: Array, weights: Array, labels: Labels, n_labels: int) -> Array:
    """Σ_{d: label d = c} weight_d v_d for every label c, shape (n_labels, K)."""
    total = np.zeros((n_labels, values.shape[1]))
    for d in range(values.shape[0]):
        for k in range(values.shape[1]):
            total[labels[d], k] += weights[d] * values[d, k]
    return total


@_compiled
def multiply_by_label(matrices: Array, labels: Labels, rows: Array) -> Array:
    """A_{label i} v_i for every row, with symmetric A."""
    n, rank = rows.shape
    product = np.zeros((n, rank))
    for i in range(n):
        a = matrices[labels[i]]
        for k in range(rank):
            for l in range(rank):
                product[i, l] += rows[i, k] * a[k, l]
    return product


@_compiled
def loading_step(
    cross: Array, precision: Array, basis: Array, values: Array, labels: Labels, mean: Array, spread: Array
) -> None:
    """The posterior N(w_d, B diag(s_d) Bᵀ) of every feature's loadings, written to `mean` and `spread`.

    With BᵀSB = diag(λ) and BᵀAB = I for S = Σ⟨zzᵀ⟩ and A = diag⟨α⟩ of its class:
    (τS + A)⁻¹ = B diag(s) Bᵀ with s = 1/(τλ + 1), and w = B(τs ∘ Bᵀy) with y = Σ x⟨z⟩.
    """
    n, rank = cross.shape
    turned = np.empty(rank)
    for d in range(n):
        b, tau = basis[labels[d]], precision[d]
        turned[:] = 0.0
        for k in range(rank):
            for l in range(rank):
                turned[l] += cross[d, k] * b[k, l]
        for l in range(rank):
            spread[d, l] = 1.0 / (tau * values[labels[d], l] + 1.0)
            turned[l] *= tau * spread[d, l]
        for k in range(rank):
            total = 0.0
            for l in range(rank):
                total += b[k, l] * turned[l]
            mean[d, k] = total


@_compiled
def squared_errors(
    squares: Array, cross: Array, mean: Array, spread: Array, second: Array, turned: Array, labels: Labels
) -> Array:
    """Σ_i ⟨(x_i − wᵀz_i)²⟩ of every feature: Σx² − 2wᵀy + wᵀSw + Σ_l s_l (BᵀSB)_ll."""
    n, rank = mean.shape
    errors = np.empty(n)
    for d in range(n):
        s, total = second[labels[d]], squares[d]
        for k in range(rank):
            product = 0.0
            for l in range(rank):
                product += s[k, l] * mean[d, l]
            total += mean[d, k] * (product - 2.0 * cross[d, k]) + spread[d, k] * turned[labels[d], k]
        errors[d] = max(total, 1e-15 * squares[d])
    return errors


# --- Compiled conjugate gradients for the step of a Newton method over K×K matrices.
#
# The curvature of `latlin.factor.group.fit` costs a few products of K×K matrices; compiled, a step of fifty of them
# takes less time than the interpreter needs to ask for them.


@_compiled
def curvature_times(x: Array, latent: Array, left: Array, right: Array, columns: Array, out: Array) -> None:
    """out ← S X + Xᵀ Eᵀ + Fᵀ Xᵀ − (A_k x_k)_k, with x_k the rows of X, and S, E, F = `latent`, `left`, `right`."""
    rank = len(x)
    for k in range(rank):
        for i in range(rank):
            total = 0.0
            for j in range(rank):
                total -= columns[k, i, j] * x[k, j]
            out[k, i] = total
    for k in range(rank):
        for j in range(rank):
            s, f = latent[k, j], right[j, k]
            for i in range(rank):
                out[k, i] += s * x[j, i] + f * x[i, j]
    for j in range(rank):
        for k in range(rank):
            share = x[j, k]
            for i in range(rank):
                out[k, i] += share * left[i, j]


@_compiled
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total += a[i, j] * b[i, j]
    return total


@_compiled
def truncated_step(
    gradient: Array,
    scale: Array,
    latent: Array,
    left: Array,
    right: Array,
    columns: Array,
    radius: float,
    tol: float,
    max_iter: int,
) -> tuple[Array, float, bool]:
    """Climb gᵀy − ½yᵀBy within ‖y‖ ≤ radius by conjugate gradients (Steihaug), B the curvature in units of `scale`.

    Returns y, the rise it promises, and whether it ends at the radius; stops at a residual of `tol`.
    """
    y, residual, direction = np.zeros_like(gradient), gradient.copy(), gradient.copy()
    pushed = np.empty_like(gradient)
    size, inside, across = _dot(residual, residual), 0.0, 0.0
    promised = 0.0
    for _ in range(max_iter):
        curvature_times(direction / scale, latent, left, right, columns, pushed)
        pushed /= scale
        length, bend = _dot(direction, direction), _dot(direction, pushed)
        step = size / bend if bend > 1e-14 * length else np.inf
        across = _dot(y, direction)
        if inside + step * (2.0 * across + step * length) >= radius * radius:
            # to the edge: ‖y + tp‖ = radius
            step = (np.sqrt(across * across + length * (radius * radius - inside)) - across) / length
            return y + step * direction, promised + step * (size - 0.5 * step * bend), True
        promised += 0.5 * step * size
        inside += step * (2.0 * across + step * length)
        y += step * direction
        residual -= step * pushed
        new = _dot(residual, residual)
        if new <= tol * tol:
            break
        direction = residual + new / size * direction
        size = new
    return y, promised, False


#: power iterations for the principal components of a start
POWERS = 4
#: directions beyond those wanted, for accuracy
SPARE = 10


class LatentSums(NamedTuple):
    """Means ⟨z_n⟩ of the latents, and sums over rows that belong to them.

    Away from memory `latent` is not N×K but some K×K matrix with the same ΣZ = Σ_n⟨z_n⟩⟨z_n⟩ᵀ, which is all that the
    updates ask of it.
    """

    latent: Array
    moments: Array  # Σ_n ⟨z_n⟩⟨z_n⟩ᵀ over the rows of pattern r, (r, K, K)
    cross: Array  # Σ_n x_nd ⟨z_n⟩, D×K


class RowSource(Protocol):
    """Centred and scaled rows, zero where an entry is missing."""

    def latents(self, pull: Array, covariance: Array) -> LatentSums:
        """Sums for ⟨z_n⟩ = S_r Pᵀx_n, with `pull` P (D×K) and a covariance S_r for every pattern r of rows."""

    def principal(self, rank: int, rng: np.random.Generator) -> LatentSums:
        """Sums for principal components of unit variance, then noise when there are too few of them."""

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        """Sums for standard normal latents."""


@dataclass(frozen=True)
class RowsInMemory:
    """The rows themselves, and the pattern of each."""

    x: Array
    pattern: Labels
    n_patterns: int

    def latents(self, pull: Array, covariance: Array) -> LatentSums:
        return self.sums(multiply_by_label(covariance, self.pattern, product(self.x, pull)))

    def sums(self, latent: Array) -> LatentSums:
        """Sums for given latents (N×K)."""
        moments = outer_sums(latent, np.ones(len(latent)), self.pattern, self.n_patterns)
        return LatentSums(latent, moments, product(self.x.T, latent))

    def principal(self, rank: int, rng: np.random.Generator) -> LatentSums:
        x = self.x
        n, d = x.shape
        most = min(rank, n, d)
        span = rng.standard_normal((d, min(most + SPARE, n, d)))
        leading = product(x, principal_axes(lambda b: product(x.T, product(x, b)), span, most)) * np.sqrt(n)
        noise = rng.standard_normal((n, rank - leading.shape[1]))
        return self.sums(np.ascontiguousarray(np.concatenate([leading, noise], axis=1)))

    def random(self, rank: int, rng: np.random.Generator) -> LatentSums:
        return self.sums(rng.standard_normal((len(self.x), rank)))


def principal_axes(times: Callable[[Array], Array], span: Array, most: int) -> Array:
    """A with XA orthonormal principal components in the subspace X(XᵀX)ᵖ·span, fewer than `most` if X has no more.

    `times` is b → XᵀXb. The largest correlation of a component with a column of X is positive.
    """
    for _ in range(POWERS):
        span = np.ascontiguousarray(qr(times(span), mode="economic")[0])
    pushed = times(span)
    # XVT is orthonormal when TᵀVᵀXᵀXVT = I
    values, vectors = eigh(product(span.T, pushed))
    kept = values > 1e-12 * values[-1]
    t = np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]))
    inside = product(pushed, t)
    axes = np.ascontiguousarray(eigh(product(inside.T, inside))[1][:, ::-1][:, :most])
    return product(product(span, t), axes) * positive_signs(product(inside, axes))


def positive_signs(columns: Array) -> Array:
    """±1 for every column: the sign of its largest entry."""
    peaks = np.take_along_axis(columns, np.abs(columns).argmax(axis=0)[None], axis=0)[0]
    return np.where(peaks < 0.0, -1.0, 1.0)


def product(a: Any, b: Any) -> Array:
    """A B by SciPy's BLAS without copies: A and B are C- or Fortran-ordered, the result is C-ordered.

    NumPy's has threads of its own; a loop that goes to and fro between the two waits for either.
    """
    left, left_turned = (a.T, 0) if a.flags.c_contiguous else (a, 1)
    right, right_turned = (b.T, 0) if b.flags.c_contiguous else (b, 1)
    # (AB)ᵀ = BᵀAᵀ in Fortran order
    return blas.dgemm(1.0, right, left, trans_a=right_turned, trans_b=left_turned).T
