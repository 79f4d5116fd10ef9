"""Gauss–Markov chains: their states as a Gaussian of many coordinates, before and after sites on f_t = hᵀx_t.

A chain x_t = Φ_t x_{t−1} + ε_t has T·d coordinates and a block-tridiagonal precision, but is never handled by it:
products, solves, draws and moments are passes along the chain, of T·d² numbers and T·d³ operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.numerics import chain_kernels as kernels
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.numerics.threads import share_out

#: nanoseconds per step and squared width of a pass
STEP = 10.0
#: numbers in a block of right-hand sides
NUMBERS = 4 * 10**6
#: coordinates up to which draws of a posterior with negative curvatures are made by its covariance matrix
DENSE = 3000


@storable
@dataclass(frozen=True)
class Chain:
    """x_0 ~ N(0, W_0), x_t = Φ_t x_{t−1} + ε_t, ε_t ~ N(0, W_t), and what is seen of a state, f = hᵀx.

    Parameters
    ----------
    phi, W : ndarray of shape (T, d, d)
        Φ_0 is not used.
    h : ndarray of shape (d,)

    Examples
    --------
    >>> walk = Chain(np.ones((3, 1, 1)), np.ones((3, 1, 1)), np.ones(1))
    >>> walk.apply(np.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """

    phi: Array
    W: Array
    h: Array

    def check_stored(self) -> None:
        found, shape = (self.phi.shape, self.W.shape), (len(self.phi), len(self.h), len(self.h))
        if self.h.ndim != 1 or found != (shape, shape):
            raise ValueError(f"phi and W must have the shape {shape}, got {found[0]} and {found[1]}")

    @property
    def steps(self) -> int:
        return len(self.phi)

    @property
    def width(self) -> int:
        return len(self.h)

    @property
    def dim(self) -> int:
        return self.steps * self.width

    @cached_property
    def log_det(self) -> float:
        """log |det L|, half of that of the covariance."""
        return 0.5 * float(np.linalg.slogdet(self.W)[1].sum())

    def _along(self, kernel: Any, vector: Array) -> Array:
        return kernel(self.phi, self.W, np.ascontiguousarray(vector).reshape(self.steps, self.width)).ravel()

    def apply(self, u: Array) -> Array:
        """States Lu of standardised innovations, for a vector or the columns of a matrix."""
        return self._columns(kernels.colour, u)

    def solve(self, x: Array) -> Array:
        """L⁻¹x, for a vector or the columns of a matrix."""
        return self._columns(kernels.whiten, x)

    def apply_transposed(self, v: Array) -> Array:
        """Lᵀv."""
        return self._along(kernels.colour_transposed, v)

    def _columns(self, kernel: Any, vectors: Array) -> Array:
        if vectors.ndim == 1:
            return self._along(kernel, vectors)
        return np.stack([self._along(kernel, column) for column in vectors.T], axis=1)

    def rows(self, h: Any) -> Array:
        """hL for the rows of a matrix."""
        dense = h.toarray() if sparse.issparse(h) else np.asarray(h)
        return np.stack([self.apply_transposed(row) for row in dense]).reshape(len(dense), self.dim)

    def times_precision(self, x: Array) -> Array:
        """Qx = L⁻ᵀL⁻¹x."""
        return self._along(kernels.whiten_transposed, self.solve(x))

    def precision(self) -> sparse.csr_array:
        """Q, block-tridiagonal: for those who need the matrix itself."""
        inverse, d = np.linalg.inv(self.W), self.width
        inverse = 0.5 * (inverse + np.swapaxes(inverse, 1, 2))
        # x_t − Φ_t x_{t−1} has precision W_t⁻¹
        pulled = inverse @ self.phi
        diagonal = inverse.copy()
        diagonal[:-1] += np.swapaxes(self.phi[1:], 1, 2) @ pulled[1:]
        steps, own = np.arange(self.steps), np.arange(d)
        place = (steps[:, None] * d + own)[:, :, None] + np.zeros(d, int)
        other = (steps[:, None] * d + own)[:, None, :] + np.zeros(d, int)[:, None]
        rows = np.concatenate([place.ravel(), place[1:].ravel(), other[:-1].ravel()])
        columns = np.concatenate([other.ravel(), other[:-1].ravel(), place[1:].ravel()])
        data = np.concatenate([diagonal.ravel(), -pulled[1:].ravel(), -pulled[1:].ravel()])
        return sparse.csr_array((data, (rows, columns)), shape=(self.dim, self.dim))


def sum_by_state(values: Array, state: NDArray[np.integer], steps: int) -> Array:
    """Sums of numbers per site over the sites of every state."""
    return np.bincount(state, values, steps).astype(float, copy=False)


@dataclass(frozen=True)
class SmoothedChain:
    """A chain with a precision γ_t and a pull ν_t on every f_t; see `latlin.numerics.chain_kernels`.

    Parameters
    ----------
    m, P : ndarray of shape (T, d) and (T, d, d)
        Filtered moments.
    r, N : ndarray of shape (T, d) and (T, d, d)
        r⁻ and N⁻.
    x : ndarray of shape (T, d)
        Means of the states.
    variance : ndarray of shape (T,)
        Of f.
    log_det : float
        log det(I + LᵀHᵀΓHL).
    """

    m: Array
    P: Array
    r: Array
    N: Array
    x: Array
    variance: Array
    log_det: float


def smooth(chain: Chain, gamma: Array, nu: Array) -> SmoothedChain | None:
    """The moments of the posterior, or None where there is none."""
    shape = (chain.steps, chain.width)
    m, r, x = np.empty(shape), np.empty(shape), np.empty(shape)
    P, N, variance = np.empty(chain.phi.shape), np.empty(chain.phi.shape), np.empty(chain.steps)
    log_det = kernels.filter_chain(chain.phi, chain.W, chain.h, gamma, nu, m, P)
    if not np.isfinite(log_det):
        return None
    kernels.smooth_chain(chain.phi, chain.h, gamma, nu, m, P, r, N, x, variance)
    return SmoothedChain(m, P, r, N, x, variance, float(log_det))


@storable
@dataclass(frozen=True)
class ChainCovariance:
    """S = (Q + HᵀΓH)⁻¹ of the states.

    Parameters
    ----------
    chain : Chain
    gamma : ndarray of shape (T,)
    """

    chain: Chain
    gamma: Array

    def check_stored(self) -> None:
        if self.gamma.shape != (self.chain.steps,):
            raise ValueError(f"gamma must have the shape ({self.chain.steps},), got {self.gamma.shape}")

    @cached_property
    def smoothed(self) -> SmoothedChain:
        """Moments that do not depend on a pull."""
        found = smooth(self.chain, self.gamma, np.zeros_like(self.gamma))
        assert found is not None  # a fit has been there
        return found

    @property
    def dim(self) -> int:
        return self.chain.dim

    @property
    def log_det(self) -> float:
        return 2.0 * self.chain.log_det - self.smoothed.log_det

    @cached_property
    def blocks(self) -> Array:
        """Covariances of the single states, of shape (T, d, d)."""
        return kernels.state_covariances(self.chain.phi, self.smoothed.P, self.smoothed.N)

    def diagonal(self) -> Array:
        return np.maximum(np.einsum("tii->ti", self.blocks).ravel(), 0.0)

    def dense(self) -> Array:
        return self.times(np.eye(self.dim))

    def times(self, v: Array) -> Array:
        """Sv, for a vector or the columns of a matrix."""
        vectors = np.ascontiguousarray(np.atleast_2d(v.T)).reshape(-1, self.chain.steps, self.chain.width)
        found = np.empty_like(vectors)
        c = self.chain
        share_out(
            *(kernels.times_rows, len(vectors), STEP * c.dim * c.width),
            *(c.phi, c.h, self.gamma, self.smoothed.P, vectors, found),
        )
        flat = found.reshape(len(vectors), -1)
        return flat[0] if v.ndim == 1 else flat.T

    def project(self, rows: Any) -> Array:
        """h_nᵀSh_n: from the states' own covariances where a sparse row is on one state, else by passes."""
        if not sparse.issparse(rows):
            return self._by_passes(np.asarray(rows, float))
        csr = sparse.csr_array(rows)
        first, last = np.full(csr.shape[0], self.chain.steps), np.full(csr.shape[0], -1)
        which = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        np.minimum.at(first, which, csr.indices // self.chain.width)
        np.maximum.at(last, which, csr.indices // self.chain.width)
        squares = np.zeros(csr.shape[0])
        alone = first == last
        squares[alone] = self._on_states(csr[alone], first[alone])
        spread = np.flatnonzero(first < last)
        block = max(1, NUMBERS // self.dim)
        for start in range(0, len(spread), block):
            some = spread[start : start + block]
            squares[some] = self._by_passes(csr[some].toarray())
        return np.maximum(squares, 0.0)

    def _on_states(self, rows: sparse.csr_array, state: NDArray[np.integer]) -> Array:
        which = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        weights = np.zeros((rows.shape[0], self.chain.width))
        np.add.at(weights, (which, rows.indices % self.chain.width), rows.data)
        return np.einsum("ni,nij,nj->n", weights, self.blocks[state], weights)

    def _by_passes(self, rows: Array) -> Array:
        return np.einsum("nd,dn->n", rows, self.times(np.atleast_2d(rows.T)))

    def quadratic(self, deviations: Array) -> Array:
        """δᵀS⁻¹δ = ‖L⁻¹δ‖² + Σ_t γ_t (hᵀδ_t)²."""
        u = self.chain.solve(deviations.T)
        seen = deviations.reshape(len(deviations), self.chain.steps, self.chain.width) @ self.chain.h
        return np.einsum("dn,dn->n", u, u) + seen**2 @ self.gamma

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """A draw of the chain, moved by what pseudo-observations of it, f + γ^−½e, say: x − S Hᵀ(Γf + Γ^½e)."""
        if np.any(self.gamma < 0.0):
            return self._draw_dense(count, rng)
        c = self.chain
        x = c.apply(rng.standard_normal((self.dim, count)))
        seen = x.T.reshape(count, c.steps, c.width) @ c.h
        pull = self.gamma * seen + np.sqrt(self.gamma) * rng.standard_normal(seen.shape)
        return (x - self.times((pull[:, :, None] * c.h).reshape(count, -1).T)).T

    def _draw_dense(self, count: int, rng: np.random.Generator) -> Array:
        if self.dim > DENSE:
            raise ValueError(
                f"draws of a chain whose sites curve the wrong way need at most {DENSE} coordinates, got {self.dim}; "
                "use a log-concave likelihood"
            )
        values, vectors = np.linalg.eigh(self.dense())
        return rng.standard_normal((count, self.dim)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
