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
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.densities import fourier_kernels as kernels
from latlin.densities.bases.base import Base
from latlin.densities.spread import SpreadProjected, expect_spread, spread_grid
from latlin.numerics.arrays import Array
from latlin.numerics.threads import threads_for

Regions = Sequence[tuple[ArrayLike, ArrayLike]]
#: half-width of the window for a Gaussian projection, in standard deviations
GAUSSIAN_REACH = 8.0
ORDER = 16
#: half the phase a panel may span, so that its nodes resolve the highest frequency
PHASE = 8.0
#: rounding errors of an expectation, of the largest distance of f from its chord, in relative spacings of numbers: of
#: ⟨e^x⟩ under Gaussians whose standard deviations are 1 to 3.5, on four grids, up to 180 by tables, 1 by polynomials
BY_TABLE, BY_POLYNOMIAL = 300.0 * float(np.finfo(float).eps), 4.0 * float(np.finfo(float).eps)
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


@dataclass(frozen=True)
class CharacteristicTable:
    """Characteristic functions of the bases of `dim` coordinates: nodes of a grid, and polynomials near zero."""

    base: Base
    dim: int
    grid: FrequencyGrid

    @cached_property
    def s(self) -> Array:
        """The frequencies, without the mirrored nodes."""
        top = np.sqrt(min(self.grid.last, self.base.cutoff()))
        count = int(np.ceil(top / self.grid.step)) + kernels.MARGIN + 2
        return np.square(self.grid.step * np.arange(count, dtype=float))

    @cached_property
    def values(self) -> Array:
        """Re φ, Im φ, Re φ′, Im φ′ at all nodes, (rows, 4, nodes)."""
        value, slope = self.base.characteristic(self.s)
        parts = np.stack([value.real, value.imag, slope.real, slope.imag], axis=1)
        return np.concatenate([parts[..., kernels.PAD : 0 : -1], parts], axis=-1)

    @cached_property
    def log_size(self) -> Array:
        """log |φ|, (rows, nodes)."""
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(np.hypot(self.values[:, 0], self.values[:, 1])), -60.0)

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """Row of each coordinate."""
        return np.arange(self.dim) if self.base.rows > 1 else np.zeros(self.dim, np.int64)

    @cached_property
    def reach(self) -> Array:
        """Of each coordinate, in standard deviations."""
        return np.broadcast_to(self.base.reach(), self.dim)

    def d_free(self, d_table: Array) -> Array:
        """Derivatives with respect to the free shapes from those at all nodes, (chunks, rows, 2, nodes)."""
        total = d_table.sum(axis=0)
        folded = total[..., kernels.PAD :].copy()
        folded[..., 1 : kernels.PAD + 1] += total[..., : kernels.PAD][..., ::-1]
        phi = self.base.characteristic_gradient(self.s)
        return np.einsum("rk,rpk->rp", folded[:, 0], phi.real) + np.einsum("rk,rpk->rp", folded[:, 1], phi.imag)

    def per_row(self, per_coordinate: Array) -> Array:
        """Sums over the coordinates that share a row."""
        return per_coordinate if self.base.rows > 1 else per_coordinate.sum(axis=0, keepdims=True)


def tabulate(base: Base, dim: int, grid: FrequencyGrid) -> CharacteristicTable:
    """Tables of φ and φ′ for `dim` coordinates."""
    if base.rows not in (1, dim):
        raise ValueError(f"the base has {base.rows} shapes for {dim} coordinates; give one, or one per coordinate")
    return CharacteristicTable(base, dim, grid)


class Projected(NamedTuple):
    """⟨f_n(x_n)⟩ and its derivatives with respect to β_n, α_n and the free shapes."""

    value: Array  # (sites,)
    d_beta: Array  # (sites,)
    d_alpha: Array  # (sites, dim)
    d_free: Array  # (rows, n_free); zero unless asked for


class Windows(NamedTuple):
    """Standardised weights, half-widths and frequencies of each projection."""

    a: Array
    half_width: Array
    cuts: Array
    counts: NDArray[np.int64]


def windows(unit: Array, table: CharacteristicTable) -> Windows:
    """The grid of each projection z = aᵀv, Σ a_d² = 1."""
    grid = table.grid
    half_width = _half_width(unit, table)
    cuts = kernels.cut_frequencies(unit, table.row, table.log_size, grid.step, grid.floor, grid.last)
    return Windows(unit, half_width, cuts, np.ceil(cuts * half_width / np.pi).astype(np.int64))


def _half_width(unit: Array, table: CharacteristicTable) -> Array:
    # a projection on one coordinate reaches as far as that; one that mixes many is nearly Gaussian
    return table.grid.widen * (GAUSSIAN_REACH + np.square(np.square(unit)) @ (table.reach - GAUSSIAN_REACH))


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
        Also give derivatives with respect to the free shapes.
    """
    sigma = np.maximum(np.sqrt(np.einsum("nd,nd->n", alpha, alpha)), 1e-150)
    unit = alpha / sigma[:, None]
    spread = _spread(f, beta, sigma, unit, table) if smooth else None
    left = np.arange(len(beta)) if spread is None else np.setdiff1d(np.arange(len(beta)), spread.sites)
    value, d_shift, d_a = np.zeros(len(beta)), np.zeros(len(beta)), np.zeros_like(alpha)
    d_free = np.zeros_like(table.base.free)
    if spread is not None:
        value[spread.sites] = _certain(spread.value, spread.top, BY_POLYNOMIAL * spread.swing)
        d_shift[spread.sites], d_a[spread.sites] = spread.d_shift, spread.d_a
        if with_shapes:
            d_even, d_odd = table.per_row(spread.d_even), table.per_row(spread.d_odd)
            d_free = d_free + spread.series.shape_gradient(table.base, d_even, d_odd)
    if len(left):
        part = _by_table(
            f if len(left) == len(beta) else _restricted(f, beta, left),
            (beta[left], sigma[left]),
            windows(unit[left], table),
            table,
            [(_of(centre, left), _of(width, left)) for centre, width in regions],
            smooth,
            with_shapes,
        )
        value[left], d_shift[left], d_a[left] = part[:3]
        d_free = d_free + table.d_free(part[3]) if with_shapes and table.base.n_free else d_free
    return Projected(value, d_shift / sigma, d_a / sigma[:, None], d_free)


def _spread(
    f: Callable[[Array], Array], beta: Array, sigma: Array, unit: Array, table: CharacteristicTable
) -> SpreadProjected | None:
    """The projections that polynomials of log φ serve; none unless they are most of all."""
    grid = table.grid
    shared = spread_grid(grid.widen * GAUSSIAN_REACH, grid.floor)
    if shared.t[-1] > grid.last:
        return None
    near = np.flatnonzero(_half_width(unit, table) <= shared.half_width)
    return expect_spread(f, beta, sigma, unit, table.base, table.row, shared, near)


def _restricted(f: Callable[[Array], Array], beta: Array, sites: NDArray[np.intp]) -> Callable[[Array], Array]:
    """f at some sites only; it asks f itself for all."""

    def values(x: Array) -> Array:
        everywhere = np.repeat(beta[None], len(x), axis=0)
        everywhere[:, sites] = x
        return f(everywhere)[:, sites]

    return values


def _of(value: ArrayLike, sites: NDArray[np.intp]) -> Array:
    value = np.asarray(value)
    return value[sites] if value.ndim else value


def _by_table(
    f: Callable[[Array], Array],
    at: tuple[Array, Array],
    view: Windows,
    table: CharacteristicTable,
    regions: Regions,
    smooth: bool,
    with_shapes: bool,
) -> tuple[Array, Array, Array, Array]:
    """Values, slopes in a shift of z and in a, and slopes in the table, frequency by frequency."""
    beta, sigma = at
    z, weight = _panels(view, at, regions, smooth)
    # chord p₀ + p₁z through the ends; ⟨z⟩ = 0
    ends = f(beta + sigma * np.stack([-view.half_width, view.half_width]))
    p0, p1 = 0.5 * (ends[1] + ends[0]), 0.5 * (ends[1] - ends[0]) / view.half_width
    values = f(beta + sigma * z)
    beside = values - p0 - p1 * z
    rest = weight * beside
    work = int(view.counts.sum()) * view.a.shape[1]
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
    top = np.maximum(values.max(axis=0), ends.max(axis=0))
    value = _certain(p0 + value, top, BY_TABLE * np.abs(beside).max(axis=0))
    return value, p1 + d_shift, d_a, d_table


def _certain(value: Array, top: Array, error: Array) -> Array:
    """An expectation less what rounding may have added to it; −∞ above the largest value, where rounding has won.

    A steep f, as −e^x, has astronomical values within the window: an expectation is the rest when these cancel.
    """
    return np.where(value <= top + 1e-6 * (1.0 + np.abs(top)), value - error, -np.inf)


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
