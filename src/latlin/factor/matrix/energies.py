"""⟨ψ(uᵀv)⟩ of every observed cell, with u and v independent Gaussians: what of it is exact and what is a bound.

Source: Challis (2013), §4.6.1, eq. 4.6.2. Under q(u)q(v) = N(u|m, S) N(v|n, R) the product z = uᵀv is no Gaussian,

    ⟨z⟩ = mᵀn,   var z = nᵀSn + mᵀRm + tr SR,

so that the energy of eq. 4.6.2 is no one-dimensional Gaussian integral. Three kinds of sites have one of their own:

- a parabola ψ needs ⟨z⟩ and ⟨z²⟩ only (Gaussian sites: exact);
- a super-Gaussian ψ lies above a parabola for every ξ (eqs. 3.8.2–3.8.3), best where ξ² = ⟨(z − middle)²⟩: a bound;
- c + bz − Σwe^{κz} is exact: with κ = 1 (else u is stretched by κ), R = LLᵀ, M = I − LᵀSL and g = m + Sn,

      log⟨e^z⟩ = mᵀn + ½nᵀSn + ½gᵀLM⁻¹Lᵀg − ½ log det M,   infinite where M is not definite.

Others are taken at the Gaussian with the mean and variance of z: an approximation, and called so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.exponentials import Exponentials, exponential_form

Index = NDArray[np.int64]
#: cells whose matrices are formed together
CELLS = 4096


class Side(NamedTuple):
    """Gaussians of all rows (or of all columns): means (n, D) and covariances (n, D, D)."""

    mean: Array
    cov: Array

    @property
    def moments(self) -> Array:
        """⟨wwᵀ⟩ of every one, as (n, D²)."""
        squares = self.mean[:, :, None] * self.mean[:, None, :] + self.cov
        return squares.reshape(len(squares), -1)


class Cells(NamedTuple):
    """Where the observed cells stand: their rows and their columns."""

    row: Index
    column: Index

    @property
    def turned(self) -> Cells:
        """The cells of the transposed table."""
        return Cells(self.column, self.row)


class EnergyPull(NamedTuple):
    """The energies of all rows, their slopes in m, and −2 times their slopes in S, the precision that they ask for."""

    value: Array
    slope: Array
    precision: Array


class Energy(Protocol):
    """⟨ψ⟩ of all observed cells."""

    @property
    def kind(self) -> str:
        """What the sum of all terms is of log p: a "lower bound" or an "approximation"."""
        ...

    def values(self, cells: Cells, rows: Side, columns: Side) -> Array:
        """⟨ψ⟩, or its bound, of every cell."""
        ...

    def pull(self, cells: Cells, rows: Side, columns: Side) -> EnergyPull:
        """The energies' sums over the cells of every row, as functions of the rows' Gaussians."""
        ...


def energy_of(potential: Potential, bound: bool) -> Energy:
    """The energy of these sites: exact or a bound where there is one and `bound` is set."""
    form = exponential_form(potential)
    if form is not None and bound:
        return ExponentialEnergy(form)
    return MomentEnergy(potential, bound and potential.super_gaussian)


def product_moments(cells: Cells, rows: Side, columns: Side) -> tuple[Array, Array]:
    """Mean and variance of z = uᵀv of every cell."""
    n, other = len(cells.row), columns.moments
    square = (rows.mean[:, :, None] * rows.mean[:, None, :]).reshape(len(rows.mean), -1)
    spread, apart = rows.cov.reshape(square.shape), columns.cov.reshape(other.shape)
    mean, var = np.empty(n), np.empty(n)
    for at in _pieces(n):
        i, j = cells.row[at], cells.column[at]
        mean[at] = np.einsum("nd,nd->n", rows.mean[i], columns.mean[j])
        # ⟨S, R + nnᵀ⟩ + ⟨mmᵀ, R⟩
        var[at] = np.einsum("nd,nd->n", spread[i], other[j]) + np.einsum("nd,nd->n", square[i], apart[j])
    return mean, np.maximum(var, 0.0)


@dataclass(frozen=True)
class MomentEnergy:
    """Energies that are functions of ⟨z⟩ and var z: parabolas below ψ, or ψ at the Gaussian of these moments."""

    potential: Potential
    below: bool

    @property
    def kind(self) -> str:
        return "lower bound" if self.below else "approximation"

    def at(self, mean: Array, var: Array) -> tuple[Array, Array, Array]:
        """The energies and their slopes in ⟨z⟩ and var z."""
        if not self.below:
            value, d_mean, d_var = self.potential.expected_log(mean, var)
            return value, d_mean, d_var
        xi = np.sqrt((mean - self.potential.middle) ** 2 + var)
        a, b, c = self.potential.quadratic_bound(xi)
        return -0.5 * a * (mean * mean + var) + b * mean + c, b - a * mean, -0.5 * a

    def values(self, cells: Cells, rows: Side, columns: Side) -> Array:
        return self.at(*product_moments(cells, rows, columns))[0]

    def pull(self, cells: Cells, rows: Side, columns: Side) -> EnergyPull:
        value, d_mean, d_var = self.at(*product_moments(cells, rows, columns))
        shape, where = (len(rows.mean), len(columns.mean)), (cells.row, cells.column)
        first, second = csr_array((d_mean, where), shape=shape), csr_array((d_var, where), shape=shape)
        spread = (second @ columns.cov.reshape(shape[1], -1)).reshape(rows.cov.shape)
        # ∂/∂m = Σ ψ_μ n + 2ψ_v Rm, ∂/∂S = Σ ψ_v (R + nnᵀ)
        slope = first @ columns.mean + 2.0 * np.einsum("nde,ne->nd", spread, rows.mean)
        precision = -2.0 * (second @ columns.moments).reshape(rows.cov.shape)
        return EnergyPull(np.bincount(cells.row, value, shape[0]).astype(np.float64), slope, precision)


@dataclass(frozen=True)
class ExponentialEnergy:
    """Energies of ψ(z) = c + bz − Σwe^{κz}, exact."""

    form: Exponentials
    kind: str = "lower bound"

    def values(self, cells: Cells, rows: Side, columns: Side) -> Array:
        return self._sum(cells, rows, columns, None)

    def pull(self, cells: Cells, rows: Side, columns: Side) -> EnergyPull:
        n, d = rows.mean.shape
        found = EnergyPull(np.zeros(n), np.zeros((n, d)), np.zeros((n, d, d)))
        value = self._sum(cells, rows, columns, found)
        found.value[:] = np.bincount(cells.row, value, n)
        return found

    def _sum(self, cells: Cells, rows: Side, columns: Side, into: EnergyPull | None) -> Array:
        """The energy of every cell; slopes and precisions of the rows are added to `into`."""
        value = np.empty(len(cells.row))
        root = _roots(columns.cov)
        for at in _pieces(len(value)):
            i, j = cells.row[at], cells.column[at]
            m, n = rows.mean[i], columns.mean[j]
            slope = _each(self.form.slope, at, len(i))
            value[at] = _each(self.form.constant, at, len(i)) + slope * np.einsum("nd,nd->n", m, n)
            pull, bend = slope[:, None] * n, np.zeros((*n.shape, n.shape[1]))
            for term in self.form.terms:
                rate = _each(term.rate, at, len(i))
                log, tilted, cov = _exponential(rate, m, rows.cov[i], n, root[j])
                with np.errstate(over="ignore"):
                    size = np.exp(_each(term.log_weight, at, len(i)) + log)
                value[at] -= size
                size = np.where(np.isfinite(size), size, 0.0)
                pull -= (size * rate)[:, None] * tilted
                bend += (size * rate * rate)[:, None, None] * (tilted[:, :, None] * tilted[:, None, :] + cov)
            if into is not None:
                sums = csr_array((np.ones(len(i)), (i, np.arange(len(i)))), shape=(len(rows.mean), len(i)))
                into.slope[:] += sums @ pull
                into.precision[:] += (sums @ bend.reshape(len(i), -1)).reshape(into.precision.shape)
        return value


def _exponential(rate: Array, m: Array, cov: Array, n: Array, root: Array) -> tuple[Array, Array, Array]:
    """log⟨e^{κz}⟩, and mean and covariance of v under N(v|n, R)e^{κz}: ∂⟨e^{κz}⟩/∂m = κ⟨e^{κz}⟩v̂."""
    m, cov = rate[:, None] * m, (rate * rate)[:, None, None] * cov
    g = m + np.einsum("nde,ne->nd", cov, n)
    inner = np.eye(n.shape[1]) - np.einsum("nda,nde,neb->nab", root, cov, root, optimize=True)
    values, vectors = np.linalg.eigh(inner)
    finite = values[:, 0] > 0.0
    values = np.where(finite[:, None], values, 1.0)
    # L M^{−½}, so that LM⁻¹Lᵀ = half halfᵀ
    half = (root @ vectors) / np.sqrt(values)[:, None, :]
    reach = np.einsum("nda,nd->na", half, g)
    log = np.einsum("nd,nd->n", m, n) + 0.5 * np.einsum("nd,nd->n", g - m, n)
    log += 0.5 * np.einsum("na,na->n", reach, reach) - 0.5 * np.log(values).sum(axis=1)
    tilted = n + np.einsum("nda,na->nd", half, reach)
    return np.where(finite, log, np.inf), tilted, half @ half.transpose(0, 2, 1)


def _roots(covs: Array) -> Array:
    """Symmetric roots; coordinates without spread stay so."""
    values, vectors = np.linalg.eigh(covs)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1))


def _each(number: Any, at: slice, n: int) -> Array:
    """One number per cell of a piece."""
    array = np.asarray(number, dtype=float)
    return np.full(n, float(array)) if array.ndim == 0 else array[at]


def _pieces(n: int) -> list[slice]:
    return [slice(low, min(low + CELLS, n)) for low in range(0, n, CELLS)]
