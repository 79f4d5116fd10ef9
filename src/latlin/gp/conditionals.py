"""Vecchia's density of a Gaussian process: every value given the nearest earlier ones, a sparse precision.

    p(w) = ∏_n N(w_n | a_nᵀw_c(n), d_n),   a_n = K_cc⁻¹k_cn,   d_n = k_nn − k_cnᵀa_n

with c(n) the nearest inputs before n in a maximin order (Vecchia 1988; Datta et al. 2016; Katzfuss and Guinness 2021).
So the precision is Q = BᵀD⁻¹B with the sparse rows b_n = e_n − a_n, and log det Q = −Σ log d_n. It is the density of
the *latent* function, whatever the likelihood, Gaussian noise included; with all earlier inputs as neighbours it is
exact.

A change of the kernel changes p only through the small covariances C_n of the inputs (c(n), n). With second moments M
of the posterior and b_n = (−a_n, 1), q = bᵀMb, g = M_cn − M_cc a,

    d log Z = Σ_n (s_n b_n + (K_cc⁻¹g/d_n, 0))ᵀ dC_n b_n,   s_n = ½(q/d_n² − 1/d_n).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree

from latlin.gp.kernel_gradients import Evaluated, Pairs, pair_covariances
from latlin.gp.neighbours import earlier_neighbours, maximin_order
from latlin.numerics.arrays import Array
from latlin.numerics.stored import are_places, storable
from latlin.numerics.threads import INNER, njit, share_out

Index = NDArray[np.int64]
#: small covariances that are formed together
PIECE = 2048
#: numbers of pairs that are kept from one kernel to the next
KEPT = 2 * 10**7
#: nanoseconds per entry of a small covariance
ENTRY = 30.0
#: shares of the mean prior variance that are tried on the diagonal where some small covariance is nearly singular
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
#: share of a variance below which what is left of it is rounding
SINGULAR = 1e-14
#: largest precision k_nn ‖b_n‖²/d_n, in units of the prior, that leaves enough digits to everything else
LARGEST = 1e10


@storable
@dataclass(frozen=True)
class Conditionals:
    """N(w_n | a_nᵀw_c(n), d_n) for some values n.

    Parameters
    ----------
    columns : ndarray of int, shape (n, m)
        c(n); −1 where there are fewer.
    weights : ndarray of shape (n, m)
        a_n, 0 where there are fewer.
    variances : ndarray of shape (n,)
        d_n.
    jitter : float
        What was added to the diagonal of the kernel.
    """

    columns: Index
    weights: Array
    variances: Array
    jitter: float

    def check_stored(self) -> None:
        fit = self.columns.shape == self.weights.shape and self.columns.shape[:1] == self.variances.shape
        if not fit or not are_places(self.columns, len(self.variances), least=-1):
            raise ValueError("columns must be places among the values, with as many weights")

    @cached_property
    def _filled(self) -> NDArray[np.bool_]:
        return self.columns >= 0

    def rows(self, dim: int) -> sparse.csr_array:
        """The sparse rows a_nᵀ on `dim` values."""
        counts = self._filled.sum(axis=1)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (len(counts), dim)
        return sparse.csr_array((self.weights[self._filled], self.columns[self._filled], indptr), shape=shape)

    @property
    def log_det(self) -> float:
        """log det Q of all values given the earlier ones."""
        return -float(np.log(self.variances).sum())

    def precision(self) -> sparse.csr_array:
        """Q = BᵀD⁻¹B of all values given the earlier ones."""
        dim = len(self.variances)
        apart = sparse.csr_array(sparse.eye_array(dim, format="csr") - self.rows(dim))
        return sparse.csr_array(apart.T @ sparse.diags_array(1.0 / self.variances) @ apart)


@storable
@dataclass(frozen=True)
class Neighbourhoods:
    """Inputs and their earlier neighbours.

    Parameters
    ----------
    inputs : ndarray of shape (n, n_features)
    neighbours : ndarray of int, shape (n, m)
        c(n) as places among the inputs; −1 where there are fewer.
    scales : ndarray of shape (n_features,)
        Units of the columns in which inputs are near.
    count : int
        How many neighbours were asked for.
    """

    inputs: Array
    neighbours: Index
    scales: Array
    count: int

    def check_stored(self) -> None:
        fit = self.inputs.ndim == self.neighbours.ndim == 2 and len(self.inputs) == len(self.neighbours)
        if not fit or not are_places(self.neighbours, len(self.inputs), least=-1):
            raise ValueError("neighbours must be places among the inputs, one row per input")

    @classmethod
    def of(cls, X: Array, count: int, scales: Array | None = None) -> Neighbourhoods:
        """The `count` nearest neighbours that are earlier in a maximin order."""
        units = np.ones(X.shape[1]) if scales is None else np.broadcast_to(scales, X.shape[1]).astype(float)
        order = maximin_order(X / units)
        earlier = earlier_neighbours((X / units)[order], count)
        neighbours = np.empty_like(earlier)
        neighbours[order] = np.where(earlier >= 0, order[earlier], -1)
        return cls(X, neighbours, units, count)

    def conditionals(self, kernel: Any, amplitude: float = 1.0) -> Conditionals:
        """All values given the earlier ones, under the prior covariance amplitude² k."""
        return self._given(self.inputs, self.neighbours, kernel, amplitude, None)

    def predictors(self, new: Array, kernel: Any, amplitude: float, jitter: float) -> Conditionals:
        """Values at new inputs given those at the nearest inputs."""
        count = min(self.count, len(self.inputs))
        near = np.asarray(self._tree.query(new / self.scales, k=count)[1]).reshape(len(new), count)
        return self._given(new, near.astype(np.int64), kernel, amplitude, jitter)

    def joint_predictors(self, new: Array, kernel: Any, amplitude: float, jitter: float) -> tuple[Conditionals, Index]:
        """New values in a maximin order, given the nearest of the old ones and of the new ones before; and the order.

        Columns are places among the old inputs followed by the new ones in their order.
        """
        order, old = maximin_order(new / self.scales), len(self.inputs)
        points = np.concatenate([self.inputs, new[order]])
        near = earlier_neighbours(points / self.scales, self.count)[old:]
        both = Neighbourhoods(points, near, self.scales, self.count)
        return both._given(new[order], near, kernel, amplitude, jitter), order

    def covariances(self, kernel: Any) -> Array:
        """Prior covariances of every value and its neighbours, packed, one row per value."""
        parts = [pair_covariances(kernel, pairs)[0] for _, pairs in self._blocks(self.inputs, self.neighbours)]
        return np.concatenate(parts).reshape(len(self.inputs), -1)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.inputs / self.scales)

    def _given(
        self, own: Array, neighbours: Index, kernel: Any, amplitude: float, jitter: float | None
    ) -> Conditionals:
        """Values at some inputs given others; a jitter that is known is on the others alone, else it is found."""
        size = amplitude**2 * float(np.mean(kernel.diag(own[:PIECE])))
        for added in [share * size for share in JITTERS]:
            larger = added if jitter is None else max(added, jitter)
            found = self._attempt(own, neighbours, kernel, amplitude, larger, jitter is not None)
            if found is not None:
                return found
        raise ValueError("the kernel is singular among neighbouring inputs, even with jitter; add a WhiteKernel")

    def _attempt(
        self, own: Array, neighbours: Index, kernel: Any, amplitude: float, jitter: float, new: bool
    ) -> Conditionals | None:
        """The conditionals with some jitter, which new inputs have not; None where it is too little."""
        counts = np.sum(neighbours >= 0, axis=1)
        weights, variances = np.zeros(neighbours.shape), np.empty(len(own))
        for span, pairs in self._blocks(own, neighbours):
            known = self._evaluated(kernel, span, pairs) if neighbours is self.neighbours else None
            values, _ = known or pair_covariances(kernel, pairs)
            values = amplitude**2 * values.reshape(-1, _entries(neighbours.shape[1]))
            broken = np.zeros(len(values), np.bool_)
            arrays = (values, counts[span], jitter, new, weights[span], variances[span], broken)
            share_out(condition, len(values), ENTRY * values.shape[1], *arrays)
            if broken.any():
                return None
        return Conditionals(neighbours, weights, variances, jitter)

    def slopes(self, kernel: Any, amplitude: float, given: Conditionals, moments: Any) -> Array:
        """∂ log Z/∂θ; `moments(span)` gives the second moments M of the posterior for the pairs of some values."""
        width = _entries(self.neighbours.shape[1])
        counts, total = np.sum(self.neighbours >= 0, axis=1), np.zeros(kernel.n_dims)
        for span, pairs in self._blocks(self.inputs, self.neighbours):
            values, changes = self._evaluated(kernel, span, pairs) or pair_covariances(kernel, pairs, slopes=True)
            second = moments(span).reshape(-1, width)
            pulls = np.zeros_like(second)
            arrays = (amplitude**2 * values.reshape(-1, width), counts[span], given.jitter, second, pulls)
            share_out(pull_back, len(second), ENTRY * width, *arrays)
            total += [amplitude**2 * float(pulls.ravel() @ change) for change in changes]
        return total

    def _blocks(self, own: Array, neighbours: Index) -> Iterable[tuple[slice, Pairs]]:
        """Pairs of (c(n), n), lower triangles row by row, for blocks of values; those of few inputs are kept."""
        # new inputs may be the very array of the old ones, with other neighbours
        if neighbours is not self.neighbours or 3 * own.shape[1] * len(own) * _entries(neighbours.shape[1]) > KEPT:
            return self._made(own, neighbours)
        kept = vars(self).get("_kept")
        if kept is None:
            kept = vars(self)["_kept"] = list(self._made(own, neighbours))
        return kept

    def _evaluated(self, kernel: Any, span: slice, pairs: Pairs) -> Evaluated | None:
        """Covariances of a block of kept pairs and their slopes, of the kernel that was asked for last; else None."""
        if "_kept" not in vars(self):
            return None
        last = vars(self).get("_last")
        if last is None or last[0] != kernel:
            last = vars(self)["_last"] = (kernel, {})
        found: dict[int, Evaluated] = last[1]
        if span.start not in found:
            found[span.start] = pair_covariances(kernel, pairs, slopes=True)
        return found[span.start]

    def _made(self, own: Array, neighbours: Index) -> Iterator[tuple[slice, Pairs]]:
        first, second = _triangle(neighbours.shape[1])
        alone = (first == second)[None, :]
        for begin in range(0, len(own), PIECE):
            span = slice(begin, min(begin + PIECE, len(own)))
            points = self._points(own[span], neighbours[span])
            a, b = (points.take(side, axis=1).reshape(-1, points.shape[2]) for side in (first, second))
            yield span, Pairs(a, b, np.broadcast_to(alone, (len(points), len(first))).ravel())

    def _points(self, own: Array, neighbours: Index) -> Array:
        """Inputs (c(n), n) of shape (n, m + 1, n_features); missing neighbours are the input itself."""
        others = np.where(neighbours[:, :, None] >= 0, self.inputs[neighbours], own[:, None, :])
        return np.concatenate([others, own[:, None, :]], axis=1)

    def places(self, span: slice) -> tuple[Index, Index]:
        """Places of the pairs of a block among the inputs."""
        own = np.arange(span.start, span.stop)[:, None]
        near = self.neighbours[span]
        members = np.concatenate([np.where(near >= 0, near, own), own], axis=1)
        first, second = _triangle(near.shape[1])
        return members[:, first].ravel(), members[:, second].ravel()


def _entries(count: int) -> int:
    """Entries of the lower triangle of a covariance of `count` neighbours and the value itself."""
    return (count + 1) * (count + 2) // 2


def _triangle(count: int) -> tuple[Index, Index]:
    first, second = np.tril_indices(count + 1)
    return first.astype(np.int64), second.astype(np.int64)


@njit(**INNER)
def factorise_small(values: Array, count: int, jitter: float, factor: Array) -> bool:
    """The lower Cholesky factor of the first `count` rows of a packed covariance; False where there is none."""
    for i in range(count):
        at = i * (i + 1) // 2
        for j in range(i + 1):
            total = values[at + j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                total += jitter
                if not total > SINGULAR * values[at + j]:
                    return False
                factor[i, i] = np.sqrt(total)
            else:
                factor[i, j] = total / factor[j, j]
    return True


@njit(**INNER)
def solve_small(factor: Array, count: int, b: Array) -> None:
    """b ← (LLᵀ)⁻¹b."""
    for i in range(count):
        total = b[i]
        for j in range(i):
            total -= factor[i, j] * b[j]
        b[i] = total / factor[i, i]
    for i in range(count - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, count):
            total -= factor[j, i] * b[j]
        b[i] = total / factor[i, i]


@njit(cache=True, nogil=True)
def condition(
    start: int, stop: int, values: Array, counts: Index, jitter: float, new: bool, weights: Array, variances: Array,
    broken: NDArray[np.bool_],
) -> None:  # fmt: skip
    """a_n and d_n of the rows start … stop − 1 of packed covariances of (c(n), n)."""
    width = weights.shape[1]
    factor, half, base = np.empty((width, width)), np.empty(width), width * (width + 1) // 2
    for n in range(start, stop):
        count = counts[n]
        if not factorise_small(values[n], count, jitter, factor):
            broken[n] = True
            continue
        left = values[n, base + width] + (0.0 if new else jitter)
        for i in range(count):
            total = values[n, base + i]
            for j in range(i):
                total -= factor[i, j] * half[j]
            half[i] = total / factor[i, i]
            left -= half[i] ** 2
        length = 1.0
        for i in range(count - 1, -1, -1):
            total = half[i]
            for j in range(i + 1, count):
                total -= factor[j, i] * weights[n, j]
            weights[n, i] = total / factor[i, i]
            length += weights[n, i] ** 2
        # of a new value at an old input nothing is left
        broken[n] = not new and not left * LARGEST > length * values[n, base + width]
        variances[n] = max(left, 0.0)


@njit(cache=True, nogil=True)
def pull_back(start: int, stop: int, values: Array, counts: Index, jitter: float, second: Array, pulls: Array) -> None:
    """∂ log Z/∂C_n, packed, from the second moments M of (c(n), n), packed; see the module."""
    size = 1
    while size * (size + 1) // 2 < values.shape[1]:
        size += 1
    width = size - 1
    factor, b, left, slope = np.empty((width, width)), np.zeros(size), np.zeros(size), np.empty(size)
    base = width * size // 2
    for n in range(start, stop):
        count = counts[n]
        factorise_small(values[n], count, jitter, factor)
        for i in range(count):
            b[i] = values[n, base + i]
        solve_small(factor, count, b)
        variance = values[n, base + width] + jitter
        for i in range(count):
            variance -= b[i] * values[n, base + i]
            b[i] = -b[i]
        b[width] = 1.0
        # Mb
        for i in range(count):
            slope[i] = second[n, base + i]
        slope[width] = second[n, base + width]
        for i in range(count):
            slope[width] += second[n, base + i] * b[i]
            for j in range(i + 1):
                z = second[n, i * (i + 1) // 2 + j]
                slope[i] += z * b[j]
                if j < i:
                    slope[j] += z * b[i]
        square = slope[width]
        for i in range(count):
            square += b[i] * slope[i]
        for i in range(count):
            left[i] = slope[i] / variance
        solve_small(factor, count, left)
        share = 0.5 * (square / variance - 1.0) / variance
        for i in range(count):
            left[i] += share * b[i]
        left[width] = share
        for i in range(count):
            at = i * (i + 1) // 2
            for j in range(i):
                pulls[n, at + j] = left[i] * b[j] + left[j] * b[i]
            pulls[n, at + i] = left[i] * b[i]
            pulls[n, base + i] = left[i] * b[width] + left[width] * b[i]
        pulls[n, base + width] = left[width]
