"""Expectations of functions of projections x = αᵀv + β of independent variables, in the Fourier domain.

Challis (2013), §6.3.1 inverts a product of discretised transforms on DK lattice points for every projection. Here
the product of the exact characteristic functions is taken on the few frequencies where it does not vanish, and the
integrand is transformed instead: O(N·D·T) for all expectations and all their derivatives.

Three errors are left. *Truncation and aliasing*: the Fourier series is that of the density folded into a window of
half-width R standard deviations, so that mass beyond R is counted where it folds to. R comes from how far the bases
reach and how evenly the projection mixes them. A chord through the integrand's ends is taken out first (its expectation
is known), which leaves an integrand that is continuous when folded. *Discretisation*: frequencies stop where the
characteristic function has fallen below a floor, or at a last one. The integrand itself is never sampled on a
lattice: its transform is done by Gauss–Legendre panels with an edge at every kink, so a Laplace site costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.densities import fourier_kernels as kernels
from latlin.densities.bases.base import Base
from latlin.numerics.arrays import Array
from latlin.numerics.threads import threads_for

Regions = Sequence[tuple[ArrayLike, ArrayLike]]
#: half-width of the window for a Gaussian projection, in standard deviations
GAUSSIAN_REACH = 8.0
ORDER = 16
#: half the phase a panel may span, so that its nodes resolve the highest frequency
PHASE = 8.0
#: nanoseconds per factor φ_d(a_d t_j) that is read, by measurement
PER_FREQUENCY = 20.0


class FrequencyGrid(NamedTuple):
    """How fine: factor on the window, last frequency, spacing of the tables in √s, log of the floor under |Φ|."""

    widen: float
    last: float
    step: float
    floor: float

    @classmethod
    def level(cls, level: int) -> FrequencyGrid:
        """Every level reaches twice as far in frequency, a fifth further in space, and three digits deeper."""
        floor = 10.0 ** -(min(7.0 + 3.0 * level, 14.0))
        return cls(1.2**level, 24.0 * 2.0**level, 1.0 / (64.0 + 32.0 * level), float(np.log(floor)))


class CharacteristicTable(NamedTuple):
    """Characteristic functions of a base on the nodes of a grid."""

    values: Array  # (rows, 4, nodes): Re φ, Im φ, Re φ′, Im φ′
    log_size: Array  # (rows, nodes): log |φ|
    s: Array  # the frequencies, without the mirrored nodes
    row: NDArray[np.int64]  # row of each coordinate
    reach: Array  # of each coordinate, standard deviations
    grid: FrequencyGrid

    def fold(self, d_table: Array) -> Array:
        """Derivatives with respect to φ at the frequencies `s`, (rows, 2, frequencies), from those at all nodes."""
        total = d_table.sum(axis=0)
        folded = total[..., kernels.PAD :].copy()
        folded[..., 1 : kernels.PAD + 1] += total[..., : kernels.PAD][..., ::-1]
        return folded


def tabulate(base: Base, dim: int, grid: FrequencyGrid) -> CharacteristicTable:
    """Tables of φ and φ′ for `dim` coordinates."""
    if base.rows not in (1, dim):
        raise ValueError(f"the base has {base.rows} shapes for {dim} coordinates; give one, or one per coordinate")
    top = np.sqrt(min(grid.last, base.cutoff()))
    count = int(np.ceil(top / grid.step)) + kernels.MARGIN + 2
    s = np.square(grid.step * np.arange(count, dtype=float))
    value, slope = base.characteristic(s)
    parts = np.stack([value.real, value.imag, slope.real, slope.imag], axis=1)
    mirrored = np.concatenate([parts[..., kernels.PAD : 0 : -1], parts], axis=-1)
    with np.errstate(divide="ignore"):
        log_size = np.maximum(np.log(np.hypot(mirrored[:, 0], mirrored[:, 1])), -60.0)
    row = np.arange(dim) if base.rows > 1 else np.zeros(dim, np.int64)
    return CharacteristicTable(
        np.ascontiguousarray(mirrored), log_size, s, row, np.broadcast_to(base.reach(), dim), grid
    )


class Projected(NamedTuple):
    """⟨f_n(x_n)⟩ and its derivatives with respect to β_n, α_n and the table."""

    value: Array  # (sites,)
    d_beta: Array  # (sites,)
    d_alpha: Array  # (sites, dim)
    d_table: Array  # (chunks, rows, 2, nodes)


class Windows(NamedTuple):
    """Standardised weights, half-widths and frequencies of each projection."""

    a: Array
    half_width: Array
    cuts: Array
    counts: NDArray[np.int64]


def windows(unit: Array, table: CharacteristicTable) -> Windows:
    """The grid of each projection z = aᵀv, Σ a_d² = 1."""
    grid = table.grid
    # a projection on one coordinate reaches as far as that; one that mixes many is nearly Gaussian
    reach = GAUSSIAN_REACH + np.square(np.square(unit)) @ (table.reach - GAUSSIAN_REACH)
    half_width = grid.widen * reach
    cuts = kernels.cut_frequencies(unit, table.row, table.log_size, grid.step, grid.floor, grid.last)
    return Windows(unit, half_width, cuts, np.ceil(cuts * half_width / np.pi).astype(np.int64))


def expect(
    f: Callable[[Array], Array],
    beta: Array,
    alpha: Array,
    table: CharacteristicTable,
    regions: Regions,
    *,
    smooth: bool = False,
    with_shapes: bool = False,
) -> Projected:
    """⟨f_n(α_nᵀv + β_n)⟩ for every projection.

    Parameters
    ----------
    f : callable
        x of shape (nodes, sites) → values of that shape.
    beta : ndarray of shape (sites,)
    alpha : ndarray of shape (sites, dim)
    table : Table
    regions : sequence of (centre, width)
        Where f bends; see `latlin.potentials`.
    smooth : bool
        f has no kink at the centres.
    with_shapes : bool
        Also give derivatives with respect to the table.
    """
    sigma = np.maximum(np.sqrt(np.einsum("nd,nd->n", alpha, alpha)), 1e-150)
    view = windows(alpha / sigma[:, None], table)
    z, weight = _panels(view, (beta, sigma), regions, smooth)
    # chord p₀ + p₁z through the ends; ⟨z⟩ = 0
    ends = f(beta + sigma * np.stack([-view.half_width, view.half_width]))
    p0, p1 = 0.5 * (ends[1] + ends[0]), 0.5 * (ends[1] - ends[0]) / view.half_width
    values = f(beta + sigma * z)
    rest = weight * (values - p0 - p1 * z)
    work = int(view.counts.sum()) * alpha.shape[1]
    chunks = max(1, min(threads_for(PER_FREQUENCY * work), len(beta)))
    value, d_shift, d_a, d_table = kernels.expectations(
        np.ascontiguousarray(rest.T),
        np.ascontiguousarray(z.T),
        view.half_width,
        view.counts,
        view.a,
        table.row,
        table.values,
        table.grid.step,
        chunks,
        with_shapes,
    )
    value = _possible(p0 + value, np.maximum(values.max(axis=0), ends.max(axis=0)))
    return Projected(value, (p1 + d_shift) / sigma, d_a / sigma[:, None], d_table)


def _possible(value: Array, top: Array) -> Array:
    """−∞ for an expectation above the largest value: f is so steep within the window that rounding has won."""
    return np.where(value <= top + 1e-6 * (1.0 + np.abs(top)), value, -np.inf)


@cache
def _legendre() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(ORDER)
    return nodes[None, :, None], weights[None, :, None]


def _panels(view: Windows, at: tuple[Array, Array], regions: Regions, smooth: bool) -> tuple[Array, Array]:
    """Gauss–Legendre nodes z and weights, each (nodes, sites): narrow enough for the highest frequency and for f."""
    width = view.half_width
    own = int(max(4, np.ceil(np.max(width * view.cuts) / PHASE)))
    edges = [np.linspace(-1.0, 1.0, own + 1)[:, None] * width]
    beta, sigma = at
    for centre, scale in regions:
        c, omega = (np.asarray(centre) - beta) / sigma, np.asarray(scale) / sigma
        steps = _steps(width + np.abs(c), np.broadcast_to(omega, c.shape), 2.0 * width.max() / own)
        if steps.size or not smooth:
            edges.append(np.clip(c + omega * np.concatenate([-steps[::-1], [0.0], steps])[:, None], -width, width))
    cut = np.sort(np.concatenate(edges), axis=0)
    half, middle = 0.5 * np.diff(cut, axis=0), 0.5 * (cut[1:] + cut[:-1])
    used = half.max(axis=1) > 0.0
    half, middle = half[used, None, :], middle[used, None, :]
    t, w = _legendre()
    return (middle + half * t).reshape(-1, len(beta)), (half * w).reshape(-1, len(beta))


def _steps(span: Array, omega: Array, panel: float) -> Array:
    """Distances from a region's centre, in its widths, that need an edge: none where panels are shorter anyway."""
    steps = [1.0, 2.0, 4.0, 8.0]
    farthest = float(np.max(np.minimum(span / omega, 1e15)))
    while steps[-1] < farthest and len(steps) < 30:
        steps.append(4.0 * steps[-1])
    return np.array([s for s in steps if s / 2.0 * omega.min() < panel and s < farthest])
